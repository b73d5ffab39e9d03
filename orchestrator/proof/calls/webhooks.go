package calls

import (
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// withWebhook is a set-up with one target, for which there is an event.
func withWebhook(w *Env) {
	made, err := w.Direct.CreateWebhook(w.Ctx, Asked("8"), kit.EveryEvent)
	kit.OK(w.T, err)
	w.hook = made.WebhookID
	w.Submitted(picket.TaskSpec{})
}

// withWebhookTurn is a set-up with a target that a deliverer has claimed.
func withWebhookTurn(w *Env) {
	withWebhook(w)
	turn, err := w.Direct.TakeWebhookTurn(w.Ctx, "claim_1")
	kit.OK(w.T, err)
	w.turn = turn
}

// advanceWebhook advances a target under the claim of the set-up by one event.
func advanceWebhook(outcome picket.WebhookOutcome) func(w *Env, e *orchestrator.Engine) (any, error) {
	return func(w *Env, e *orchestrator.Engine) (any, error) {
		from := kit.Position(w.turn.Cursor)
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
		return e.AdvanceWebhook(w.Ctx, s)
	}
}

var webhookCases = []Case{
	{Name: "webhook_create", Setup: func(*Env) {},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			made, err := e.CreateWebhook(w.Ctx, Asked("1"), kit.EveryEvent)
			if err == nil {
				t, err := w.Direct.WebhookTarget(w.Ctx, made.WebhookID)
				return []any{made.Webhook, made.Secret == t.Secret, t.Target == kit.EveryEvent.URL}, err
			}
			return nil, err
		}},
	{Name: "webhook_delete", Setup: withWebhook, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.DeleteWebhook(w.Ctx, Asked("1"), w.hook)
	}},
	{Name: "webhook_revive", Setup: func(w *Env) {
		withWebhookTurn(w)
		_, err := advanceWebhook(picket.WebhookGone)(w, w.Direct)
		kit.OK(w.T, err)
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.ReviveWebhook(w.Ctx, Asked("1"), w.hook)
	}},
	{Name: "webhook_claim", Setup: withWebhook, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		turn, err := e.TakeWebhookTurn(w.Ctx, "claim_1")
		return []any{turn.Webhook, turn.Target, turn.Seq}, err
	}},
	{Name: "webhook_advance", Setup: withWebhookTurn, Call: advanceWebhook(picket.WebhookTaken)},
	{Name: "webhook_advance/failed", Setup: withWebhookTurn, Call: advanceWebhook(picket.WebhookFailed)},
	{Name: "webhook_advance/gone", Setup: withWebhookTurn, Call: advanceWebhook(picket.WebhookGone)},
	{Name: "webhook_advance/gap", Setup: withWebhookTurn, Call: advanceWebhook(picket.WebhookGap)},
	{Name: "webhook_advance/passed", Setup: withWebhookTurn, Call: advanceWebhook(picket.WebhookPassed)},
}
