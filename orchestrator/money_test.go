package orchestrator_test

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// usd is an amount of dollars.
func usd(s string) budget.Money {
	m, err := budget.ParseMoney(s)
	if err != nil {
		panic(err)
	}
	return m
}

func worth(tokens int64, dollars string) *budget.Envelope {
	return &budget.Envelope{Tokens: tokens, USD: usd(dollars)}
}

// A task that names no envelope gets the default one, and shows it everywhere.
func TestATaskHasItsEnvelope(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for _, want := range []*budget.Envelope{nil, worth(250_000, "1.5"), worth(0, "0"), worth(0, "0.000000001")} {
			task := f.mustSubmit(t, picket.TaskSpec{BudgetEnvelope: want})
			if want == nil {
				want = worth(1_000_000, "1")
			}
			l := f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"})
			got := f.wantState(t, task.TaskID, picket.TaskLeased)
			if l.BudgetEnvelope != *want || task.BudgetEnvelope != *want || got.BudgetEnvelope != *want ||
				got.Available != *want || !got.Spent.IsZero() || !got.Held.IsZero() {
				t.Errorf("want %v: lease %v, task %+v", want, l.BudgetEnvelope, got)
			}
			page, err := f.Tasks(f.ctx, picket.TaskQuery{Limit: 1})
			ok(t, err)
			if page.Tasks[0].Available != *want {
				t.Errorf("the list says %v", page.Tasks[0].Available)
			}
			f.cancelAll(t)
		}
	})
}
