package branches

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverParked takes the ways of top-ups of a task in a hand-off.
func coverParked(t *testing.T, f *fixture) {
	for _, kind := range []picket.HandoffKind{picket.HandoffBudget, picket.HandoffQuestion} {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(10, "0.10")})
		_, err := f.Reserve(f.Ctx, h, kit.PaidCall("0.30"))
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		asked, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "more?", Kind: kind})
		kit.OK(t, err)
		_, err = f.TopUp(f.Ctx, kit.Operator, task.TaskID, picket.TopUp{Tokens: 1, HandoffID: kit.NoHelp})
		kit.Refused(t, err, picket.CodeNotFound)
		for _, more := range []picket.TopUp{
			{USD: kit.USD("0.10")},
			{USD: kit.USD("0.10"), KeepParked: true},
			{Tokens: 1, HandoffID: asked.HandoffID},
		} {
			_, err = f.TopUp(f.Ctx, kit.Operator, task.TaskID, more)
			kit.OK(t, err)
		}
		other := f.MustSubmit(t, picket.TaskSpec{})
		_, err = f.TopUp(f.Ctx, kit.Operator, other.TaskID, picket.TopUp{Tokens: 1, HandoffID: asked.HandoffID})
		if kind == picket.HandoffQuestion { // still open
			kit.Refused(t, err, picket.CodeValidation)
		} else {
			kit.Refused(t, err, picket.CodeStateConflict)
		}
		f.CancelAll(t)
	}
}

// coverTopUps takes the ways of top-ups and of the house.
func coverTopUps(t *testing.T, f *fixture) {
	_, err := f.Envelope(f.Ctx, kit.NoTask)
	kit.Refused(t, err, picket.CodeNotFound)
	_, err = f.TopUp(f.Ctx, kit.Operator, kit.NoTask, picket.TopUp{Tokens: 1})
	kit.Refused(t, err, picket.CodeNotFound)
	task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(10, "0.10")})
	_, err = f.AwaitTopUp(f.Ctx, h, 0)
	kit.OK(t, err)
	f.CallTwice(t, func() error {
		_, err := f.TopUp(f.Ctx, kit.Idempotent("m"), task.TaskID, picket.TopUp{Tokens: 1, USD: kit.USD("0.1")})
		return err
	})
	clash := kit.Idempotent("m")
	clash.Idempotency.Body = strings.Repeat("c", 64)
	_, err = f.TopUp(f.Ctx, clash, task.TaskID, picket.TopUp{Tokens: 1})
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.AwaitTopUp(f.Ctx, h, 0)
	kit.OK(t, err)
	foreign := h
	foreign.Secret = strings.Repeat("0", 64)
	_, err = f.Reserve(f.Ctx, foreign, kit.PaidCall("0"))
	kit.Refused(t, err, picket.CodeLeaseExpired)
	_, err = f.AwaitTopUp(f.Ctx, foreign, 0)
	kit.Refused(t, err, picket.CodeLeaseExpired)
	_, err = f.TopUp(f.Ctx, kit.Operator, task.TaskID, picket.TopUp{Tokens: 2147483647000})
	kit.Refused(t, err, picket.CodeValidation)
	_, err = f.TopUp(f.Ctx, kit.Operator, task.TaskID, picket.TopUp{USD: 4_000_000_000_000_000})
	kit.Refused(t, err, picket.CodeValidation)
	f.CancelAll(t)
	_, err = f.TopUp(f.Ctx, kit.Operator, task.TaskID, picket.TopUp{Tokens: 1})
	kit.Refused(t, err, picket.CodeTaskClosed)

	coverParked(t, f)

	// With a cap: what a day grants, and what is beyond it.
	_, err = f.Envelope(f.Ctx, "house")
	kit.Refused(t, err, picket.CodeNotFound)
	f.Store.SetBudgets(kit.Worth(100, "1"), nil)
	defer f.Store.SetBudgets(nil, nil)
	_, err = f.Envelope(f.Ctx, "house") // of which nothing was carved yet
	kit.OK(t, err)
	task, h = f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(10, "0.60")})
	_, err = f.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: "t", BudgetEnvelope: kit.Worth(10, "0.60")})
	kit.Refused(t, err, picket.CodeBudgetExceeded)
	_, err = f.TopUp(f.Ctx, kit.Operator, task.TaskID, picket.TopUp{USD: kit.USD("0.60")})
	kit.Refused(t, err, picket.CodeBudgetExceeded)
	_, err = f.TopUp(f.Ctx, kit.Operator, task.TaskID, picket.TopUp{USD: kit.USD("0.10")})
	kit.OK(t, err)
	_, err = f.TopUp(f.Ctx, kit.Operator, "house", picket.TopUp{USD: kit.USD("1")})
	kit.OK(t, err)
	part, err := f.Delegate(f.Ctx, h, "", picket.Subtask{Title: "t", BudgetEnvelope: kit.Worth(0, "0.10")})
	kit.OK(t, err)
	_, err = f.TopUp(f.Ctx, kit.Operator, part.TaskID, picket.TopUp{USD: kit.USD("0.10")}) // and all above it
	kit.OK(t, err)
	day, err := f.Envelope(f.Ctx, "house")
	kit.OK(t, err)
	if s, err := f.Stats(f.Ctx); err != nil || s.DailyEnvelope == nil {
		t.Fatalf("the house is not counted: %+v, %v", s.DailyEnvelope, err)
	}
	// From before sums were kept; then counted again, and counted wrongly.
	kit.OK(t, f.Raw.HDel(f.Ctx, "pk:{default}:env:"+day.ID, "total_t", "total_u").Err())
	f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.01")), "0.01"))
	for _, repair := range []bool{false, true} {
		_, err = kit.InspectAll(f.Ctx, f.Engine, repair)
		kit.OK(t, err)
	}
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:env:"+day.ID, "total_u", 7).Err())
	_, err = kit.InspectAll(f.Ctx, f.Engine, true)
	kit.OK(t, err)
	_, err = f.Cancel(f.Ctx, kit.Operator, task.TaskID, "r")
	kit.OK(t, err)
	_, err = f.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: "t", BudgetEnvelope: kit.Worth(10, "1.95")})
	kit.OK(t, err)
	_, err = f.Retry(f.Ctx, kit.Operator, task.TaskID, "r")
	kit.Refused(t, err, picket.CodeBudgetExceeded)
	f.CancelAll(t)
	// What is rejected pays for its repair as far as it can. The first end of a
	// run in this hour forgets what was counted in another.
	kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:pulse").Err())
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:pulse", "1 ended", 1).Err())
	for _, dollars := range []string{"0.50", "3"} {
		task, h = f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(0, "0.50")})
		_, err = f.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
		_, _, err = f.Reject(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Note: "n"},
			&picket.TaskSpec{Title: "fix", BudgetEnvelope: kit.Worth(0, dollars)})
		if dollars == "0.50" {
			kit.OK(t, err)
		} else {
			kit.Refused(t, err, picket.CodeBudgetExceeded)
		}
		f.CancelAll(t)
	}
	_, err = kit.InspectAll(f.Ctx, f.Engine, false)
	kit.OK(t, err)
}
