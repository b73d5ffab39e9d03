package branches

import (
	"fmt"
	"slices"
	"testing"

	"github.com/picket-dev/picket"
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
	coverTotals(t, f)
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

// coverTotals counts ends and charges: of more roles than have a name, of a run that was deleted, and
// of one that took longer than any bound.
func coverTotals(t *testing.T, f *fixture) {
	for i := range orchestrator.MaxCountedRoles + 1 {
		role := fmt.Sprintf("counted%d", i)
		f.MustSubmit(t, picket.TaskSpec{Role: role})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: role}))
		if i == 0 {
			for _, model := range []string{"opus", "opus", ""} {
				call := kit.PaidCall("0.1")
				call.Model = model
				f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, call), "0.1"))
			}
			_, err := f.TopUp(f.Ctx, kit.Operator, h.TaskID, picket.TopUp{USD: kit.USD("1")})
			kit.OK(t, err)
			kit.OK(t, f.Raw.HIncrBy(f.Ctx, "pk:{default}:run:"+h.RunID, "started", -1e9).Err())
		}
		_, err := f.Fail(f.Ctx, h, "no", false)
		kit.OK(t, err)
	}
	kit.OK(t, f.Raw.RPush(f.Ctx, "pk:{default}:uncounted", kit.NoRun).Err())
	for n := 1; n > 0; {
		var err error
		n, err = f.CountEnded(f.Ctx, 100)
		kit.OK(t, err)
	}
	kit.OK(t, f.Tick(f.Ctx)) // finds nothing to count
	_, err := f.Totals(f.Ctx)
	kit.OK(t, err)
	at, err := f.TracePosition(f.Ctx)
	kit.OK(t, err)
	for range 2 {
		_, err = f.AdvanceTraces(f.Ctx, at, at+1)
		kit.OK(t, err)
	}
}
