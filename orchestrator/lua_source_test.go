package orchestrator_test

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket/orchestrator/lua"
)

// luaFile is a script, or a part that scripts share (its name starts with _).
type luaFile struct {
	name string
	text string
}

func luaSources(t *testing.T) []luaFile {
	t.Helper()
	paths, err := fs.Glob(lua.Files, "*/*.lua")
	ok(t, err)
	var files []luaFile
	for _, p := range paths {
		text, err := fs.ReadFile(lua.Files, p)
		ok(t, err)
		files = append(files, luaFile{strings.TrimSuffix(path.Base(p), ".lua"), string(text)})
	}
	slices.SortFunc(files, func(a, b luaFile) int { return strings.Compare(a.name, b.name) })
	if len(files) < 30 {
		t.Fatalf("found %d scripts only", len(files))
	}
	return files
}

// luaText is the text of one file.
func luaText(t *testing.T, name string) string {
	t.Helper()
	for _, f := range luaSources(t) {
		if f.name == name {
			return f.text
		}
	}
	t.Fatalf("no Lua file is named %s", name)
	return ""
}

func (f luaFile) shared() bool { return strings.HasPrefix(f.name, "_") }

// header is the comment that a file starts with, without its dashes.
func (f luaFile) header() string {
	var out []string
	for line := range strings.Lines(f.text) {
		text, ok := strings.CutPrefix(line, "--")
		if !ok {
			break
		}
		out = append(out, strings.TrimSpace(text))
	}
	return strings.Join(out, "\n")
}

// code is the file without its comments.
func (f luaFile) code() string {
	var out strings.Builder
	for _, tok := range luaTokens(f.text) {
		if tok.kind != luaComment {
			out.WriteString(f.text[tok.from:tok.to])
		}
	}
	return out.String()
}

type luaKind int

const (
	luaWord luaKind = iota
	luaString
	luaComment
	luaOther
)

type luaToken struct {
	kind luaKind
	from int
	to   int
}

// luaTokens cuts a source into words, strings, comments and the rest. It knows
// the Lua that our scripts are written in: no long brackets.
func luaTokens(s string) []luaToken {
	var out []luaToken
	letter := func(c byte) bool {
		return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	}
	for i := 0; i < len(s); {
		from := i
		kind := luaOther
		switch c := s[i]; {
		case strings.HasPrefix(s[i:], "--"):
			kind = luaComment
			for i < len(s) && s[i] != '\n' {
				i++
			}
		case c == '\'' || c == '"':
			kind = luaString
			for i++; s[i] != c; i++ {
				if s[i] == '\\' {
					i++
				}
			}
			i++
		case letter(c):
			kind = luaWord
			for i < len(s) && letter(s[i]) {
				i++
			}
		default:
			i++
		}
		out = append(out, luaToken{kind, from, i})
	}
	return out
}

// counted rewrites a file so that every branch counts itself, and lists the
// branches: the body of every function, both ways of every if, every loop.
func (f luaFile) counted() (source string, branches []string) {
	var out strings.Builder
	type block struct {
		word    string
		line    int
		hasElse bool
	}
	var open []block
	top := func() *block { return &open[len(open)-1] }
	line := 1
	mark := func(kind string, at int) {
		id := fmt.Sprintf("%s.lua:%d %s", f.name, at, kind)
		for slices.Contains(branches, id) { // two of a kind on one line
			id += "'"
		}
		branches = append(branches, id)
		// once in each run of a script
		fmt.Fprintf(&out,
			" if not KEYS[%[1]q] then KEYS[%[1]q] = 1 redis.call('HSET', KEYS[1] .. ':branches', %[1]q, 1) end ", id)
	}
	parameters := false // of a function whose body comes next
	for _, tok := range luaTokens(f.text) {
		text := f.text[tok.from:tok.to]
		word := ""
		if tok.kind == luaWord {
			word = text
		}
		if word == "end" {
			if b := top(); b.word == "if" && !b.hasElse {
				out.WriteString(" else ")
				mark("if not", b.line)
			}
			open = open[:len(open)-1]
		}
		out.WriteString(text)
		line += strings.Count(text, "\n")
		switch {
		case word == "if" || word == "function":
			open = append(open, block{word: word, line: line})
			parameters = word == "function"
		case word == "do":
			open = append(open, block{word: word, line: line})
			mark("do", line)
		case word == "then":
			mark("then", line)
		case word == "else":
			top().hasElse = true
			mark("else", line)
		case parameters && text == ")":
			parameters = false
			mark("function", line)
		}
	}
	return out.String(), branches
}
