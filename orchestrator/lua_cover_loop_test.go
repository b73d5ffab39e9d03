package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// coverLoop takes the ways of an agent that repeats itself, and of its nudges.
func coverLoop(t *testing.T, f *fixture) {
	// Told at the fifth call of a tool; the name of a report takes the nudge.
	task, h := f.submitAndLease(t, picket.TaskSpec{})
	for i := range 4 {
		_, err := f.HeldTask(f.ctx, h, "")
		ok(t, err)
		_, err = f.Report(f.ctx, h, "", picket.Progress{Summary: fmt.Sprint(i)})
		ok(t, err)
	}
	for range 5 {
		_, err := f.HeldTask(f.ctx, h, "")
		ok(t, err)
	}
	_, changed, err := f.Watch(f.ctx, h, time.Millisecond) // delivers it
	if ok(t, err); !changed {
		t.Error("the watch did not deliver the nudge")
	}
	f.callTwice(t, func() error { _, err := f.Report(f.ctx, h, "told", picket.Progress{Summary: "s"}); return err })
	_, err = f.HeldTask(f.ctx, h, "")
	ok(t, err)
	f.callTwice(t, func() error { _, err := f.HeldTask(f.ctx, h, "look"); return err })
	_, err = f.Renew(f.ctx, h)
	ok(t, err)
	_, err = f.Complete(f.ctx, h, picket.Completion{})
	ok(t, err)
	f.wantState(t, task.TaskID, picket.TaskReview)
	// The tenth goes to a person, or ends the task where nobody is to be asked.
	for _, c := range []struct {
		escalate picket.Escalate
		state    picket.TaskState
	}{{picket.EscalateHuman, picket.TaskHandoff}, {picket.EscalateFail, picket.TaskFailed}} {
		task, h = f.submitAndLease(t, picket.TaskSpec{Escalate: c.escalate})
		for range 9 {
			_, err = f.HeldTask(f.ctx, h, "")
			ok(t, err)
		}
		_, err = f.HeldTask(f.ctx, h, "")
		refused(t, err, picket.CodeLeaseReleased)
		f.wantState(t, task.TaskID, c.state)
	}
	task, h = f.submitAndLease(t, picket.TaskSpec{})
	for range 9 {
		_, err = f.Report(f.ctx, h, "", picket.Progress{Summary: "the same"})
		ok(t, err)
	}
	_, err = f.Report(f.ctx, h, "", picket.Progress{Summary: "the same"})
	refused(t, err, picket.CodeLeaseReleased)
	f.wantState(t, task.TaskID, picket.TaskHandoff)
}
