package client

import (
	"context"
	"net/http"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// Webhooks are the receivers of events.
type Webhooks struct{ c *Client }

// Create adds a receiver. The secret of its signatures is only in this answer.
func (w Webhooks) Create(ctx context.Context, spec picket.WebhookSpec, opts ...Option) (picket.NewWebhook, error) {
	return post[picket.NewWebhook](ctx, w.c, route("webhooks"), spec, opts)
}

// Get reads a webhook.
func (w Webhooks) Get(ctx context.Context, id string, opts ...Option) (picket.Webhook, error) {
	return get[picket.Webhook](ctx, w.c, route("webhooks", id), opts)
}

// List reads all webhooks.
func (w Webhooks) List(ctx context.Context, opts ...Option) ([]picket.Webhook, error) {
	got, err := get[struct {
		Webhooks []picket.Webhook `json:"webhooks"`
	}](ctx, w.c, route("webhooks"), opts)
	return got.Webhooks, err
}

// Delete removes a receiver.
func (w Webhooks) Delete(ctx context.Context, id string, opts ...Option) error {
	return w.c.change(ctx, http.MethodDelete, route("webhooks", id), nil, nil, opts)
}

// Revive goes on with a receiver that is dead or off, where it stopped.
func (w Webhooks) Revive(ctx context.Context, id string, opts ...Option) (picket.Webhook, error) {
	return post[picket.Webhook](ctx, w.c, route("webhooks", id, "revive"), nil, opts)
}

// Test posts a test notice to a receiver.
func (w Webhooks) Test(ctx context.Context, id string, opts ...Option) (picket.WebhookTest, error) {
	return post[picket.WebhookTest](ctx, w.c, route("webhooks", id, "test"), nil, opts)
}

// Keys are the API keys of a namespace.
type Keys struct{ c *Client }

// Create makes a key, which is only in this answer. It is sent once and without an
// idempotency key, because the server keeps no copy of the key to answer it again.
func (k Keys) Create(ctx context.Context, req picket.KeyRequest, opts ...Option) (key picket.NewKey, err error) {
	err = k.c.Call(ctx, http.MethodPost, route("keys"), req, &key, opts...)
	return key, err
}

// Get reads what is known of a key, without its secret.
func (k Keys) Get(ctx context.Context, id string, opts ...Option) (picket.APIKey, error) {
	return get[picket.APIKey](ctx, k.c, route("keys", id), opts)
}

// List reads all keys, without their secrets.
func (k Keys) List(ctx context.Context, opts ...Option) ([]picket.APIKey, error) {
	got, err := get[struct {
		Keys []picket.APIKey `json:"keys"`
	}](ctx, k.c, route("keys"), opts)
	return got.Keys, err
}

// Revoke ends a key. It is sent once, and may be repeated.
func (k Keys) Revoke(ctx context.Context, id string, how picket.KeyRevocation,
	opts ...Option) (key picket.APIKey, err error) {
	err = k.c.Call(ctx, http.MethodDelete, route("keys", id), how, &key, opts...)
	return key, err
}

// RunKeys are keys that may act as one agent only, and expire.
type RunKeys struct{ c *Client }

// Create makes a run key, which is only in this answer.
func (r RunKeys) Create(ctx context.Context, req picket.RunKeyRequest, opts ...Option) (picket.NewRunKey, error) {
	return post[picket.NewRunKey](ctx, r.c, route("run-keys"), req, opts)
}

// Renew extends the life of the client's own run key. It is sent once.
func (r RunKeys) Renew(ctx context.Context, opts ...Option) (key picket.APIKey, err error) {
	err = r.c.Call(ctx, http.MethodPost, route("run-keys", "renew"), struct{}{}, &key, opts...)
	return key, err
}

// End ends the client's own run key. It is sent once.
func (r RunKeys) End(ctx context.Context, opts ...Option) error {
	return r.c.Call(ctx, http.MethodDelete, route("run-keys"), nil, nil, opts...)
}

// Server asks and steers the orchestrator as a whole.
type Server struct{ c *Client }

// Healthy reports by a nil error that the server runs. It asks nothing of the store.
func (s Server) Healthy(ctx context.Context, opts ...Option) error {
	return s.c.Call(ctx, http.MethodGet, "/healthz", nil, nil, opts...)
}

// Ready reports by a nil error that the server can work with its store.
func (s Server) Ready(ctx context.Context, opts ...Option) error {
	return s.c.Call(ctx, http.MethodGet, "/readyz", nil, nil, opts...)
}

// Stats reads the counts of the namespace.
func (s Server) Stats(ctx context.Context, opts ...Option) (picket.Stats, error) {
	return get[picket.Stats](ctx, s.c, route("stats"), opts)
}

// Prices reads what calls of tools and models cost.
func (s Server) Prices(ctx context.Context, opts ...Option) (budget.PriceList, error) {
	return get[budget.PriceList](ctx, s.c, route("prices"), opts)
}

// Pause stops granting leases. If hard is set, every run ends and its task is queued again.
func (s Server) Pause(ctx context.Context, hard bool, reason string, opts ...Option) (picket.PauseState, error) {
	return post[picket.PauseState](ctx, s.c, route("pause"), struct {
		Hard bool `json:"hard"`
		reasonBody
	}{hard, reasonBody{reason}}, opts)
}

// Resume grants leases again.
func (s Server) Resume(ctx context.Context, req picket.ResumeRequest, opts ...Option) (picket.PauseState, error) {
	return post[picket.PauseState](ctx, s.c, route("resume"), req, opts)
}

// Inspect holds the next part of the store against its invariants.
func (s Server) Inspect(ctx context.Context, req picket.InspectRequest, opts ...Option) (picket.Inspection, error) {
	return post[picket.Inspection](ctx, s.c, route("invariants"), req, opts)
}
