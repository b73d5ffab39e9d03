package orchestrator_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// wantEnvelope are the columns of a task's envelope, and whether they add up.
func (f *fixture) wantEnvelope(t *testing.T, id, granted, available, held, spent string) {
	t.Helper()
	h, err := f.Raw.HGetAll(f.Ctx, "pk:{default}:env:"+id).Result()
	kit.OK(t, err)
	at := func(column string) budget.Money {
		var n int64
		_, _ = fmt.Sscan(h[column+"_u"], &n)
		return budget.Money(n)
	}
	if at("granted") != kit.USD(granted) || at("available") != kit.USD(available) || at("held") != kit.USD(held) ||
		at("spent") != kit.USD(spent) {
		t.Errorf("%s: granted %s, available %s, held %s, spent %s; want %s, %s, %s, %s", id, at("granted"),
			at("available"), at("held"), at("spent"),
			granted, available, held, spent)
	}
	if at("granted") != at("available")+at("held")+at("spent")+at("carved") {
		t.Errorf("the books of %s do not add up: %v", id, h)
	}
}

func TestACallIsReservedAndSettled(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(100, "1")})
		r := f.MustReserve(t, h, kit.PaidCall("0.30"))
		if r.Token != 1 || r.Available.USD != kit.USD("0.70") || r.Reserved.USD != kit.USD("0.30") ||
			r.LeaseTTLMs != 300_000 ||
			r.RunID != h.RunID {
			t.Errorf("reservation %+v", r)
		}
		f.wantEnvelope(t, task.TaskID, "1", "0.70", "0.30", "0")
		got := f.MustSettle(t, kit.DoneSettlement(r, "0.123456789"))
		if got.Cost.USD != kit.USD("0.123456789") || got.Available.USD != kit.USD("0.876543211") || got.Overrun {
			t.Errorf("settled %+v", got)
		}
		for range 2 { // once, however often
			if again := f.MustSettle(t, kit.DoneSettlement(r, "0.123456789")); again != got {
				t.Errorf("settled again %+v", again)
			}
			if again := f.MustSettle(t, kit.DoneSettlement(r, "0.2")); again != got {
				t.Errorf("settled again with another cost: %+v", again)
			}
		}
		f.wantEnvelope(t, task.TaskID, "1", "0.876543211", "0", "0.123456789")
		s := f.WantState(t, task.TaskID, picket.TaskLeased)
		if s.Spent.USD != kit.USD("0.123456789") || s.Available.Tokens != 100 ||
			s.CurrentRun.Spent.USD != kit.USD("0.123456789") {
			t.Errorf("task %+v, run %+v", s.Spent, s.CurrentRun.Spent)
		}
	})
}

// What fits exactly fits, and a nano-dollar more does not; ten times a tenth is one.
func TestTheEnvelopeIsExact(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(0, "0.10")})
		_, err := f.Reserve(f.Ctx, h, kit.PaidCall("0.100000001"))
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		f.MustSettle(t, kit.SettlementAs(f.MustReserve(t, h, kit.PaidCall("0.10")), picket.CallUndispatched))
		f.wantEnvelope(t, task.TaskID, "0.10", "0.10", "0", "0")
		for range 10 {
			f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.01")), "0.01"))
		}
		f.wantEnvelope(t, task.TaskID, "0.10", "0", "0", "0.10")
		_, err = f.Reserve(f.Ctx, h, kit.PaidCall("0.000000001"))
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0")),
			"0")) // a free tool on an empty envelope
		f.CancelAll(t)

		task, h = f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(0, "0")})
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0")), "0"))
		_, err = f.Reserve(f.Ctx, h, kit.PaidCall("0.000000001"))
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		f.wantEnvelope(t, task.TaskID, "0", "0", "0", "0")
	})
}

// Both dimensions have to be covered: when one is not, nothing is taken from
// the other. The refusal says what is missing, and the command that helps.
func TestARefusalTakesNothingAndSaysWhatHelps(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(100, "1")})
		held := f.MustReserve(t, h, kit.PaidCall("0.75"))
		call := kit.PaidCall("0.20")
		call.Reserve.Tokens = 150
		_, err := f.Reserve(f.Ctx, h, call)
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		var e *picket.Error
		errors.As(err, &e)
		command := "picket budget top-up " + task.TaskID + " --tokens 50"
		if e.Facts["dimension"] != "tokens" || e.Facts["need"] != int64(150) || e.Facts["available"] != int64(100) ||
			e.Facts["topUp"] != command ||
			!strings.HasSuffix(e.Remedy, command) || e.Facts["envelope"] != task.TaskID {
			t.Errorf("%s\n%s\n%v", e.Message, e.Remedy, e.Facts)
		}
		f.wantEnvelope(t, task.TaskID, "1", "0.25", "0.75", "0")
		call.Reserve.USD = kit.USD("0.4512")
		_, err = f.Reserve(f.Ctx, h, call)
		errors.As(err, &e)
		if want := "picket budget top-up " + task.TaskID +
			" --usd 0.21 --tokens 50"; e.Facts["topUp"] != want || e.Facts["dimension"] != "usd" ||
			e.Facts["need"] != kit.USD("0.4512") || e.Facts["available"] != kit.USD("0.25") ||
			e.Facts["held"] != kit.USD("0.75") ||
			e.Facts["spent"] != kit.USD("0") {
			t.Errorf("%s\n%v", e.Remedy, e.Facts)
		}
		f.MustSettle(t, kit.DoneSettlement(held, "0.5"))
		call.Reserve = budget.Envelope{Tokens: 100, USD: kit.USD("0.5")}
		f.MustReserve(t, h, call) // the same call: a refusal was not kept
	})
}

func TestACallIsMadeOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		first := kit.SameCall("1", "a", "0.1")
		r := f.MustReserve(t, h, first)
		again := f.MustReserve(t, h, first)
		if again.LeaseTTLMs = r.LeaseTTLMs; again != r { // the answer was lost
			t.Errorf("%+v, and again %+v", r, again)
		}
		_, err := f.Reserve(f.Ctx, h, kit.SameCall("1", "a", "0.1"))
		kit.Refused(t, err, picket.CodeCallRunning)
		_, err = f.Reserve(f.Ctx, h, kit.SameCall("1", "b", "0.1"))
		kit.Refused(t, err, picket.CodeIdempotencyConflict)
		f.wantEnvelope(t, task.TaskID, "1", "0.9", "0.1", "0")
		f.MustSettle(t, kit.DoneSettlement(r, "0.05"))
		got := f.MustReserve(t, h, kit.SameCall("1", "a", "0.1"))
		if got.Replay == nil || string(got.Replay.Result) != `{"ok":true}` || got.Replay.Cost.USD != kit.USD("0.05") ||
			got.Available.USD != kit.USD("0.95") {
			t.Errorf("replay %+v", got)
		}
		_, err = f.Reserve(f.Ctx, h, kit.SameCall("1", "b", "0.1"))
		kit.Refused(t, err, picket.CodeIdempotencyConflict)
		f.wantEnvelope(t, task.TaskID, "1", "0.95", "0", "0.05")

		never := f.MustReserve(t, h, kit.SameCall("2", "a", "0.1"))
		f.MustSettle(t, kit.SettlementAs(never, picket.CallUndispatched))
		anew := f.MustReserve(t, h, kit.SameCall("2", "a", "0.2")) // never left: another call
		if anew.Replay != nil {
			t.Errorf("%+v", anew)
		}
		_, err = f.Settle(f.Ctx, kit.DoneSettlement(never, "0.1")) // of the one before
		kit.Refused(t, err, picket.CodeNotFound)
		f.MustSettle(t, kit.SettlementAs(anew, picket.CallUncertain))
		_, err = f.Reserve(f.Ctx, h, kit.SameCall("2", "a", "0.2"))
		kit.Refused(t, err, picket.CodeStateConflict)
		f.wantEnvelope(t, task.TaskID, "1", "0.75", "0", "0.25")

		large := f.MustReserve(t, h, kit.SameCall("3", "a", "0"))
		s := kit.DoneSettlement(large, "0")
		s.Result = picket.RawJSON(`"` + strings.Repeat("x", picket.MaxResult) + `"`)
		f.MustSettle(t, s)
		_, err = f.Reserve(f.Ctx, h, kit.SameCall("3", "a", "0"))
		kit.Refused(t, err, picket.CodeStateConflict)

		// Another run of the task repeats it safely, another task's key is its own.
		_, err = f.Release(f.Ctx, h, picket.Exit{Class: picket.ExitReleased})
		kit.OK(t, err)
		_, err = f.Reserve(f.Ctx, h, kit.SameCall("1", "a", "0.1"))
		kit.Refused(t, err, picket.CodeLeaseReleased)
		next := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		if got := f.MustReserve(t, next, kit.SameCall("1", "a", "0.1")); got.Replay == nil {
			t.Errorf("%+v", got)
		}
		_, other := f.SubmitAndLease(t, picket.TaskSpec{})
		if got := f.MustReserve(t, other, kit.SameCall("1", "z", "0.1")); got.Replay != nil {
			t.Errorf("%+v", got)
		}
	})
}

// What nobody settles in time is settled at what was reserved; a true figure
// that comes later corrects that, up or down.
func TestNobodyKnowsWhatACallCost(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(3600)})
		a, b := f.MustReserve(t, h, kit.PaidCall("0.1")), f.MustReserve(t, h, kit.PaidCall("0.2"))
		f.RunReaperFor(t, 60*time.Second)
		f.mustReapHolds(t, 0)
		f.RunReaperFor(t, 10*time.Second)
		f.mustReapHolds(t, 2)
		f.mustReapHolds(t, 0)
		f.wantEnvelope(t, task.TaskID, "1", "0.7", "0", "0.3")
		f.MustSettle(t, kit.DoneSettlement(a, "0.02"))
		f.MustSettle(t, kit.DoneSettlement(b, "0.5"))
		f.MustSettle(t, kit.DoneSettlement(b, "0.9")) // only once
		f.MustSettle(t, kit.SettlementAs(b, picket.CallUncertain))
		f.wantEnvelope(t, task.TaskID, "1", "0.48", "0", "0.52")
		if got := f.WantState(t, task.TaskID, picket.TaskLeased).CurrentRun.Spent.USD; got != kit.USD("0.52") {
			t.Errorf("the run spent %s", got)
		}
		if got := f.countEvents(t, picket.EventBudgetUncertain); got != 2 {
			t.Errorf("%d events of uncertain calls", got)
		}
	})
}

func (f *fixture) mustReapHolds(t *testing.T, want int) {
	t.Helper()
	got, err := f.SettleOverdueCalls(f.Ctx, 100)
	kit.OK(t, err)
	if got != want {
		t.Errorf("%d holds were reaped, want %d", got, want)
	}
}

// countEvents counts events of a type.
func (f *fixture) countEvents(t *testing.T, kind string) int {
	t.Helper()
	page, err := f.Events(f.Ctx, picket.EventQuery{Types: []string{kind}, Limit: 1000})
	kit.OK(t, err)
	return len(page.Events)
}
