package orchestrator_test

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Anyone who decides about what lies below a cancelled task is told who has cancelled
// that one, also while nobody has come to write it down.
func TestADecisionBelowACancelledTaskLoses(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		// A step that goes no further than the task that it is asked for.
		kit.Rewrite(f.Store,
			func(source string) string { return strings.Replace(source, "local STEP = 100 ", "local STEP = 0 ", 1) })
		ada, ben := f.twoReviewers(t)
		root := f.leaseTask(t, picket.TaskSpec{})
		middle := root.delegateMany(t, 1)[0]
		stuck := middle.delegateMany(t, 1)[0]
		asks, done := stuck.delegateMany(t, 1)[0], stuck.delegateMany(t, 1)[0]
		help, err := f.RequestHelp(f.Ctx, asks.held, picket.HelpRequest{Question: "?"})
		kit.OK(t, err)
		done.mustComplete(t, picket.Completion{})
		stays, err := f.RequestHelp(f.Ctx, stuck.held, picket.HelpRequest{Question: "?"})
		kit.OK(t, err)
		lose := func(by, said string) {
			t.Helper()
			for name, act := range map[string]func() error{
				"answer": func() error {
					_, err := f.Answer(f.Ctx, ben, help.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(`"no"`)})
					return err
				},
				"finish": func() error {
					_, err := f.Finish(f.Ctx, ben, stays.HandoffID, picket.RawJSON(`1`))
					return err
				},
				"claim": func() error {
					_, err := f.Claim(f.Ctx, ben, help.HandoffID, picket.ClaimRequest{TakeOver: true})
					return err
				},
				"approve": func() error {
					_, err := f.Approve(f.Ctx, ben, done.lease.TaskID, picket.Decision{})
					return err
				},
				"retry": func() error { _, err := f.Retry(f.Ctx, ben, asks.lease.TaskID, ""); return err },
			} {
				wantLostDecision(t, name, act(), picket.CodeTaskClosed, by, "cancel", said)
			}
		}
		// Of the run whose task is handed in, and of what it leaves to cancel, the
		// middle is not written down either.
		if state := root.mustComplete(t,
			picket.Completion{Children: picket.ChildrenCancel}); state != picket.TaskReview {
			t.Fatalf("the root is %s", state)
		}
		f.WantState(t, middle.lease.TaskID, picket.TaskLeased)
		f.WantState(t, asks.lease.TaskID, picket.TaskHandoff)
		lose(root.lease.RunID, "cancelled with "+middle.lease.TaskID)

		_, err = f.Cancel(f.Ctx, ada, root.lease.TaskID, "no need")
		kit.OK(t, err)
		f.WantState(t, asks.lease.TaskID, picket.TaskHandoff)
		lose(ada.Actor, "cancelled with "+root.lease.TaskID)
	})
}

// A mark that a version before has made does not say who; then nobody is named.
func TestACancelMarkWithoutANameIsReported(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		root := f.leaseTask(t, picket.TaskSpec{})
		c := root.delegateMany(t, 1)[0]
		c.mustComplete(t, picket.Completion{})
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:tree:"+root.lease.TaskID, root.lease.TaskID, "1").Err())
		_, err := f.Approve(f.Ctx, kit.Operator, c.lease.TaskID, picket.Decision{})
		kit.Refused(t, err, picket.CodeTaskClosed)
		if no, _ := picket.RefusalOf(err); no.Facts["by"] != nil || no.Facts["decision"] != "cancel" ||
			!strings.Contains(no.Message, "somebody cancelled it") {
			t.Errorf("it says %q with %v", no.Message, no.Facts)
		}
	})
}
