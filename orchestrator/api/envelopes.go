package api

import (
	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// getEnvelope shows an envelope with all that was carved from it.
func getEnvelope(r request) error {
	if err := r.noQuery(); err != nil {
		return err
	}
	state, err := r.engine.Envelope(r.ctx(), r.Param("id"))
	return r.respond(state, err)
}

// topUp gives an envelope more. Without a key a repeated request would give it
// twice, so there is none without.
func topUp(c change[picket.TopUp]) (none picket.TopUpResult, err error) {
	body := c.body
	if c.by.Idempotency.Key == "" {
		return none, picket.Refuse(picket.CodePreconditionRequired,
			"Send an "+idempotencyHeader+", such as a UUID, and the same one when you repeat the request.",
			"money is added only under an %s: repeated without one it would be added twice", idempotencyHeader).
			With("field", idempotencyHeader)
	}
	if body.USD < 0 {
		return none, picket.Invalid("/usd", "Send the amount to add, such as 0.5.", "usd is below zero")
	}
	if err := (budget.Envelope{Tokens: body.Tokens}).Check(); err != nil {
		return none, picket.Invalid("/tokens", "Send the amount to add, such as 100000.", "tokens: %v", err)
	}
	return c.engine.TopUp(c.ctx(), c.by, c.Param("id"), body)
}

// ledgerQuery asks for a page of what was booked, of one envelope or of all.
func ledgerQuery(r request) (want picket.LedgerQuery, err error) {
	q := r.query("task", "after", "limit")
	want = picket.LedgerQuery{
		TaskID: q.text("task"),
		After:  q.number("after", 0, 0, picket.MaxNumber),
		Limit:  int(q.number("limit", 100, 1, 1000)),
	}
	if q.values.Has("task") {
		q.fail(picket.CheckEnvelopeID("?task", want.TaskID))
	}
	return want, q.err
}

// spendingQuery asks for a report of what was spent.
func spendingQuery(r request) (picket.SpendingQuery, error) {
	q := r.query("by", "since", "until")
	return picket.SpendingQuery{By: q.list("by"), Since: q.text("since"), Until: q.text("until")}, q.err
}
