package api

import (
	"context"
	"errors"

	"github.com/picket-dev/picket"
)

// WebhookTester posts to targets of events.
type WebhookTester interface {
	// Check refuses a URL that would not be called, as a field of the request.
	Check(ctx context.Context, target picket.Secret) error
	// Test posts a notice that tells only that it is a test.
	Test(ctx context.Context, t picket.WebhookTarget) picket.WebhookTest
}

// noWebhooks is a process that was not given a way out.
type noWebhooks struct{}

func (noWebhooks) Check(context.Context, picket.Secret) error {
	return picket.NotAvailable("/url", "a way to post events")
}

func (noWebhooks) Test(_ context.Context, t picket.WebhookTarget) picket.WebhookTest {
	return picket.WebhookTest{WebhookID: t.WebhookID, Name: t.Name, Error: "this server has no way to post events"}
}

// createWebhook answers the secret itself, this once.
func (a *API) createWebhook(c change[picket.WebhookSpec]) (id string, made picket.NewWebhook, err error) {
	create := c.engine.CreateWebhook
	refused := a.cfg.Webhooks.Check(c.ctx(), c.body.URL)
	if refused != nil {
		create = c.engine.CreatedWebhook // the answer of a request that was good may have been lost
	}
	made, err = create(c.ctx(), c.by, c.body)
	if refused != nil && errors.Is(err, picket.CodeNotFound) {
		err = refused
	}
	return made.WebhookID, made, err
}

func deleteWebhook(c change[struct{}]) (picket.Webhook, error) {
	return c.engine.DeleteWebhook(c.ctx(), c.by, c.id)
}

func reviveWebhook(c change[struct{}]) (picket.Webhook, error) {
	return c.engine.ReviveWebhook(c.ctx(), c.by, c.id)
}

// testWebhook waits for the target's answer.
func (a *API) testWebhook(c change[struct{}]) (picket.WebhookTest, error) {
	t, err := c.engine.WebhookTarget(c.ctx(), c.id)
	if err != nil {
		return picket.WebhookTest{}, err
	}
	return a.cfg.Webhooks.Test(c.ctx(), t), nil
}
