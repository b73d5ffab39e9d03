package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/picket-dev/picket"
)

// Policies are the wake policies of agent names, which are their files HEARTBEAT.md.
type Policies struct{ c *Client }

// policyRoute is a route of the policy of an agent name. It is not below [BasePath].
func policyRoute(name, what string) string {
	return "/api/agents/" + url.PathEscape(name) + "/heartbeat" + what
}

// Get reads the policy of an agent name. A name without one has a policy that is not Present. An invalid
// policy is a refusal with [picket.CodePolicyInvalid].
func (p Policies) Get(ctx context.Context, name string, opts ...Option) (picket.WakePolicy, error) {
	return get[picket.WakePolicy](ctx, p.c, policyRoute(name, ""), opts)
}

// Validate reads what a text would be as a policy. It changes nothing.
func (p Policies) Validate(ctx context.Context, name string, v picket.PolicyValidation,
	opts ...Option) (picket.WakePolicy, error) {
	return post[picket.WakePolicy](ctx, p.c, policyRoute(name, "/validate"), v, opts)
}

// Write makes a text the policy of an agent name. w.ExpectedDigest is the digest of the policy that it
// replaces; another one is a refusal with [picket.CodePolicyConflict].
func (p Policies) Write(ctx context.Context, name string, w picket.PolicyWrite,
	opts ...Option) (out picket.WakePolicy, err error) {
	err = p.c.change(ctx, http.MethodPut, policyRoute(name, ""), w, &out, opts)
	return out, err
}

// Delete leaves an agent name without a policy. Its revisions stay.
func (p Policies) Delete(ctx context.Context, name string, c picket.PolicyCondition,
	opts ...Option) (out picket.WakePolicy, err error) {
	err = p.c.change(ctx, http.MethodDelete, policyRoute(name, ""), c, &out, opts)
	return out, err
}

// Rollback makes the text of an earlier revision the policy again.
func (p Policies) Rollback(ctx context.Context, name string, r picket.PolicyRollback,
	opts ...Option) (picket.WakePolicy, error) {
	return post[picket.WakePolicy](ctx, p.c, policyRoute(name, "/rollback"), r, opts)
}

// History reads a page of the revisions of a policy, newest first.
func (p Policies) History(ctx context.Context, name string, q picket.PolicyHistoryQuery,
	opts ...Option) (picket.PolicyHistory, error) {
	return query[picket.PolicyHistory](ctx, p.c, policyRoute(name, "/history"),
		parameters("cursor", q.Cursor, "limit", q.Limit), opts)
}

// Status reads what a policy means at an instant; 0 is now.
func (p Policies) Status(ctx context.Context, name string, at picket.Instant,
	opts ...Option) (picket.PolicyStatus, error) {
	return query[picket.PolicyStatus](ctx, p.c, policyRoute(name, "/status"), parameters("at", at), opts)
}

// Wake wakes a session of an agent name, if the policy allows it, and waits until an adapter has accepted the
// wake. One that no adapter accepts is a refusal with [picket.CodeSyntheticPromptFailed].
func (p Policies) Wake(ctx context.Context, name string, w picket.WakeRequest,
	opts ...Option) (picket.WakeDecision, error) {
	return post[picket.WakeDecision](ctx, p.c, policyRoute(name, "/wake"), w, opts)
}

// Wakes reads a page of the decisions about wakes of an agent name, newest first.
func (p Policies) Wakes(ctx context.Context, name string, q picket.WakeQuery,
	opts ...Option) (picket.WakePage, error) {
	return query[picket.WakePage](ctx, p.c, policyRoute(name, "/wakes"),
		parameters("cursor", q.Cursor, "limit", q.Limit), opts)
}
