package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// Each settled call, correction, usage report and top-up is one row, in the
// order of the events that they are.
func TestTheLedger(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{})
		f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0.2")), "0.1"))
		r := f.mustReserve(t, h, sameCall("1", "a", "0.3"))
		f.mustSettle(t, settlementAs(r, picket.CallUncertain))
		s := doneSettlement(r, "0.05")
		s.Outcome, s.Detail = picket.CallFailed, "500 "+string(make([]byte, 300))+"é"
		for range 2 {
			f.mustSettle(t, s)
		}
		f.wantUsage(t, h, picket.UsageReport{Tokens: 5}, 5, "0")
		_, err := f.TopUp(f.ctx, idempotent("a"), task.TaskID, picket.TopUp{USD: usd("1")})
		ok(t, err)
		other, oh := f.submitAndLease(t, picket.TaskSpec{})
		f.mustSettle(t, settlementAs(f.mustReserve(t, oh, paidCall("0.2")), picket.CallUndispatched))

		page, err := f.Ledger(f.ctx, picket.LedgerQuery{TaskID: task.TaskID})
		ok(t, err)
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
		spent := usd("0")
		for i, row := range page.Rows {
			w := want[i]
			if row.Kind != w.kind || row.Outcome != w.outcome || row.Reserved.USD != usd(w.reserved) ||
				row.Charged.USD != usd(w.charged) || row.TaskID != task.TaskID || row.At == 0 {
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
		if got := f.wantState(t, task.TaskID, picket.TaskLeased); got.Spent.USD != spent || got.Spent.Tokens != 5 {
			t.Errorf("the task has spent %+v, its rows say %s", got.Spent, spent)
		}
		events, err := f.Events(f.ctx,
			picket.EventQuery{Types: []string{picket.EventToolCalled, picket.EventBudgetToppedUp}, TaskID: task.TaskID})
		ok(t, err)
		for i, e := range events.Events {
			if e.Seq != page.Rows[i].Seq {
				t.Errorf("event %d and row %d", e.Seq, page.Rows[i].Seq)
			}
		}

		// Pages of one task and of all.
		for _, q := range []picket.LedgerQuery{{TaskID: task.TaskID, Limit: 2}, {Limit: 2}} {
			rows := 0
			for range 10 {
				page, err := f.Ledger(f.ctx, q)
				ok(t, err)
				rows += len(page.Rows)
				if page.Next == "" {
					break
				}
				_, err = fmt.Sscan(page.Next, &q.After)
				ok(t, err)
			}
			if q.TaskID == "" && rows != 6 || q.TaskID != "" && rows != 5 {
				t.Errorf("%+v: %d rows", q, rows)
			}
		}
		for _, q := range []picket.LedgerQuery{{Limit: -1}, {Limit: 1001}, {TaskID: "x"}} {
			_, err = f.Ledger(f.ctx, q)
			refused(t, err, picket.CodeValidation)
		}
		if page, err := f.Ledger(f.ctx, picket.LedgerQuery{TaskID: other.TaskID}); err != nil || len(page.Rows) != 1 ||
			page.Rows[0].Charged.USD != 0 {
			t.Errorf("%+v, %v", page, err)
		}
	})
}

// With a task everything goes that was kept of its money, also a ledger longer
// than a step deletes, and the books of what it was carved from stay exact.
func TestMoneyIsDeletedWithItsTask(t *testing.T) {
	onBothStores(t, func(t *testing.T, plain *fixture) {
		f := plain.openWithDailyLimit(t, worth(1_000_000, "100"))
		root, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(1000, "1"), Review: picket.ReviewByNone})
		d, err := f.Delegate(f.ctx, h, "one",
			picket.Subtask{
				Title:          "part",
				BudgetEnvelope: worth(10, "0.60"),
				Review:         picket.ReviewByNone,
				Priority:       ptr(9),
			})
		ok(t, err)
		ch := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		f.mustSettle(t, doneSettlement(f.mustReserve(t, ch, paidCall("0.20")), "0.10"))
		f.wantUsage(t, ch, picket.UsageReport{Scope: "session", Session: "s", Tokens: 1}, 1, "0")
		open := f.mustReserve(t, ch, externalCall())
		_, err = f.Reserve(f.ctx, ch, paidCall("9"))
		refused(t, err, picket.CodeBudgetExceeded)
		for _, held := range []picket.LeaseCredential{ch, h} {
			_, err = f.Complete(f.ctx, held, picket.Completion{})
			ok(t, err)
		}
		retain := func() {
			t.Helper()
			for range 8 { // from the leaves up, an hour after the other
				ok(t, f.raw.HIncrBy(f.ctx, meta, "now", (2*time.Hour).Milliseconds()).Err())
				_, err := f.ApplyRetention(f.ctx, picket.Retention{Tasks: time.Hour}, 10)
				ok(t, err)
			}
		}
		retain()
		if got := f.mustEnvelope(t, d.TaskID); got.Held.USD != usd("0.1") {
			t.Fatalf("the call under way: %+v", got)
		}
		f.mustSettle(t, doneSettlement(open, "0.05"))
		var rows []redis.Z
		for i := range 1500 {
			rows = append(rows, zMember(float64(900_000+i), fmt.Sprint(900_000+i)))
		}
		ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:ledger-of:"+d.TaskID, rows...).Err())
		retain()
		for _, id := range []string{root.TaskID, d.TaskID} {
			_, err = f.Envelope(f.ctx, id)
			refused(t, err, picket.CodeNotFound)
			for _, where := range []string{id, h.RunID, ch.RunID} {
				keys, err := f.raw.Keys(f.ctx, "*"+where+"*").Result()
				ok(t, err)
				for _, k := range keys {
					if f.raw.PTTL(f.ctx, k).Val() <= 0 {
						t.Errorf("%s is left", k)
					}
				}
			}
		}
		if n := f.raw.XLen(f.ctx, "pk:{default}:ledger").Val(); n != 0 {
			t.Errorf("%d rows of the ledger are left", n)
		}
		// A day goes when nothing is left of it.
		retain()
		if n := f.raw.ZCard(f.ctx, "pk:{default}:houses").Val(); n != 0 {
			t.Errorf("%d days are left", n)
		}
		f.wantNoViolations(t)
	})
}

// A subtask that is deleted before what it was carved from leaves its spending
// there.
func TestWhatADeletedTaskSpentStaysSpent(t *testing.T) {
	onBothStores(t, func(t *testing.T, plain *fixture) {
		f := plain.openWithDailyLimit(t, worth(1_000_000, "100"))
		_, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(1000, "1"), Review: picket.ReviewByNone})
		f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0.20")), "0.10"))
		_, err := f.Complete(f.ctx, h, picket.Completion{})
		ok(t, err)
		f.mustSubmit(t, picket.TaskSpec{BudgetEnvelope: worth(0, "2")}) // keeps the day
		ok(t, f.raw.HIncrBy(f.ctx, meta, "now", (2*time.Hour).Milliseconds()).Err())
		_, err = f.ApplyRetention(f.ctx, picket.Retention{Tasks: time.Hour}, 10)
		ok(t, err)
		house := f.mustEnvelope(t, "house")
		if house.Spent != *worth(0, "0.10") || house.Carved != *worth(0, "2") ||
			house.Available != *worth(1_000_000, "97.90") || len(house.Children) != 1 {
			t.Errorf("house %+v", house)
		}
		f.wantNoViolations(t)
	})
}
