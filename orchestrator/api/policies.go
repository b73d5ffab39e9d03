package api

import (
	"cmp"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
)

// The routes of wake policies have the path and the members of their document, which are in snake case.

// policyName is the agent name in the path. A change has its condition in the body, so a request with
// If-Match is refused: it would seem to be conditional.
func (r request) policyName() (string, error) {
	if r.Request().Header.Get("If-Match") != "" {
		return "", picket.Refuse(picket.CodeIfMatchHeader, "Send the digest as expected_digest in the body.",
			"If-Match is not supported here")
	}
	name := r.Param("name")
	return name, picket.CheckName("name", name)
}

// policyToRead is the agent name in the path. A key without scope reviewer or operator reads only about agent
// names of which it has registered a live agent.
func (r request) policyToRead() (string, error) {
	name, err := r.policyName()
	if err != nil || r.who.May(picket.ScopeReviewer, picket.ScopeOperator) {
		return name, err
	}
	return name, r.engine.CheckOwnsName(r.ctx(), r.owner(), name)
}

func getPolicy(r request) error {
	if err := r.noQuery(); err != nil {
		return err
	}
	name, err := r.policyToRead()
	if err != nil {
		return err
	}
	p, err := r.engine.WakePolicy(r.ctx(), name)
	return r.respond(p, cmp.Or(err, orchestrator.PolicyError(p)))
}

func validatePolicy(r request) error {
	c, err := decodePolicyChange[picket.PolicyValidation](r, nil)
	if err != nil {
		return err
	}
	p, err := c.engine.ValidatePolicy(c.id, c.body.Body)
	return r.respond(p, err)
}

func writePolicy(r request) error {
	c, err := decodePolicyChange(r, func(b picket.PolicyWrite) picket.PolicyCondition { return b.PolicyCondition })
	if err != nil {
		return err
	}
	p, err := c.engine.WritePolicy(c.ctx(), c.by, c.id, c.body)
	return r.respond(p, err)
}

func deletePolicy(r request) error {
	c, err := decodePolicyChange(r, func(b picket.PolicyCondition) picket.PolicyCondition { return b })
	if err != nil {
		return err
	}
	p, err := c.engine.DeletePolicy(c.ctx(), c.by, c.id, c.body)
	return r.respond(p, err)
}

func rollBackPolicy(r request) error {
	c, err := decodePolicyChange(r, func(b picket.PolicyRollback) picket.PolicyCondition { return b.PolicyCondition })
	if err != nil {
		return err
	}
	p, err := c.engine.RollbackPolicy(c.ctx(), c.by, c.id, c.body)
	return r.respond(p, err)
}

// decodePolicyChange reads a request with a body about the policy of the name in the path. The key that
// condition finds in the body stands for the header Idempotency-Key.
func decodePolicyChange[Body any](r request, condition func(Body) picket.PolicyCondition) (c change[Body], err error) {
	c.request = r
	if err = r.noQuery(); err != nil {
		return c, err
	}
	if c.id, err = r.policyName(); err != nil {
		return c, err
	}
	var raw []byte
	if c.body, raw, err = web.Decode[Body](r.Context, maxBody); err != nil {
		return c, err
	}
	if err = checkPolicyText(c.body, raw); err != nil {
		return c, err
	}
	if condition != nil {
		if key := condition(c.body).IdempotencyKey; key != "" {
			r.Request().Header.Set(idempotencyHeader, key)
		}
	}
	c.by, err = r.caller(raw)
	return c, err
}

// checkPolicyText refuses a request without the text that it is about. An empty text is a policy, so a
// member that was forgotten would turn the policy off.
func checkPolicyText(body any, raw []byte) error {
	switch body.(type) {
	case picket.PolicyWrite, picket.PolicyValidation:
	default:
		return nil
	}
	var sent struct {
		Body *string `json:"body"`
	}
	if json.Unmarshal(raw, &sent) != nil || sent.Body == nil {
		return picket.Invalid("/body", "Send the whole file as body. An empty one turns the policy off.", "body is required")
	}
	return nil
}

func policyHistory(r request) error {
	q := r.query("cursor", "limit")
	want := picket.PolicyHistoryQuery{Cursor: q.number("cursor", 0, 1, picket.MaxNumber),
		Limit: int(q.number("limit", 20, 1, picket.MaxPolicyRevisions))}
	name, err := r.policyToRead()
	if err = cmp.Or(q.err, err); err != nil {
		return err
	}
	page, err := r.engine.PolicyHistory(r.ctx(), name, want)
	return r.respond(page, asParameter(err))
}

func policyStatus(r request) error {
	q := r.query("at")
	at := q.instant("at")
	if q.text("at") != "" && at <= 0 {
		q.fail(web.BadParameter("at", "Send a time after 1970.", "at is too early"))
	}
	name, err := r.policyToRead()
	if err = cmp.Or(q.err, err); err != nil {
		return err
	}
	s, err := r.engine.PolicyStatus(r.ctx(), name, at)
	return r.respond(s, err)
}
