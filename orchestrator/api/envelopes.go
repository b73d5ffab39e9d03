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
func topUp(r request) error {
	_, body, by, err := decodeMutation[picket.TopUp](r, "", "")
	if err != nil {
		return err
	}
	if by.Idempotency.Key == "" {
		return picket.Refuse(picket.CodePreconditionRequired,
			"Send an "+idempotencyHeader+", such as a UUID, and the same one when you repeat the request.",
			"money is added only under an %s: repeated without one it would be added twice", idempotencyHeader).
			With("field", idempotencyHeader)
	}
	if body.USD < 0 {
		return picket.Invalid("/usd", "Send the amount to add, such as 0.5.", "usd is below zero")
	}
	if err := (budget.Envelope{Tokens: body.Tokens}).Check(); err != nil {
		return picket.Invalid("/tokens", "Send the amount to add, such as 100000.", "tokens: %v", err)
	}
	state, err := r.engine.TopUp(r.ctx(), by, r.Param("id"), body)
	return r.respond(state, err)
}

// ledger is a page of what was booked, of one envelope or of all.
func ledger(r request) error {
	q := r.query("task", "after", "limit")
	want := picket.LedgerQuery{
		TaskID: q.text("task"),
		After:  q.number("after", 0, 0, picket.MaxNumber),
		Limit:  int(q.number("limit", 100, 1, 1000)),
	}
	if q.values.Has("task") {
		q.fail(picket.CheckEnvelopeID("?task", want.TaskID))
	}
	if q.err != nil {
		return q.err
	}
	page, err := r.engine.Ledger(r.ctx(), want)
	return r.respond(page, asParameter(err))
}
