package api

import (
	"cmp"

	"github.com/picket-dev/picket"
)

func wakeSession(r request) error {
	c, err := decodePolicyChange(r, func(b picket.WakeRequest) picket.PolicyCondition {
		return picket.PolicyCondition{IdempotencyKey: b.IdempotencyKey}
	})
	if err != nil {
		return err
	}
	d, err := c.engine.Wake(c.ctx(), c.by, c.id, c.body)
	return r.respond(d, err)
}

func listWakes(r request) error {
	q := r.query("cursor", "limit")
	want := picket.WakeQuery{
		Cursor: q.number("cursor", 0, 1, picket.MaxNumber),
		Limit:  int(q.number("limit", 20, 1, 100)),
	}
	name, err := r.policyToRead()
	if err = cmp.Or(q.err, err); err != nil {
		return err
	}
	page, err := r.engine.Wakes(r.ctx(), name, want)
	return r.respond(page, asParameter(err))
}
