package orchestrator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// externalCall is a call that acts outside for up to ten seconds.
func externalCall() picket.CallRequest {
	c := paidCall("0.1")
	c.Effects, c.TimeoutMs = picket.EffectsExternal, 10_000
	return c
}

// nobody has a task to lease.
func (f *fixture) wantNoLease(t *testing.T) {
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
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{})
		f.mustReserve(t, h, paidCall("0.1"))
		first := f.mustReserve(t, h, externalCall())
		f.runReaperFor(t, time.Second)
		second := f.mustReserve(t, h, externalCall())
		_, err := f.Release(f.ctx, h, picket.Exit{Class: picket.ExitReleased})
		ok(t, err)
		f.wantNoLease(t)
		x, err := f.Explain(f.ctx, task.TaskID)
		ok(t, err)
		if len(x.Because) != 1 || !strings.Contains(x.Because[0], "waits for the call http_request") {
			t.Errorf("because %q", x.Because)
		}
		f.wantNoViolations(t)
		f.mustSettle(t, doneSettlement(second, "0.1")) // the first ends sooner on its own
		f.wantNoLease(t)
		f.mustSettle(t, settlementAs(first, picket.CallUncertain))
		next := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		if next.RunID == h.RunID {
			t.Fatal("the same run")
		}

		// Nobody settles it: the deadline is what counts.
		f.mustReserve(t, next, externalCall())
		_, err = f.Expire(f.ctx, operator, task.TaskID, "r")
		ok(t, err)
		f.runReaperFor(t, 11*time.Second)
		f.wantNoLease(t)
		f.runReaperFor(t, time.Second+time.Millisecond)
		f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		f.wantNoViolations(t)
	})
}

// A process and a call are both waited for, in whatever order they end.
func TestTheNextLeaseWaitsForProcessAndCall(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for _, exitFirst := range []bool{true, false} {
			task, h := f.submitAndLease(t, picket.TaskSpec{})
			ok(t, f.RunEvents(f.ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched}}))
			r := f.mustReserve(t, h, externalCall())
			_, err := f.Expire(f.ctx, operator, task.TaskID, "r")
			ok(t, err)
			exit := func() { ok(t, f.RunExit(f.ctx, h, picket.Exit{Class: picket.ExitKilled}, "")) }
			settle := func() { f.mustSettle(t, doneSettlement(r, "0.1")) }
			steps := []func(){settle, exit}
			if exitFirst {
				steps = []func(){exit, settle}
			}
			for _, step := range steps {
				f.wantNoLease(t)
				step()
			}
			f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"})
			f.cancelAll(t)
		}
	})
}

// What repairs or repeats a task waits for the calls of its source, and of what
// that one was waiting for.
func TestARepeatWaitsForTheCallsOfItsSource(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{})
		r := f.mustReserve(t, h, externalCall())
		_, err := f.Complete(f.ctx, h, picket.Completion{})
		ok(t, err)
		_, fix, err := f.Reject(f.ctx, operator, task.TaskID, picket.Decision{Note: "no"},
			&picket.TaskSpec{Title: "fix"})
		ok(t, err)
		f.wantNoLease(t)
		_, err = f.Cancel(f.ctx, operator, fix, "r")
		ok(t, err)
		again, err := f.Retry(f.ctx, operator, fix, "r")
		ok(t, err)
		f.mustSubmit(t, picket.TaskSpec{Fixes: fix})
		f.wantNoLease(t)
		f.mustSettle(t, doneSettlement(r, "0.1"))
		for range 2 {
			f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		}
		f.wantState(t, again.TaskID, picket.TaskLeased)
		f.wantNoViolations(t)
	})
}

// What repeats a repair waits for both, for the calls of the repair and for those
// of the task that it repairs, in whatever order they end.
func TestARepeatOfARepairWaitsForBoth(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for _, sourceFirst := range []bool{true, false} {
			task, h := f.submitAndLease(t, picket.TaskSpec{})
			open := f.mustReserve(t, h, externalCall())
			_, err := f.Release(f.ctx, h, picket.Exit{Class: picket.ExitReleased})
			ok(t, err)
			fix := f.mustSubmit(t, picket.TaskSpec{Fixes: task.TaskID})
			f.mustSettle(t, doneSettlement(open, "0"))
			at := map[string]picket.LeaseCredential{}
			for range 2 { // the one is at work again, the other repairs it
				l := f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"})
				at[l.TaskID] = f.openLease(t, l)
			}
			own := f.mustReserve(t, at[fix.TaskID], externalCall())
			f.runReaperFor(t, time.Second)
			last := f.mustReserve(t, at[task.TaskID], externalCall())
			_, err = f.Cancel(f.ctx, operator, fix.TaskID, "r")
			ok(t, err)
			again, err := f.Retry(f.ctx, operator, fix.TaskID, "r")
			ok(t, err)
			order := []picket.Reservation{own, last}
			if sourceFirst {
				order = []picket.Reservation{last, own}
			}
			for _, call := range order {
				f.wantNoLease(t)
				f.wantNoViolations(t)
				f.mustSettle(t, doneSettlement(call, "0"))
			}
			f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"})
			f.wantState(t, again.TaskID, picket.TaskLeased)
			f.cancelAll(t)
		}
	})
}

// Shortly before a lease ends, calls with effects outside are refused. Calls that
// only read are admitted. The time of a real Redis goes on while the test waits
// for a processor, so there only the longest window is tried, with seconds to
// spare on both sides.
func TestNothingBeginsOutsideWhenTheLeaseEnds(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		type window struct {
			window int
			margin time.Duration
		}
		spare, windows := 300*time.Millisecond, []window{{5, 500 * time.Millisecond}, {12, 2 * time.Second}}
		if !f.virtual {
			spare, windows = 5*time.Second, nil
		}
		for _, w := range append(windows, window{100, 10 * time.Second}) {
			_, h := f.submitAndLease(t, picket.TaskSpec{LeaseWindowSeconds: &w.window})
			_, err := f.Renew(f.ctx, h)
			ok(t, err)
			f.runReaperFor(t, time.Duration(w.window)*time.Second-w.margin-spare)
			f.mustSettle(t, doneSettlement(f.mustReserve(t, h, externalCall()), "0"))
			f.runReaperFor(t, spare+100*time.Millisecond)
			_, err = f.Reserve(f.ctx, h, externalCall())
			refused(t, err, picket.CodeLeaseEnding)
			f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0.1")), "0"))
			f.cancelAll(t)
		}
	})
}
