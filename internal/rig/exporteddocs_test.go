package rig

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	otherCode    = regexp.MustCompile(`_test\.go$|^(internal/(rig|llmstub|e2e|frozen)|orchestrator/proof|cmd/picket/demo|cmd/picketbench)/`)
	fieldsMatter = []string{".", "budget", "client", "adapter"}
	numberType   = regexp.MustCompile(`^(u?int(8|16|32|64)?|float(32|64)|Money|Duration)$`)
)

// Every exported name of the product has a comment. A typed constant may have that of its type. Exported numbers
// of the packages that other programs import have one too: the comment on the field, or another one of the struct
// that names it.
func TestExportedNamesAreDocumented(t *testing.T) {
	eachSource(t, func(name string, text []byte) {
		if !strings.HasSuffix(name, ".go") || otherCode.MatchString(name) {
			return
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			return
		}
		for _, n := range undocumented(file, slices.Contains(fieldsMatter, path.Dir(name))) {
			t.Errorf("%s: %s has no comment", files.Position(n.Pos()), n.Name)
		}
	})
}

func TestUndocumentedNamesAreFound(t *testing.T) {
	const source = `package p
type T struct {
	A int
	B int // of x
	// C and D are of y.
	C int
	D map[string]*float64
	S string
}
func F() {}
func (T) M() {}
func (*u) M() {}
const (
	K = 1
	L T = 2
	M time.Duration = 3
)
// Both are variables.
var V, W int
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, n := range undocumented(file, true) {
		found = append(found, n.Name)
	}
	if want := []string{"T", "A", "F", "M", "K", "M"}; !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}

// undocumented returns the exported names of a file without a comment, with those of fields if fields is set.
func undocumented(file *ast.File, fields bool) (names []*ast.Ident) {
	add := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		if name.IsExported() && strings.TrimSpace(commentsOf(docs)) == "" {
			names = append(names, name)
		}
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ast.IsExported(typeName(d.Recv.List[0].Type)) {
				add(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					add(s.Name, d.Doc, s.Doc, s.Comment)
					if st, ok := s.Type.(*ast.StructType); ok && fields && s.Name.IsExported() {
						names = append(names, undocumentedNumbers(st, commentsOf([]*ast.CommentGroup{d.Doc, s.Doc}))...)
					}
				case *ast.ValueSpec:
					if own, ok := s.Type.(*ast.Ident); ok && d.Tok == token.CONST && own.IsExported() {
						continue
					}
					for _, name := range s.Names {
						add(name, d.Doc, s.Doc, s.Comment)
					}
				}
			}
		}
	}
	return names
}

func undocumentedNumbers(of *ast.StructType, said string) (names []*ast.Ident) {
	for _, f := range of.Fields.List {
		said += commentsOf([]*ast.CommentGroup{f.Doc})
	}
	for _, f := range of.Fields.List {
		if f.Doc != nil || f.Comment != nil || !numberType.MatchString(typeName(f.Type)) {
			continue
		}
		for _, name := range f.Names {
			if name.IsExported() && !regexp.MustCompile(`\b`+name.Name+`\b`).MatchString(said) {
				names = append(names, name)
			}
		}
	}
	return names
}

// typeName is the last word of a type: of what it points to, or of the values of a map or a list.
func typeName(of ast.Expr) string {
	switch e := of.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.ArrayType:
		return typeName(e.Elt)
	case *ast.MapType:
		return typeName(e.Value)
	}
	return ""
}

func commentsOf(groups []*ast.CommentGroup) (text string) {
	for _, g := range groups {
		text += g.Text()
	}
	return text
}
