package mutants

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/attacks"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
	"github.com/picket-dev/picket/orchestrator/proof/linear"
	"github.com/picket-dev/picket/orchestrator/proof/model"
)

// The mutation gate: an attack, a test of the engine, the model or the linearizability
// test has to find every planted bug. One that survives shows a promise that nothing
// tests.

type edit = kit.MarkedLine

// allMutants are the planted bugs of all tables.
func allMutants() []mutant {
	return slices.Concat(mutants, agentMutants, moneyMutants, keyMutants, quotaMutants, loginMutants,
		lateReportMutants, noticeMutants, runKeyMutants, auditMutants, bundleMutants, messageMutants,
		policyMutants, sessionMutants, wakeMutants, capabilityMutants, sessionMoneyMutants, clientMutants, pushMutants,
		eventMutants)
}

// needStillClock are the planted bugs of a millisecond: only a clock that stands
// still shows them.
var needStillClock = []string{"unhealthy at the threshold already", "dead at the threshold already"}

// mutant is one planted bug.
type mutant struct {
	name  string
	edits []edit
}

// plant returns the changes that put the bug into the source of a script.
func (m mutant) plant(files map[string]string) (kit.LuaChanges, error) {
	changes, err := kit.PlantMarked(files, m.edits...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	return changes, nil
}

// compileMutants plants every bug of the table, or says which do not fit any more.
func compileMutants(t *testing.T) map[string]*kit.ScriptPatch {
	t.Helper()
	files, plants := kit.LuaTexts(t), map[string]*kit.ScriptPatch{}
	for _, m := range allMutants() {
		changes, err := m.plant(files)
		if err != nil {
			t.Error(err)
		}
		if plants[m.name] != nil {
			t.Errorf("two planted bugs are named %q", m.name)
		}
		plants[m.name] = &kit.ScriptPatch{Name: m.name, Of: changes.Apply}
	}
	if t.Failed() {
		t.FailNow()
	}
	return plants
}

// Every mark of the scripts names one line, and a planted bug of some suite uses it.
func TestEveryMarkIsUsed(t *testing.T) {
	paths, err := filepath.Glob("../*/*.go")
	kit.OK(t, err)
	var suites strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		kit.OK(t, err)
		suites.Write(text)
	}
	for name, n := range kit.Marks(kit.LuaTexts(t)) {
		if n != 1 {
			t.Errorf("%d lines of Lua are marked @%s, want 1", n, name)
		}
		if !strings.Contains(suites.String(), strconv.Quote(name)) {
			t.Errorf("no planted bug uses the mark @%s", name)
		}
	}
}

// The table keeps up with the scripts.
func TestPlantedBugsFit(t *testing.T) {
	if n := len(compileMutants(t)); n < 25 {
		t.Errorf("only %d planted bugs", n)
	}
	files := map[string]string{"verb": "a -- @once\nb\nc -- @twice\n", "_part": "c -- @twice\n"}
	for _, e := range []edit{{"never", "d"}, {"twice", "d"}, {"once", "a"}} {
		if _, err := (mutant{"wrong", []edit{e}}).plant(files); err == nil {
			t.Errorf("%+v fits where it does not", e)
		}
	}
	if got, err := (mutant{"right", []edit{{"once", "d"}}}).plant(files); err != nil || len(got) != 1 ||
		got[0].New != "d\nb\nc -- @twice\n" {
		t.Errorf("planted %+v: %v", got, err)
	}
}

// verdicts holds them by mutant and suite.
type verdicts map[string]map[string]kit.Verdict

// phase shows mutants to one suite, for a number of rounds.
type phase struct {
	suite  string
	rounds int
	try    func(t *testing.T, bug *kit.ScriptPatch, rounds int) kit.Verdict
	of     []mutant // those that it is shown; all where there are none
}

// ignoringRounds wraps a suite that rapid's flags bound, or that has one round.
func ignoringRounds(
	try func(*testing.T, *kit.ScriptPatch) kit.Verdict,
) func(*testing.T, *kit.ScriptPatch, int) kit.Verdict {
	return func(t *testing.T, bug *kit.ScriptPatch, _ int) kit.Verdict { return try(t, bug) }
}

// shows reports whether a phase is for a mutant.
func (p phase) shows(m mutant) bool {
	return p.of == nil || slices.ContainsFunc(p.of, func(o mutant) bool { return o.name == m.name })
}

// huntPhases lists the phases. Fixed attacks come first, each set for the bugs that it
// was written for. Most other bugs are found by the short random phases. The last
// phases go on for several times what any bug of the table was seen to need.
func huntPhases(t *testing.T, seed uint64) []phase {
	store := rig.Real(t)
	live := func(n int) phase {
		return phase{
			suite:  "model, real store",
			rounds: n,
			try: ignoringRounds(func(t *testing.T, bug *kit.ScriptPatch) kit.Verdict {
				return realModel(t, store, bug)
			}),
		}
	}
	virtual := func(n int) phase {
		return phase{suite: "model, virtual clock", rounds: n, try: ignoringRounds(virtualModel)}
	}
	races := func(n int) phase {
		return phase{
			suite:  "linearizability",
			rounds: n,
			try: func(t *testing.T, bug *kit.ScriptPatch, rounds int) kit.Verdict {
				return linear.Hunt(t, store, bug, seed, rounds)
			},
		}
	}
	attacks := []phase{
		{"attack, quotas", 1, ignoringRounds(attacks.AttackPhase(attacks.QuotaAttacks...)), quotaMutants},
		{"attack, run keys", 1, ignoringRounds(attacks.AttackPhase(attacks.RunKeyAttacks...)), runKeyMutants},
		{"attack, late reports", 1, ignoringRounds(attacks.AttackPhase(attacks.LateReportAttacks...)),
			lateReportMutants},
		{"attack, logins", 1, ignoringRounds(attacks.AttackPhase(attacks.AttackLogins)), loginMutants},
		{"attack, audit log", 1, ignoringRounds(attacks.AttackPhase(attacks.AttackAudit)), auditMutants},
		{"test of the engine", 1, ignoringRounds(huntByTest), mutantsWithTest()},
	}
	if rig.Soaking() {
		return append(attacks, live(1000), virtual(200), races(50))
	}
	return append(attacks, live(20), virtual(5), live(1000), virtual(200), races(20))
}

// huntSeed makes the rounds the same every time: a bug that is found late must
// not come and go with the seed. A soak draws its own.
const huntSeed = 20261121

// TestEveryPlantedBugIsFound stops at the first suite that finds a bug; in a
// soak every suite is shown every bug.
func TestEveryPlantedBugIsFound(t *testing.T) {
	flags := kit.NewRapidFlags(t)
	flags.Set("rapid.shrinktime", "0s") // a kill is enough
	flags.Set("rapid.steps", "50")
	if !rig.Soaking() && !kit.GivenFlags()["rapid.seed"] {
		flags.Seed = huntSeed
	}
	plants, all, planted := compileMutants(t), verdicts{}, todaysMutants(t)
	phases := huntPhases(t, flags.Seed)
	for i, p := range phases {
		flags.Set("rapid.checks", fmt.Sprint(p.rounds))
		flags.Set("rapid.seed", fmt.Sprint(flags.Seed+uint64(i)))
		var prey []mutant
		for _, m := range planted {
			if slices.Contains(needStillClock, m.name) && p.suite != "model, virtual clock" {
				continue
			}
			if p.shows(m) && (rig.Soaking() || !all.found(m)) {
				prey = append(prey, m)
			}
		}
		if lastRound := hunt(t, p, prey, plants, all); lastRound > controlRounds {
			flags.Set("rapid.checks", fmt.Sprint(lastRound))
			survives(t, p, lastRound, flags.Seed+uint64(i))
		}
	}
	all.log(t, planted, phases)
	for _, m := range planted {
		if !all.found(m) {
			t.Errorf("nobody found: %s", m.name)
		}
	}
	if t.Failed() {
		t.Logf("repeat with: go test ./orchestrator/proof/mutants -run '^%s$' -rapid.seed=%d", t.Name(), flags.Seed)
	}
}

// todaysMutants picks every sixteenth bug, other ones every day, so that the gate does not
// take longer than all other suites. Under the race detector it is every 64th. A soak plants every one, as does
// PICKET_MUTANTS=FILE, which writes the table there. That all of them still fit
// is looked at every time.
func todaysMutants(t *testing.T) []mutant {
	all, shares := allMutants(), 16
	if rig.Race {
		shares = 64
	}
	if rig.Soaking() || os.Getenv("PICKET_MUTANTS") != "" {
		return all
	}
	var some []mutant
	for i, m := range all {
		if rig.OfToday(i, shares) && !slices.Contains(slowMutants, m.name) {
			some = append(some, m)
		}
	}
	t.Logf("planted: %d of %d, those of day %d; PICKET_MUTANTS=FILE plants every one", len(some), len(all), rig.Today)
	return some
}

// scriptError finds what a script that cannot run says. ERR is a word of its own: an
// id may end in these letters.
var scriptError = regexp.MustCompile(`user_script|\bERR |panic|open namespace`)

func TestAScriptThatBreaksIsTold(t *testing.T) {
	for said, broken := range map[string]bool{
		"want task_01M819N7EDNKAVD9KZSMCQHERR stop_task": false,
		"acquire: ERR wrong number of arguments":         true,
		"ERR user_script:12: attempt to index nil":       true,
		"panic: runtime error":                           true,
		"a1 holds 3 leases, want 2":                      false,
	} {
		if scriptError.MatchString(said) != broken {
			t.Errorf("%q: broken is %v", said, !broken)
		}
	}
}

// hunt shows mutants to a suite, as many at once as there are processors. It returns the last round in which the suite
// found one.
func hunt(t *testing.T, p phase, prey []mutant, plants map[string]*kit.ScriptPatch, all verdicts) (lastRound int) {
	t.Helper()
	var mu sync.Mutex
	t.Run(p.suite, func(t *testing.T) {
		for _, m := range prey {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				start := time.Now()
				v := p.try(t, plants[m.name], p.rounds)
				plants[m.name].Was.Clear()
				mu.Lock()
				defer mu.Unlock()
				if all[m.name] == nil {
					all[m.name] = map[string]kit.Verdict{}
				}
				if v.Found {
					lastRound = max(lastRound, v.Rounds)
				}
				was := all[m.name][p.suite]
				v.Rounds, v.Took = v.Rounds+was.Rounds, time.Since(start)+was.Took
				all[m.name][p.suite] = v
				// This test calls every script, with arguments that most refuse and some cannot use.
				callsAll := findingTests[m.name] == "TestEveryScriptWaitsForTheConversion"
				if scriptError.MatchString(v.Said) && !callsAll {
					t.Errorf("the script breaks instead of misbehaving, which proves nothing:\n%s", v.Said)
				}
			})
		}
	})
	return lastRound
}

func virtualModel(t *testing.T, bug *kit.ScriptPatch) (v kit.Verdict) {
	synctest.Test(t, func(t *testing.T) {
		v = kit.CheckProperty(t, func(rt *rapid.T, _ int) {
			store, stop := rig.Memory()
			defer stop()
			model.Run(rt, store, "default", true, bug)
		})
	})
	return v
}

// hunts numbers the namespaces: every round has one of its own.
var hunts atomic.Int64

func realModel(t *testing.T, store rig.Store, bug *kit.ScriptPatch) kit.Verdict {
	hunt := hunts.Add(1)
	return kit.CheckProperty(t, func(rt *rapid.T, n int) {
		model.Run(rt, store, fmt.Sprintf("hunt-%d-%d", hunt, n), false, bug)
	})
}

func (all verdicts) found(m mutant) bool {
	for _, v := range all[m.name] {
		if v.Found {
			return true
		}
	}
	return false
}

// log prints the table of docs/proof.md.
func (all verdicts) log(t *testing.T, planted []mutant, phases []phase) {
	t.Helper()
	var out strings.Builder
	fmt.Fprintf(&out, "| planted bug | found by | round |\n|---|---|---|\n")
	found, took := 0, time.Duration(0)
	for _, m := range planted {
		by, rounds := "nobody", 0
		for _, p := range phases {
			v, tried := all[m.name][p.suite]
			if tried && v.Found {
				by, rounds = p.suite, v.Rounds
				found++
				break
			}
		}
		for _, v := range all[m.name] {
			took += v.Took
		}
		fmt.Fprintf(&out, "| %s | %s | %d |\n", m.name, by, rounds)
	}
	t.Log("\n" + out.String())
	t.Logf("%d of %d planted bugs found, %v of hunting", found, len(planted), took.Round(time.Second))
	if path := os.Getenv("PICKET_MUTANTS"); path != "" {
		kit.OK(t, os.WriteFile(path, []byte(out.String()), 0o644))
	}
}

// controlRounds is the largest number of rounds in which TestNoBugIsFoundWhereNoneIsPlanted tries the engine as it is.
// If a bug is found later, the engine as it is has to survive as many rounds, or the finding proves nothing.
const controlRounds = 20

// survives shows a suite the engine as it is.
func survives(t *testing.T, p phase, rounds int, seed uint64) {
	t.Helper()
	v := p.try(t, &kit.ScriptPatch{Of: func(source string) string { return source + "\n" }}, rounds)
	if v.Found {
		t.Errorf("%s: a bug was found where none was planted (seed %d):\n%s", p.suite, seed, v.Said)
	}
	if v.Rounds < rounds {
		t.Errorf("%s: only %d of %d rounds were tried", p.suite, v.Rounds, rounds)
	}
}

// The control: the engine as it is survives the same hunt, under the very seeds
// of the gate and under one that nobody chose.
func TestNoBugIsFoundWhereNoneIsPlanted(t *testing.T) {
	flags := kit.NewRapidFlags(t)
	flags.Set("rapid.shrinktime", "0s")
	flags.Set("rapid.steps", "50")
	try := func(p phase, rounds int, seed uint64) {
		flags.Set("rapid.checks", fmt.Sprint(rounds))
		flags.Set("rapid.seed", fmt.Sprint(seed))
		survives(t, p, rounds, seed)
	}
	for i, p := range huntPhases(t, huntSeed) {
		if p.suite != "test of the engine" && p.rounds <= controlRounds { // where most are found
			half := (p.rounds + 1) / 2
			try(p, rig.Rounds(half, half), huntSeed+uint64(i))
		}
	}
	fresh := map[string]int{"model, virtual clock": 10, "model, real store": 10, "linearizability": 2}
	for _, p := range huntPhases(t, flags.Seed) {
		if n := fresh[p.suite]; n > 0 {
			try(p, rig.Rounds(n, n), flags.Seed)
			delete(fresh, p.suite)
		}
	}
}
