package orchestrator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// externalCall is a call that acts outside for up to ten seconds.
func externalCall() picket.CallRequest {
	c := kit.PaidCall("0.1")
	c.Effects, c.TimeoutMs = picket.EffectsExternal, 10_000
	return c
}

// nobody has a task to lease.
func (f *fixture) wantNoLease(t *testing.T) {
	t.Helper()
	got, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1"})
	kit.OK(t, err)
	if len(got) != 0 {
		t.Fatalf("%s was leased", got[0].TaskID)
	}
}

// The next lease waits until what was begun under the last one has ended, or
// its deadline has passed; a call without effects outside keeps nobody waiting.
func TestTheNextLeaseWaitsForCallsOutside(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		f.MustReserve(t, h, kit.PaidCall("0.1"))
		first := f.MustReserve(t, h, externalCall())
		f.RunReaperFor(t, time.Second)
		second := f.MustReserve(t, h, externalCall())
		_, err := f.Release(f.Ctx, h, picket.Exit{Class: picket.ExitReleased})
		kit.OK(t, err)
		f.wantNoLease(t)
		x, err := f.Explain(f.Ctx, task.TaskID)
		kit.OK(t, err)
		if len(x.Because) != 1 || !strings.Contains(x.Because[0], "waits for the call http_request") {
			t.Errorf("because %q", x.Because)
		}
		f.wantNoViolations(t)
		f.MustSettle(t, kit.DoneSettlement(second, "0.1")) // the first ends sooner on its own
		f.wantNoLease(t)
		f.MustSettle(t, kit.SettlementAs(first, picket.CallUncertain))
		next := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		if next.RunID == h.RunID {
			t.Fatal("the same run")
		}

		// Nobody settles it: the deadline is what counts.
		f.MustReserve(t, next, externalCall())
		_, err = f.Expire(f.Ctx, kit.Operator, task.TaskID, "r")
		kit.OK(t, err)
		f.RunReaperFor(t, 11*time.Second)
		f.wantNoLease(t)
		f.RunReaperFor(t, time.Second+time.Millisecond)
		f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		f.wantNoViolations(t)
	})
}

// A process and a call are both waited for, in whatever order they end.
func TestTheNextLeaseWaitsForProcessAndCall(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for _, exitFirst := range []bool{true, false} {
			task, h := f.SubmitAndLease(t, picket.TaskSpec{})
			kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched}}))
			r := f.MustReserve(t, h, externalCall())
			_, err := f.Expire(f.Ctx, kit.Operator, task.TaskID, "r")
			kit.OK(t, err)
			exit := func() { kit.OK(t, f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitKilled}, "")) }
			settle := func() { f.MustSettle(t, kit.DoneSettlement(r, "0.1")) }
			steps := []func(){settle, exit}
			if exitFirst {
				steps = []func(){exit, settle}
			}
			for _, step := range steps {
				f.wantNoLease(t)
				step()
			}
			f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
			f.CancelAll(t)
		}
	})
}

// What repairs or repeats a task waits for the calls of its source, and of what
// that one was waiting for.
func TestARepeatWaitsForTheCallsOfItsSource(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		r := f.MustReserve(t, h, externalCall())
		_, err := f.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
		_, fix, err := f.Reject(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Note: "no"},
			&picket.TaskSpec{Title: "fix"})
		kit.OK(t, err)
		f.wantNoLease(t)
		_, err = f.Cancel(f.Ctx, kit.Operator, fix, "r")
		kit.OK(t, err)
		again, err := f.Retry(f.Ctx, kit.Operator, fix, "r")
		kit.OK(t, err)
		f.MustSubmit(t, picket.TaskSpec{Fixes: fix})
		f.wantNoLease(t)
		f.MustSettle(t, kit.DoneSettlement(r, "0.1"))
		for range 2 {
			f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		}
		f.WantState(t, again.TaskID, picket.TaskLeased)
		f.wantNoViolations(t)
	})
}

// What repeats a repair waits for both, for the calls of the repair and for those
// of the task that it repairs, in whatever order they end.
func TestARepeatOfARepairWaitsForBoth(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for _, sourceFirst := range []bool{true, false} {
			task, h := f.SubmitAndLease(t, picket.TaskSpec{})
			open := f.MustReserve(t, h, externalCall())
			_, err := f.Release(f.Ctx, h, picket.Exit{Class: picket.ExitReleased})
			kit.OK(t, err)
			fix := f.MustSubmit(t, picket.TaskSpec{Fixes: task.TaskID})
			f.MustSettle(t, kit.DoneSettlement(open, "0"))
			at := map[string]picket.LeaseCredential{}
			for range 2 { // the one is at work again, the other repairs it
				l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
				at[l.TaskID] = f.OpenLease(t, l)
			}
			own := f.MustReserve(t, at[fix.TaskID], externalCall())
			f.RunReaperFor(t, time.Second)
			last := f.MustReserve(t, at[task.TaskID], externalCall())
			_, err = f.Cancel(f.Ctx, kit.Operator, fix.TaskID, "r")
			kit.OK(t, err)
			again, err := f.Retry(f.Ctx, kit.Operator, fix.TaskID, "r")
			kit.OK(t, err)
			order := []picket.Reservation{own, last}
			if sourceFirst {
				order = []picket.Reservation{last, own}
			}
			for _, call := range order {
				f.wantNoLease(t)
				f.wantNoViolations(t)
				f.MustSettle(t, kit.DoneSettlement(call, "0"))
			}
			f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
			f.WantState(t, again.TaskID, picket.TaskLeased)
			f.CancelAll(t)
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
		if !f.Virtual {
			spare, windows = 5*time.Second, nil
		}
		for _, w := range append(windows, window{100, 10 * time.Second}) {
			_, h := f.SubmitAndLease(t, picket.TaskSpec{LeaseWindowSeconds: &w.window})
			_, err := f.Renew(f.Ctx, h)
			kit.OK(t, err)
			f.RunReaperFor(t, time.Duration(w.window)*time.Second-w.margin-spare)
			f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, externalCall()), "0"))
			f.RunReaperFor(t, spare+100*time.Millisecond)
			_, err = f.Reserve(f.Ctx, h, externalCall())
			kit.Refused(t, err, picket.CodeLeaseEnding)
			f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.1")), "0"))
			f.CancelAll(t)
		}
	})
}
