package store

import (
	"slices"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

func TestWithoutComments(t *testing.T) {
	for in, want := range map[string]string{
		"a = 1 -- one\n":                    "a = 1\n",
		"-- all of it\na = 1\n":             "\na = 1\n",
		"a = '--' .. \"--\" -- '\n":         "a = '--' .. \"--\"\n",
		"a = 'it\\'s -- text' -- @mark\n":   "a = 'it\\'s -- text'\n",
		"#!lua flags=allow-oom\nreturn 1\n": "#!lua flags=allow-oom\nreturn 1\n",
		"return 1":                          "return 1",
	} {
		if got := withoutComments(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// What Redis gets compiles to the same instructions as the source, line by line.
func TestScriptsAreTheSameWithoutComments(t *testing.T) {
	for _, memory := range []bool{false, true} {
		scripts, err := composeScripts(memory)
		if err != nil {
			t.Fatal(err)
		}
		for name, s := range scripts {
			if strings.Contains(s.source, "[[") || strings.Contains(s.source, "[=") {
				t.Errorf("%s has a long bracket, in which comments are not found", name)
			}
			if len(s.sent)*10 > len(s.source)*9 {
				t.Errorf("%s: %d of %d bytes are sent", name, len(s.sent), len(s.source))
			}
			if !sameFunction(compileScript(t, name, s.source), compileScript(t, name, s.sent)) {
				t.Errorf("%s does something else without its comments", name)
			}
		}
	}
}

func compileScript(t *testing.T, name, source string) *lua.FunctionProto {
	t.Helper()
	if strings.HasPrefix(source, "#!") {
		source = "--" + source
	}
	parsed, err := parse.Parse(strings.NewReader(source), name)
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := lua.Compile(parsed, name)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func sameFunction(a, b *lua.FunctionProto) bool {
	sameConstant := func(a, b lua.LValue) bool { return a.Type() == b.Type() && a.String() == b.String() }
	return slices.Equal(a.Code, b.Code) && slices.Equal(a.DbgSourcePositions, b.DbgSourcePositions) &&
		slices.EqualFunc(a.Constants, b.Constants, sameConstant) &&
		slices.EqualFunc(a.FunctionPrototypes, b.FunctionPrototypes, sameFunction)
}
