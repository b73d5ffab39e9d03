package replies

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/calls"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A registration that was not sent under a key and whose reply was lost is made
// once: its repeat finds the id live, and learns so.
func TestALostRegistrationWithoutAKeyReal(t *testing.T) {
	s := rig.Real(t)
	for _, m := range calls.Faults[:3] {
		t.Run(m.Name, func(t *testing.T) {
			w := calls.Setup{T: t, Store: s}.NewEnv()
			defer w.Close()
			hit := w.FaultNext(m.Kind, "register")
			done := make(chan struct{})
			go func() { defer close(done); w.TimeOutCall(m, hit) }()
			_, err := w.Via.Register(w.Ctx, kit.AgentOwner, calls.TestAgent)
			<-done
			kit.Refused(t, err, picket.CodeUnavailable)
			hit.Release()
			w.Await(hit.Over(), "the end of the fault")
			a, err := w.Via.Register(w.Ctx, kit.AgentOwner, calls.TestAgent)
			if m.Kind == rig.Drop {
				kit.OK(t, err)
			} else {
				kit.Refused(t, err, picket.CodeStateConflict)
				a, _, err = w.Direct.Agent(w.Ctx, "m1")
				kit.OK(t, err)
			}
			if a.Incarnation != 1 || a.Version != 1 {
				t.Errorf("registered as %+v", a)
			}
			page, err := w.Direct.Events(w.Ctx, picket.EventQuery{Types: []string{picket.EventAgentLifecycle}})
			kit.OK(t, err)
			if len(page.Events) != 1 {
				t.Errorf("%d events of one registration", len(page.Events))
			}
		})
	}
}

// runWithFault runs a case with a mishap and repeats it as its caller would. A
// line of its own says what went wrong on the way.
func runWithFault(p calls.Setup, c calls.Case, m calls.Fault) string {
	p.T.Helper()
	w := p.NewEnv()
	defer w.Close()
	c.Setup(w)
	stop := w.StartBackgroundCalls(p.Background)
	defer stop()
	hit := w.FaultNext(m.Kind, c.Script())
	var waits sync.WaitGroup
	waits.Go(func() { w.TimeOutCall(m, hit) })
	answer, err := c.Call(w, w.Via)
	waits.Wait()
	wrong, unseen := "", c.NeverRepeated != "" || m.Kind == rig.Duplicate
	if unseen && err != nil {
		wrong += fmt.Sprintf("\nthe call got %v", err)
	}
	if !unseen && (picket.CodeOf(err) != picket.CodeUnavailable || !errors.Is(err, picket.ErrUnknown)) {
		wrong += fmt.Sprintf("\nthe first call got %v (%s)", err, picket.CodeOf(err))
	}
	w.Pass(c.Pause())
	if !unseen {
		if answer, err = c.Call(w, w.Via); err != nil {
			wrong += fmt.Sprintf("\nthe repeat got %v", err)
		}
	}
	hit.Release()
	w.Await(hit.Over(), "the end of the fault")
	stop()
	if n := w.Faults.Counts(); n.Struck[m.Kind] != 1 {
		wrong += fmt.Sprintf("\nthe proxy counted %+v", n)
	}
	return w.DumpAfterRead(c, answer) + wrong
}

// Every verb that changes state, with each mishap that can befall one call,
// has its effect exactly once after its caller has repeated it, and the repeat
// is answered as an undisturbed call is. What a namespace holds in the end,
// down to the last event, equals a run in which nothing went wrong.
func TestLostRepliesReal(t *testing.T) {
	s := rig.Real(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	start, cells, seed, rounds := time.Now(), 0, rig.Seed(t), rig.SoakRounds(t, "lost replies", 1, 20)
	cases := todaysCases(t)
	for range rounds {
		for _, c := range cases {
			t.Run(c.Name, func(t *testing.T) {
				p := calls.Setup{T: t, Store: s, Baselines: map[string]string{}}
				for _, m := range calls.Faults {
					want := expected(p, c, m)
					cells += runCells(p, c, m, want, rand.New(rand.NewPCG(seed, uint64(cells))))
				}
			})
		}
	}
	t.Logf("%d ways to call scripts x %d mishaps sent without batches, with them and beside others, x %d: %d cells in %.1f s",
		len(cases), len(calls.Faults), rounds, cells, time.Since(start).Seconds())
}

// todaysCases picks every second way to call a script, the others on the next
// day. Under the race detector it is every sixteenth. A soak takes them all.
func todaysCases(t *testing.T) []calls.Case {
	all, shares := calls.All(), 2
	if rig.Race {
		shares = 16
	}
	var some []calls.Case
	for i, c := range all {
		if rig.OfToday(i, shares) {
			some = append(some, c)
		}
	}
	t.Logf("%d of %d ways to call %d scripts, those of day %d; PICKET_SOAK=1 takes all of them", len(some), len(all),
		len(calls.Writers()), rig.Today)
	return some
}

// expected is the store after an undisturbed run, which must show the effect.
func expected(p calls.Setup, c calls.Case, m calls.Fault) string {
	p.T.Helper()
	want := p.Baseline(c, c.ExpectedSteps(m))
	if c.ExpectedSteps(m) != "." && kit.WithoutLines(want, "answer ") == kit.WithoutLines(p.Baseline(c, "."),
		"answer ") {
		p.T.Fatalf("the call has no effect:\n%s", want)
	}
	return want
}

// runCells runs a mishap without batches, with them, and beside calls of another namespace.
func runCells(p calls.Setup, c calls.Case, m calls.Fault, want string, rnd *rand.Rand) int {
	p.T.Helper()
	ways := []calls.Setup{{NoBatch: true}, {}}
	if c.NoBackground == "" {
		ways = append(ways, calls.Setup{Background: rnd})
	}
	for _, way := range ways {
		way.T, way.Store = p.T, p.Store
		if got := runWithFault(way, c, m); got != want {
			p.T.Errorf("%s, plain: %v, in company: %v: the store is not as after %q:\n%s", m.Name, way.NoBatch,
				way.Background != nil, c.ExpectedSteps(m), kit.DiffLines(got, want))
		}
	}
	return len(ways)
}

// The matrix is complete: each script changes state and is in it, or it reads
// and is listed as such.
func TestEveryVerbIsInTheLostReplyMatrix(t *testing.T) {
	writes := calls.Writers()
	for _, name := range kit.ScriptNames() {
		reads := slices.Contains(calls.Readers, name)
		if writes := slices.Contains(writes, name); writes == reads {
			t.Errorf("%s.lua: in the matrix of lost replies: %v, listed as one that only reads: %v; one of them must be", name, writes, reads)
		}
	}
	for _, name := range append(writes, calls.Readers...) {
		if !slices.Contains(kit.ScriptNames(), name) {
			t.Errorf("%s.lua does not exist", name)
		}
	}
}
