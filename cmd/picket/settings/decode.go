package settings

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// Parse reads the file. Everything unknown in it is an error: a key that is accepted and
// ignored costs its owner an afternoon.
func (f ConfigFile) Parse() (map[string]Value, error) {
	s, err := f.decode()
	return s.values, err
}

// decode reads the file into the fields of agents and tools. Of the general keys it only
// takes the text, because a flag or the environment may override it.
func (f ConfigFile) decode() (Settings, error) {
	s := Settings{values: map[string]Value{}}
	if f.Path == "" {
		return s, nil
	}
	file, err := parser.ParseBytes(f.Text, 0)
	var syntax yaml.Error
	switch {
	case errors.As(err, &syntax) && syntax.GetToken() != nil:
		at := syntax.GetToken().Position
		return s, exit.Usagef("%s:%d:%d: %s", f.Path, at.Line, at.Column, syntax.GetMessage())
	case err != nil:
		line, _, _ := strings.Cut(err.Error(), "\n")
		return s, exit.Usagef("%s: %s", f.Path, line)
	}
	d := decoder{ConfigFile: f, values: s.values}
	for _, doc := range file.Docs {
		if err := d.section(nil, reflect.ValueOf(&s).Elem(), doc.Body); err != nil {
			return s, err
		}
	}
	for name, e := range s.Agents {
		e.Name, e.values = name, s.values
		s.Agents[name] = e
	}
	if _, err = s.PriceList(); err == nil {
		_, err = s.ReminderRules()
	}
	return s, err
}

// decoder reads the mappings of picket.yaml into structs.
type decoder struct {
	ConfigFile
	values map[string]Value
}

func (d decoder) at(t *token.Token) string {
	return fmt.Sprintf("%s:%d:%d", d.Path, t.Position.Line, t.Position.Column)
}

// each calls one for every key of a mapping, up to the first error.
func (d decoder) each(node ast.Node, one func(key *token.Token, value ast.Node) error) error {
	var entries []*ast.MappingValueNode
	switch n := node.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode:
	case *ast.MappingNode:
		entries = n.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{n}
	default:
		return exit.Usagef("%s: a mapping of keys to values is expected", d.at(node.GetToken()))
	}
	for _, v := range entries {
		if err := one(v.Key.GetToken(), v.Value); err != nil {
			return err
		}
	}
	return nil
}

// section reads a mapping into a struct.
func (d decoder) section(path []string, into reflect.Value, node ast.Node) error {
	return d.each(node, func(key *token.Token, value ast.Node) error {
		for f, v := range fieldsOf(into) {
			if f.Tag.Get("yaml") == key.Value {
				return d.field(append(slices.Clip(path), key.Value), f.Tag, v, key, value)
			}
		}
		return unknownKey(d.at(key), path, key.Value, into)
	})
}

// names reads a mapping whose keys are names of the owner's choosing.
func (d decoder) names(path []string, tag reflect.StructTag, into reflect.Value, node ast.Node) error {
	return d.each(node, func(key *token.Token, value ast.Node) error {
		if err := checkName(tag.Get("name"), key.Value); err != nil {
			refusal := exit.Usagef("%s: %s: %v", d.at(key), strings.Join(path, "."), err)
			if remedy := exit.Remedy(err); remedy != "" {
				refusal.Message, refusal.Remedy = d.at(key)+": "+exit.Text(err), remedy
			}
			return refusal
		}
		named := reflect.New(into.Type().Elem()).Elem()
		if err := d.field(append(slices.Clip(path), key.Value), tag, named, key, value); err != nil {
			return err
		}
		if into.IsNil() {
			into.Set(reflect.MakeMap(into.Type()))
		}
		into.SetMapIndex(reflect.ValueOf(key.Value).Convert(into.Type().Key()), named)
		return nil
	})
}

// field reads what stands at a key.
func (d decoder) field(path []string, tag reflect.StructTag, into reflect.Value, key *token.Token,
	node ast.Node) error {
	if !isSection(into.Type()) {
		return d.value(path, tag, into, key, node)
	}
	if fileOnly(path) && len(path) > 1 {
		at := keyOf(path)
		if before, twice := d.values[at]; twice {
			return exit.Usagef("%s: %s is there already, at %s", d.at(key), strings.Join(path, "."), before.Origin)
		}
		d.values[at] = Value{Origin: d.at(key), Local: d.Local, Section: true}
	}
	switch into.Kind() {
	case reflect.Map:
		return d.names(path, tag, into, node)
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	return d.section(path, into, node)
}

// value reads a single value or a list. A list of one may be written without brackets.
func (d decoder) value(path []string, tag reflect.StructTag, into reflect.Value, key *token.Token,
	node ast.Node) error {
	tools, list := path[0] == "tools", into.Kind() == reflect.Slice && fileOnly(path)
	nodes := []ast.Node{node}
	if n, ok := node.(*ast.SequenceNode); ok && list {
		nodes = n.Values
	}
	if _, null := node.(*ast.NullNode); null && path[0] == "agents" {
		return nil
	}
	items := []string{}
	for _, n := range nodes {
		text, err := scalar(n)
		switch {
		case err != nil && list:
			err = errors.New("a list of single values is expected")
		case err == nil && tools && text == "":
			err = errors.New("a value is expected")
		case err == nil && fileOnly(path):
			err = check(tag.Get("check"), text)
		}
		if err != nil {
			if tools {
				key = n.GetToken()
			}
			return exit.Usagef("%s: %s: %v", d.at(key), strings.Join(path, "."), err)
		}
		items = append(items, text)
	}
	v := Value{Text: strings.Join(items, ","), Origin: d.at(key), Local: d.Local}
	if tag.Get("show") == "shell" {
		v.Text = term.ShellJoin(items)
	}
	if fileOnly(path) {
		v.Items = items
		assign(into, items)
	}
	d.values[keyOf(path)] = v
	return nil
}

func scalar(n ast.Node) (string, error) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, nil
	case *ast.LiteralNode:
		return v.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	case *ast.NullNode:
		return "", nil
	}
	return "", errors.New("a single value is expected")
}

// unknownKey names the nearest key there is: of all general keys, or of the mapping.
func unknownKey(where string, path []string, word string, in reflect.Value) error {
	wanted := strings.Join(append(slices.Clip(path), word), ".")
	message, remedy := fmt.Sprintf("there is no key %q", wanted), "All keys: picket config show"
	var names []string
	if fileOnly(path) {
		for f := range fieldsOf(in) {
			names = append(names, f.Tag.Get("yaml"))
		}
		wanted, message = word, fmt.Sprintf("there is no key %q in %s", word, strings.Join(path, "."))
		remedy = "Its keys: " + strings.Join(names, ", ")
	} else {
		for _, k := range KnownSettings() {
			names = append(names, k.Name)
			for i, letter := range k.Name {
				if letter == '.' && len(path) == 0 {
					names = append(names, k.Name[:i])
				}
			}
		}
		if len(path) == 0 {
			names = append(names, "agents", "tools", "reminders")
		}
	}
	if near := term.Nearest(wanted, names); near != "" {
		remedy = fmt.Sprintf("Did you mean %q? %s", near, remedy)
	}
	return picket.Refuse(exit.CodeUsage, remedy, "%s: %s", where, message)
}

// assign parses texts that were checked into a field.
func assign(into reflect.Value, items []string) {
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	if into.Kind() == reflect.Slice {
		into.Set(reflect.MakeSlice(into.Type(), len(items), len(items)))
		for i, item := range items {
			into.Index(i).SetString(item)
		}
		return
	}
	text := items[0]
	switch v := into.Addr().Interface().(type) {
	case *time.Duration:
		*v, _ = time.ParseDuration(text)
	case *budget.Money:
		*v, _ = parseDollars(text)
	case encoding.TextUnmarshaler:
		_ = v.UnmarshalText([]byte(text))
	case *bool:
		*v = text == "true"
	default:
		if into.Kind() == reflect.String {
			into.SetString(text)
			return
		}
		n, _ := strconv.ParseInt(text, 10, 64)
		into.SetInt(n)
	}
}
