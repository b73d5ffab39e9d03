package orchestrator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
)

// A call that cost more than it had reserved is booked in full. The envelope
// pays for nothing then except for what is free, until a top-up makes it good.
func TestAnOverrunLocksUntilATopUp(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(100, "1")})
		// more, but it is there
		if got := f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0.10")), "0.30")); got.Overrun {
			t.Errorf("settled %+v", got)
		}
		got := f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0.60")), "0.75"))
		if !got.Overrun || got.Available.USD != usd("-0.05") {
			t.Errorf("settled %+v", got)
		}
		f.wantEnvelope(t, task.TaskID, "1", "-0.05", "0", "1.05")
		f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0")), "0"))
		tokens := paidCall("0")
		tokens.Reserve.Tokens = 1
		_, err := f.Reserve(f.ctx, h, tokens) // whatever the price, in whatever it is
		refused(t, err, picket.CodeBudgetExceeded)
		if e := f.mustEnvelope(t, task.TaskID); !e.Locked || f.countEvents(t, picket.EventBudgetOverrun) != 1 {
			t.Errorf("envelope %+v, %d events", e, f.countEvents(t, picket.EventBudgetOverrun))
		}
		e, err := f.TopUp(f.ctx, idempotent("a"), task.TaskID, picket.TopUp{USD: usd("0.05")})
		ok(t, err)
		if e.Locked || e.Available.USD != 0 || e.Envelope.USD != usd("1.05") {
			t.Errorf("topped up %+v", e)
		}
		f.mustReserve(t, h, tokens)
		f.wantNoViolations(t)
	})
}

// Half, four fifths and nearly all of an envelope are told once each, in each
// dimension, and again when a top-up had made them untrue.
func TestWarningsComeOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(100, "0.10")})
		warned := func(want int) {
			t.Helper()
			if got := f.countEvents(t, picket.EventBudgetWarning); got != want {
				t.Errorf("%d warnings, want %d", got, want)
			}
		}
		for i, want := range []int{0, 0, 0, 0, 1, 1, 1, 2, 2, 3} {
			f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0.01")), "0.01"))
			if warned(want); t.Failed() {
				t.Fatalf("after %d cents", i+1)
			}
		}
		// 10 of 18 cents are spent
		_, err := f.TopUp(f.ctx, idempotent("a"), task.TaskID, picket.TopUp{USD: usd("0.08")})
		ok(t, err)
		f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0.02")), "0.02"))
		warned(3)
		f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0.03")), "0.03"))
		warned(4)
		c := paidCall("0")
		c.Reserve.Tokens = 99
		s := doneSettlement(f.mustReserve(t, h, c), "0")
		s.Cost.Tokens = 99
		f.mustSettle(t, s)
		warned(5) // one for all that were passed
	})
}

// What comes late is spent by the task it was spent for, and paid by the nearest
// open one above.
func TestLateMoneyGoesThroughClosedEnvelopes(t *testing.T) {
	onBothStores(t, func(t *testing.T, plain *fixture) {
		f := plain.openWithDailyLimit(t, worth(1_000_000, "100"))
		root, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(1000, "1")})
		child := func(h picket.LeaseCredential, dollars string) (string, picket.LeaseCredential) {
			t.Helper()
			d, err := f.Delegate(f.ctx, h, "one",
				picket.Subtask{
					Title:          "part",
					BudgetEnvelope: worth(10, dollars),
					Review:         picket.ReviewByNone,
					Priority:       ptr(9),
				})
			ok(t, err)
			return d.TaskID, f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		}
		middle, mh := child(h, "0.60")
		leaf, lh := child(mh, "0.50")
		f.wantEnvelope(t, middle, "0.60", "0.10", "0", "0")
		calls := []picket.Reservation{f.mustReserve(t, lh, paidCall("0.10")), f.mustReserve(t, lh, paidCall("0.10")),
			f.mustReserve(t, lh, paidCall("0.10"))}
		for _, held := range []picket.LeaseCredential{lh, mh} {
			_, err := f.Complete(f.ctx, held, picket.Completion{})
			ok(t, err)
		}
		// Closed: what was available is back, what is held is not.
		f.wantEnvelope(t, leaf, "0.30", "0", "0.30", "0")
		f.wantEnvelope(t, middle, "0.30", "0", "0", "0")
		f.wantEnvelope(t, root.TaskID, "1", "0.70", "0", "0")
		f.wantNoViolations(t)
		f.mustSettle(t, settlementAs(calls[0], picket.CallUndispatched))
		f.wantEnvelope(t, root.TaskID, "1", "0.80", "0", "0")
		if got := f.mustSettle(t, doneSettlement(calls[1], "0.25")); got.Available.USD != usd("0.65") || got.Overrun {
			t.Errorf("settled %+v", got)
		}
		got := f.mustSettle(t, doneSettlement(calls[2], "0.80"))
		if !got.Overrun || got.Available.USD != usd("-0.05") {
			t.Errorf("settled %+v", got)
		}
		f.wantEnvelope(t, leaf, "1.05", "0", "0", "1.05")
		f.wantEnvelope(t, root.TaskID, "1", "-0.05", "0", "0")
		if f.countEvents(t, picket.EventBudgetLate) != 3 || f.countEvents(t, picket.EventBudgetOverrun) != 1 {
			t.Errorf("%d late, %d overruns", f.countEvents(t, picket.EventBudgetLate),
				f.countEvents(t, picket.EventBudgetOverrun))
		}
		f.wantNoViolations(t)
		// At its end the root's debt is the house's.
		_, err := f.Complete(f.ctx, h, picket.Completion{})
		ok(t, err)
		_, err = f.Approve(f.ctx, operator, root.TaskID, picket.Decision{})
		ok(t, err)
		f.wantEnvelope(t, root.TaskID, "1.05", "0", "0", "0")
		if house := f.mustEnvelope(t, "house"); house.Available.USD != usd("98.95") || house.Carved.USD != usd("1.05") {
			t.Errorf("house %+v", house)
		}
		f.wantNoViolations(t)
	})
}

// A root task that was carved from nothing keeps what it did not spend.
func TestLateMoneyOfATaskWithoutADailyLimit(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(0, "1"), Review: picket.ReviewByNone})
		r := f.mustReserve(t, h, paidCall("0.40"))
		_, err := f.Complete(f.ctx, h, picket.Completion{})
		ok(t, err)
		f.wantEnvelope(t, task.TaskID, "1", "0.60", "0.40", "0")
		if got := f.mustSettle(t, doneSettlement(r, "1.10")); !got.Overrun {
			t.Errorf("settled %+v", got)
		}
		f.wantEnvelope(t, task.TaskID, "1", "-0.10", "0", "1.10")
		_, err = f.TopUp(f.ctx, idempotent("a"), task.TaskID, picket.TopUp{USD: usd("1")})
		refused(t, err, picket.CodeTaskClosed)
		f.wantNoViolations(t)
	})
}

// Money put into a subtask is granted to all above it, and paid by the house.
func TestATopUpIsChargedToTheDailyLimit(t *testing.T) {
	onBothStores(t, func(t *testing.T, plain *fixture) {
		f := plain.openWithDailyLimit(t, worth(2000, "2"))
		root, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(1000, "1")})
		d, err := f.Delegate(f.ctx, h, "one", picket.Subtask{Title: "part", BudgetEnvelope: worth(10, "0.10")})
		ok(t, err)
		more := picket.TopUp{Tokens: 5, USD: usd("0.25"), Reason: "go on"}
		for range 2 { // the second time nothing is added
			e, err := f.TopUp(f.ctx, idempotent("a"), d.TaskID, more)
			ok(t, err)
			if e.Available != *worth(15, "0.35") || e.Envelope != *worth(15, "0.35") || e.Parent != root.TaskID {
				t.Errorf("topped up %+v", e)
			}
		}
		clash := idempotent("a")
		clash.Idempotency.Body = clash.Idempotency.Body[1:] + "x"
		_, err = f.TopUp(f.ctx, clash, d.TaskID, more)
		refused(t, err, picket.CodeIdempotencyConflict)
		e := f.mustEnvelope(t, root.TaskID)
		if e.Granted != *worth(1005, "1.25") || e.Available != *worth(990, "0.90") || e.Carved != *worth(15, "0.35") ||
			len(e.Children) != 1 {
			t.Errorf("root %+v", e)
		}
		house := f.mustEnvelope(t, "house")
		if house.Available != *worth(995, "0.75") || len(house.Children) != 1 || len(house.Children[0].Children) != 1 {
			t.Errorf("house %+v", house)
		}
		_, err = f.TopUp(f.ctx, idempotent("b"), d.TaskID, picket.TopUp{USD: usd("0.76")})
		refused(t, err, picket.CodeBudgetExceeded)
		if got := err.(*picket.Error).Facts["envelope"]; got != house.ID {
			t.Errorf("the refusal names %v", got)
		}
		_, err = f.TopUp(f.ctx, idempotent("b"), d.TaskID, picket.TopUp{Tokens: budget.MaxTokens})
		refused(t, err, picket.CodeValidation)
		_, err = f.TopUp(f.ctx, idempotent("b"), noTask, more)
		refused(t, err, picket.CodeNotFound)
		for _, bad := range []picket.TopUp{{}, {USD: -1}, {Tokens: -1}, {USD: usd("4000000") + 1}} {
			_, err = f.TopUp(f.ctx, idempotent("b"), d.TaskID, bad)
			refused(t, err, picket.CodeValidation)
		}
		page, err := f.Ledger(f.ctx, picket.LedgerQuery{TaskID: d.TaskID})
		ok(t, err)
		if len(page.Rows) != 1 || page.Rows[0].Kind != picket.LedgerTopUp ||
			page.Rows[0].Charged != *worth(5, "0.25") || page.Rows[0].Actor != "key_test" ||
			page.Rows[0].Detail != "go on" {
			t.Errorf("ledger %+v", page)
		}
		f.wantNoViolations(t)
	})
}

// Anyone who waits for a top-up hears of it at once, also of one that came between the
// refusal and the wait.
func TestWaitingForATopUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, stop := rig.Memory()
		defer stop()
		f := openFixture(t, store)
		defer f.close()
		task, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(0, "0.10"), LeaseWindowSeconds: ptr(3600)})
		topUp := func(key string) {
			_, err := f.TopUp(f.ctx, idempotent(key), task.TaskID, picket.TopUp{USD: usd("0.10")})
			ok(t, err)
		}
		waited := func(want bool, after time.Duration, available string) {
			t.Helper()
			began := time.Now()
			got, err := f.AwaitTopUp(f.ctx, h, 50*time.Second)
			ok(t, err)
			if took := time.Since(began).
				Round(time.Second); got.ToppedUp != want || took != after || got.Available.USD != usd(available) ||
				got.Locked {
				t.Errorf("%+v after %s, want %v after %s", got, took, want, after)
			}
		}
		waited(false, 50*time.Second, "0.10")
		go func() { time.Sleep(7 * time.Second); topUp("a") }()
		waited(true, 7*time.Second, "0.20")
		waited(true, 0, "0.20") // the answer was lost
		_, err := f.Reserve(f.ctx, h, paidCall("0.30"))
		refused(t, err, picket.CodeBudgetExceeded)
		waited(false, 50*time.Second, "0.20")
		_, err = f.Reserve(f.ctx, h, paidCall("0.30"))
		refused(t, err, picket.CodeBudgetExceeded)
		topUp("b")
		waited(true, 0, "0.30")
		f.mustReserve(t, h, paidCall("0.30"))
		_, err = f.Reserve(f.ctx, h, paidCall("0.30"))
		refused(t, err, picket.CodeBudgetExceeded)
		cleared := make(chan struct{})
		go func() { time.Sleep(time.Second); f.cancelAll(t); close(cleared) }()
		_, err = f.AwaitTopUp(f.ctx, h, 50*time.Second)
		refused(t, err, picket.CodeTaskCancelled)
		<-cleared
	})
}
