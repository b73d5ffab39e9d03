package orchestrator_test

import (
	"slices"
	"testing"

	"github.com/picket-dev/picket/orchestrator"
)

// coverQuotas reaches every quota, and meets a slot of another day.
func coverQuotas(t *testing.T, f *fixture) {
	f.cancelAll(t)
	orchestrator.SetQuotas(f.store, smallQuotas)
	defer orchestrator.SetQuotas(f.store, orchestrator.Quotas{})
	_, err := f.MeasureMemory(f.ctx, 1_000_000)
	ok(t, err)
	_, err = f.MeasureMemory(f.ctx, 1_000_000) // within the pause after a pass
	ok(t, err)
	h := &attacker{fataler: t, Engine: f.Engine, ctx: f.ctx, raw: f.raw, prefix: "pk:{default}:"}
	held := h.start()
	ok(t, f.raw.HSet(f.ctx, h.prefix+"kept:"+held.TaskID, "1", "1 1 1").Err())
	h.ok(h.call(held, sameCall("a", "h", "0"), `""`))
	h.end(held)
	coverLateCharge(t, f)
	orchestrator.SetDailyLimit(f.store, worth(1e9, "1000000"))
	defer orchestrator.SetDailyLimit(f.store, nil)
	for _, attack := range slices.Concat(quotaAttacks, runKeyAttacks, lateReportAttacks) {
		attack(h)
	}
}
