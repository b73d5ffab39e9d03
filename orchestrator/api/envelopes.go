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
	q, err := r.query("task", "after", "limit")
	if err != nil {
		return err
	}
	var want picket.LedgerQuery
	if want.TaskID, err = q.text("task"); err != nil {
		return err
	}
	if want.After, err = q.number("after", 0, 0, picket.MaxNumber); err != nil {
		return err
	}
	limit, err := q.number("limit", 100, 1, 1000)
	if err != nil {
		return err
	}
	want.Limit = int(limit)
	if q.values.Has("task") {
		if err := picket.CheckEnvelopeID("?task", want.TaskID); err != nil {
			return err
		}
	}
	page, err := r.engine.Ledger(r.ctx(), want)
	return r.respond(page, asParameter(err))
}
