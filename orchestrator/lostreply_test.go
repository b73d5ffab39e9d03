package orchestrator_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// replyCase is one way to call a script that changes state, as its caller calls
// and repeats it.
type replyCase struct {
	name           string // the script, then "/" and a variant
	setup          func(w *replyEnv)
	call           func(w *replyEnv, e *orchestrator.Engine) (any, error)
	answerVaries   string // why a repeat may answer another number
	repeatCounts   string // why a repeat is an act of its own, which leaves its own trace
	duplicateIsOne string // why the very same request twice is one act all the same
	severalCalls   string // why no time may pass before the repeat: the call has several, and the mishap strikes one
	noBackground   string // why nobody may call beside
	neverRepeated  string // why its caller neither sees an error nor repeats
	noClockRead    string // why nothing may read the clock before the dump
	otherWhenFull  string // why a full store lets another part of it through than a store with room
	passesWhenFull bool   // a full store lets it through, though not its script: nothing but its end is asked for
}

func (c replyCase) script() string {
	name, _, _ := strings.Cut(c.name, "/")
	return name
}

// callFault is what happens to the first call.
type callFault struct {
	name string
	kind rig.FaultKind
}

var callFaults = []callFault{
	{"request lost", rig.Drop},
	{"reply lost", rig.SwallowReply},
	{"reply late", rig.HoldReply}, // after the repeat
	{"duplicated", rig.Duplicate},
	{"request late", rig.HoldRequest}, // it, too
}

// pause is the time that passes between a call and its repeat.
func (c replyCase) pause() time.Duration {
	if c.severalCalls != "" {
		return 0
	}
	return 250 * time.Millisecond
}

// dumpAfterRead is a dump after something has read the clock.
func (w *replyEnv) dumpAfterRead(c replyCase, answer any) string {
	w.t.Helper()
	if c.noClockRead == "" {
		_, err := w.direct.Stats(w.ctx)
		ok(w.t, err)
	}
	text, err := dump(w.ctx, w.raw, answer)
	ok(w.t, err)
	if c.answerVaries != "" {
		text = withoutLines(text, "answer ")
	}
	return text
}

// baseline runs a case without a mishap: a letter c calls, a dot lets time pass.
func (p replySetup) baseline(c replyCase, story string) (text string) {
	p.t.Helper()
	if p.baselines[story] != "" {
		return p.baselines[story]
	}
	defer func() {
		if p.baselines != nil {
			p.baselines[story] = text
		}
	}()
	text, err := p.runBaseline(c, story)
	for try := 0; errors.Is(err, picket.ErrUnknown) && try < 10; try++ { // a machine that stood still is a mishap, too
		text, err = p.runBaseline(c, story)
	}
	if err != nil {
		p.t.Fatalf("without any mishap: %v", err)
	}
	return text
}

func (p replySetup) runBaseline(c replyCase, story string) (string, error) {
	p.t.Helper()
	w := p.newEnv()
	defer w.close()
	c.setup(w)
	var answer any
	for _, act := range story {
		if act == '.' {
			w.pass(c.pause())
			continue
		}
		var err error
		if answer, err = c.call(w, w.via); err != nil {
			return "", err
		}
	}
	return w.dumpAfterRead(c, answer), nil
}

// expectedSteps tells the calm run that a mishap with its repeat must equal.
func (c replyCase) expectedSteps(m callFault) string {
	switch {
	case m.kind == rig.Drop && c.neverRepeated != "":
		return "."
	case m.kind == rig.Drop:
		return ".c"
	case m.kind == rig.HoldRequest && c.neverRepeated != "":
		return ".c"
	case m.kind == rig.HoldRequest && c.repeatCounts != "":
		return ".cc"
	case m.kind == rig.HoldRequest:
		return ".c"
	case m.kind == rig.Duplicate && c.repeatCounts != "" && c.duplicateIsOne == "":
		return "cc."
	case m.kind == rig.Duplicate || c.neverRepeated != "" || c.repeatCounts == "":
		return "c."
	}
	return "c.c"
}

// runWithFault runs a case with a mishap and repeats it as its caller would. A
// line of its own says what went wrong on the way.
func (p replySetup) runWithFault(c replyCase, m callFault) string {
	p.t.Helper()
	w := p.newEnv()
	defer w.close()
	c.setup(w)
	stop := w.startBackgroundCalls(p.background)
	defer stop()
	hit := w.faultNext(m.kind, c.script())
	var waits sync.WaitGroup
	waits.Go(func() { w.timeOutCall(m, hit) })
	answer, err := c.call(w, w.via)
	waits.Wait()
	wrong, unseen := "", c.neverRepeated != "" || m.kind == rig.Duplicate
	if unseen && err != nil {
		wrong += fmt.Sprintf("\nthe call got %v", err)
	}
	if !unseen && (picket.CodeOf(err) != picket.CodeUnavailable || !errors.Is(err, picket.ErrUnknown)) {
		wrong += fmt.Sprintf("\nthe first call got %v (%s)", err, picket.CodeOf(err))
	}
	w.pass(c.pause())
	if !unseen {
		if answer, err = c.call(w, w.via); err != nil {
			wrong += fmt.Sprintf("\nthe repeat got %v", err)
		}
	}
	hit.Release()
	w.await(hit.Over(), "the end of the fault")
	stop()
	if n := w.faults.Counts(); n.Struck[m.kind] != 1 {
		wrong += fmt.Sprintf("\nthe proxy counted %+v", n)
	}
	return w.dumpAfterRead(c, answer) + wrong
}

// Every verb that changes state, with each mishap that can befall one call,
// has its effect exactly once after its caller has repeated it, and the repeat
// is answered as an undisturbed call is. What a namespace holds in the end,
// down to the last event, equals a run in which nothing went wrong.
func TestLostRepliesReal(t *testing.T) {
	s := rig.Real(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	start, cells, seed, rounds := time.Now(), 0, rig.Seed(t), rig.Rounds(1, 20)
	cases := todaysCases(t)
	for range rounds {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				p := replySetup{t: t, store: s, baselines: map[string]string{}}
				for _, m := range callFaults {
					want := p.expected(c, m)
					cells += p.cells(c, m, want, rand.New(rand.NewPCG(seed, uint64(cells))))
				}
			})
		}
	}
	t.Logf("%d ways to call scripts x %d mishaps sent plain, pipelined and in company, x %d: %d cells in %.1f s",
		len(cases), len(callFaults), rounds, cells, time.Since(start).Seconds())
}

// todaysCases picks every second way to call a script, the others on the next
// day. A soak takes them all.
func todaysCases(t *testing.T) []replyCase {
	all, day := replyCases(), time.Now().UTC().YearDay()
	if rig.Soaking() {
		return all
	}
	var some []replyCase
	for i, c := range all {
		if i%2 == day%2 {
			some = append(some, c)
		}
	}
	t.Logf("%d of %d ways to call %d scripts, those of day %d; PICKET_SOAK=1 takes all of them", len(some), len(all),
		len(writers()), day)
	return some
}

// expected is the store after an undisturbed run, which must show the effect.
func (p replySetup) expected(c replyCase, m callFault) string {
	p.t.Helper()
	want := p.baseline(c, c.expectedSteps(m))
	if c.expectedSteps(m) != "." && withoutLines(want, "answer ") == withoutLines(p.baseline(c, "."), "answer ") {
		p.t.Fatalf("the call has no effect:\n%s", want)
	}
	return want
}

// cells runs a mishap plain, pipelined, and pipelined in a batch with others.
func (p replySetup) cells(c replyCase, m callFault, want string, rnd *rand.Rand) int {
	p.t.Helper()
	ways := []replySetup{{noPipeline: true}, {}}
	if c.noBackground == "" {
		ways = append(ways, replySetup{background: rnd})
	}
	for _, way := range ways {
		way.t, way.store = p.t, p.store
		if got := way.runWithFault(c, m); got != want {
			p.t.Errorf("%s, plain: %v, in company: %v: the store is not as after %q:\n%s", m.name, way.noPipeline,
				way.background != nil, c.expectedSteps(m), diffLines(got, want))
		}
	}
	return len(ways)
}

// writers are the scripts that the matrix covers.
func writers() []string {
	var out []string
	for _, c := range replyCases() {
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
