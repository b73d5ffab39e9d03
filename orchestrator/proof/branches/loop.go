package branches

import (
	"fmt"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverLoop takes the ways of an agent that repeats itself, and of its nudges.
func coverLoop(t *testing.T, f *fixture) {
	// Told at the fifth call of a tool; the name of a report takes the nudge.
	task, h := f.SubmitAndLease(t, picket.TaskSpec{})
	for i := range 4 {
		_, err := f.HeldTask(f.Ctx, h, "")
		kit.OK(t, err)
		_, err = f.Report(f.Ctx, h, "", picket.Progress{Summary: fmt.Sprint(i)})
		kit.OK(t, err)
	}
	for range 5 {
		_, err := f.HeldTask(f.Ctx, h, "")
		kit.OK(t, err)
	}
	_, changed, err := f.Watch(f.Ctx, h, time.Millisecond) // delivers it
	if kit.OK(t, err); !changed {
		t.Error("the watch did not deliver the nudge")
	}
	f.CallTwice(t, func() error { _, err := f.Report(f.Ctx, h, "told", picket.Progress{Summary: "s"}); return err })
	_, err = f.HeldTask(f.Ctx, h, "")
	kit.OK(t, err)
	f.CallTwice(t, func() error { _, err := f.HeldTask(f.Ctx, h, "look"); return err })
	_, err = f.Renew(f.Ctx, h)
	kit.OK(t, err)
	_, err = f.Complete(f.Ctx, h, picket.Completion{})
	kit.OK(t, err)
	f.WantState(t, task.TaskID, picket.TaskReview)
	// The tenth goes to a person, or ends the task if escalate is fail.
	for _, c := range []struct {
		escalate picket.Escalate
		state    picket.TaskState
	}{{picket.EscalateHuman, picket.TaskHandoff}, {picket.EscalateFail, picket.TaskFailed}} {
		task, h = f.SubmitAndLease(t, picket.TaskSpec{Escalate: c.escalate})
		for range 9 {
			_, err = f.HeldTask(f.Ctx, h, "")
			kit.OK(t, err)
		}
		_, err = f.HeldTask(f.Ctx, h, "")
		kit.Refused(t, err, picket.CodeLeaseReleased)
		f.WantState(t, task.TaskID, c.state)
	}
	task, h = f.SubmitAndLease(t, picket.TaskSpec{})
	for range 9 {
		_, err = f.Report(f.Ctx, h, "", picket.Progress{Summary: "the same"})
		kit.OK(t, err)
	}
	_, err = f.Report(f.Ctx, h, "", picket.Progress{Summary: "the same"})
	kit.Refused(t, err, picket.CodeLeaseReleased)
	f.WantState(t, task.TaskID, picket.TaskHandoff)
	// Neither looks that come late nor waits make a loop.
	task, h = f.SubmitAndLease(t, picket.TaskSpec{})
	for range 6 {
		_, err = f.HeldTask(f.Ctx, h, "")
		kit.OK(t, err)
		f.JumpStoreTime(t, time.Second)
	}
	_, err = f.AwaitTopUp(f.Ctx, h, time.Millisecond)
	kit.OK(t, err)
	f.waitForTopUp(t)
	for range 9 {
		_, err = f.AwaitTopUp(f.Ctx, h, 0)
		kit.OK(t, err)
	}
	_, err = f.AwaitTopUp(f.Ctx, h, 0)
	kit.Refused(t, err, picket.CodeLeaseReleased)
	f.WantState(t, task.TaskID, picket.TaskHandoff)
}

// waitForTopUp waits until a top-up wakes the wait of another run, which looks again then.
func (f *fixture) waitForTopUp(t *testing.T) {
	t.Helper()
	task, h := f.SubmitAndLease(t, picket.TaskSpec{})
	ended := make(chan error)
	go func() {
		_, err := f.AwaitTopUp(f.Ctx, h, time.Minute)
		ended <- err
	}()
	for {
		select {
		case err := <-ended:
			kit.OK(t, err)
			_, err = f.Cancel(f.Ctx, kit.Operator, task.TaskID, "r")
			kit.OK(t, err)
			return
		default:
			_, err := f.TopUp(f.Ctx, kit.Operator, task.TaskID, picket.TopUp{Tokens: 1})
			kit.OK(t, err)
		}
	}
}

// coverRepeats takes the ways of the same paid call again and again.
func coverRepeats(t *testing.T, f *fixture) {
	_, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(10, "1")})
	same := func() picket.CallRequest {
		c := kit.PaidCall("0")
		c.Hash = "h"
		return c
	}
	f.MustSettle(t, kit.SettlementAs(f.MustReserve(t, h, same()), picket.CallFailed))
	done := func(c picket.CallRequest) {
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, c), "0"))
	}
	for range 4 {
		done(same())
	}
	fifth := same()
	f.MustReserve(t, h, fifth)
	done(fifth)
	for range 5 {
		done(same())
	}
	_, err := f.Reserve(f.Ctx, h, same())
	kit.Refused(t, err, picket.CodeCallRepeated)
	_, err = f.Funds(f.Ctx, h)
	kit.OK(t, err)
	f.CancelAll(t)
}
