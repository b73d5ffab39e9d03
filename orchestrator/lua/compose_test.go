package lua

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	gopher "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// baseTexts are the least that a program has.
func baseTexts(more map[string]string) map[string]string {
	texts := map[string]string{"_base": "local a0\n", "_records": "", "_writes": "", "_store": "",
		"_prelude": "", "_identity": "",
		"_clock": "",
		"_run":   ""}
	maps.Copy(texts, more)
	return texts
}

// Parts stand in a script after what they need, each of them once.
func TestNeedsAreResolvedInOrder(t *testing.T) {
	p, err := NewProgram(baseTexts(map[string]string{
		"_a": "-- needs: b c\nlocal function a() return b() + c() end\n",
		"_b": "-- needs: c\nlocal function b() return c() end\n",
		"_c": "-- c has no needs.\nlocal function c() return 1 end\n",
		"_d": "local function d() end\n",
		"v":  "-- needs: a b\nreturn a() + b()\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := `local a0
local _c do -- c has no needs.
local function c() return 1 end
_c = { c = c } end
local _b do -- needs: c
local function b() return _c.c() end
_b = { b = b } end
local _a do -- needs: b c
local function a() return _b.b() + _c.c() end
_a = { a = a } end
return run(function() -- needs: a b
return _a.a() + _b.b()

end, false, nil)
`
	if got := p.Verbs["v"].Source(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A file that cannot be put together is refused with its name and the reason.
func TestFilesThatDoNotFit(t *testing.T) {
	for want, texts := range map[string]map[string]string{
		"compose _x: parts need each other: _x _y _x": {"_x": "-- needs: y\n", "_y": "-- needs: x\n"},
		"compose v: no Lua file is named _d":          {"v": "-- needs: d\n"},
		"compose v: it declares x, which is also a name of _p": {"_p": "local function x() end\n",
			"v": "-- needs: p\nx()\nfor x = 1, 2 do end\n"},
		"compose v: _p changes n while it runs, so share a function or a table": {
			"_p": "local n = 0\nlocal function f() n = n + 1 end\n", "v": "-- needs: p\nreturn n\n"},
	} {
		if _, err := NewProgram(baseTexts(texts)); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := NewProgram(nil); err == nil || err.Error() != "no Lua file is named _base" {
		t.Errorf("without files: %v", err)
	}
	twice := fstest.MapFS{"task/a.lua": {}, "part/a.lua": {}}
	if _, err := Read(twice); err == nil || err.Error() != "two Lua files are named a" {
		t.Errorf("two files of one name: got %v", err)
	}
}

// A name of another part is replaced wherever it is a variable, and nowhere else.
func TestOnlyVariablesAreReplaced(t *testing.T) {
	p, err := NewProgram(baseTexts(map[string]string{
		"_p": "local function x() end\n",
		"v": "-- needs: p\nlocal t = { x = x, y = x == 1, [x] = 1, z = function() x = 2 end }\n" +
			"t.x = 'x' t:x(x) return x\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := "local t = { x = _p.x, y = _p.x == 1, [_p.x] = 1, z = function() _p.x = 2 end }\n" +
		"t.x = 'x' t:x(_p.x) return _p.x\n"
	if got := p.Verbs["v"].body; !strings.HasSuffix(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

func builtin(t *testing.T) *Program {
	t.Helper()
	texts, err := Read(Files)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProgram(texts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The library has every file, and its lines are known. Its name is that of its code and
// does not depend on when it was loaded.
func TestTheLibraryKnowsItsFiles(t *testing.T) {
	p := builtin(t)
	l := p.Library()
	seen := map[string]bool{}
	for i, line := range strings.Split(l.Source(), "\n") {
		name, at := l.Place(i + 1)
		seen[name] = true
		function, found := strings.CutPrefix(line, "local function ")
		if !found || name == "" || at == 1 {
			continue
		}
		function, _, _ = strings.Cut(function, "(")
		if was := strings.Split(p.texts[name], "\n")[at-1]; !strings.HasPrefix(was, "local function "+function+"(") {
			t.Errorf("line %d begins the function %s, and %s:%d is %q", i+1, function, name, at, was)
		}
	}
	for name := range p.texts {
		if !seen[name] {
			t.Errorf("the library does not have %s", name)
		}
	}
	for _, year := range []int{2026, 2027} {
		code := l.Loaded(time.Date(year, 1, 2, 3, 4, 5, 0, time.UTC))
		if head := fmt.Sprintf("#!lua name=%s\n", l.Name); !strings.HasPrefix(code, head) ||
			!strings.Contains(code, fmt.Sprintf("description = 'loaded %d-01-02T03:04:05Z'", year)) {
			t.Errorf("the code of %d begins with %.60q", year, code)
		}
	}
	if again := builtin(t).Library().Name; again != l.Name {
		t.Errorf("the same code is named %s and %s", l.Name, again)
	}
	changed, err := p.Change(func(name, text string) string {
		return strings.Replace(text, "put(r, 'confirmed', '1',", "put(r, 'confirmed', '0',", 1)
	})
	if err != nil || changed.Library().Name == l.Name {
		t.Errorf("other code has the same name %s: %v", l.Name, err)
	}
}

// What Redis gets compiles to the same instructions as the source, line by line.
func TestCodeIsTheSameWithoutComments(t *testing.T) {
	p := builtin(t)
	texts := map[string][2]string{"the library": {p.Library().Source(), p.Library().code}}
	for name, v := range p.Verbs {
		texts[name] = [2]string{v.Source(), v.Script()}
	}
	for name, of := range texts {
		source, sent := of[0], of[1]
		if strings.Contains(source, "[[") || strings.Contains(source, "[=") {
			t.Errorf("%s has a long bracket, in which comments are not found", name)
		}
		if len(sent)*10 > len(source)*9 {
			t.Errorf("%s: %d of %d bytes are sent", name, len(sent), len(source))
		}
		if !sameFunction(compiled(t, name, source), compiled(t, name, sent)) {
			t.Errorf("%s does something else without its comments", name)
		}
	}
}

func compiled(t *testing.T, name, source string) *gopher.FunctionProto {
	t.Helper()
	if strings.HasPrefix(source, "#!") {
		source = "--" + source
	}
	parsed, err := parse.Parse(strings.NewReader(source), name)
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := gopher.Compile(parsed, name)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func sameFunction(a, b *gopher.FunctionProto) bool {
	sameConstant := func(a, b gopher.LValue) bool { return a.Type() == b.Type() && a.String() == b.String() }
	return slices.Equal(a.Code, b.Code) && slices.Equal(a.DbgSourcePositions, b.DbgSourcePositions) &&
		slices.EqualFunc(a.Constants, b.Constants, sameConstant) &&
		slices.EqualFunc(a.FunctionPrototypes, b.FunctionPrototypes, sameFunction)
}

func BenchmarkProgram(b *testing.B) {
	texts, err := Read(Files)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		p, err := NewProgram(texts)
		if err != nil {
			b.Fatal(err)
		}
		p.Library()
	}
}
