package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// The run that delegated a task decides on what await_subtask has shown it.
func TestAParentDecidesOnWhatItWasShown(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) { f.parentDecides(t) })
}

func (f *fixture) parentDecides(t *testing.T) {
	t.Helper()
	parent, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(1000, "1")})
	sub, err := f.Delegate(f.ctx, h, "", picket.Subtask{Title: "a part", BudgetEnvelope: worth(10, "0.1")})
	ok(t, err)
	child := f.leaseSubtask(t, parent.TaskID)
	f.completeWithDiff(t, child, "+good")
	seen, err := f.AwaitSubtask(f.ctx, h, sub.TaskID, time.Minute)
	ok(t, err)
	ok(t, f.RunEvidence(f.ctx, child, evidenceWithDiff("+bad")))
	for _, decision := range []string{"approve", "reject"} {
		for digest, code := range map[string]picket.Code{
			seen.Review.Digest: picket.CodeVersion,
			"":                 picket.CodePreconditionRequired,
		} {
			_, err := f.ReviewSubtask(f.ctx, h, "",
				picket.SubtaskReview{TaskID: sub.TaskID, Decision: decision, Digest: digest})
			f.wantDigestRefusal(t, err, code, sub.TaskID)
		}
	}
	again, err := f.AwaitSubtask(f.ctx, h, sub.TaskID, time.Minute)
	ok(t, err)
	for range 2 {
		got, err := f.ReviewSubtask(f.ctx, h, "",
			picket.SubtaskReview{TaskID: sub.TaskID, Decision: "approve", Digest: again.Review.Digest})
		ok(t, err)
		if got.State != picket.TaskCompleted || got.Review.Digest != again.Review.Digest {
			t.Errorf("%s on %s", got.State, got.Review.Digest)
		}
	}
	refused(t, f.RunEvidence(f.ctx, child, evidenceWithDiff("+after")), picket.CodeTaskClosed)
}

// coverDigests takes the ways of decisions about evidence.
func coverDigests(t *testing.T, f *fixture) {
	f.parentDecides(t)
	task, h := f.submitAndLease(t, picket.TaskSpec{})
	f.completeWithDiff(t, h, "")
	for i := range 51 {
		ok(t, f.RunEvidence(f.ctx, h, evidenceWithDiff(fmt.Sprint("+", i))))
	}
	refused(t, f.RunEvidence(f.ctx, h, evidenceWithDiff("+more")), picket.CodeStateConflict)
	_, err := f.Approve(f.ctx, operator, task.TaskID, picket.Decision{Digest: "none-none-0"})
	refused(t, err, picket.CodeVersion)
	ok(t, f.RunExit(f.ctx, h, picket.Exit{Class: picket.ExitSuccess}, ""))
	_, err = f.Approve(f.ctx, operator, task.TaskID, picket.Decision{Digest: f.reviewDigest(t, task.TaskID)})
	ok(t, err)
	refused(t, f.RunExit(f.ctx, h, picket.Exit{Class: picket.ExitCrash, Code: ptr(1)}, ""), picket.CodeTaskClosed)
}
