package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
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
func (a *API) createWebhook(r request) error {
	_, body, by, err := decodeMutation[picket.WebhookSpec](r, "", "")
	if err != nil {
		return err
	}
	create := r.engine.CreateWebhook
	refused := a.cfg.Webhooks.Check(r.ctx(), body.URL)
	if refused != nil {
		create = r.engine.CreatedWebhook // the answer of a request that was good may have been lost
	}
	made, err := create(r.ctx(), by, body)
	if refused != nil && errors.Is(err, picket.CodeNotFound) {
		return refused
	}
	if err != nil {
		return err
	}
	r.Response().Header().Set(echo.HeaderLocation, "/api/v1/webhooks/"+made.WebhookID)
	return web.JSON(r.Context, http.StatusCreated, made)
}

type webhookList struct {
	Webhooks []picket.Webhook `json:"webhooks"`
}

func listWebhooks(r request) error {
	if err := r.noQuery(); err != nil {
		return err
	}
	all, err := r.engine.Webhooks(r.ctx())
	return r.respond(webhookList{all}, err)
}

func getWebhook(r request) error { return answerOne(r, "id", "webhook", r.engine.Webhook) }

func deleteWebhook(r request) error { return changeWebhook(r, r.engine.DeleteWebhook) }

func reviveWebhook(r request) error { return changeWebhook(r, r.engine.ReviveWebhook) }

func changeWebhook(r request,
	change func(ctx context.Context, by picket.Caller, id string) (picket.Webhook, error)) error {
	id, _, by, err := decodeMutation[struct{}](r, "id", "webhook")
	if err != nil {
		return err
	}
	w, err := change(r.ctx(), by, id)
	return r.respond(w, err)
}

// testWebhook waits for the target's answer.
func (a *API) testWebhook(r request) error {
	id, _, _, err := decodeMutation[struct{}](r, "id", "webhook")
	if err != nil {
		return err
	}
	t, err := r.engine.WebhookTarget(r.ctx(), id)
	if err != nil {
		return err
	}
	return r.respond(a.cfg.Webhooks.Test(r.ctx(), t), nil)
}
