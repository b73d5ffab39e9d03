package kit

import (
	"crypto/rand"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// USD is an amount of dollars.
func USD(s string) budget.Money {
	m, err := budget.ParseMoney(s)
	if err != nil {
		panic(err)
	}
	return m
}

func Worth(tokens int64, dollars string) *budget.Envelope {
	return &budget.Envelope{Tokens: tokens, USD: USD(dollars)}
}

// PaidCall is a call that may cost dollars, with an id and a nonce of its own.
func PaidCall(dollars string) picket.CallRequest {
	return picket.CallRequest{
		CallID:       "r" + rand.Text(),
		Nonce:        rand.Text(),
		Tool:         "http_request",
		Reserve:      budget.Envelope{USD: USD(dollars)},
		PriceVersion: "v1",
		Effects:      picket.EffectsNone,
		TimeoutMs:    60_000,
	}
}

// SameCall is a call with an idempotency key.
func SameCall(key, hash, dollars string) picket.CallRequest {
	c := PaidCall(dollars)
	c.CallID, c.Hash, c.Keyed = "k"+key, hash, true
	return c
}

func DoneSettlement(r picket.Reservation, dollars string) picket.Settlement {
	return picket.Settlement{
		CallID:  r.CallID,
		TaskID:  r.TaskID,
		Nonce:   r.Nonce,
		Outcome: picket.CallDone,
		Cost:    budget.Envelope{USD: USD(dollars)},
		Result:  picket.RawJSON(`{"ok":true}`),
		Detail:  "200",
	}
}

// SettlementAs is a settlement without a figure of its own.
func SettlementAs(r picket.Reservation, o picket.CallOutcome) picket.Settlement {
	return picket.Settlement{CallID: r.CallID, TaskID: r.TaskID, Nonce: r.Nonce, Outcome: o}
}

func (f *Fixture) MustReserve(t *testing.T, h picket.LeaseCredential, c picket.CallRequest) picket.Reservation {
	t.Helper()
	r, err := f.Reserve(f.Ctx, h, c)
	OK(t, err)
	return r
}

func (f *Fixture) MustSettle(t *testing.T, s picket.Settlement) picket.Settled {
	t.Helper()
	got, err := f.Settle(f.Ctx, s)
	OK(t, err)
	return got
}

// SessionLimitsArgument is how scripts read the limits of agent sessions: $5 a day for all, $2 for prompts and $0.50
// for wakes of a name, $0.10 for one.
const SessionLimitsArgument = `{"namespace":5000000000,"names":{},` +
	`"others":{"wake":500000000,"prompt":2000000000,"each":100000000}}`
