package orchestrator_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	gopher "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/picket-dev/picket/orchestrator"
)

// Bounds of a composed script. Redis allows 200 local variables in a function and
// 60 variables of the functions around it; a script of more bytes takes longer to load.
const (
	mostLocals   = 200
	mostUpvalues = 60
	mostBytes    = 70_000
)

// luaGlobals are the names that Redis gives to every script.
var luaGlobals = []string{"ARGV", "KEYS", "cjson", "ipairs", "math", "pairs", "redis", "select", "string", "table",
	"tonumber", "tostring", "type", "unpack", "verb"}

// baseParts are in every script, so no header names them.
var baseParts = []string{"_prelude", "_identity", "_clock"}

func TestEveryLuaFileNamesWhatItNeeds(t *testing.T) {
	files := luaSources(t)
	for _, problem := range needsProblems(t, files) {
		t.Error(problem)
	}
	// The test finds a name that is missing, and one too many.
	planted := func(name, old, new string) []string {
		changed := slices.Clone(files)
		i := slices.IndexFunc(changed, func(f luaFile) bool { return f.name == name })
		changed[i].text = strings.Replace(changed[i].text, old, new, 1)
		return needsProblems(t, changed)
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"_charge", "-- needs: money\n", "", "_charge uses envelope_task"},
		{"submit", "-- needs: create ", "-- needs: ", "submit uses create_task"},
		{"_charge", "-- needs: money\n", "-- needs: money exec\n", "_charge does not use _exec"},
		{"_charge", "warn_budget(payer, p)", "warn_nobody(payer, p)", "_charge uses warn_nobody, which no part defines"},
		{"_charge", "-- needs: money\n", "-- needs: money moneys\n", "_charge needs _moneys, which does not exist"},
	} {
		problems := strings.Join(planted(c.name, c.old, c.new), "\n")
		if !strings.Contains(problems, c.want) {
			t.Errorf("%s with %q in place of %q: got %q, want %q", c.name, c.new, c.old, problems, c.want)
		}
	}
}

// needsProblems compares the needs of every file with the names that it uses.
func needsProblems(t *testing.T, files []luaFile) []string {
	t.Helper()
	var problems []string
	owners := map[string][]string{} // parts by a name that they define
	for _, f := range files {
		if f.shared() {
			for _, name := range definedNames(compileLua(t, f.name, f.text)) {
				owners[name] = append(owners[name], f.name)
			}
		}
	}
	for _, f := range files {
		needs, used := f.needs(), map[string]bool{}
		for _, name := range freeNames(compileLua(t, f.name, f.text)) {
			of := owners[name]
			isOwner := func(part string) bool { return slices.Contains(of, part) }
			switch {
			case slices.Contains(luaGlobals, name), slices.ContainsFunc(baseParts, isOwner):
			case len(of) == 0:
				problems = append(problems, fmt.Sprintf("%s uses %s, which no part defines", f.name, name))
			case !slices.ContainsFunc(needs, isOwner):
				problems = append(problems,
					fmt.Sprintf("%s uses %s and needs none of %v, which define it", f.name, name, of))
			default:
				used[needs[slices.IndexFunc(needs, isOwner)]] = true
			}
		}
		for _, need := range needs {
			if !slices.ContainsFunc(files, func(f luaFile) bool { return f.name == need }) {
				problems = append(problems, fmt.Sprintf("%s needs %s, which does not exist", f.name, need))
			} else if !used[need] {
				problems = append(problems, fmt.Sprintf("%s does not use %s, which it needs by its header", f.name, need))
			}
		}
	}
	return problems
}

// needs lists the parts that a file names in its header.
func (f luaFile) needs() []string {
	var out []string
	for line := range strings.Lines(f.header()) {
		if list, ok := strings.CutPrefix(line, "needs: "); ok {
			for _, name := range strings.Fields(list) {
				out = append(out, "_"+name)
			}
		}
	}
	return out
}

func compileLua(t *testing.T, name, text string) *gopher.FunctionProto {
	t.Helper()
	if strings.HasPrefix(text, "#!") {
		_, text, _ = strings.Cut(text, "\n")
	}
	chunk, err := parse.Parse(strings.NewReader(text), name)
	ok(t, err)
	proto, err := gopher.Compile(chunk, name)
	ok(t, err)
	return proto
}

// definedNames lists the local variables of a chunk that live until its end.
func definedNames(p *gopher.FunctionProto) []string {
	var out []string
	for _, v := range p.DbgLocals {
		if v.EndPc >= len(p.Code)-1 {
			out = append(out, v.Name)
		}
	}
	return out
}

// freeNames lists what a chunk and its functions use without defining it.
func freeNames(p *gopher.FunctionProto) []string {
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

// A planted bug uses no name that its script does not have: the script would break
// instead of misbehaving.
func TestPlantedBugsUseKnownNames(t *testing.T) {
	known, texts := slices.Clone(luaGlobals), map[string]string{}
	for _, f := range luaSources(t) {
		texts[f.name] = f.text
		if f.shared() {
			known = append(known, definedNames(compileLua(t, f.name, f.text))...)
		}
	}
	for _, m := range allMutants() {
		for _, e := range m.edits {
			changed := strings.Replace(texts[e.file], e.old, e.new, 1)
			chunk, err := parse.Parse(strings.NewReader(changed), e.file)
			if err != nil {
				continue // one of several edits, which make a file together
			}
			p, err := gopher.Compile(chunk, e.file)
			ok(t, err)
			for _, name := range freeNames(p) {
				if !slices.Contains(known, name) {
					t.Errorf("%s: in %s.lua it uses %s, which no part defines", m.name, e.file, name)
				}
			}
		}
	}
}

// The base name of a Lua file is the name of a script, so no two files share one.
func TestLuaFileNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range luaSources(t) {
		if seen[f.name] {
			t.Errorf("two Lua files are named %s", f.name)
		}
		seen[f.name] = true
	}
	for _, name := range orchestrator.ScriptNames() {
		if !seen[name] {
			t.Errorf("script %s has no file", name)
		}
	}
}

// No script is near a limit of Redis, and none has two parts that use one name.
func TestScriptsStayBelowTheirLimits(t *testing.T) {
	for name, source := range orchestrator.AllSources() {
		p := compileLua(t, name, source)
		names := definedNames(p)
		if n := len(names); n >= mostLocals {
			t.Errorf("%s has %d local variables, the limit is %d", name, n, mostLocals)
		}
		slices.Sort(names)
		if n := len(slices.Compact(slices.Clone(names))); n != len(names) {
			t.Errorf("%s defines a name twice: %v", name, names)
		}
		if n := upvalues(p); n >= mostUpvalues {
			t.Errorf("a function of %s uses %d variables from outside, the limit is %d", name, n, mostUpvalues)
		}
		if len(source) >= mostBytes {
			t.Errorf("%s has %d bytes, the limit is %d", name, len(source), mostBytes)
		}
	}
}

// upvalues is the largest number of outer variables that one function uses.
func upvalues(p *gopher.FunctionProto) int {
	most := int(p.NumUpvalues)
	for _, inner := range p.FunctionPrototypes {
		most = max(most, upvalues(inner))
	}
	return most
}
