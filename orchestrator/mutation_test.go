package orchestrator_test

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/picket-dev/picket/internal/rig"
)

// The mutation gate: every planted bug of mutants_test.go has to be found by
// the model test or the linearizability test. One that survives shows a
// promise that nothing looks after.

// edit replaces a piece of a Lua file. The old text must be there exactly
// once, so the table cannot rot while the scripts move on.
type edit struct{ file, old, new string }

// mutant is one planted bug.
type mutant struct {
	name  string
	edits []edit
}

// plant returns the change that puts the bug into the source of a script.
func (m mutant) plant(files map[string]string) (func(source string) string, error) {
	changed := map[string]string{}
	for _, e := range m.edits {
		text := cmp.Or(changed[e.file], files[e.file])
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("%s: lua/%s.lua has this %d times, not once:\n%s\nThe script has moved on: plant the bug anew", m.name, e.file, n, e.old)
		}
		changed[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	return func(source string) string {
		for file, text := range changed {
			source = strings.Replace(source, files[file], text, 1)
		}
		return source
	}, nil
}

// garden plants every bug of the table, or says which do not fit any more.
func garden(t *testing.T) map[string]func(string) string {
	t.Helper()
	files, plants := map[string]string{}, map[string]func(string) string{}
	for _, f := range luaSources(t) {
		files[f.name] = f.text
	}
	for _, m := range mutants {
		plant, err := m.plant(files)
		if err != nil {
			t.Error(err)
		}
		if plants[m.name] != nil {
			t.Errorf("two planted bugs are named %q", m.name)
		}
		plants[m.name] = plant
	}
	if t.Failed() {
		t.FailNow()
	}
	return plants
}

// The table keeps up with the scripts.
func TestPlantedBugsFit(t *testing.T) {
	if n := len(garden(t)); n < 25 {
		t.Errorf("only %d planted bugs", n)
	}
	files := map[string]string{"verb": "a\nb\na\n"}
	for _, e := range []edit{{"verb", "c", "d"}, {"verb", "a", "d"}, {"other", "a", "d"}} {
		if _, err := (mutant{"wrong", []edit{e}}).plant(files); err == nil {
			t.Errorf("an edit of %q fits a text that does not have it once", e.old)
		}
	}
}

// verdict says who found a bug, and how long it took.
type verdict struct {
	by     string // "" while it lives
	rounds int    // tried before it was found, or in vain
	took   time.Duration
	said   string
}

// killer is a suite that is shown a mutant for a number of rounds.
type killer struct {
	name string
	try  func(t *testing.T, plant func(string) string, seed uint64) verdict
}

func TestEveryPlantedBugIsFound(t *testing.T) {
	flags := modelFlags(t)
	flags.set("rapid.shrinktime", "0s") // a kill is enough
	flags.set("rapid.steps", "50")
	plants, verdicts := garden(t), map[string]*verdict{}
	for _, m := range mutants {
		verdicts[m.name] = &verdict{}
	}
	alive := mutants
	for i, p := range gate(t) {
		seed := flags.seed + uint64(i)
		flags.set("rapid.checks", fmt.Sprint(p.rounds))
		flags.set("rapid.seed", fmt.Sprint(seed))
		alive = hunt(t, p.killer, seed, alive, plants, verdicts)
	}
	if t.Failed() {
		t.Logf("repeat with: go test ./orchestrator -run '^%s$' -rapid.seed=%d", t.Name(), flags.seed)
	}
	logVerdicts(t, verdicts)
	for _, m := range alive {
		t.Errorf("nobody found: %s (seed %d)", m.name, flags.seed)
	}
}

// phase shows who is still alive to one suite, for a number of rounds.
type phase struct {
	killer
	rounds int
}

// gate lists the phases: most bugs are found in the first, the last go on for
// several times what any bug of the table was seen to need.
func gate(t *testing.T) []phase {
	store := rig.Real(t)
	live := killer{"model, real store", func(t *testing.T, plant func(string) string, _ uint64) verdict { return realModel(t, store, plant) }}
	virtual := killer{"model, virtual clock", virtualModel}
	return []phase{{live, 30}, {virtual, 20}, {live, 400}, {virtual, 200}}
}

// hunt shows every mutant to a suite, as many at once as there are processors,
// and returns the survivors.
func hunt(t *testing.T, k killer, seed uint64, prey []mutant, plants map[string]func(string) string, verdicts map[string]*verdict) []mutant {
	t.Helper()
	t.Run(k.name, func(t *testing.T) {
		for _, m := range prey {
			v, plant := verdicts[m.name], plants[m.name]
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				start := time.Now()
				got := k.try(t, plant, seed)
				got.took = time.Since(start) + v.took
				got.rounds += v.rounds
				*v = got
				if strings.Contains(got.said, "user_script") || strings.Contains(got.said, "ERR ") {
					t.Errorf("the script breaks instead of misbehaving, which proves nothing:\n%s", got.said)
				}
			})
		}
	})
	var left []mutant
	for _, m := range prey {
		if verdicts[m.name].by == "" {
			left = append(left, m)
		}
	}
	return left
}

func virtualModel(t *testing.T, plant func(string) string, _ uint64) (v verdict) {
	synctest.Test(t, func(t *testing.T) {
		v = judge(t, "model, virtual clock", func(rt *rapid.T, _ int) {
			store, stop := rig.Memory()
			defer stop()
			runModel(rt, store, "default", true, plant)
		})
	})
	return v
}

// hunts numbers the namespaces: every round has one of its own.
var hunts atomic.Int64

func realModel(t *testing.T, store rig.Store, plant func(string) string) verdict {
	hunt := hunts.Add(1)
	return judge(t, "model, real store", func(rt *rapid.T, n int) {
		runModel(rt, store, fmt.Sprintf("hunt-%d-%d", hunt, n), false, plant)
	})
}

// judge checks a property under a test of its own that may fail.
func judge(t *testing.T, by string, property func(rt *rapid.T, n int)) verdict {
	w := &bystander{TB: t}
	n, killed := 0, 0
	done := make(chan struct{})
	go func() { // the bystander ends its goroutine as a failed test does
		defer close(done)
		rapid.Check(w, func(rt *rapid.T) {
			n++
			passed := false
			defer func() {
				if !passed && killed == 0 {
					killed = n
				}
			}()
			property(rt, n)
			passed = true
		})
	}()
	<-done
	if !w.failed {
		return verdict{rounds: n}
	}
	return verdict{by: by, rounds: killed, said: strings.Join(w.said, "\n")}
}

// bystander is a test whose failure is seen and not passed on.
type bystander struct {
	testing.TB
	failed bool
	said   []string
}

func (w *bystander) Fail()           { w.failed = true }
func (w *bystander) Failed() bool    { return w.failed }
func (w *bystander) FailNow()        { w.failed = true; runtime.Goexit() }
func (w *bystander) Log(args ...any) { w.said = append(w.said, fmt.Sprintln(args...)) }
func (w *bystander) Logf(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}
func (w *bystander) Error(args ...any)                 { w.Log(args...); w.Fail() }
func (w *bystander) Errorf(format string, args ...any) { w.Logf(format, args...); w.Fail() }
func (w *bystander) Fatal(args ...any)                 { w.Log(args...); w.FailNow() }
func (w *bystander) Fatalf(format string, args ...any) { w.Logf(format, args...); w.FailNow() }

// logVerdicts prints the table, fit for a document.
func logVerdicts(t *testing.T, verdicts map[string]*verdict) {
	t.Helper()
	var out strings.Builder
	out.WriteString("\n| planted bug | found by | rounds | ms |\n|---|---|---|---|\n")
	worst, found := 0, 0
	for _, m := range mutants {
		v := verdicts[m.name]
		fmt.Fprintf(&out, "| %s | %s | %d | %d |\n", m.name, cmp.Or(v.by, "NOBODY"), v.rounds, v.took.Milliseconds())
		if v.by != "" {
			found, worst = found+1, max(worst, v.rounds)
		}
	}
	t.Log(out.String())
	t.Logf("%d of %d planted bugs found, the last after %d rounds", found, len(mutants), worst)
	if path := os.Getenv("PICKET_MUTANTS"); path != "" {
		ok(t, os.WriteFile(path, []byte(out.String()), 0o644))
	}
}

// The control: the engine as it is survives the same hunt.
func TestTheEngineItselfSurvivesTheGate(t *testing.T) {
	flags := modelFlags(t)
	flags.set("rapid.shrinktime", "0s")
	flags.set("rapid.checks", "40")
	flags.set("rapid.steps", "50")
	flags.set("rapid.seed", fmt.Sprint(flags.seed))
	asItIs := func(source string) string { return source + "\n" }
	store := rig.Real(t)
	for _, v := range []verdict{virtualModel(t, asItIs, 0), realModel(t, store, asItIs)} {
		if v.by != "" {
			t.Errorf("%s found a bug where none was planted (seed %d):\n%s", v.by, flags.seed, v.said)
		}
		if v.rounds < 40 {
			t.Errorf("only %d rounds were tried", v.rounds)
		}
	}
}
