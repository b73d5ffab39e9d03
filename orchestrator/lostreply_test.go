package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// lostCase is one way to call a script that changes state, as its caller calls
// and repeats it.
type lostCase struct {
	name   string // the script, then "/" and a variant
	setup  func(w *lostWorld)
	call   func(w *lostWorld, e *orchestrator.Engine) (any, error)
	counts string // why a repeat may answer another number
	again  string // why a repeat is an act of its own, which leaves its own trace
	stages string // why no time may pass before the repeat: the call has several, and the mishap strikes one
	silent string // why its caller neither sees an error nor repeats
}

func (c lostCase) script() string {
	name, _, _ := strings.Cut(c.name, "/")
	return name
}

// mishap is what happens to the first call.
type mishap struct {
	name string
	kind rig.Kind
}

var mishaps = []mishap{
	{"request lost", rig.Drop},
	{"reply lost", rig.SwallowReply},
	{"reply late", rig.HoldReply}, // after the repeat
	{"duplicated", rig.Duplicate},
	{"request late", rig.HoldRequest}, // it, too
}

// pause is the time that passes between a call and its repeat.
func (c lostCase) pause() time.Duration {
	if c.stages != "" {
		return 0
	}
	return 250 * time.Millisecond
}

// lostWorld is a fresh namespace whose clock stands still, an engine on it,
// and another one that reaches it through a proxy.
type lostWorld struct {
	t       *testing.T
	ctx     context.Context
	direct  *orchestrator.Engine
	via     *orchestrator.Engine
	faults  *rig.Faults
	sha     map[string]string
	raw     redis.UniversalClient
	stores  []*orchestrator.Store
	now     time.Duration // on the clock, since 1970
	witness string        // the directory that both processes keep their floor in

	// What a set-up leaves for the call.
	task    picket.Task
	run     string
	held    picket.Held
	handoff string
	key     string
}

func newLostWorld(t *testing.T, s rig.Store, noPipeline bool) *lostWorld {
	t.Helper()
	w := &lostWorld{t: t, ctx: t.Context(), raw: redis.NewUniversalClient(&s.Redis), now: 1_790_000_000 * time.Second}
	ok(t, w.raw.FlushAll(w.ctx).Err())
	through, faults := s.Faulty(t)
	w.faults = faults
	w.witness = t.TempDir()
	for _, at := range []struct {
		store rig.Store
		e     **orchestrator.Engine
	}{{s, &w.direct}, {through, &w.via}} {
		store, err := orchestrator.Open(w.ctx, orchestrator.Config{Redis: at.store.Redis, Sealer: rig.Sealer(), NoPipeline: noPipeline,
			Witness: w.witness, Found: true, Log: slog.New(slog.DiscardHandler)})
		ok(t, err)
		orchestrator.Rewrite(store, func(source string) string { return stillClock(t, source) })
		w.stores = append(w.stores, store)
		*at.e = store.Engine("default")
	}
	w.sha = orchestrator.Scripts(w.stores[1])
	w.load()
	w.pass(0)
	ms := fmt.Sprint(w.now.Milliseconds())
	ok(t, w.raw.HSet(w.ctx, meta, "now", ms, "raw", ms).Err())
	_, err := w.direct.Stats(w.ctx) // its connection is made before a case has changed anything
	ok(t, err)
	return w
}

// load makes the server know every script, so that no call is sent twice.
func (w *lostWorld) load() {
	w.t.Helper()
	known, err := w.raw.ScriptExists(w.ctx, slices.Collect(maps.Values(w.sha))...).Result()
	ok(w.t, err)
	if !slices.Contains(known, false) {
		return
	}
	for _, source := range orchestrator.Sources(w.stores[1]) {
		ok(w.t, w.raw.ScriptLoad(w.ctx, source).Err())
	}
}

// stillClock makes a script read the clock of the test.
func stillClock(t *testing.T, source string) string {
	const reading = "call('TIME')"
	if n := strings.Count(source, reading); n != 1 {
		t.Fatalf("a script reads the clock %d times:\n%s", n, source)
	}
	source = strings.Replace(source, "redis."+reading, reading, 1)
	return strings.Replace(source, reading, `redis.call('HMGET', 'rig-clock', 's', 'us')`, 1)
}

// pass moves the clock on.
func (w *lostWorld) pass(d time.Duration) {
	w.t.Helper()
	w.now += d
	ok(w.t, w.raw.HSet(w.ctx, "rig-clock", "s", int64(w.now/time.Second), "us", int64(w.now%time.Second/time.Microsecond)).Err())
}

func (w *lostWorld) close() {
	for _, s := range w.stores {
		_ = s.Close()
	}
	w.faults.Close()
	_ = w.raw.Close()
}

// settled is a dump after something has read the clock.
func (w *lostWorld) settled(c lostCase, answer any) string {
	w.t.Helper()
	_, err := w.direct.Stats(w.ctx)
	ok(w.t, err)
	text, err := dump(w.ctx, w.raw, answer)
	ok(w.t, err)
	if c.counts != "" {
		text = without(text, "answer ")
	}
	return text
}

// calm runs a case without a mishap: a letter c calls, a dot lets time pass.
func calm(t *testing.T, s rig.Store, c lostCase, story string) string {
	t.Helper()
	w := newLostWorld(t, s, false)
	defer w.close()
	c.setup(w)
	var answer any
	for _, act := range story {
		if act == '.' {
			w.pass(c.pause())
			continue
		}
		var err error
		answer, err = c.call(w, w.via)
		if err != nil {
			t.Fatalf("without any mishap: %v", err)
		}
	}
	return w.settled(c, answer)
}

// story tells the calm run that a mishap with its repeat must equal.
func (c lostCase) story(m mishap) string {
	switch {
	case m.kind == rig.Drop && c.silent != "":
		return "."
	case m.kind == rig.Drop:
		return ".c"
	case m.kind == rig.HoldRequest && c.silent != "":
		return ".c"
	case m.kind == rig.HoldRequest && c.again != "":
		return ".cc"
	case m.kind == rig.HoldRequest:
		return ".c"
	case m.kind == rig.Duplicate && c.again != "":
		return "cc."
	case m.kind == rig.Duplicate || c.silent != "" || c.again == "":
		return "c."
	}
	return "c.c"
}

// disturbed runs a case with a mishap and repeats it as its caller would.
func disturbed(t *testing.T, s rig.Store, c lostCase, m mishap, noPipeline bool) string {
	t.Helper()
	w := newLostWorld(t, s, noPipeline)
	defer w.close()
	c.setup(w)
	hit := w.faults.Next(m.kind, rig.Words("EVALSHA", w.sha[c.script()]))
	var waits sync.WaitGroup
	waits.Go(func() { w.giveUp(m, hit) })
	answer, err := c.call(w, w.via)
	waits.Wait()
	if c.silent == "" && m.kind != rig.Duplicate {
		if picket.CodeOf(err) != picket.CodeUnavailable || !errors.Is(err, picket.ErrUnknown) {
			t.Errorf("the first call got %v (%s)", err, picket.CodeOf(err))
		}
	} else if err != nil {
		t.Errorf("the call got %v", err)
	}
	w.pass(c.pause())
	if c.silent == "" && m.kind != rig.Duplicate {
		if answer, err = c.call(w, w.via); err != nil {
			t.Errorf("the repeat got %v", err)
		}
	}
	hit.Release()
	w.await(hit.Over(), "the end of the fault")
	if n := w.faults.Counts(); n.Struck[m.kind] != 1 {
		t.Errorf("the proxy counted %+v", n)
	}
	return w.settled(c, answer)
}

// giveUp lets the first call time out when its fault holds what it waits for.
func (w *lostWorld) giveUp(m mishap, hit *rig.Fault) {
	switch m.kind {
	case rig.HoldRequest:
		w.await(hit.Struck(), "the request")
		hit.GiveUp()
	case rig.HoldReply:
		w.await(hit.Answered(), "the reply")
		hit.GiveUp()
	default:
		w.await(hit.Struck(), "the request")
	}
}

func (w *lostWorld) await(c <-chan struct{}, what string) {
	select {
	case <-c:
	case <-time.After(30 * time.Second):
		w.t.Errorf("%s never came", what)
		w.faults.Cut()
	}
}

// Every verb that changes state, with each mishap that can befall one call,
// has its effect exactly once after its caller has repeated it, and the repeat
// is answered as an undisturbed call is. What a namespace holds in the end,
// down to the last event, equals a run in which nothing went wrong.
func TestLostRepliesReal(t *testing.T) {
	s := rig.Real(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	start, cells := time.Now(), 0
	for _, c := range lostCases() {
		t.Run(c.name, func(t *testing.T) {
			want := map[string]string{"": calm(t, s, c, ".")}
			for _, m := range mishaps {
				story := c.story(m)
				if want[story] == "" {
					want[story] = calm(t, s, c, story)
					if story != "." && without(want[story], "answer ") == without(want[""], "answer ") {
						t.Fatalf("the call has no effect:\n%s", want[story])
					}
				}
				for _, noPipeline := range []bool{false, true} {
					cells++
					got := disturbed(t, s, c, m, noPipeline)
					if got != want[story] {
						t.Errorf("%s, NoPipeline=%v: the store is not as after %q:\n%s", m.name, noPipeline, story, difference(got, want[story]))
					}
				}
			}
		})
	}
	t.Logf("%d ways to call %d scripts, %d mishaps, pipeliner on and off: %d cells in %.1f s", len(lostCases()), len(writers()), len(mishaps), cells, time.Since(start).Seconds())
}

// writers are the scripts that the matrix covers.
func writers() []string {
	var out []string
	for _, c := range lostCases() {
		out = append(out, c.script())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// The matrix is complete: each script changes state and is in it, or it reads
// and is listed as such.
func TestEveryVerbIsInTheLostReplyMatrix(t *testing.T) {
	writes := writers()
	for _, name := range orchestrator.ScriptNames() {
		reads := slices.Contains(readers, name)
		if writes := slices.Contains(writes, name); writes == reads {
			t.Errorf("%s.lua: in the matrix of lost replies: %v, listed as one that only reads: %v; one of them must be", name, writes, reads)
		}
	}
	for _, name := range append(writes, readers...) {
		if !slices.Contains(orchestrator.ScriptNames(), name) {
			t.Errorf("%s.lua does not exist", name)
		}
	}
}
