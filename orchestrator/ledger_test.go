package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Each settled call, correction, usage report and top-up is one row, in the
// order of the events that they are.
func TestTheLedger(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.2")), "0.1"))
		r := f.MustReserve(t, h, kit.SameCall("1", "a", "0.3"))
		f.MustSettle(t, kit.SettlementAs(r, picket.CallUncertain))
		s := kit.DoneSettlement(r, "0.05")
		s.Outcome, s.Detail = picket.CallFailed, "500 "+string(make([]byte, 300))+"é"
		for range 2 {
			f.MustSettle(t, s)
		}
		f.wantUsage(t, h, picket.UsageReport{Tokens: 5}, 5, "0")
		_, err := f.TopUp(f.Ctx, kit.Idempotent("a"), task.TaskID, picket.TopUp{USD: kit.USD("1")})
		kit.OK(t, err)
		other, oh := f.SubmitAndLease(t, picket.TaskSpec{})
		f.MustSettle(t, kit.SettlementAs(f.MustReserve(t, oh, kit.PaidCall("0.2")), picket.CallUndispatched))

		page, err := f.Ledger(f.Ctx, picket.LedgerQuery{TaskID: task.TaskID})
		kit.OK(t, err)
		want := []struct {
			kind     picket.LedgerKind
			outcome  picket.CallOutcome
			reserved string
			charged  string
		}{{picket.LedgerCall, picket.CallDone, "0.2", "0.1"}, {picket.LedgerCall, picket.CallUncertain, "0.3", "0.3"},
			{picket.LedgerCorrection, picket.CallFailed, "0", "-0.25"}, {picket.LedgerUsage, picket.CallDone, "0", "0"},
			{picket.LedgerTopUp, "", "0", "1"}}
		if len(page.Rows) != len(want) || page.Next != "" {
			t.Fatalf("ledger %+v", page)
		}
		spent := kit.USD("0")
		for i, row := range page.Rows {
			w := want[i]
			if row.Kind != w.kind || row.Outcome != w.outcome || row.Reserved.USD != kit.USD(w.reserved) ||
				row.Charged.USD != kit.USD(w.charged) || row.TaskID != task.TaskID || row.At == 0 {
				t.Errorf("row %d is %+v", i, row)
			}
			if row.Kind != picket.LedgerTopUp {
				spent += row.Charged.USD
				if row.RunID != h.RunID {
					t.Errorf("row %d is of %s", i, row.RunID)
				}
			}
		}
		if first := page.Rows[0]; first.Tool != "http_request" || first.PriceVersion != "v1" || first.Detail != "200" {
			t.Errorf("first row %+v", first)
		}
		if d := page.Rows[2].Detail; len(d) > 256 || d[:4] != "500 " {
			t.Errorf("detail %q", d)
		}
		if got := f.WantState(t, task.TaskID, picket.TaskLeased); got.Spent.USD != spent || got.Spent.Tokens != 5 {
			t.Errorf("the task has spent %+v, its rows say %s", got.Spent, spent)
		}
		events, err := f.Events(f.Ctx,
			picket.EventQuery{Types: []string{picket.EventToolCalled, picket.EventBudgetToppedUp}, TaskID: task.TaskID})
		kit.OK(t, err)
		for i, e := range events.Events {
			if e.Seq != page.Rows[i].Seq {
				t.Errorf("event %d and row %d", e.Seq, page.Rows[i].Seq)
			}
		}

		// Pages of one task and of all.
		for _, q := range []picket.LedgerQuery{{TaskID: task.TaskID, Limit: 2}, {Limit: 2}} {
			rows := 0
			for range 10 {
				page, err := f.Ledger(f.Ctx, q)
				kit.OK(t, err)
				rows += len(page.Rows)
				if page.Next == "" {
					break
				}
				_, err = fmt.Sscan(page.Next, &q.After)
				kit.OK(t, err)
			}
			if q.TaskID == "" && rows != 6 || q.TaskID != "" && rows != 5 {
				t.Errorf("%+v: %d rows", q, rows)
			}
		}
		for _, q := range []picket.LedgerQuery{{Limit: -1}, {Limit: 1001}, {TaskID: "x"}} {
			_, err = f.Ledger(f.Ctx, q)
			kit.Refused(t, err, picket.CodeValidation)
		}
		if page, err := f.Ledger(f.Ctx, picket.LedgerQuery{TaskID: other.TaskID}); err != nil || len(page.Rows) != 1 ||
			page.Rows[0].Charged.USD != 0 {
			t.Errorf("%+v, %v", page, err)
		}
	})
}

// With a task everything goes that was kept of its money, also a ledger longer
// than a step deletes, and the books of what it was carved from stay exact.
func TestMoneyIsDeletedWithItsTask(t *testing.T) {
	onBothStores(t, func(t *testing.T, plain *fixture) {
		f := plain.openWithDailyLimit(t, kit.Worth(1_000_000, "100"))
		root, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1"),
			Review: picket.ReviewByNone})
		d, err := f.Delegate(f.Ctx, h, "one",
			picket.Subtask{
				Title:          "part",
				BudgetEnvelope: kit.Worth(10, "0.60"),
				Review:         picket.ReviewByNone,
				Priority:       kit.Ptr(9),
			})
		kit.OK(t, err)
		ch := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, ch, kit.PaidCall("0.20")), "0.10"))
		f.wantUsage(t, ch, picket.UsageReport{Scope: "session", Session: "s", Tokens: 1}, 1, "0")
		open := f.MustReserve(t, ch, externalCall())
		_, err = f.Reserve(f.Ctx, ch, kit.PaidCall("9"))
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		for _, held := range []picket.LeaseCredential{ch, h} {
			_, err = f.Complete(f.Ctx, held, picket.Completion{})
			kit.OK(t, err)
		}
		retain := func() {
			t.Helper()
			for range 8 { // from the leaves up, an hour after the other
				kit.OK(t, f.Raw.HIncrBy(f.Ctx, kit.Meta, "now", (2*time.Hour).Milliseconds()).Err())
				_, err := f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Hour}, 10)
				kit.OK(t, err)
			}
		}
		retain()
		if got := f.mustEnvelope(t, d.TaskID); got.Held.USD != kit.USD("0.1") {
			t.Fatalf("the call under way: %+v", got)
		}
		f.MustSettle(t, kit.DoneSettlement(open, "0.05"))
		var rows []redis.Z
		for i := range 1500 {
			rows = append(rows, kit.ZMember(float64(900_000+i), fmt.Sprint(900_000+i)))
		}
		kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:ledger-of:"+d.TaskID, rows...).Err())
		kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "spending", 1_000_000).Err()) // as if they were counted
		retain()
		for _, id := range []string{root.TaskID, d.TaskID} {
			_, err = f.Envelope(f.Ctx, id)
			kit.Refused(t, err, picket.CodeNotFound)
			for _, where := range []string{id, h.RunID, ch.RunID} {
				keys, err := f.Raw.Keys(f.Ctx, "*"+where+"*").Result()
				kit.OK(t, err)
				for _, k := range keys {
					if f.Raw.PTTL(f.Ctx, k).Val() <= 0 {
						t.Errorf("%s is left", k)
					}
				}
			}
		}
		if n := f.Raw.XLen(f.Ctx, "pk:{default}:ledger").Val(); n != 0 {
			t.Errorf("%d rows of the ledger are left", n)
		}
		// A day goes when nothing is left of it.
		retain()
		if n := f.Raw.ZCard(f.Ctx, "pk:{default}:houses").Val(); n != 0 {
			t.Errorf("%d days are left", n)
		}
		f.wantNoViolations(t)
	})
}

// A subtask that is deleted before what it was carved from leaves its spending
// there.
func TestWhatADeletedTaskSpentStaysSpent(t *testing.T) {
	onBothStores(t, func(t *testing.T, plain *fixture) {
		f := plain.openWithDailyLimit(t, kit.Worth(1_000_000, "100"))
		_, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1"), Review: picket.ReviewByNone})
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.20")), "0.10"))
		_, err := f.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
		f.MustSubmit(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(0, "2")}) // keeps the day
		kit.OK(t, f.Raw.HIncrBy(f.Ctx, kit.Meta, "now", (2*time.Hour).Milliseconds()).Err())
		_, err = f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Hour}, 10)
		kit.OK(t, err)
		house := f.mustEnvelope(t, "house")
		if house.Spent != *kit.Worth(0, "0.10") || house.Carved != *kit.Worth(0, "2") ||
			house.Available != *kit.Worth(1_000_000, "97.90") || len(house.Children) != 1 {
			t.Errorf("house %+v", house)
		}
		f.wantNoViolations(t)
	})
}
