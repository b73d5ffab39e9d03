package branches

import (
	"slices"
	"testing"

	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/attacks"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverQuotas reaches every quota, and meets a slot of another day.
func coverQuotas(t *testing.T, f *fixture) {
	f.CancelAll(t)
	f.Store.SetQuotas(attacks.SmallQuotas)
	defer f.Store.SetQuotas(orchestrator.Quotas{})
	_, err := f.MeasureMemory(f.Ctx, 1_000_000)
	kit.OK(t, err)
	_, err = f.MeasureMemory(f.Ctx, 1_000_000) // within the pause after a pass
	kit.OK(t, err)
	h := &attacks.Attacker{Fataler: t, Engine: f.Engine, Ctx: f.Ctx, Raw: f.Raw, Prefix: "pk:{default}:"}
	held := h.Start()
	kit.OK(t, f.Raw.HSet(f.Ctx, h.Prefix+"kept:"+held.TaskID, "1", "1 1 1").Err())
	h.OK(h.Call(held, kit.SameCall("a", "h", "0"), `""`))
	h.End(held)
	coverLateCharge(t, f)
	f.Store.SetBudgets(kit.Worth(1e9, "1000000"), nil)
	defer f.Store.SetBudgets(nil, nil)
	for _, attack := range slices.Concat(attacks.QuotaAttacks, attacks.RunKeyAttacks, attacks.LateReportAttacks) {
		attack(h)
	}
}
