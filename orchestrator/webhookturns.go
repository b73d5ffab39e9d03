package orchestrator

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

// TakeWebhookTurn gives a deliverer a target that has something to be sent, for
// itself alone until picket.WebhookClaim is over. claimID is the deliverer's
// choice; after a lost reply the same one is given the same target.
func (e *Engine) TakeWebhookTurn(ctx context.Context, claimID string) (picket.WebhookTurn, error) {
	got, err := e.run(ctx, "webhook_claim", claimID, picket.WebhookTurnTTL.Milliseconds())
	if err != nil {
		return picket.WebhookTurn{}, err
	}
	r := &reply{script: "webhook_claim"}
	l := r.list(got)
	turn := picket.WebhookTurn{
		TurnID: claimID,
		Seq:    r.int(r.at(l, 2)),
		Wait:   time.Duration(r.int(r.at(l, 3))) * time.Millisecond,
	}
	if r.err != nil || r.text(r.at(l, 4)) == "" {
		return turn, r.err
	}
	l[3] = "" // it is not waited for
	turn.WebhookTarget, err = e.unsealTarget("webhook_claim", []any{l[0], l[1], l[3], l[4], r.at(l, 5)})
	return turn, err
}

// AdvanceWebhook writes down how far a target was served, and answers what that
// makes of it. state_conflict means that the claim is over: the target is
// another's, or nobody's.
func (e *Engine) AdvanceWebhook(ctx context.Context, s picket.WebhookStep) (picket.WebhookState, error) {
	got, err := e.run(ctx, "webhook_advance", s.WebhookID, s.TurnID, strconv.FormatInt(s.From, 10),
		strconv.FormatInt(s.To, 10),
		string(s.Outcome), s.Status, clipped(s.Error, 200), s.Delay.Milliseconds(),
		picket.WebhookTurnTTL.Milliseconds())
	if err != nil {
		return "", err
	}
	r := &reply{script: "webhook_advance"}
	return picket.WebhookState(r.text(r.at(r.list(got), 1))), r.err
}

func clipped(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}

// unsealTarget opens what a row holds sealed. What another key has sealed stays
// empty: who posts to it says so.
func (e *Engine) unsealTarget(script string, row any) (t picket.WebhookTarget, err error) {
	r := &reply{script: script}
	w, h := r.webhook(row)
	if r.err != nil {
		return t, r.err
	}
	t.Webhook = w
	address, errURL := e.store.cfg.Sealer.Decrypt(e.sealContext(w.WebhookID, "url"), h["url"])
	secret, errSecret := e.store.cfg.Sealer.Decrypt(e.sealContext(w.WebhookID, "secret"), h["secret"])
	if errURL == nil && errSecret == nil {
		t.Target, t.Secret = address, secret
	}
	return t, nil
}

// webhook decodes {raw ms, now ms, due ms, id, record}.
func (r *reply) webhook(v any) (picket.Webhook, map[string]string) {
	l := r.list(v)
	rawMs, nowMs, due := r.int(r.at(l, 0)), r.int(r.at(l, 1)), r.int(r.at(l, 2))
	h := r.hash(r.at(l, 4))
	w := picket.Webhook{
		WebhookID:  r.text(r.at(l, 3)),
		Name:       h["name"],
		URL:        h["shown"],
		Types:      []string{},
		Format:     picket.WebhookFormat(h["format"]),
		State:      picket.WebhookState(h["state"]),
		Cursor:     h["cursor"],
		Failures:   int(parseInt(h["failures"])),
		LastStatus: int(parseInt(h["status"])),
		LastError:  h["error"],
		CreatedAt:  picket.Instant(parseInt(h["created"])),
		CreatedBy:  h["by"],
	}
	if h["types"] != "" {
		w.Types = strings.Split(h["types"], ",")
	}
	if w.State == picket.WebhookActive && w.Failures > 0 && h["claim"] == "" && due > 0 {
		w.NextAttemptAt = picket.Instant(rawMs + max(due-nowMs, 0))
	}
	return w, h
}

func webhookConflict(f facts) (message, remedy string) {
	switch {
	case f["limit"] != "":
		return "there are " + f["limit"] + " webhooks already, and more are not kept",
			"Delete one that nobody needs, or let one target pass things on to others."
	case f["cause"] == "deleted":
		return "the webhook that this request made was deleted", "Send a new Idempotency-Key to make a new one."
	}
	return "the claim on this webhook is over", "Claim it again; whoever has it now sends on."
}
