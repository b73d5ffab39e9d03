package orchestrator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// wantSpentTotal holds the sum of an envelope against what is expected, "" for none.
func (f *fixture) wantSpentTotal(t *testing.T, id, dollars string) {
	t.Helper()
	e := f.mustEnvelope(t, id)
	switch {
	case dollars == "" && e.SpentInAll != nil:
		t.Errorf("%s and all below it have spent %+v, want no sum", id, *e.SpentInAll)
	case dollars != "" && (e.SpentInAll == nil || e.SpentInAll.USD != kit.USD(dollars)):
		t.Errorf("%s and all below it have spent %+v, want %s", id, e.SpentInAll, dollars)
	}
	if id != "house" {
		return
	}
	if h := f.mustStats(t).DailyEnvelope; h == nil || h.Limit != e.Granted || h.Available != e.Available ||
		(h.SpentInAll == nil) != (e.SpentInAll == nil) ||
		e.SpentInAll != nil && *h.SpentInAll != *e.SpentInAll {
		t.Errorf("the house is counted as %+v, it is %+v", h, e)
	}
}

// What was spent from a day is known at any moment, to the nano-dollar: of tasks
// and their subtasks, late and corrected, no matter who has ended.
func TestWhatWasSpentOfADay(t *testing.T) {
	onBothStores(t, func(t *testing.T, plain *fixture) {
		f := plain.openWithDailyLimit(t, kit.Worth(1_000_000, "100"))
		f.wantSpentTotal(t, "house", "0")
		root, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "5"),
			Review: picket.ReviewByNone})
		f.CallTwice(t, func() error {
			f.MustSettle(t, kit.SettlementAs(f.MustReserve(t, h, kit.PaidCall("0.1")), picket.CallUndispatched))
			return nil
		})
		f.wantSpentTotal(t, "house", "0")
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.30")), "0.10"))
		part, err := f.Delegate(f.Ctx, h, "", picket.Subtask{Title: "a part", BudgetEnvelope: kit.Worth(100, "2")})
		kit.OK(t, err)
		ph := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		deep, err := f.Delegate(f.Ctx, ph, "", picket.Subtask{Title: "a part of it",
			BudgetEnvelope: kit.Worth(10, "1")})
		kit.OK(t, err)
		dh := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		open, unknown := f.MustReserve(t, dh, kit.PaidCall("0.20")), f.MustReserve(t, dh, kit.PaidCall("0.40"))
		f.CallTwice(t, func() error { f.MustSettle(t, kit.SettlementAs(unknown, picket.CallUncertain)); return nil })
		f.wantSpentTotal(t, "house", "0.50")
		for range 2 { // once
			f.MustSettle(t, kit.DoneSettlement(unknown, "0.25"))
		}
		_, err = f.ReportUsage(f.Ctx, ph,
			picket.UsageReport{Source: "claude", Session: "s", Tokens: 7, USD: kit.USD("0.03")})
		kit.OK(t, err)
		f.wantSpentTotal(t, deep.TaskID, "0.25")
		f.wantSpentTotal(t, part.TaskID, "0.28")
		f.wantSpentTotal(t, root.TaskID, "0.38")
		f.wantSpentTotal(t, "house", "0.38")
		_, err = f.TopUp(f.Ctx, kit.Idempotent("u"), part.TaskID, picket.TopUp{USD: kit.USD("1")})
		kit.OK(t, err)
		_, err = f.Cancel(f.Ctx, kit.Operator, root.TaskID, "no more")
		kit.OK(t, err)
		f.wantSpentTotal(t, "house", "0.38")
		f.MustSettle(t, kit.DoneSettlement(open, "2.50")) // late, and more than there was
		f.wantSpentTotal(t, deep.TaskID, "2.75")
		f.wantSpentTotal(t, "house", "2.88")
		if e := f.mustEnvelope(t, "house"); e.SpentInAll.Tokens != 7 || e.Available != *kit.Worth(999_993, "97.12") {
			t.Errorf("the house %+v, in all %+v", e, e.SpentInAll)
		}
		f.wantNoViolations(t)
		for range 5 { // deleted, from the leaves up
			kit.OK(t, f.Raw.HIncrBy(f.Ctx, kit.Meta, "now", (2*time.Hour).Milliseconds()).Err())
			f.MustSubmit(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(0, "0")}) // keeps the day
			_, err := f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Hour}, 10)
			kit.OK(t, err)
		}
		_, err = f.Envelope(f.Ctx, root.TaskID)
		kit.Refused(t, err, picket.CodeNotFound)
		f.wantSpentTotal(t, "house", "2.88")
		f.wantNoViolations(t)
	})
}

// A task belongs to the day that it was submitted on, whenever it spends.
func TestWhatWasSpentBelongsToTheDayOfTheTask(t *testing.T) {
	rig.SkipShort(t)
	synctest.Test(t, func(t *testing.T) {
		store, stop := rig.Memory()
		defer stop()
		plain := openFixture(t, store)
		defer plain.Close()
		f := plain.openWithDailyLimit(t, kit.Worth(1_000_000, "100"))
		_, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(0, "5"), Review: picket.ReviewByNone})
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.10")), "0.10"))
		yesterday := f.mustEnvelope(t, "house").ID
		time.Sleep(24 * time.Hour) // store time stands still while nobody looks
		f.wantSpentTotal(t, "house", "0")
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.20")), "0.20"))
		_, err := f.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
		f.wantSpentTotal(t, "house", "0")
		f.wantSpentTotal(t, yesterday, "0.30")
		f.wantNoViolations(t)
	})
}

// Envelopes from before this was counted show no sum, and begin none: the
// scanner counts them, from the leaves up. That is not damage.
func TestEnvelopesOfAnOlderStoreAreSummedUp(t *testing.T) {
	onBothStores(t, func(t *testing.T, plain *fixture) {
		f := plain.openWithDailyLimit(t, kit.Worth(1_000_000, "100"))
		root, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "5")})
		part, err := f.Delegate(f.Ctx, h, "", picket.Subtask{Title: "a part", BudgetEnvelope: kit.Worth(100, "2")})
		kit.OK(t, err)
		ph := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, ph, kit.PaidCall("0.20")), "0.20"))
		day := f.mustEnvelope(t, "house").ID
		for _, id := range []string{day, root.TaskID, part.TaskID} {
			kit.OK(t, f.Raw.HDel(f.Ctx, "pk:{default}:env:"+id, "total_t", "total_u").Err())
		}
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, ph, kit.PaidCall("0.10")), "0.10"))
		for _, id := range []string{"house", root.TaskID, part.TaskID} {
			f.wantSpentTotal(t, id, "")
		}
		later, lh := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(0, "1"), Priority: kit.Ptr(9)})
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, lh, kit.PaidCall("0.05")), "0.05"))
		f.wantSpentTotal(t, later.TaskID, "0.05")
		f.wantNoViolations(t) // looking changes nothing
		f.wantSpentTotal(t, "house", "")
		for range 3 {
			found, err := kit.InspectAll(f.Ctx, f.Engine, true)
			kit.OK(t, err)
			if len(found) > 0 {
				t.Errorf("found %+v", found)
			}
		}
		f.wantSpentTotal(t, part.TaskID, "0.30")
		f.wantSpentTotal(t, "house", "0.35")
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, ph, kit.PaidCall("0.01")), "0.01"))
		f.wantSpentTotal(t, "house", "0.36")
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:env:"+day, "total_u", int64(budget.Money(7))).Err())
		found, err := kit.InspectAll(f.Ctx, f.Engine, true)
		kit.OK(t, err)
		if len(found) != 1 || found[0].Kind != "total_differs" || found[0].Subject != day || !found[0].Repaired {
			t.Errorf("a wrong sum of the day: %+v", found)
		}
		f.wantSpentTotal(t, "house", "0.36")
		f.wantNoViolations(t)
	})
}
