package orchestrator_test

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// coverTopUps takes the ways of top-ups and of the house.
func coverTopUps(t *testing.T, f *fixture) {
	_, err := f.Envelope(f.ctx, noTask)
	refused(t, err, picket.CodeNotFound)
	_, err = f.TopUp(f.ctx, operator, noTask, picket.TopUp{Tokens: 1})
	refused(t, err, picket.CodeNotFound)
	task, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(10, "0.10")})
	_, err = f.AwaitTopUp(f.ctx, h, 0)
	ok(t, err)
	f.callTwice(t, func() error {
		_, err := f.TopUp(f.ctx, idempotent("m"), task.TaskID, picket.TopUp{Tokens: 1, USD: usd("0.1")})
		return err
	})
	clash := idempotent("m")
	clash.Idempotency.Body = strings.Repeat("c", 64)
	_, err = f.TopUp(f.ctx, clash, task.TaskID, picket.TopUp{Tokens: 1})
	refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.AwaitTopUp(f.ctx, h, 0)
	ok(t, err)
	foreign := h
	foreign.Secret = strings.Repeat("0", 64)
	_, err = f.Reserve(f.ctx, foreign, paidCall("0"))
	refused(t, err, picket.CodeLeaseExpired)
	_, err = f.AwaitTopUp(f.ctx, foreign, 0)
	refused(t, err, picket.CodeLeaseExpired)
	_, err = f.TopUp(f.ctx, operator, task.TaskID, picket.TopUp{Tokens: 2147483647000})
	refused(t, err, picket.CodeValidation)
	_, err = f.TopUp(f.ctx, operator, task.TaskID, picket.TopUp{USD: 4_000_000_000_000_000})
	refused(t, err, picket.CodeValidation)
	f.cancelAll(t)
	_, err = f.TopUp(f.ctx, operator, task.TaskID, picket.TopUp{Tokens: 1})
	refused(t, err, picket.CodeTaskClosed)

	// With a cap: what a day grants, and what is beyond it.
	_, err = f.Envelope(f.ctx, "house")
	refused(t, err, picket.CodeNotFound)
	orchestrator.SetDailyLimit(f.store, worth(100, "1"))
	defer orchestrator.SetDailyLimit(f.store, nil)
	_, err = f.Envelope(f.ctx, "house") // of which nothing was carved yet
	ok(t, err)
	task, h = f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(10, "0.60")})
	_, err = f.Submit(f.ctx, operator, picket.TaskSpec{Title: "t", BudgetEnvelope: worth(10, "0.60")})
	refused(t, err, picket.CodeBudgetExceeded)
	_, err = f.TopUp(f.ctx, operator, task.TaskID, picket.TopUp{USD: usd("0.60")})
	refused(t, err, picket.CodeBudgetExceeded)
	_, err = f.TopUp(f.ctx, operator, task.TaskID, picket.TopUp{USD: usd("0.10")})
	ok(t, err)
	_, err = f.TopUp(f.ctx, operator, "house", picket.TopUp{USD: usd("1")})
	ok(t, err)
	part, err := f.Delegate(f.ctx, h, "", picket.Subtask{Title: "t", BudgetEnvelope: worth(0, "0.10")})
	ok(t, err)
	_, err = f.TopUp(f.ctx, operator, part.TaskID, picket.TopUp{USD: usd("0.10")}) // and all above it
	ok(t, err)
	day, err := f.Envelope(f.ctx, "house")
	ok(t, err)
	if s, err := f.Stats(f.ctx); err != nil || s.DailyEnvelope == nil {
		t.Fatalf("the house is not counted: %+v, %v", s.DailyEnvelope, err)
	}
	// From before sums were kept; then counted again, and counted wrongly.
	ok(t, f.raw.HDel(f.ctx, "pk:{default}:env:"+day.ID, "total_t", "total_u").Err())
	f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0.01")), "0.01"))
	for _, repair := range []bool{false, true} {
		_, err = inspectAll(f.ctx, f.Engine, repair)
		ok(t, err)
	}
	ok(t, f.raw.HSet(f.ctx, "pk:{default}:env:"+day.ID, "total_u", 7).Err())
	_, err = inspectAll(f.ctx, f.Engine, true)
	ok(t, err)
	_, err = f.Cancel(f.ctx, operator, task.TaskID, "r")
	ok(t, err)
	_, err = f.Submit(f.ctx, operator, picket.TaskSpec{Title: "t", BudgetEnvelope: worth(10, "1.95")})
	ok(t, err)
	_, err = f.Retry(f.ctx, operator, task.TaskID, "r")
	refused(t, err, picket.CodeBudgetExceeded)
	f.cancelAll(t)
	// What is rejected pays for its repair as far as it can. The first end of a
	// run in this hour forgets what was counted in another.
	ok(t, f.raw.Del(f.ctx, "pk:{default}:pulse").Err())
	ok(t, f.raw.HSet(f.ctx, "pk:{default}:pulse", "1 ended", 1).Err())
	for _, dollars := range []string{"0.50", "3"} {
		task, h = f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(0, "0.50")})
		_, err = f.Complete(f.ctx, h, picket.Completion{})
		ok(t, err)
		_, _, err = f.Reject(f.ctx, operator, task.TaskID, picket.Decision{Note: "n"},
			&picket.TaskSpec{Title: "fix", BudgetEnvelope: worth(0, dollars)})
		if dollars == "0.50" {
			ok(t, err)
		} else {
			refused(t, err, picket.CodeBudgetExceeded)
		}
		f.cancelAll(t)
	}
	_, err = inspectAll(f.ctx, f.Engine, false)
	ok(t, err)
}
