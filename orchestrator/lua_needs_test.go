package orchestrator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gopher "github.com/yuin/gopher-lua"

	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Bounds of what is put together. Redis allows 200 local variables in a function and
// 60 variables of the functions around it; a library of more bytes takes longer to load.
const (
	mostLocals   = 200
	mostUpvalues = 60
	mostBytes    = 500_000
)

// baseParts are in every script, so no header names them.
var baseParts = []string{"_base", "_records", "_writes", "_store", "_prelude", "_identity", "_clock", "_run"}

func TestEveryLuaFileNamesWhatItNeeds(t *testing.T) {
	files := kit.LuaSources(t)
	for _, problem := range needsProblems(t, files) {
		t.Error(problem)
	}
	// The test finds a name that is missing, and one too many.
	planted := func(name, old, new string) []string {
		changed := slices.Clone(files)
		i := slices.IndexFunc(changed, func(f kit.LuaFile) bool { return f.Name == name })
		changed[i].Text = strings.Replace(changed[i].Text, old, new, 1)
		return needsProblems(t, changed)
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"_charge", "-- needs: facts money\n", "", "_charge uses envelope_task"},
		{"submit", "-- needs: client create ", "-- needs: client ", "submit uses create_task"},
		{"_charge", "-- needs: facts money\n", "-- needs: facts money exec\n", "_charge does not use _exec"},
		{"_charge", "warn_budget(payer, p)", "warn_nobody(payer, p)",
			"_charge uses warn_nobody, which no part defines"},
		{"_charge", "-- needs: facts money\n", "-- needs: facts money moneys\n", "_charge needs _moneys, which does not exist"},
	} {
		problems := strings.Join(planted(c.name, c.old, c.new), "\n")
		if !strings.Contains(problems, c.want) {
			t.Errorf("%s with %q in place of %q: got %q, want %q", c.name, c.new, c.old, problems, c.want)
		}
	}
}

// needsProblems compares the needs of every file with the names that it uses.
func needsProblems(t *testing.T, files []kit.LuaFile) []string {
	t.Helper()
	var problems []string
	owners := map[string][]string{} // parts by a name that they define
	for _, f := range files {
		if f.Shared() {
			for _, name := range kit.DefinedNames(kit.CompileLua(t, f.Name, f.Text)) {
				owners[name] = append(owners[name], f.Name)
			}
		}
	}
	for _, f := range files {
		needs, used := f.Needs(), map[string]bool{}
		for _, name := range kit.FreeNames(kit.CompileLua(t, f.Name, f.Text)) {
			of := owners[name]
			isOwner := func(part string) bool { return slices.Contains(of, part) }
			switch {
			case slices.Contains(kit.LuaGlobals, name), slices.ContainsFunc(baseParts, isOwner):
			case len(of) == 0:
				problems = append(problems, fmt.Sprintf("%s uses %s, which no part defines", f.Name, name))
			case !slices.ContainsFunc(needs, isOwner):
				problems = append(problems,
					fmt.Sprintf("%s uses %s and needs none of %v, which define it", f.Name, name, of))
			default:
				used[needs[slices.IndexFunc(needs, isOwner)]] = true
			}
		}
		for _, need := range needs {
			if !slices.ContainsFunc(files, func(f kit.LuaFile) bool { return f.Name == need }) {
				problems = append(problems, fmt.Sprintf("%s needs %s, which does not exist", f.Name, need))
			} else if !used[need] {
				problems = append(problems, fmt.Sprintf("%s does not use %s, which it needs by its header", f.Name,
					need))
			}
		}
	}
	return problems
}

// The base name of a Lua file is the name of a script, so no two files share one.
func TestLuaFileNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range kit.LuaSources(t) {
		if seen[f.Name] {
			t.Errorf("two Lua files are named %s", f.Name)
		}
		seen[f.Name] = true
	}
	for _, name := range kit.ScriptNames() {
		if !seen[name] {
			t.Errorf("script %s has no file", name)
		}
	}
}

// Neither the library nor a script of one verb is near a limit of Redis, and none has two
// parts that use one name.
func TestScriptsStayBelowTheirLimits(t *testing.T) {
	program := kit.Builtin(t)
	sources := map[string]string{"the library": program.Library().Source()}
	for name, verb := range program.Verbs {
		sources[name] = verb.Source()
	}
	for name, source := range sources {
		p := kit.CompileLua(t, name, source)
		names := kit.DefinedNames(p)
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
	}
	if n := len(program.Library().Loaded(time.Now())); n >= mostBytes {
		t.Errorf("the library has %d bytes, the limit is %d", n, mostBytes)
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
