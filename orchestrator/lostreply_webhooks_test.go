package orchestrator_test

import (
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

var everyEvent = picket.WebhookSpec{
	Name:  "ops",
	URL:   "https://hooks.example.test/a/secret",
	Types: []string{picket.EventTaskSubmitted},
}

// hooked is a set-up with one target, for which there is an event.
func hooked(w *lostWorld) {
	made, err := w.direct.CreateWebhook(w.ctx, asked("8"), everyEvent)
	ok(w.t, err)
	w.hook = made.WebhookID
	w.submitted(picket.TaskSpec{})
}

// serving is a set-up with a target that a deliverer has claimed.
func serving(w *lostWorld) {
	hooked(w)
	turn, err := w.direct.ClaimWebhook(w.ctx, "claim_1")
	ok(w.t, err)
	w.turn = turn
}

// stepped advances a target under the claim of the set-up by one event.
func stepped(outcome picket.WebhookOutcome) func(w *lostWorld, e *orchestrator.Engine) (any, error) {
	return func(w *lostWorld, e *orchestrator.Engine) (any, error) {
		from := position(w.turn.Cursor)
		s := picket.WebhookStep{
			WebhookID: w.hook,
			ClaimID:   w.turn.ClaimID,
			From:      from,
			To:        from,
			Outcome:   outcome,
			Delay:     time.Minute,
			Status:    500,
			Error:     "HTTP 500",
		}
		if outcome == picket.WebhookTaken || outcome == picket.WebhookGap {
			s.To++
		}
		return e.AdvanceWebhook(w.ctx, s)
	}
}

var webhookCases = []lostCase{
	{name: "webhook_create", setup: func(*lostWorld) {},
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			made, err := e.CreateWebhook(w.ctx, asked("1"), everyEvent)
			if err == nil {
				t, err := w.direct.WebhookTarget(w.ctx, made.WebhookID)
				return []any{made.Webhook, made.Secret == t.Secret, t.Target == everyEvent.URL}, err
			}
			return nil, err
		}},
	{name: "webhook_delete", setup: hooked, call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
		return e.DeleteWebhook(w.ctx, asked("1"), w.hook)
	}},
	{name: "webhook_revive", setup: func(w *lostWorld) {
		serving(w)
		_, err := stepped(picket.WebhookGone)(w, w.direct)
		ok(w.t, err)
	}, call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
		return e.ReviveWebhook(w.ctx, asked("1"), w.hook)
	}},
	{name: "webhook_claim", setup: hooked, call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
		turn, err := e.ClaimWebhook(w.ctx, "claim_1")
		return []any{turn.Webhook, turn.Target, turn.Seq}, err
	}},
	{name: "webhook_advance", setup: serving, call: stepped(picket.WebhookTaken)},
	{name: "webhook_advance/failed", setup: serving, call: stepped(picket.WebhookFailed)},
	{name: "webhook_advance/gone", setup: serving, call: stepped(picket.WebhookGone)},
	{name: "webhook_advance/gap", setup: serving, call: stepped(picket.WebhookGap)},
	{name: "webhook_advance/passed", setup: serving, call: stepped(picket.WebhookPassed)},
}
