package orchestrator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
)

// wantSpentTotal holds the sum of an envelope against what is expected, "" for none.
func (f *fixture) wantSpentTotal(t *testing.T, id, dollars string) {
	t.Helper()
	e := f.mustEnvelope(t, id)
	switch {
	case dollars == "" && e.SpentInAll != nil:
		t.Errorf("%s and all below it have spent %+v, want no sum", id, *e.SpentInAll)
	case dollars != "" && (e.SpentInAll == nil || e.SpentInAll.USD != usd(dollars)):
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
		f := plain.openWithDailyLimit(t, worth(1_000_000, "100"))
		f.wantSpentTotal(t, "house", "0")
		root, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(1000, "5"), Review: picket.ReviewByNone})
		f.callTwice(t, func() error {
			f.mustSettle(t, settlementAs(f.mustReserve(t, h, paidCall("0.1")), picket.CallUndispatched))
			return nil
		})
		f.wantSpentTotal(t, "house", "0")
		f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0.30")), "0.10"))
		part, err := f.Delegate(f.ctx, h, "", picket.Subtask{Title: "a part", BudgetEnvelope: worth(100, "2")})
		ok(t, err)
		ph := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		deep, err := f.Delegate(f.ctx, ph, "", picket.Subtask{Title: "a part of it", BudgetEnvelope: worth(10, "1")})
		ok(t, err)
		dh := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		open, unknown := f.mustReserve(t, dh, paidCall("0.20")), f.mustReserve(t, dh, paidCall("0.40"))
		f.callTwice(t, func() error { f.mustSettle(t, settlementAs(unknown, picket.CallUncertain)); return nil })
		f.wantSpentTotal(t, "house", "0.50")
		for range 2 { // once
			f.mustSettle(t, doneSettlement(unknown, "0.25"))
		}
		_, err = f.ReportUsage(f.ctx, ph,
			picket.UsageReport{Source: "claude", Session: "s", Tokens: 7, USD: usd("0.03")})
		ok(t, err)
		f.wantSpentTotal(t, deep.TaskID, "0.25")
		f.wantSpentTotal(t, part.TaskID, "0.28")
		f.wantSpentTotal(t, root.TaskID, "0.38")
		f.wantSpentTotal(t, "house", "0.38")
		_, err = f.TopUp(f.ctx, idempotent("u"), part.TaskID, picket.TopUp{USD: usd("1")})
		ok(t, err)
		_, err = f.Cancel(f.ctx, operator, root.TaskID, "no more")
		ok(t, err)
		f.wantSpentTotal(t, "house", "0.38")
		f.mustSettle(t, doneSettlement(open, "2.50")) // late, and more than there was
		f.wantSpentTotal(t, deep.TaskID, "2.75")
		f.wantSpentTotal(t, "house", "2.88")
		if e := f.mustEnvelope(t, "house"); e.SpentInAll.Tokens != 7 || e.Available != *worth(999_993, "97.12") {
			t.Errorf("the house %+v, in all %+v", e, e.SpentInAll)
		}
		f.wantNoViolations(t)
		for range 5 { // deleted, from the leaves up
			ok(t, f.raw.HIncrBy(f.ctx, meta, "now", (2*time.Hour).Milliseconds()).Err())
			f.mustSubmit(t, picket.TaskSpec{BudgetEnvelope: worth(0, "0")}) // keeps the day
			_, err := f.ApplyRetention(f.ctx, picket.Retention{Tasks: time.Hour}, 10)
			ok(t, err)
		}
		_, err = f.Envelope(f.ctx, root.TaskID)
		refused(t, err, picket.CodeNotFound)
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
		defer plain.close()
		f := plain.openWithDailyLimit(t, worth(1_000_000, "100"))
		_, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(0, "5"), Review: picket.ReviewByNone})
		f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0.10")), "0.10"))
		yesterday := f.mustEnvelope(t, "house").ID
		time.Sleep(24 * time.Hour) // store time stands still while nobody looks
		f.wantSpentTotal(t, "house", "0")
		f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0.20")), "0.20"))
		_, err := f.Complete(f.ctx, h, picket.Completion{})
		ok(t, err)
		f.wantSpentTotal(t, "house", "0")
		f.wantSpentTotal(t, yesterday, "0.30")
		f.wantNoViolations(t)
	})
}

// Envelopes from before this was counted show no sum, and begin none: the
// scanner counts them, from the leaves up. That is not damage.
func TestEnvelopesOfAnOlderStoreAreSummedUp(t *testing.T) {
	onBothStores(t, func(t *testing.T, plain *fixture) {
		f := plain.openWithDailyLimit(t, worth(1_000_000, "100"))
		root, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(1000, "5")})
		part, err := f.Delegate(f.ctx, h, "", picket.Subtask{Title: "a part", BudgetEnvelope: worth(100, "2")})
		ok(t, err)
		ph := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		f.mustSettle(t, doneSettlement(f.mustReserve(t, ph, paidCall("0.20")), "0.20"))
		day := f.mustEnvelope(t, "house").ID
		for _, id := range []string{day, root.TaskID, part.TaskID} {
			ok(t, f.raw.HDel(f.ctx, "pk:{default}:env:"+id, "total_t", "total_u").Err())
		}
		f.mustSettle(t, doneSettlement(f.mustReserve(t, ph, paidCall("0.10")), "0.10"))
		for _, id := range []string{"house", root.TaskID, part.TaskID} {
			f.wantSpentTotal(t, id, "")
		}
		later, lh := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(0, "1"), Priority: ptr(9)})
		f.mustSettle(t, doneSettlement(f.mustReserve(t, lh, paidCall("0.05")), "0.05"))
		f.wantSpentTotal(t, later.TaskID, "0.05")
		f.wantNoViolations(t) // looking changes nothing
		f.wantSpentTotal(t, "house", "")
		for range 3 {
			found, err := inspectAll(f.ctx, f.Engine, true)
			ok(t, err)
			if len(found) > 0 {
				t.Errorf("found %+v", found)
			}
		}
		f.wantSpentTotal(t, part.TaskID, "0.30")
		f.wantSpentTotal(t, "house", "0.35")
		f.mustSettle(t, doneSettlement(f.mustReserve(t, ph, paidCall("0.01")), "0.01"))
		f.wantSpentTotal(t, "house", "0.36")
		ok(t, f.raw.HSet(f.ctx, "pk:{default}:env:"+day, "total_u", int64(budget.Money(7))).Err())
		found, err := inspectAll(f.ctx, f.Engine, true)
		ok(t, err)
		if len(found) != 1 || found[0].Kind != "total_differs" || found[0].Subject != day || !found[0].Repaired {
			t.Errorf("a wrong sum of the day: %+v", found)
		}
		f.wantSpentTotal(t, "house", "0.36")
		f.wantNoViolations(t)
	})
}
