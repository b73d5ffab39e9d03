package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// ToolDuration reads a value that a check has found to be a duration; 0 when it is not
// given.
func (s Settings) ToolDuration(path ...string) time.Duration {
	d, _ := time.ParseDuration(s.ToolValue(path...).Text)
	return d
}

// toolsPrefix begins the keys under tools among the settings. The parts of such
// a key are kept apart by a byte that no name may hold, since names of tools,
// models and databases may hold dots.
const (
	ToolsPrefix = "tools" + PathSep
	PathSep     = "\x00"
)

// toolShape is what may stand at a place under tools in picket.yaml. One of its
// first three fields is set; none of them for a single value.
type toolShape struct {
	keys  map[string]toolShape // a mapping with these keys
	named *toolShape           // a mapping whose keys are names of the owner's choosing
	list  bool                 // a list of single values
	name  func(string) error   // checks such a name
	check func(string) error   // checks a value, or each of a list
	What  string
}

func leaf(what string, check func(string) error) toolShape {
	return toolShape{What: what, check: check}
}

func listOf(what string, check func(string) error) toolShape {
	return toolShape{What: what, check: check, list: true}
}

func namedBy(name func(string) error, of toolShape) toolShape {
	return toolShape{named: &of, name: name}
}

// tools reads everything under tools.
func (r *settingsReader) tools(node ast.Node) error {
	r.values["tools"] = Value{Origin: r.at(node.GetToken())}
	if err := r.shaped([]string{"tools"}, ToolsShape(), node); err != nil {
		return err
	}
	_, err := CheckedPrices(r.values)
	return err
}

// shaped reads a node of a shape.
func (r *settingsReader) shaped(path []string, s toolShape, node ast.Node) error {
	if s.keys == nil && s.named == nil {
		return r.shapedValue(path, s, node)
	}
	return r.each(node, func(v *ast.MappingValueNode) error {
		word, where := v.Key.GetToken().Value, r.at(v.Key.GetToken())
		at := append(slices.Clone(path), word)
		key := strings.Join(at, PathSep)
		of, known := s.keys[word]
		switch {
		case s.named != nil:
			if err := s.checkName(word); err != nil {
				return exit.Usagef("%s: %s: %v", where, strings.Join(path, "."), err)
			}
			of = *s.named
		case !known:
			return unknownToolKey(where, path, word, slices.Sorted(maps.Keys(s.keys)))
		}
		if before, twice := r.values[key]; twice {
			return exit.Usagef("%s: %s is there already, at %s", where, strings.Join(at, "."), before.Origin)
		}
		r.values[key] = Value{Origin: where}
		return r.shaped(at, of, v.Value)
	})
}

func (s toolShape) checkName(word string) error {
	if word == "" || strings.ContainsAny(word, PathSep+"\n") {
		return fmt.Errorf("%s is not a name", term.ShellQuote(word))
	}
	if s.name == nil {
		return nil
	}
	return s.name(word)
}

func unknownToolKey(where string, path []string, word string, names []string) error {
	err := exit.Usagef("%s: there is no key %q in %s", where, word, strings.Join(path, "."))
	err.Remedy = "Its keys: " + strings.Join(names, ", ")
	if near := term.Nearest(word, names); near != "" {
		err.Remedy = fmt.Sprintf("Did you mean %q? %s", near, err.Remedy)
	}
	return err
}

// shapedValue reads a single value or a list of them.
func (r *settingsReader) shapedValue(path []string, s toolShape, node ast.Node) error {
	key := strings.Join(path, PathSep)
	nodes := []ast.Node{node}
	if n, ok := node.(*ast.SequenceNode); ok && s.list {
		nodes = n.Values
	}
	items := []string{}
	for _, n := range nodes {
		text, err := scalar(n)
		if err != nil && s.list {
			err = errors.New("a list of single values is expected")
		}
		if err == nil && text == "" {
			err = errors.New("a value is expected")
		}
		if err == nil && s.check != nil {
			err = s.check(text)
		}
		if err != nil {
			return exit.Usagef("%s: %s: %v", r.at(n.GetToken()), strings.Join(path, "."), err)
		}
		items = append(items, text)
	}
	r.values[key] = Value{Text: strings.Join(items, ","), Items: items, Origin: r.values[key].Origin}
	return nil
}

// At is the shape of a place below this one.
func (s toolShape) At(path []string) toolShape {
	for _, word := range path {
		if s.named != nil {
			s = *s.named
		} else {
			s = s.keys[word]
		}
	}
	return s
}

// NamesUnder are the names that stand at a place under tools, sorted.
func (s Settings) NamesUnder(path ...string) []string {
	prefix := strings.Join(append([]string{"tools"}, path...), PathSep) + PathSep
	names := map[string]bool{}
	for key := range s {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			name, _, _ := strings.Cut(rest, PathSep)
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// ToolValue is a value under tools; its items are nil when it is not given.
func (s Settings) ToolValue(path ...string) Value { return s[ToolsPrefix+strings.Join(path, PathSep)] }
