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
}
