package branches

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func coverWebhooks(t *testing.T, f *fixture) {
	const none = "webhook_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	var id string
	f.CallTwice(t, func() error {
		made, err := f.CreateWebhook(f.Ctx, kit.Idempotent("W"), kit.EveryEvent)
		id = made.WebhookID
		return err
	})
	clash := kit.Idempotent("W")
	clash.Idempotency.Body = strings.Repeat("c", 64)
	_, err := f.CreateWebhook(f.Ctx, clash, kit.EveryEvent)
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	again, err := f.CreatedWebhook(f.Ctx, kit.Idempotent("W"), kit.EveryEvent)
	kit.OK(t, err)
	if again.WebhookID != id {
		t.Errorf("made by the same request: %s, want %s", again.WebhookID, id)
	}
	_, err = f.CreatedWebhook(f.Ctx, kit.Idempotent("N"), kit.EveryEvent)
	kit.Refused(t, err, picket.CodeNotFound)
	_, err = f.CreatedWebhook(f.Ctx, kit.Operator, kit.EveryEvent)
	kit.Refused(t, err, picket.CodeNotFound)
	_, err = f.DeleteWebhook(f.Ctx, clash, id)
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.ReviveWebhook(f.Ctx, clash, id)
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Stats(f.Ctx) // how far it is behind
	kit.OK(t, err)
	_, err = f.Webhooks(f.Ctx)
	kit.OK(t, err)
	_, err = f.Webhook(f.Ctx, id)
	kit.OK(t, err)
	_, err = f.ReviveWebhook(f.Ctx, kit.Operator, id) // it is active
	kit.OK(t, err)
	for _, act := range []func() (picket.Webhook, error){
		func() (picket.Webhook, error) { return f.Webhook(f.Ctx, none) },
		func() (picket.Webhook, error) { return f.ReviveWebhook(f.Ctx, kit.Operator, none) },
		func() (picket.Webhook, error) { return f.DeleteWebhook(f.Ctx, kit.Operator, none) },
		func() (picket.Webhook, error) {
			_, err := f.AdvanceWebhook(f.Ctx, picket.WebhookStep{WebhookID: none, TurnID: "c"})
			return picket.Webhook{}, err
		},
	} {
		_, err := act()
		kit.Refused(t, err, picket.CodeNotFound)
	}
	f.coverWebhookTurns(t, id)
	f.CallTwice(t, func() error { _, err := f.DeleteWebhook(f.Ctx, kit.Idempotent("X"), id); return err })
	_, err = f.CreateWebhook(f.Ctx, kit.Idempotent("W"), kit.EveryEvent) // what it made is deleted
	kit.Refused(t, err, picket.CodeStateConflict)
	for at := range picket.MaxWebhooks {
		kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:webhooks",
			redis.Z{Score: 9007199254740991, Member: strconv.Itoa(at)}).
			Err())
	}
	_, err = f.CreateWebhook(f.Ctx, kit.Operator, kit.EveryEvent)
	kit.Refused(t, err, picket.CodeStateConflict)
	kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:webhooks").Err())
	f.CancelAll(t)
}

// coverWebhookTurns takes every way of a claimed target.
func (f *fixture) coverWebhookTurns(t *testing.T, id string) {
	t.Helper()
	n := 0
	claim := func() picket.WebhookTurn {
		t.Helper()
		n++
		turn, err := f.TakeWebhookTurn(f.Ctx, "claim_"+strconv.Itoa(n))
		kit.OK(t, err)
		return turn
	}
	step := func(turn picket.WebhookTurn, to int64, outcome picket.WebhookOutcome, delay time.Duration) error {
		_, err := f.AdvanceWebhook(f.Ctx,
			picket.WebhookStep{
				WebhookID: id,
				TurnID:    turn.TurnID,
				From:      kit.Position(turn.Cursor),
				To:        to,
				Outcome:   outcome,
				Delay:     delay,
				Error:     "HTTP 500",
			})
		return err
	}
	last := func() int64 { t.Helper(); n, err := f.LastSeq(f.Ctx); kit.OK(t, err); return n }
	f.MustSubmit(t, picket.TaskSpec{})
	turn := claim()
	again, err := f.TakeWebhookTurn(f.Ctx, turn.TurnID)
	kit.OK(t, err)
	if again.WebhookID != id {
		t.Fatalf("the same claim: %+v", again)
	}
	claim() // it is claimed
	f.CallTwice(t, func() error { return step(turn, kit.Position(turn.Cursor)+1, picket.WebhookTaken, 0) })
	kit.Refused(t, step(turn, 99, picket.WebhookPassed, 0), picket.CodeStateConflict) // from where it was
	turn.Cursor = strconv.FormatInt(kit.Position(turn.Cursor)+1, 10)
	f.CallTwice(t, func() error { return step(turn, kit.Position(turn.Cursor), picket.WebhookGap, 0) })
	kit.OK(t, step(turn, last(), picket.WebhookPassed, 0))
	claim() // nothing to be sent
	f.MustSubmit(t, picket.TaskSpec{})
	turn = claim()
	f.CallTwice(t, func() error { return step(turn, kit.Position(turn.Cursor), picket.WebhookFailed, time.Minute) })
	claim() // it waits
	f.JumpStoreTime(t, 2*time.Minute)
	turn = claim()
	kit.OK(t, step(turn, kit.Position(turn.Cursor), picket.WebhookGone, 0))
	claim() // it is off
	f.CallTwice(t, func() error { _, err := f.ReviveWebhook(f.Ctx, kit.Idempotent("V"), id); return err })
	for n := range 20 {
		turn = claim()
		kit.OK(t, step(turn, kit.Position(turn.Cursor), picket.WebhookFailed, 0))
		f.JumpStoreTime(t, time.Second)
		if n == 0 {
			f.JumpStoreTime(t, 24*time.Hour)
		}
	}
	_, err = f.ReviveWebhook(f.Ctx, kit.Operator, id)
	kit.OK(t, err)
	turn = claim()
	kit.OK(t, step(turn, last(), picket.WebhookPassed, 0))
	f.MustSubmit(t, picket.TaskSpec{})
	claim()
}
