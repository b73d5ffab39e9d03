package heartbeat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of the YAML of front matter.
const (
	maxTokens = 4000
	maxDepth  = 16
)

// refusedTokens are the parts of YAML that front matter must not have.
var refusedTokens = map[token.Type]string{
	token.AnchorType:         "an anchor",
	token.AliasType:          "an alias",
	token.TagType:            "a tag",
	token.MergeKeyType:       "a merge key",
	token.DirectiveType:      "a directive",
	token.DocumentHeaderType: "a second document",
	token.DocumentEndType:    "the end of a document",
	token.MappingKeyType:     "a key that is marked with ?",
}

// entry is a key of a mapping with its value.
type entry struct {
	key   string
	at    place // of the key
	value ast.Node
}

// at is the place of a token, in the file.
func (r *reader) at(path string, t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{path: path, line: r.firstLine, column: 1}
	}
	return place{path: path, line: t.Position.Line + r.firstLine - 1, column: t.Position.Column}
}

func (r *reader) malformed(at place, format string, args ...any) {
	r.refuse(CodeMalformedFrontMatter, at, format, args...)
}

// parse returns the root of the YAML, or nil if there is none or it is malformed.
func (r *reader) parse(front string) (root ast.Node) {
	if strings.TrimSpace(front) == "" {
		return nil
	}
	defer func() {
		if recover() != nil { // a bug of the library must not take the server down
			root = nil
			r.malformed(place{line: r.firstLine, column: 1}, "the front matter is not YAML")
		}
	}()
	tokens := lexer.Tokenize(front)
	if !r.plainTokens(tokens) {
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.notYAML(err)
		return nil
	}
	if len(file.Docs) > 1 {
		r.malformed(r.at("", file.Docs[1].GetToken()), "the front matter has more than one document")
		return nil
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil
	}
	return file.Docs[0].Body
}

// plainTokens refuses what front matter must not have, before anything is built from it.
func (r *reader) plainTokens(tokens token.Tokens) bool {
	if len(tokens) > maxTokens {
		r.malformed(place{line: r.firstLine, column: 1}, "the front matter has too many parts")
		return false
	}
	depth := 0
	for _, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		}
		if depth > maxDepth {
			r.malformed(r.at("", t), "the front matter is nested too deeply")
			return false
		}
		if what := refusedTokens[t.Type]; what != "" {
			r.malformed(r.at("", t), "the front matter has %s, which is not allowed", what)
			return false
		}
	}
	return true
}

// notYAML reports what the parser found.
func (r *reader) notYAML(err error) {
	var syntax yaml.Error
	if !errors.As(err, &syntax) {
		r.malformed(place{line: r.firstLine, column: 1}, "the front matter is not YAML")
		return
	}
	r.malformed(r.at("", syntax.GetToken()), "the front matter is not YAML: %s", syntax.GetMessage())
}

// entries returns the keys of a mapping. ok is false if the node is not a mapping. A key that is
// there twice, or is not a text, is malformed.
func (r *reader) entries(path string, node ast.Node) (list []entry, ok bool) {
	var values []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		return nil, false
	}
	seen := map[string]bool{}
	for _, v := range values {
		key, isText := keyText(v.Key)
		e := entry{key: key, at: r.at(join(path, key), v.Key.GetToken()), value: v.Value}
		switch {
		case !isText:
			r.malformed(e.at, "a key is not a text")
		case seen[key]:
			r.malformed(e.at, "the key %s is there twice", quoted(key))
		default:
			seen[key] = true
			r.decodedSecrets(key, e.at)
			list = append(list, e)
		}
	}
	return list, true
}

func keyText(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// textOf returns the value of a text.
func textOf(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

// valueAt is the place of a single value, or that of its key for anything else.
func (r *reader) valueAt(e entry) place {
	switch n := e.value.(type) {
	case *ast.StringNode, *ast.LiteralNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode,
		*ast.NanNode:
		return r.at(e.at.path, n.GetToken())
	}
	return e.at
}

// items returns the items of a list, each with its index as its key.
func (r *reader) items(e entry) (list []entry, ok bool) {
	sequence, ok := e.value.(*ast.SequenceNode)
	if !ok {
		return nil, false
	}
	for i, value := range sequence.Values {
		path := fmt.Sprintf("%s[%d]", e.at.path, i)
		list = append(list, entry{at: r.at(path, firstToken(value)), value: value})
	}
	return list, true
}

// firstToken is where a node begins: a mapping of several lines at its first key.
func firstToken(node ast.Node) *token.Token {
	switch n := node.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return n.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		return n.Key.GetToken()
	case nil:
		return nil
	}
	return node.GetToken()
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
