package orchestrator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func TestLanesPrioritiesAndPins(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		low := f.MustSubmit(t, picket.TaskSpec{Priority: kit.Ptr(0)})
		coder := f.MustSubmit(t, picket.TaskSpec{Role: "coder", Needs: []string{"go", "git"}})
		high := f.MustSubmit(t, picket.TaskSpec{Priority: kit.Ptr(9)})
		pinned := f.MustSubmit(t, picket.TaskSpec{Agent: "a7", Priority: kit.Ptr(9)})
		take := func(req picket.AcquireRequest) string {
			got, err := f.Acquire(f.Ctx, kit.Operator, req)
			kit.OK(t, err)
			if len(got) == 0 {
				return ""
			}
			return got[0].TaskID
		}
		if got := take(picket.AcquireRequest{Role: "coder", Capabilities: []string{"go"}}); got != high.TaskID {
			t.Fatalf("a coder without git took %s", got)
		}
		if got := take(picket.AcquireRequest{
			Role:         "coder",
			Capabilities: []string{"git", "go", "c"},
		}); got != coder.TaskID {
			t.Fatalf("the coder took %s", got)
		}
		if got := take(picket.AcquireRequest{AgentID: "a7"}); got != pinned.TaskID {
			t.Fatalf("the pinned agent took %s", got)
		}
		if got := take(picket.AcquireRequest{AgentID: "a8"}); got != low.TaskID {
			t.Fatalf("the last took %s", got)
		}
		if got := take(picket.AcquireRequest{}); got != "" {
			t.Fatalf("took %s from nothing", got)
		}
	})
}

func TestManyInOneStep(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for range 5 {
			f.MustSubmit(t, picket.TaskSpec{})
		}
		got, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{Max: kit.Ptr(3)})
		kit.OK(t, err)
		rest, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{Max: kit.Ptr(100)})
		kit.OK(t, err)
		if len(got) != 3 || len(rest) != 2 {
			t.Fatalf("%d and %d leases", len(got), len(rest))
		}
		live, err := f.Leases(f.Ctx)
		kit.OK(t, err)
		if live.Total != 5 || len(live.Leases) != 5 || live.Leases[0].LeaseTTLMs <= 0 {
			t.Fatalf("leases %+v", live)
		}
	})
}

func TestTooManyLanes(t *testing.T) {
	rig.SkipShort(t)
	onBothStores(t, func(t *testing.T, f *fixture) {
		for i := range 1024 {
			f.MustSubmit(t, picket.TaskSpec{Role: "r" + strings.Repeat("x", i%100) + string(rune('a'+i/100))})
		}
		_, err := f.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: "t", Role: "one-more"})
		kit.Refused(t, err, picket.CodeTooManyLanes)
		f.MustSubmit(t, picket.TaskSpec{Role: "ra"})
		if l := f.AcquireOne(t, picket.AcquireRequest{Role: "rxa"}); l.Task.Role != "rxa" {
			t.Fatalf("took %+v", l.Task)
		}
		f.MustSubmit(t, picket.TaskSpec{Role: "one-more"})
	})
}

func TestNotBefore(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{NotBefore: picket.InstantOf(time.Now().Add(time.Minute))})
		got, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{})
		kit.OK(t, err)
		if len(got) != 0 {
			t.Fatal("leased before its time")
		}
		x, err := f.Explain(f.Ctx, task.TaskID)
		kit.OK(t, err)
		if i := slices.IndexFunc(x.Reasons,
			func(r picket.Reason) bool { return r.Code == picket.ReasonNotBefore }); i < 0 ||
			!strings.Contains(x.Reasons[i].Text, "not to start before") ||
			max(x.Reasons[i].Until-task.NotBefore, task.NotBefore-x.Reasons[i].Until) > 1000 {
			t.Fatalf("explain %+v", x)
		}
		f.RunReaperFor(t, 61*time.Second)
		f.AcquireOne(t, picket.AcquireRequest{})
	})
}

func TestAcquireWaitsAndIsWoken(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		got := make(chan []picket.Lease, 1)
		go func() {
			l, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{Role: "coder", WaitSeconds: kit.Ptr(50)})
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		task := f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
		if l := <-got; len(l) != 1 || l[0].TaskID != task.TaskID {
			t.Fatalf("woken with %+v", l)
		}
	})
}

func TestAcquireWaitRunsOut(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		wait := 50
		if !f.Virtual {
			wait = 1
		}
		start := time.Now()
		l, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{WaitSeconds: &wait})
		kit.OK(t, err)
		if took := time.Since(start); len(l) != 0 || took < time.Duration(wait)*time.Second ||
			f.Virtual && took > 50*time.Second {
			t.Fatalf("%d leases after %s", len(l), took)
		}
	})
}

func TestPause(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		a := f.MustSubmit(t, picket.TaskSpec{})
		f.MustSubmit(t, picket.TaskSpec{})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		p, err := f.Pause(f.Ctx, kit.Operator, false, "lunch")
		kit.OK(t, err)
		if !p.Paused || p.Hard || p.Reason != "lunch" {
			t.Fatalf("pause %+v", p)
		}
		none, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{})
		kit.OK(t, err)
		if len(none) != 0 {
			t.Fatal("granted while paused")
		}
		_, err = f.Renew(f.Ctx, h)
		kit.OK(t, err)
		_, err = f.Pause(f.Ctx, kit.Operator, true, "stop")
		kit.OK(t, err)
		_, err = f.Renew(f.Ctx, h)
		kit.Refused(t, err, picket.CodeLeaseReleased)
		if got := f.WantState(t, a.TaskID, picket.TaskQueued); got.Failures != 0 ||
			got.Runs[0].Exit.Class != picket.ExitReleased {
			t.Fatalf("%+v", got)
		}
		waiting := make(chan int, 1)
		go func() {
			l, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{WaitSeconds: kit.Ptr(50)})
			if err != nil {
				t.Error(err)
			}
			waiting <- len(l)
		}()
		p, err = f.Resume(f.Ctx, kit.Operator, "back")
		kit.OK(t, err)
		if p.Paused || <-waiting != 1 {
			t.Fatalf("resume %+v", p)
		}
	})
}

// A pause after a stop leaves it a stop, and is a pause of its own: who has seen only the stop
// does not end it.
func TestAPauseAfterAStop(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		stop, err := f.Pause(f.Ctx, kit.Operator, true, "stop")
		kit.OK(t, err)
		f.MoveStoreTime(t, 2*time.Millisecond)
		later, pauses := stop, 1
		for ; later.At <= stop.At && pauses < 1000; pauses++ { // in the same millisecond
			later, err = f.Pause(f.Ctx, kit.WithKey("key_b"), false, "deploy")
			kit.OK(t, err)
		}
		if !later.Hard || later.Reason != "deploy" || later.By != "key_b" || later.At <= stop.At {
			t.Errorf("the pause after the stop is %+v", later)
		}
		_, err = f.ResumeUnlessChanged(f.Ctx, kit.Operator, "back", stop.At)
		kit.Refused(t, err, picket.CodeStateConflict)
		if n := kit.CountEventsOf(t, f.Fixture, picket.EventPaused); n != pauses {
			t.Errorf("%d of %d pauses are in the log", n, pauses)
		}
		_, err = f.ResumeUnlessChanged(f.Ctx, kit.Operator, "back", later.At)
		kit.OK(t, err)
	})
}

func TestHardPauseEndsEveryRunInBatches(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for range 250 {
			f.MustSubmit(t, picket.TaskSpec{})
		}
		for range 3 {
			_, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{Max: kit.Ptr(100)})
			kit.OK(t, err)
		}
		_, err := f.Pause(f.Ctx, kit.Operator, true, "")
		kit.OK(t, err)
		for {
			n, err := f.RunChores(f.Ctx, 100)
			kit.OK(t, err)
			if n == 0 {
				break
			}
		}
		s, err := f.Stats(f.Ctx)
		kit.OK(t, err)
		if s.Tasks[picket.TaskQueued] != 250 || s.Tasks[picket.TaskLeased] != 0 || !s.Pause.Hard {
			t.Fatalf("stats %+v", s)
		}
	})
}

// The adapter of one task takes that task and nobody else's, whatever waits.
func TestPinnedOnlyLeavesOtherTasksAlone(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{Priority: kit.Ptr(9)})
		mine := f.MustSubmit(t, picket.TaskSpec{Agent: "run-1"})
		only := picket.AcquireRequest{AgentID: "run-1", PinnedOnly: true}
		if l := f.AcquireOne(t, only); l.TaskID != mine.TaskID {
			t.Fatalf("took %s", l.TaskID)
		}
		got, err := f.Acquire(f.Ctx, kit.Operator, only)
		kit.OK(t, err)
		if len(got) != 0 {
			t.Fatalf("took %s, which is not pinned to it", got[0].TaskID)
		}
		_, err = f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{PinnedOnly: true})
		kit.Refused(t, err, picket.CodeValidation)
	})
}
