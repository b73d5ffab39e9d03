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

// A call that cost more than it had reserved is booked in full. The envelope
// pays for nothing then except for what is free, until a top-up makes it good.
func TestAnOverrunLocksUntilATopUp(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(100, "1")})
		// more, but it is there
		if got := f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.10")), "0.30")); got.Overrun {
			t.Errorf("settled %+v", got)
		}
		got := f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.60")), "0.75"))
		if !got.Overrun || got.Available.USD != kit.USD("-0.05") {
			t.Errorf("settled %+v", got)
		}
		f.wantEnvelope(t, task.TaskID, "1", "-0.05", "0", "1.05")
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0")), "0"))
		tokens := kit.PaidCall("0")
		tokens.Reserve.Tokens = 1
		_, err := f.Reserve(f.Ctx, h, tokens) // at every price, in dollars and in tokens
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		if e := f.mustEnvelope(t, task.TaskID); !e.Locked || f.countEvents(t, picket.EventBudgetOverrun) != 1 {
			t.Errorf("envelope %+v, %d events", e, f.countEvents(t, picket.EventBudgetOverrun))
		}
		e, err := f.TopUp(f.Ctx, kit.Idempotent("a"), task.TaskID, picket.TopUp{USD: kit.USD("0.05")})
		kit.OK(t, err)
		if e.Locked || e.Available.USD != 0 || e.Envelope.USD != kit.USD("1.05") {
			t.Errorf("topped up %+v", e)
		}
		f.MustReserve(t, h, tokens)
		f.wantNoViolations(t)
	})
}

// Half, four fifths and nearly all of an envelope are told once each, in each
// dimension, and again when a top-up had made them untrue.
func TestWarningsComeOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(100, "0.10")})
		warned := func(want int) {
			t.Helper()
			if got := f.countEvents(t, picket.EventBudgetWarning); got != want {
				t.Errorf("%d warnings, want %d", got, want)
			}
		}
		for i, want := range []int{0, 0, 0, 0, 1, 1, 1, 2, 2, 3} {
			f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.01")), "0.01"))
			if warned(want); t.Failed() {
				t.Fatalf("after %d cents", i+1)
			}
		}
		// 10 of 18 cents are spent
		_, err := f.TopUp(f.Ctx, kit.Idempotent("a"), task.TaskID, picket.TopUp{USD: kit.USD("0.08")})
		kit.OK(t, err)
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.02")), "0.02"))
		warned(3)
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.03")), "0.03"))
		warned(4)
		c := kit.PaidCall("0")
		c.Reserve.Tokens = 99
		s := kit.DoneSettlement(f.MustReserve(t, h, c), "0")
		s.Cost.Tokens = 99
		f.MustSettle(t, s)
		warned(5) // one for all that were passed
	})
}

// What comes late is spent by the task it was spent for, and paid by the nearest
// open one above.
func TestLateMoneyGoesThroughClosedEnvelopes(t *testing.T) {
	onBothStores(t, func(t *testing.T, plain *fixture) {
		f := plain.openWithDailyLimit(t, kit.Worth(1_000_000, "100"))
		root, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
		child := func(h picket.LeaseCredential, dollars string) (string, picket.LeaseCredential) {
			t.Helper()
			d, err := f.Delegate(f.Ctx, h, "one",
				picket.Subtask{
					Title:          "part",
					BudgetEnvelope: kit.Worth(10, dollars),
					Review:         picket.ReviewByNone,
					Priority:       kit.Ptr(9),
				})
			kit.OK(t, err)
			return d.TaskID, f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		}
		middle, mh := child(h, "0.60")
		leaf, lh := child(mh, "0.50")
		f.wantEnvelope(t, middle, "0.60", "0.10", "0", "0")
		calls := []picket.Reservation{f.MustReserve(t, lh, kit.PaidCall("0.10")),
			f.MustReserve(t, lh, kit.PaidCall("0.10")),
			f.MustReserve(t, lh, kit.PaidCall("0.10"))}
		for _, held := range []picket.LeaseCredential{lh, mh} {
			_, err := f.Complete(f.Ctx, held, picket.Completion{})
			kit.OK(t, err)
		}
		// Closed: what was available is back, what is held is not.
		f.wantEnvelope(t, leaf, "0.30", "0", "0.30", "0")
		f.wantEnvelope(t, middle, "0.30", "0", "0", "0")
		f.wantEnvelope(t, root.TaskID, "1", "0.70", "0", "0")
		f.wantNoViolations(t)
		f.MustSettle(t, kit.SettlementAs(calls[0], picket.CallUndispatched))
		f.wantEnvelope(t, root.TaskID, "1", "0.80", "0", "0")
		if got := f.MustSettle(t, kit.DoneSettlement(calls[1], "0.25")); got.Available.USD != kit.USD("0.65") ||
			got.Overrun {
			t.Errorf("settled %+v", got)
		}
		got := f.MustSettle(t, kit.DoneSettlement(calls[2], "0.80"))
		if !got.Overrun || got.Available.USD != kit.USD("-0.05") {
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
		_, err := f.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
		_, err = f.Approve(f.Ctx, kit.Operator, root.TaskID, picket.Decision{})
		kit.OK(t, err)
		f.wantEnvelope(t, root.TaskID, "1.05", "0", "0", "0")
		if house := f.mustEnvelope(t, "house"); house.Available.USD != kit.USD("98.95") ||
			house.Carved.USD != kit.USD("1.05") {
			t.Errorf("house %+v", house)
		}
		f.wantNoViolations(t)
	})
}

// A root task that was carved from nothing keeps what it did not spend.
func TestLateMoneyOfATaskWithoutADailyLimit(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(0, "1"), Review: picket.ReviewByNone})
		r := f.MustReserve(t, h, kit.PaidCall("0.40"))
		_, err := f.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
		f.wantEnvelope(t, task.TaskID, "1", "0.60", "0.40", "0")
		if got := f.MustSettle(t, kit.DoneSettlement(r, "1.10")); !got.Overrun {
			t.Errorf("settled %+v", got)
		}
		f.wantEnvelope(t, task.TaskID, "1", "-0.10", "0", "1.10")
		_, err = f.TopUp(f.Ctx, kit.Idempotent("a"), task.TaskID, picket.TopUp{USD: kit.USD("1")})
		kit.Refused(t, err, picket.CodeTaskClosed)
		f.wantNoViolations(t)
	})
}

// Money put into a subtask is granted to all above it, and paid by the house.
func TestATopUpIsChargedToTheDailyLimit(t *testing.T) {
	onBothStores(t, func(t *testing.T, plain *fixture) {
		f := plain.openWithDailyLimit(t, kit.Worth(2000, "2"))
		root, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
		d, err := f.Delegate(f.Ctx, h, "one", picket.Subtask{Title: "part", BudgetEnvelope: kit.Worth(10, "0.10")})
		kit.OK(t, err)
		more := picket.TopUp{Tokens: 5, USD: kit.USD("0.25"), Reason: "go on"}
		for range 2 { // the second time nothing is added
			e, err := f.TopUp(f.Ctx, kit.Idempotent("a"), d.TaskID, more)
			kit.OK(t, err)
			if e.Available != *kit.Worth(15, "0.35") || e.Envelope != *kit.Worth(15, "0.35") ||
				e.Parent != root.TaskID {
				t.Errorf("topped up %+v", e)
			}
		}
		clash := kit.Idempotent("a")
		clash.Idempotency.Body = clash.Idempotency.Body[1:] + "x"
		_, err = f.TopUp(f.Ctx, clash, d.TaskID, more)
		kit.Refused(t, err, picket.CodeIdempotencyConflict)
		e := f.mustEnvelope(t, root.TaskID)
		if e.Granted != *kit.Worth(1005, "1.25") || e.Available != *kit.Worth(990, "0.90") ||
			e.Carved != *kit.Worth(15, "0.35") ||
			len(e.Children) != 1 {
			t.Errorf("root %+v", e)
		}
		house := f.mustEnvelope(t, "house")
		if house.Available != *kit.Worth(995, "0.75") || len(house.Children) != 1 ||
			len(house.Children[0].Children) != 1 {
			t.Errorf("house %+v", house)
		}
		_, err = f.TopUp(f.Ctx, kit.Idempotent("b"), d.TaskID, picket.TopUp{USD: kit.USD("0.76")})
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		if got := err.(*picket.Error).Facts["envelope"]; got != house.ID {
			t.Errorf("the refusal names %v", got)
		}
		_, err = f.TopUp(f.Ctx, kit.Idempotent("b"), d.TaskID, picket.TopUp{Tokens: budget.MaxTokens})
		kit.Refused(t, err, picket.CodeValidation)
		_, err = f.TopUp(f.Ctx, kit.Idempotent("b"), kit.NoTask, more)
		kit.Refused(t, err, picket.CodeNotFound)
		for _, bad := range []picket.TopUp{{}, {USD: -1}, {Tokens: -1}, {USD: kit.USD("4000000") + 1}} {
			_, err = f.TopUp(f.Ctx, kit.Idempotent("b"), d.TaskID, bad)
			kit.Refused(t, err, picket.CodeValidation)
		}
		page, err := f.Ledger(f.Ctx, picket.LedgerQuery{TaskID: d.TaskID})
		kit.OK(t, err)
		if len(page.Rows) != 1 || page.Rows[0].Kind != picket.LedgerTopUp ||
			page.Rows[0].Charged != *kit.Worth(5, "0.25") || page.Rows[0].Actor != "key_test" ||
			page.Rows[0].Detail != "go on" {
			t.Errorf("ledger %+v", page)
		}
		f.wantNoViolations(t)
	})
}

// A caller that waits for a top-up gets it at once, also one that came between the refusal and the
// wait.
func TestWaitingForATopUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, stop := rig.Memory()
		defer stop()
		f := openFixture(t, store)
		defer f.Close()
		task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(0, "0.10"),
			LeaseWindowSeconds: kit.Ptr(3600)})
		topUp := func(key string) {
			_, err := f.TopUp(f.Ctx, kit.Idempotent(key), task.TaskID, picket.TopUp{USD: kit.USD("0.10")})
			kit.OK(t, err)
		}
		waited := func(want bool, after time.Duration, available string) {
			t.Helper()
			began := time.Now()
			got, err := f.AwaitTopUp(f.Ctx, h, 50*time.Second)
			kit.OK(t, err)
			if took := time.Since(began).
				Round(time.Second); got.ToppedUp != want || took != after || got.Available.USD != kit.USD(available) ||
				got.Locked {
				t.Errorf("%+v after %s, want %v after %s", got, took, want, after)
			}
		}
		waited(false, 50*time.Second, "0.10")
		go func() { time.Sleep(7 * time.Second); topUp("a") }()
		waited(true, 7*time.Second, "0.20")
		waited(true, 0, "0.20") // the answer was lost
		_, err := f.Reserve(f.Ctx, h, kit.PaidCall("0.30"))
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		waited(false, 50*time.Second, "0.20")
		_, err = f.Reserve(f.Ctx, h, kit.PaidCall("0.30"))
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		topUp("b")
		waited(true, 0, "0.30")
		f.MustReserve(t, h, kit.PaidCall("0.30"))
		_, err = f.Reserve(f.Ctx, h, kit.PaidCall("0.30"))
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		cleared := make(chan struct{})
		go func() { time.Sleep(time.Second); f.CancelAll(t); close(cleared) }()
		_, err = f.AwaitTopUp(f.Ctx, h, 50*time.Second)
		kit.Refused(t, err, picket.CodeTaskCancelled)
		<-cleared
	})
}
