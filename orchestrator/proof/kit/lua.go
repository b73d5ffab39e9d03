package kit

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	gopher "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/picket-dev/picket/orchestrator/lua"
)

// LuaFile is a script, or a part that scripts share (its name starts with _).
type LuaFile struct {
	Name string
	Text string
}

func LuaSources(t *testing.T) []LuaFile {
	t.Helper()
	paths, err := fs.Glob(lua.Files, "*/*.lua")
	OK(t, err)
	var files []LuaFile
	for _, p := range paths {
		text, err := fs.ReadFile(lua.Files, p)
		OK(t, err)
		files = append(files, LuaFile{strings.TrimSuffix(path.Base(p), ".lua"), string(text)})
	}
	slices.SortFunc(files, func(a, b LuaFile) int { return strings.Compare(a.Name, b.Name) })
	if len(files) < 30 {
		t.Fatalf("found %d scripts only", len(files))
	}
	return files
}

// LuaText is the text of one file.
func LuaText(t *testing.T, name string) string {
	t.Helper()
	for _, f := range LuaSources(t) {
		if f.Name == name {
			return f.Text
		}
	}
	t.Fatalf("no Lua file is named %s", name)
	return ""
}

func (f LuaFile) Shared() bool { return strings.HasPrefix(f.Name, "_") }

// Header is the comment that a file starts with, without its dashes.
func (f LuaFile) Header() string {
	var out []string
	for line := range strings.Lines(f.Text) {
		text, ok := strings.CutPrefix(line, "--")
		if !ok {
			break
		}
		out = append(out, strings.TrimSpace(text))
	}
	return strings.Join(out, "\n")
}

// Code is the file without its comments.
func (f LuaFile) Code() string {
	var out strings.Builder
	for _, tok := range luaTokens(f.Text) {
		if tok.kind != luaComment {
			out.WriteString(f.Text[tok.from:tok.to])
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

// Counted rewrites a file so that every branch notes itself in the table ran, and lists the
// branches: the body of every function, both ways of every if, every loop.
func (f LuaFile) Counted() (source string, branches []string) {
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
		id := fmt.Sprintf("%s.lua:%d %s", f.Name, at, kind)
		for slices.Contains(branches, id) { // two of a kind on one line
			id += "'"
		}
		branches = append(branches, id)
		fmt.Fprintf(&out, " ran[%q] = 1 ", id)
	}
	parameters := false // of a function whose body comes next
	for _, tok := range luaTokens(f.Text) {
		text := f.Text[tok.from:tok.to]
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

// LuaGlobals are the names that Redis gives to every script.
var LuaGlobals = []string{"ARGV", "KEYS", "assert", "cjson", "cmsgpack", "getmetatable", "ipairs", "math", "next",
	"pairs", "pcall", "rawset", "redis", "select", "setmetatable", "string", "table", "tonumber", "tostring", "type",
	"unpack", "verb"}

// Needs lists the parts that a file names in its header.
func (f LuaFile) Needs() []string {
	var out []string
	for line := range strings.Lines(f.Header()) {
		if list, ok := strings.CutPrefix(line, "needs: "); ok {
			for _, name := range strings.Fields(list) {
				out = append(out, "_"+name)
			}
		}
	}
	return out
}

func CompileLua(t *testing.T, name, text string) *gopher.FunctionProto {
	t.Helper()
	if strings.HasPrefix(text, "#!") {
		_, text, _ = strings.Cut(text, "\n")
	}
	chunk, err := parse.Parse(strings.NewReader(text), name)
	OK(t, err)
	proto, err := gopher.Compile(chunk, name)
	OK(t, err)
	return proto
}

// DefinedNames lists the local variables of a chunk that live until its end.
func DefinedNames(p *gopher.FunctionProto) []string {
	var out []string
	for _, v := range p.DbgLocals {
		if v.EndPc >= len(p.Code)-1 {
			out = append(out, v.Name)
		}
	}
	return out
}

// FreeNames lists what a chunk and its functions use without defining it.
func FreeNames(p *gopher.FunctionProto) []string {
	found := map[string]bool{}
	var visit func(p *gopher.FunctionProto)
	visit = func(p *gopher.FunctionProto) {
		for _, instruction := range p.Code {
			if op := int(instruction >> 26); op == gopher.OP_GETGLOBAL || op == gopher.OP_SETGLOBAL {
				found[p.Constants[instruction&0x3ffff].String()] = true
			}
		}
		for _, inner := range p.FunctionPrototypes {
			visit(inner)
		}
	}
	visit(p)
	return slices.Sorted(maps.Keys(found))
}
