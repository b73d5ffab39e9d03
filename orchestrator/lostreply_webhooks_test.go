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

// withWebhook is a set-up with one target, for which there is an event.
func withWebhook(w *replyEnv) {
	made, err := w.direct.CreateWebhook(w.ctx, asked("8"), everyEvent)
	ok(w.t, err)
	w.hook = made.WebhookID
	w.submitted(picket.TaskSpec{})
}

// withWebhookTurn is a set-up with a target that a deliverer has claimed.
func withWebhookTurn(w *replyEnv) {
	withWebhook(w)
	turn, err := w.direct.TakeWebhookTurn(w.ctx, "claim_1")
	ok(w.t, err)
	w.turn = turn
}

// advanceWebhook advances a target under the claim of the set-up by one event.
func advanceWebhook(outcome picket.WebhookOutcome) func(w *replyEnv, e *orchestrator.Engine) (any, error) {
	return func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		from := position(w.turn.Cursor)
		s := picket.WebhookStep{
			WebhookID: w.hook,
			TurnID:    w.turn.TurnID,
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

var webhookCases = []replyCase{
	{name: "webhook_create", setup: func(*replyEnv) {},
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			made, err := e.CreateWebhook(w.ctx, asked("1"), everyEvent)
			if err == nil {
				t, err := w.direct.WebhookTarget(w.ctx, made.WebhookID)
				return []any{made.Webhook, made.Secret == t.Secret, t.Target == everyEvent.URL}, err
			}
			return nil, err
		}},
	{name: "webhook_delete", setup: withWebhook, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		return e.DeleteWebhook(w.ctx, asked("1"), w.hook)
	}},
	{name: "webhook_revive", setup: func(w *replyEnv) {
		withWebhookTurn(w)
		_, err := advanceWebhook(picket.WebhookGone)(w, w.direct)
		ok(w.t, err)
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		return e.ReviveWebhook(w.ctx, asked("1"), w.hook)
	}},
	{name: "webhook_claim", setup: withWebhook, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		turn, err := e.TakeWebhookTurn(w.ctx, "claim_1")
		return []any{turn.Webhook, turn.Target, turn.Seq}, err
	}},
	{name: "webhook_advance", setup: withWebhookTurn, call: advanceWebhook(picket.WebhookTaken)},
	{name: "webhook_advance/failed", setup: withWebhookTurn, call: advanceWebhook(picket.WebhookFailed)},
	{name: "webhook_advance/gone", setup: withWebhookTurn, call: advanceWebhook(picket.WebhookGone)},
	{name: "webhook_advance/gap", setup: withWebhookTurn, call: advanceWebhook(picket.WebhookGap)},
	{name: "webhook_advance/passed", setup: withWebhookTurn, call: advanceWebhook(picket.WebhookPassed)},
}
