package frozen

import (
	"fmt"
	"go/constant"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

const module = "github.com/picket-dev/picket"

// rootPackage returns the type information of the root package.
func rootPackage(t *testing.T) *types.Package {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", module)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	find := func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
	pkg, err := importer.ForCompiler(token.NewFileSet(), "gc", find).Import(module)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

func TestJSONMembers(t *testing.T) {
	pkg := rootPackage(t)
	var lines []string
	for _, name := range pkg.Scope().Names() {
		object, ok := pkg.Scope().Lookup(name).(*types.TypeName)
		if !ok || !object.Exported() {
			continue
		}
		if fields, ok := object.Type().Underlying().(*types.Struct); ok {
			members(&lines, name, fields, nil)
		}
	}
	compare(t, "members", lines)
}

// members appends one line for each JSON member of fields, at any depth.
func members(lines *[]string, path string, fields *types.Struct, above []types.Type) {
	for i := range fields.NumFields() {
		field := fields.Field(i)
		tag, tagged := reflect.StructTag(fields.Tag(i)).Lookup("json")
		name, options, _ := strings.Cut(tag, ",")
		inner, isStruct := field.Type().Underlying().(*types.Struct)
		switch {
		case tag == "-":
		case field.Embedded() && name == "" && isStruct:
			members(lines, path, inner, above)
		case tagged && name != "":
			member := path + "." + name
			*lines = append(*lines, fmt.Sprintf("%s %s %s", member, kind(field.Type(), nil), options))
			nested(lines, member, field.Type(), above)
		}
	}
}

// nested follows a member into the struct that it is, points to or lists.
func nested(lines *[]string, path string, t types.Type, above []types.Type) {
	switch u := t.Underlying().(type) {
	case *types.Pointer:
		nested(lines, path, u.Elem(), above)
	case *types.Slice:
		nested(lines, path+"[]", u.Elem(), above)
	case *types.Map:
		nested(lines, path+"{}", u.Elem(), above)
	case *types.Struct:
		for _, seen := range above {
			if types.Identical(seen, t) {
				return
			}
		}
		if marshals(t) == "" {
			members(lines, path, u, append(above, t))
		}
	}
}

// kind names the JSON form of a type without the names of Go types.
func kind(t types.Type, above []types.Type) string {
	if own := marshals(t); own != "" {
		return own
	}
	switch u := t.Underlying().(type) {
	case *types.Pointer:
		return "optional " + kind(u.Elem(), above)
	case *types.Slice:
		return "list of " + kind(u.Elem(), above)
	case *types.Array:
		return "list of " + kind(u.Elem(), above)
	case *types.Map:
		return "map of " + kind(u.Elem(), above)
	case *types.Struct:
		return "object"
	case *types.Basic:
		return u.Name()
	}
	return "any"
}

// marshals says which method of its own a type has for JSON, if any.
func marshals(t types.Type) string {
	methods := types.NewMethodSet(types.NewPointer(t))
	for _, name := range []string{"MarshalJSONTo", "MarshalJSON", "MarshalText", "AppendText"} {
		for i := range methods.Len() {
			if methods.At(i).Obj().Name() == name {
				if strings.HasPrefix(name, "MarshalJSON") {
					return "own JSON"
				}
				return "own text"
			}
		}
	}
	return ""
}

// The values of the root package's constants are error codes, event types,
// states and reasons. Their Go names may change.
func TestValues(t *testing.T) {
	pkg := rootPackage(t)
	var lines []string
	for _, name := range pkg.Scope().Names() {
		object, ok := pkg.Scope().Lookup(name).(*types.Const)
		if ok && object.Val().Kind() == constant.String {
			lines = append(lines, object.Val().ExactString())
		}
	}
	compare(t, "values", lines)
}
