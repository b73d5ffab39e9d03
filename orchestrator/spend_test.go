package orchestrator_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// paidCall is a call that may cost dollars, with an id and a nonce of its own.
func paidCall(dollars string) picket.CallRequest {
	return picket.CallRequest{
		CallID:       "r" + rand.Text(),
		Nonce:        rand.Text(),
		Tool:         "http_request",
		Reserve:      budget.Envelope{USD: usd(dollars)},
		PriceVersion: "v1",
		Effects:      picket.EffectsNone,
		TimeoutMs:    60_000,
	}
}

// sameCall is a call with an idempotency key.
func sameCall(key, hash, dollars string) picket.CallRequest {
	c := paidCall(dollars)
	c.CallID, c.Hash, c.Keyed = "k"+key, hash, true
	return c
}

func doneSettlement(r picket.Reservation, dollars string) picket.Settlement {
	return picket.Settlement{
		CallID:  r.CallID,
		TaskID:  r.TaskID,
		Nonce:   r.Nonce,
		Outcome: picket.CallDone,
		Cost:    budget.Envelope{USD: usd(dollars)},
		Result:  picket.RawJSON(`{"ok":true}`),
		Detail:  "200",
	}
}

// settlementAs is a settlement without a figure of its own.
func settlementAs(r picket.Reservation, o picket.CallOutcome) picket.Settlement {
	return picket.Settlement{CallID: r.CallID, TaskID: r.TaskID, Nonce: r.Nonce, Outcome: o}
}

func (f *fixture) mustReserve(t *testing.T, h picket.LeaseCredential, c picket.CallRequest) picket.Reservation {
	t.Helper()
	r, err := f.Reserve(f.ctx, h, c)
	ok(t, err)
	return r
}

func (f *fixture) mustSettle(t *testing.T, s picket.Settlement) picket.Settled {
	t.Helper()
	got, err := f.Settle(f.ctx, s)
	ok(t, err)
	return got
}

// wantEnvelope are the columns of a task's envelope, and whether they add up.
func (f *fixture) wantEnvelope(t *testing.T, id, granted, available, held, spent string) {
	t.Helper()
	h, err := f.raw.HGetAll(f.ctx, "pk:{default}:env:"+id).Result()
	ok(t, err)
	at := func(column string) budget.Money {
		var n int64
		_, _ = fmt.Sscan(h[column+"_u"], &n)
		return budget.Money(n)
	}
	if at("granted") != usd(granted) || at("available") != usd(available) || at("held") != usd(held) ||
		at("spent") != usd(spent) {
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
		task, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(100, "1")})
		r := f.mustReserve(t, h, paidCall("0.30"))
		if r.Token != 1 || r.Available.USD != usd("0.70") || r.Reserved.USD != usd("0.30") || r.LeaseTTLMs != 300_000 ||
			r.RunID != h.RunID {
			t.Errorf("reservation %+v", r)
		}
		f.wantEnvelope(t, task.TaskID, "1", "0.70", "0.30", "0")
		got := f.mustSettle(t, doneSettlement(r, "0.123456789"))
		if got.Cost.USD != usd("0.123456789") || got.Available.USD != usd("0.876543211") || got.Overrun {
			t.Errorf("settled %+v", got)
		}
		for range 2 { // once, however often
			if again := f.mustSettle(t, doneSettlement(r, "0.123456789")); again != got {
				t.Errorf("settled again %+v", again)
			}
			if again := f.mustSettle(t, doneSettlement(r, "0.2")); again != got {
				t.Errorf("settled again with another cost: %+v", again)
			}
		}
		f.wantEnvelope(t, task.TaskID, "1", "0.876543211", "0", "0.123456789")
		s := f.wantState(t, task.TaskID, picket.TaskLeased)
		if s.Spent.USD != usd("0.123456789") || s.Available.Tokens != 100 ||
			s.CurrentRun.Spent.USD != usd("0.123456789") {
			t.Errorf("task %+v, run %+v", s.Spent, s.CurrentRun.Spent)
		}
	})
}

// What fits exactly fits, and a nano-dollar more does not; ten times a tenth is one.
func TestTheEnvelopeIsExact(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(0, "0.10")})
		_, err := f.Reserve(f.ctx, h, paidCall("0.100000001"))
		refused(t, err, picket.CodeBudgetExceeded)
		f.mustSettle(t, settlementAs(f.mustReserve(t, h, paidCall("0.10")), picket.CallUndispatched))
		f.wantEnvelope(t, task.TaskID, "0.10", "0.10", "0", "0")
		for range 10 {
			f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0.01")), "0.01"))
		}
		f.wantEnvelope(t, task.TaskID, "0.10", "0", "0", "0.10")
		_, err = f.Reserve(f.ctx, h, paidCall("0.000000001"))
		refused(t, err, picket.CodeBudgetExceeded)
		f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0")), "0")) // a free tool on an empty envelope
		f.cancelAll(t)

		task, h = f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(0, "0")})
		f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0")), "0"))
		_, err = f.Reserve(f.ctx, h, paidCall("0.000000001"))
		refused(t, err, picket.CodeBudgetExceeded)
		f.wantEnvelope(t, task.TaskID, "0", "0", "0", "0")
	})
}

// Both dimensions have to be covered: when one is not, nothing is taken from
// the other. The refusal says what is missing, and the command that helps.
func TestARefusalTakesNothingAndSaysWhatHelps(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(100, "1")})
		held := f.mustReserve(t, h, paidCall("0.75"))
		call := paidCall("0.20")
		call.Reserve.Tokens = 150
		_, err := f.Reserve(f.ctx, h, call)
		refused(t, err, picket.CodeBudgetExceeded)
		var e *picket.Error
		errors.As(err, &e)
		command := "picket budget top-up " + task.TaskID + " --tokens 50"
		if e.Facts["dimension"] != "tokens" || e.Facts["need"] != int64(150) || e.Facts["available"] != int64(100) ||
			e.Facts["topUp"] != command ||
			!strings.HasSuffix(e.Remedy, command) || e.Facts["envelope"] != task.TaskID {
			t.Errorf("%s\n%s\n%v", e.Message, e.Remedy, e.Facts)
		}
		f.wantEnvelope(t, task.TaskID, "1", "0.25", "0.75", "0")
		call.Reserve.USD = usd("0.4512")
		_, err = f.Reserve(f.ctx, h, call)
		errors.As(err, &e)
		if want := "picket budget top-up " + task.TaskID +
			" --usd 0.21 --tokens 50"; e.Facts["topUp"] != want || e.Facts["dimension"] != "usd" ||
			e.Facts["need"] != usd("0.4512") || e.Facts["available"] != usd("0.25") || e.Facts["held"] != usd("0.75") ||
			e.Facts["spent"] != usd("0") {
			t.Errorf("%s\n%v", e.Remedy, e.Facts)
		}
		f.mustSettle(t, doneSettlement(held, "0.5"))
		call.Reserve = budget.Envelope{Tokens: 100, USD: usd("0.5")}
		f.mustReserve(t, h, call) // the same call: a refusal was not kept
	})
}

func TestACallIsMadeOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{})
		first := sameCall("1", "a", "0.1")
		r := f.mustReserve(t, h, first)
		again := f.mustReserve(t, h, first)
		if again.LeaseTTLMs = r.LeaseTTLMs; again != r { // the answer was lost
			t.Errorf("%+v, and again %+v", r, again)
		}
		_, err := f.Reserve(f.ctx, h, sameCall("1", "a", "0.1"))
		refused(t, err, picket.CodeCallRunning)
		_, err = f.Reserve(f.ctx, h, sameCall("1", "b", "0.1"))
		refused(t, err, picket.CodeIdempotencyConflict)
		f.wantEnvelope(t, task.TaskID, "1", "0.9", "0.1", "0")
		f.mustSettle(t, doneSettlement(r, "0.05"))
		got := f.mustReserve(t, h, sameCall("1", "a", "0.1"))
		if got.Replay == nil || string(got.Replay.Result) != `{"ok":true}` || got.Replay.Cost.USD != usd("0.05") ||
			got.Available.USD != usd("0.95") {
			t.Errorf("replay %+v", got)
		}
		_, err = f.Reserve(f.ctx, h, sameCall("1", "b", "0.1"))
		refused(t, err, picket.CodeIdempotencyConflict)
		f.wantEnvelope(t, task.TaskID, "1", "0.95", "0", "0.05")

		never := f.mustReserve(t, h, sameCall("2", "a", "0.1"))
		f.mustSettle(t, settlementAs(never, picket.CallUndispatched))
		anew := f.mustReserve(t, h, sameCall("2", "a", "0.2")) // never left: another call
		if anew.Replay != nil {
			t.Errorf("%+v", anew)
		}
		_, err = f.Settle(f.ctx, doneSettlement(never, "0.1")) // of the one before
		refused(t, err, picket.CodeNotFound)
		f.mustSettle(t, settlementAs(anew, picket.CallUncertain))
		_, err = f.Reserve(f.ctx, h, sameCall("2", "a", "0.2"))
		refused(t, err, picket.CodeStateConflict)
		f.wantEnvelope(t, task.TaskID, "1", "0.75", "0", "0.25")

		large := f.mustReserve(t, h, sameCall("3", "a", "0"))
		s := doneSettlement(large, "0")
		s.Result = picket.RawJSON(`"` + strings.Repeat("x", picket.MaxResult) + `"`)
		f.mustSettle(t, s)
		_, err = f.Reserve(f.ctx, h, sameCall("3", "a", "0"))
		refused(t, err, picket.CodeStateConflict)

		// Another run of the task repeats it safely, another task's key is its own.
		_, err = f.Release(f.ctx, h, picket.Exit{Class: picket.ExitReleased})
		ok(t, err)
		_, err = f.Reserve(f.ctx, h, sameCall("1", "a", "0.1"))
		refused(t, err, picket.CodeLeaseReleased)
		next := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		if got := f.mustReserve(t, next, sameCall("1", "a", "0.1")); got.Replay == nil {
			t.Errorf("%+v", got)
		}
		_, other := f.submitAndLease(t, picket.TaskSpec{})
		if got := f.mustReserve(t, other, sameCall("1", "z", "0.1")); got.Replay != nil {
			t.Errorf("%+v", got)
		}
	})
}

// What nobody settles in time is settled at what was reserved; a true figure
// that comes later corrects that, up or down.
func TestNobodyKnowsWhatACallCost(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{LeaseWindowSeconds: ptr(3600)})
		a, b := f.mustReserve(t, h, paidCall("0.1")), f.mustReserve(t, h, paidCall("0.2"))
		f.runReaperFor(t, 60*time.Second)
		f.mustReapHolds(t, 0)
		f.runReaperFor(t, 10*time.Second)
		f.mustReapHolds(t, 2)
		f.mustReapHolds(t, 0)
		f.wantEnvelope(t, task.TaskID, "1", "0.7", "0", "0.3")
		f.mustSettle(t, doneSettlement(a, "0.02"))
		f.mustSettle(t, doneSettlement(b, "0.5"))
		f.mustSettle(t, doneSettlement(b, "0.9")) // only once
		f.mustSettle(t, settlementAs(b, picket.CallUncertain))
		f.wantEnvelope(t, task.TaskID, "1", "0.48", "0", "0.52")
		if got := f.wantState(t, task.TaskID, picket.TaskLeased).CurrentRun.Spent.USD; got != usd("0.52") {
			t.Errorf("the run spent %s", got)
		}
		if got := f.countEvents(t, picket.EventBudgetUncertain); got != 2 {
			t.Errorf("%d events of uncertain calls", got)
		}
	})
}

func (f *fixture) mustReapHolds(t *testing.T, want int) {
	t.Helper()
	got, err := f.SettleOverdueCalls(f.ctx, 100)
	ok(t, err)
	if got != want {
		t.Errorf("%d holds were reaped, want %d", got, want)
	}
}

// countEvents counts events of a type.
func (f *fixture) countEvents(t *testing.T, kind string) int {
	t.Helper()
	page, err := f.Events(f.ctx, picket.EventQuery{Types: []string{kind}, Limit: 1000})
	ok(t, err)
	return len(page.Events)
}
