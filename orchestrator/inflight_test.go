package orchestrator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// outside is a call that acts outside for up to ten seconds.
func outside() picket.CallRequest {
	c := paid("0.1")
	c.Effects, c.TimeoutMs = picket.EffectsExternal, 10_000
	return c
}

// nobody has a task to lease.
func (f *fixture) noLease(t *testing.T) {
	t.Helper()
	got, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{AgentID: "a1"})
	ok(t, err)
	if len(got) != 0 {
		t.Fatalf("%s was leased", got[0].TaskID)
	}
}

// The next lease waits until what was begun under the last one has ended, or
// its deadline has passed; a call without effects outside keeps nobody waiting.
func TestTheNextLeaseWaitsForCallsOutside(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		task, h := f.start(t, picket.TaskSpec{})
		f.reserve(t, h, paid("0.1"))
		first := f.reserve(t, h, outside())
		f.pass(t, time.Second)
		second := f.reserve(t, h, outside())
		_, err := f.Release(f.ctx, h, picket.Exit{Class: picket.ExitReleased})
		ok(t, err)
		f.noLease(t)
		x, err := f.Explain(f.ctx, task.TaskID)
		ok(t, err)
		if len(x.Because) != 1 || !strings.Contains(x.Because[0], "waits for the call http_request") {
			t.Errorf("because %q", x.Because)
		}
		f.sound(t)
		f.settle(t, done(second, "0.1")) // the first ends sooner by itself
		f.noLease(t)
		f.settle(t, ended(first, picket.CallUncertain))
		next := f.held(t, f.lease(t, picket.AcquireRequest{AgentID: "a1"}))
		if next.RunID == h.RunID {
			t.Fatal("the same run")
		}

		// Nobody settles it: the deadline is what counts.
		f.reserve(t, next, outside())
		_, err = f.Expire(f.ctx, operator, task.TaskID, "r")
		ok(t, err)
		f.pass(t, 11*time.Second)
		f.noLease(t)
		f.pass(t, time.Second+time.Millisecond)
		f.lease(t, picket.AcquireRequest{AgentID: "a1"})
		f.sound(t)
	})
}

// A process and a call are both waited for, in whatever order they end.
func TestTheNextLeaseWaitsForProcessAndCall(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		for _, exitFirst := range []bool{true, false} {
			task, h := f.start(t, picket.TaskSpec{})
			ok(t, f.RunEvents(f.ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched}}))
			r := f.reserve(t, h, outside())
			_, err := f.Expire(f.ctx, operator, task.TaskID, "r")
			ok(t, err)
			exit := func() { ok(t, f.RunExit(f.ctx, h, picket.Exit{Class: picket.ExitKilled}, "")) }
			settle := func() { f.settle(t, done(r, "0.1")) }
			steps := []func(){settle, exit}
			if exitFirst {
				steps = []func(){exit, settle}
			}
			for _, step := range steps {
				f.noLease(t)
				step()
			}
			f.lease(t, picket.AcquireRequest{AgentID: "a1"})
			f.clear(t)
		}
	})
}

// What repairs or repeats a task waits for the calls of its source, and of what
// that one was waiting for.
func TestARepeatWaitsForTheCallsOfItsSource(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		task, h := f.start(t, picket.TaskSpec{})
		r := f.reserve(t, h, outside())
		_, err := f.Complete(f.ctx, h, picket.Completion{})
		ok(t, err)
		_, fix, err := f.Reject(f.ctx, operator, task.TaskID, picket.Decision{Note: "no"},
			&picket.TaskSpec{Title: "fix"})
		ok(t, err)
		f.noLease(t)
		_, err = f.Cancel(f.ctx, operator, fix, "r")
		ok(t, err)
		again, err := f.Retry(f.ctx, operator, fix, "r")
		ok(t, err)
		f.submit(t, picket.TaskSpec{Fixes: fix})
		f.noLease(t)
		f.settle(t, done(r, "0.1"))
		for range 2 {
			f.lease(t, picket.AcquireRequest{AgentID: "a1"})
		}
		f.state(t, again.TaskID, picket.TaskLeased)
		f.sound(t)
	})
}

// What repeats a repair waits for both, for the calls of the repair and for those
// of the task that it repairs, in whatever order they end.
func TestARepeatOfARepairWaitsForBoth(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		for _, sourceFirst := range []bool{true, false} {
			task, h := f.start(t, picket.TaskSpec{})
			open := f.reserve(t, h, outside())
			_, err := f.Release(f.ctx, h, picket.Exit{Class: picket.ExitReleased})
			ok(t, err)
			fix := f.submit(t, picket.TaskSpec{Fixes: task.TaskID})
			f.settle(t, done(open, "0"))
			at := map[string]picket.Held{}
			for range 2 { // the one is at work again, the other repairs it
				l := f.lease(t, picket.AcquireRequest{AgentID: "a1"})
				at[l.TaskID] = f.held(t, l)
			}
			own := f.reserve(t, at[fix.TaskID], outside())
			f.pass(t, time.Second)
			last := f.reserve(t, at[task.TaskID], outside())
			_, err = f.Cancel(f.ctx, operator, fix.TaskID, "r")
			ok(t, err)
			again, err := f.Retry(f.ctx, operator, fix.TaskID, "r")
			ok(t, err)
			order := []picket.Reservation{own, last}
			if sourceFirst {
				order = []picket.Reservation{last, own}
			}
			for _, call := range order {
				f.noLease(t)
				f.sound(t)
				f.settle(t, done(call, "0"))
			}
			f.lease(t, picket.AcquireRequest{AgentID: "a1"})
			f.state(t, again.TaskID, picket.TaskLeased)
			f.clear(t)
		}
	})
}

// Shortly before a lease ends nothing is begun outside any more; what only reads
// still is.
func TestNothingBeginsOutsideWhenTheLeaseEnds(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		for _, w := range []struct {
			window int
			margin time.Duration
		}{{5, 500 * time.Millisecond}, {12, 2 * time.Second}, {100, 10 * time.Second}} {
			_, h := f.start(t, picket.TaskSpec{LeaseWindowSeconds: &w.window})
			_, err := f.Renew(f.ctx, h)
			ok(t, err)
			f.pass(t, time.Duration(w.window)*time.Second-w.margin-300*time.Millisecond)
			f.settle(t, done(f.reserve(t, h, outside()), "0"))
			f.pass(t, 400*time.Millisecond)
			_, err = f.Reserve(f.ctx, h, outside())
			refused(t, err, picket.CodeLeaseEnding)
			f.settle(t, done(f.reserve(t, h, paid("0.1")), "0"))
			f.clear(t)
		}
	})
}
