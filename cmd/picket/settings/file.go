package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// Parse reads picket.yaml. Everything unknown in it is an error: a key
// that is accepted and ignored costs its owner an afternoon.
func (f ConfigFile) Parse() (map[string]Value, error) {
	if f.Path == "" {
		return nil, nil
	}
	file, err := parser.ParseBytes(f.Text, 0)
	if err != nil {
		return nil, exit.Usagef("%s: %s", f.Path, firstLine(err))
	}
	r := settingsReader{path: f.Path, known: map[string]bool{}, values: map[string]Value{}}
	for _, s := range KnownSettings() {
		r.known[s.Key] = true
		for i, letter := range s.Key {
			if section := s.Key[:i]; letter == '.' && !slices.Contains(r.sections, section) {
				r.sections = append(r.sections, section)
			}
		}
	}
	for _, doc := range file.Docs {
		if err := r.read("", doc.Body); err != nil {
			return nil, err
		}
	}
	for key, v := range r.values {
		v.Local = f.Local
		r.values[key] = v
	}
	return r.values, nil
}

// firstLine is the first line of an error of several.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

type settingsReader struct {
	path     string
	known    map[string]bool
	sections []string
	values   map[string]Value
}

func (r *settingsReader) at(t *token.Token) string {
	return fmt.Sprintf("%s:%d:%d", r.path, t.Position.Line, t.Position.Column)
}

// read takes the mapping of a section ("" is the top).
func (r *settingsReader) read(section string, node ast.Node) error {
	return r.each(node, func(v *ast.MappingValueNode) error { return r.entry(section, v) })
}

// each calls one for every key of a mapping, up to the first error.
func (r *settingsReader) each(node ast.Node, one func(*ast.MappingValueNode) error) error {
	switch n := node.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode:
		return nil
	case *ast.MappingNode:
		for _, v := range n.Values {
			if err := one(v); err != nil {
				return err
			}
		}
		return nil
	case *ast.MappingValueNode:
		return one(n)
	}
	return exit.Usagef("%s: a mapping of keys to values is expected", r.at(node.GetToken()))
}

func (r *settingsReader) entry(section string, v *ast.MappingValueNode) error {
	name := v.Key.GetToken().Value
	key := name
	if section != "" {
		key = section + "." + name
	}
	where := r.at(v.Key.GetToken())
	if section == "" && name == "agents" {
		return r.agents(v.Value)
	}
	if section == "" && name == "tools" {
		return r.tools(v.Value)
	}
	if slices.Contains(r.sections, key) {
		return r.read(key, v.Value)
	}
	if section == "" {
		if subject, ok := plannedSettings[name]; ok {
			return fmt.Errorf("%s: %w", where,
				exit.NotAvailable("the key "+name, subject,
					"Take it out of the file; picket config show -o wide lists the keys there are."))
		}
	}
	if !r.known[key] {
		return r.unknown(where, section, key)
	}
	text, err := scalar(v.Value)
	if err != nil {
		return exit.Usagef("%s: %s: %v", where, key, err)
	}
	r.values[key] = Value{Text: text, Origin: where}
	return nil
}

func (r *settingsReader) unknown(where, section, key string) error {
	var names []string
	for k := range r.known {
		names = append(names, k)
	}
	if section == "" {
		names = append(append(names, r.sections...), "agents", "tools")
	}
	err := exit.Usagef("%s: there is no key %q", where, key)
	err.Remedy = "All keys: picket config show"
	if near := term.Nearest(key, names); near != "" {
		err.Remedy = fmt.Sprintf("Did you mean %q? All keys: picket config show", near)
	}
	return err
}

func scalar(n ast.Node) (string, error) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	case *ast.NullNode:
		return "", nil
	}
	return "", errors.New("a single value is expected")
}
