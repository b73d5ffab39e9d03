package orchestrator_test

import (
	"slices"
	"testing"

	"github.com/picket-dev/picket/orchestrator"
)

// tourQuotas reaches every quota, and meets a slot of another day.
func tourQuotas(t *testing.T, f *fixture) {
	f.clear(t)
	orchestrator.SetQuotas(f.store, scant)
	defer orchestrator.SetQuotas(f.store, orchestrator.Quotas{})
	_, err := f.Measure(f.ctx, 1_000_000)
	ok(t, err)
	_, err = f.Measure(f.ctx, 1_000_000) // within the pause after a pass
	ok(t, err)
	h := &hoarder{failer: t, Engine: f.Engine, ctx: f.ctx, raw: f.raw, prefix: "pk:{default}:"}
	held := h.start()
	ok(t, f.raw.HSet(f.ctx, h.prefix+"kept:"+held.TaskID, "1", "1 1 1").Err())
	h.ok(h.call(held, sameCall("a", "h", "0"), `""`))
	h.end(held)
	tourLateCharge(t, f)
	orchestrator.SetHouse(f.store, worth(1e9, "1000000"))
	defer orchestrator.SetHouse(f.store, nil)
	for _, attack := range slices.Concat(quotaAttacks, runKeyAttacks, lateAttacks) {
		attack(h)
	}
}
