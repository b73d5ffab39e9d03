package orchestrator_test

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A task that names no envelope gets the default one, and shows it everywhere.
func TestATaskHasItsEnvelope(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for _, want := range []*budget.Envelope{nil, kit.Worth(250_000, "1.5"), kit.Worth(0, "0"),
			kit.Worth(0, "0.000000001")} {
			task := f.MustSubmit(t, picket.TaskSpec{BudgetEnvelope: want})
			if want == nil {
				want = kit.Worth(1_000_000, "1")
			}
			l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
			got := f.WantState(t, task.TaskID, picket.TaskLeased)
			if l.BudgetEnvelope != *want || task.BudgetEnvelope != *want || got.BudgetEnvelope != *want ||
				got.Available != *want || !got.Spent.IsZero() || !got.Held.IsZero() {
				t.Errorf("want %v: lease %v, task %+v", want, l.BudgetEnvelope, got)
			}
			page, err := f.Tasks(f.Ctx, picket.TaskQuery{Limit: 1})
			kit.OK(t, err)
			if page.Tasks[0].Available != *want {
				t.Errorf("the list says %v", page.Tasks[0].Available)
			}
			f.CancelAll(t)
		}
	})
}
