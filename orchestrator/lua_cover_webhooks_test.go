package orchestrator_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

func position(cursor string) int64 {
	n, _ := strconv.ParseInt(cursor, 10, 64)
	return n
}

func coverWebhooks(t *testing.T, f *fixture) {
	const none = "webhook_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	var id string
	f.callTwice(t, func() error {
		made, err := f.CreateWebhook(f.ctx, idempotent("W"), everyEvent)
		id = made.WebhookID
		return err
	})
	clash := idempotent("W")
	clash.Idempotency.Body = strings.Repeat("c", 64)
	_, err := f.CreateWebhook(f.ctx, clash, everyEvent)
	refused(t, err, picket.CodeIdempotencyConflict)
	again, err := f.CreatedWebhook(f.ctx, idempotent("W"), everyEvent)
	ok(t, err)
	if again.WebhookID != id {
		t.Errorf("made by the same request: %s, want %s", again.WebhookID, id)
	}
	_, err = f.CreatedWebhook(f.ctx, idempotent("N"), everyEvent)
	refused(t, err, picket.CodeNotFound)
	_, err = f.CreatedWebhook(f.ctx, operator, everyEvent)
	refused(t, err, picket.CodeNotFound)
	_, err = f.DeleteWebhook(f.ctx, clash, id)
	refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.ReviveWebhook(f.ctx, clash, id)
	refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Stats(f.ctx) // how far it is behind
	ok(t, err)
	_, err = f.Webhooks(f.ctx)
	ok(t, err)
	_, err = f.Webhook(f.ctx, id)
	ok(t, err)
	_, err = f.ReviveWebhook(f.ctx, operator, id) // it is active
	ok(t, err)
	for _, act := range []func() (picket.Webhook, error){
		func() (picket.Webhook, error) { return f.Webhook(f.ctx, none) },
		func() (picket.Webhook, error) { return f.ReviveWebhook(f.ctx, operator, none) },
		func() (picket.Webhook, error) { return f.DeleteWebhook(f.ctx, operator, none) },
		func() (picket.Webhook, error) {
			_, err := f.AdvanceWebhook(f.ctx, picket.WebhookStep{WebhookID: none, TurnID: "c"})
			return picket.Webhook{}, err
		},
	} {
		_, err := act()
		refused(t, err, picket.CodeNotFound)
	}
	f.coverWebhookTurns(t, id)
	f.callTwice(t, func() error { _, err := f.DeleteWebhook(f.ctx, idempotent("X"), id); return err })
	_, err = f.CreateWebhook(f.ctx, idempotent("W"), everyEvent) // what it made is deleted
	refused(t, err, picket.CodeStateConflict)
	for at := range picket.MaxWebhooks {
		ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:webhooks", redis.Z{Score: 9007199254740991, Member: strconv.Itoa(at)}).
			Err())
	}
	_, err = f.CreateWebhook(f.ctx, operator, everyEvent)
	refused(t, err, picket.CodeStateConflict)
	ok(t, f.raw.Del(f.ctx, "pk:{default}:webhooks").Err())
	f.cancelAll(t)
}

// coverWebhookTurns takes every way of a claimed target.
func (f *fixture) coverWebhookTurns(t *testing.T, id string) {
	t.Helper()
	n := 0
	claim := func() picket.WebhookTurn {
		t.Helper()
		n++
		turn, err := f.TakeWebhookTurn(f.ctx, "claim_"+strconv.Itoa(n))
		ok(t, err)
		return turn
	}
	step := func(turn picket.WebhookTurn, to int64, outcome picket.WebhookOutcome, delay time.Duration) error {
		_, err := f.AdvanceWebhook(f.ctx,
			picket.WebhookStep{
				WebhookID: id,
				TurnID:    turn.TurnID,
				From:      position(turn.Cursor),
				To:        to,
				Outcome:   outcome,
				Delay:     delay,
				Error:     "HTTP 500",
			})
		return err
	}
	last := func() int64 { t.Helper(); n, err := f.LastSeq(f.ctx); ok(t, err); return n }
	f.mustSubmit(t, picket.TaskSpec{})
	turn := claim()
	again, err := f.TakeWebhookTurn(f.ctx, turn.TurnID)
	ok(t, err)
	if again.WebhookID != id {
		t.Fatalf("the same claim: %+v", again)
	}
	claim() // it is claimed
	f.callTwice(t, func() error { return step(turn, position(turn.Cursor)+1, picket.WebhookTaken, 0) })
	refused(t, step(turn, 99, picket.WebhookPassed, 0), picket.CodeStateConflict) // from where it was
	turn.Cursor = strconv.FormatInt(position(turn.Cursor)+1, 10)
	f.callTwice(t, func() error { return step(turn, position(turn.Cursor), picket.WebhookGap, 0) })
	ok(t, step(turn, last(), picket.WebhookPassed, 0))
	claim() // nothing to be sent
	f.mustSubmit(t, picket.TaskSpec{})
	turn = claim()
	f.callTwice(t, func() error { return step(turn, position(turn.Cursor), picket.WebhookFailed, time.Minute) })
	claim() // it waits
	f.jumpStoreTime(t, 2*time.Minute)
	turn = claim()
	ok(t, step(turn, position(turn.Cursor), picket.WebhookGone, 0))
	claim() // it is off
	f.callTwice(t, func() error { _, err := f.ReviveWebhook(f.ctx, idempotent("V"), id); return err })
	for n := range 20 {
		turn = claim()
		ok(t, step(turn, position(turn.Cursor), picket.WebhookFailed, 0))
		f.jumpStoreTime(t, time.Second)
		if n == 0 {
			f.jumpStoreTime(t, 24*time.Hour)
		}
	}
	_, err = f.ReviveWebhook(f.ctx, operator, id)
	ok(t, err)
	turn = claim()
	ok(t, step(turn, last(), picket.WebhookPassed, 0))
	f.mustSubmit(t, picket.TaskSpec{})
	claim()
}
