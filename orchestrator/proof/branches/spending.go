package branches

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverSpending takes the ways of counting and reporting what was spent.
func coverSpending(t *testing.T, f *fixture) {
	report := func(by string) picket.SpendingReport {
		report, err := f.Spending(f.Ctx, picket.SpendingQuery{By: []string{by}})
		kit.OK(t, err)
		return report
	}
	spend := func(label string) string {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{Labels: map[string]string{"team": label}})
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.10")), "0.10"))
		f.CancelAll(t)
		return task.TaskID
	}
	task := spend("web")
	day := report("label:team").Until
	// Beyond the names that a day counts.
	for _, kind := range []string{"spending:", "spending-by-label:"} {
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:"+kind+day, "names", 500).Err())
	}
	spend("other")
	report("role")
	report("label:team")
	// Sums that Lua could not count exactly.
	seq, err := f.Raw.HGet(f.Ctx, kit.Meta, "seq").Int64()
	kit.OK(t, err)
	for n := range 3 {
		kit.OK(t, f.Raw.XAdd(f.Ctx, &redis.XAddArgs{Stream: "pk:{default}:ledger", ID: fmt.Sprintf("%d-%d", seq, n+1),
			Values: []any{"task", task, "at", 1, "kind", "usage", "cost_t", 0, "cost_u", 3_000_000_000_000_000}}).Err())
	}
	report("day")
}
