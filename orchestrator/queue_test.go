package orchestrator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

func TestLanesPrioritiesAndPins(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		low := f.mustSubmit(t, picket.TaskSpec{Priority: ptr(0)})
		coder := f.mustSubmit(t, picket.TaskSpec{Role: "coder", Needs: []string{"go", "git"}})
		high := f.mustSubmit(t, picket.TaskSpec{Priority: ptr(9)})
		pinned := f.mustSubmit(t, picket.TaskSpec{Agent: "a7", Priority: ptr(9)})
		take := func(req picket.AcquireRequest) string {
			got, err := f.Acquire(f.ctx, operator, req)
			ok(t, err)
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
			f.mustSubmit(t, picket.TaskSpec{})
		}
		got, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{Max: ptr(3)})
		ok(t, err)
		rest, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{Max: ptr(100)})
		ok(t, err)
		if len(got) != 3 || len(rest) != 2 {
			t.Fatalf("%d and %d leases", len(got), len(rest))
		}
		live, err := f.Leases(f.ctx)
		ok(t, err)
		if len(live) != 5 || live[0].LeaseTTLMs <= 0 {
			t.Fatalf("leases %+v", live)
		}
	})
}

func TestTooManyLanes(t *testing.T) {
	rig.SkipShort(t)
	onBothStores(t, func(t *testing.T, f *fixture) {
		for i := range 1024 {
			f.mustSubmit(t, picket.TaskSpec{Role: "r" + strings.Repeat("x", i%100) + string(rune('a'+i/100))})
		}
		_, err := f.Submit(f.ctx, operator, picket.TaskSpec{Title: "t", Role: "one-more"})
		refused(t, err, picket.CodeTooManyLanes)
		f.mustSubmit(t, picket.TaskSpec{Role: "ra"})
		if l := f.acquireOne(t, picket.AcquireRequest{Role: "rxa"}); l.Task.Role != "rxa" {
			t.Fatalf("took %+v", l.Task)
		}
		f.mustSubmit(t, picket.TaskSpec{Role: "one-more"})
	})
}

func TestNotBefore(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.mustSubmit(t, picket.TaskSpec{NotBefore: picket.InstantOf(time.Now().Add(time.Minute))})
		got, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{})
		ok(t, err)
		if len(got) != 0 {
			t.Fatal("leased before its time")
		}
		x, err := f.Explain(f.ctx, task.TaskID)
		ok(t, err)
		if i := slices.IndexFunc(x.Reasons,
			func(r picket.Reason) bool { return r.Code == picket.ReasonNotBefore }); i < 0 ||
			!strings.Contains(x.Reasons[i].Text, "not to start before") ||
			max(x.Reasons[i].Until-task.NotBefore, task.NotBefore-x.Reasons[i].Until) > 1000 {
			t.Fatalf("explain %+v", x)
		}
		f.runReaperFor(t, 61*time.Second)
		f.acquireOne(t, picket.AcquireRequest{})
	})
}

func TestAcquireWaitsAndIsWoken(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		got := make(chan []picket.Lease, 1)
		go func() {
			l, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{Role: "coder", WaitSeconds: ptr(50)})
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		task := f.mustSubmit(t, picket.TaskSpec{Role: "coder"})
		if l := <-got; len(l) != 1 || l[0].TaskID != task.TaskID {
			t.Fatalf("woken with %+v", l)
		}
	})
}

func TestAcquireWaitRunsOut(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		wait := 50
		if !f.virtual {
			wait = 1
		}
		start := time.Now()
		l, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{WaitSeconds: &wait})
		ok(t, err)
		if took := time.Since(start); len(l) != 0 || took < time.Duration(wait)*time.Second ||
			f.virtual && took > 50*time.Second {
			t.Fatalf("%d leases after %s", len(l), took)
		}
	})
}

func TestPause(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		a := f.mustSubmit(t, picket.TaskSpec{})
		f.mustSubmit(t, picket.TaskSpec{})
		h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
		p, err := f.Pause(f.ctx, operator, false, "lunch")
		ok(t, err)
		if !p.Paused || p.Hard || p.Reason != "lunch" {
			t.Fatalf("pause %+v", p)
		}
		none, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{})
		ok(t, err)
		if len(none) != 0 {
			t.Fatal("granted while paused")
		}
		_, err = f.Renew(f.ctx, h)
		ok(t, err)
		_, err = f.Pause(f.ctx, operator, true, "stop")
		ok(t, err)
		_, err = f.Renew(f.ctx, h)
		refused(t, err, picket.CodeLeaseReleased)
		if got := f.wantState(t, a.TaskID, picket.TaskQueued); got.Failures != 0 ||
			got.Runs[0].Exit.Class != picket.ExitReleased {
			t.Fatalf("%+v", got)
		}
		waiting := make(chan int, 1)
		go func() {
			l, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{WaitSeconds: ptr(50)})
			if err != nil {
				t.Error(err)
			}
			waiting <- len(l)
		}()
		p, err = f.Resume(f.ctx, operator, "back")
		ok(t, err)
		if p.Paused || <-waiting != 1 {
			t.Fatalf("resume %+v", p)
		}
	})
}

func TestHardPauseEndsEveryRunInBatches(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for range 250 {
			f.mustSubmit(t, picket.TaskSpec{})
		}
		for range 3 {
			_, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{Max: ptr(100)})
			ok(t, err)
		}
		_, err := f.Pause(f.ctx, operator, true, "")
		ok(t, err)
		for {
			n, err := f.RunChores(f.ctx, 100)
			ok(t, err)
			if n == 0 {
				break
			}
		}
		s, err := f.Stats(f.ctx)
		ok(t, err)
		if s.Tasks[picket.TaskQueued] != 250 || s.Tasks[picket.TaskLeased] != 0 || !s.Pause.Hard {
			t.Fatalf("stats %+v", s)
		}
	})
}

// The adapter of one task takes that task and nobody else's, whatever waits.
func TestPinnedOnlyLeavesOtherTasksAlone(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustSubmit(t, picket.TaskSpec{Priority: ptr(9)})
		mine := f.mustSubmit(t, picket.TaskSpec{Agent: "run-1"})
		only := picket.AcquireRequest{AgentID: "run-1", PinnedOnly: true}
		if l := f.acquireOne(t, only); l.TaskID != mine.TaskID {
			t.Fatalf("took %s", l.TaskID)
		}
		got, err := f.Acquire(f.ctx, operator, only)
		ok(t, err)
		if len(got) != 0 {
			t.Fatalf("took %s, which is not pinned to it", got[0].TaskID)
		}
		_, err = f.Acquire(f.ctx, operator, picket.AcquireRequest{PinnedOnly: true})
		refused(t, err, picket.CodeValidation)
	})
}
