package orchestrator_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// acquireTurn claims what there is; "" when there is nothing.
func (f *fixture) acquireTurn(t *testing.T, claim string) picket.WebhookTurn {
	t.Helper()
	turn, err := f.TakeWebhookTurn(f.Ctx, claim)
	kit.OK(t, err)
	return turn
}

// A target is one's own for as long as a claim lasts in store time, and each
// step begins it again; then it is the next one's, and the first has no say.
func TestATargetHasOneDelivererAtATime(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		made, err := f.CreateWebhook(f.Ctx, kit.Operator, kit.EveryEvent)
		kit.OK(t, err)
		early := f.acquireTurn(t, "early") // that it was made may be for it
		_, err = f.AdvanceWebhook(f.Ctx,
			picket.WebhookStep{
				WebhookID: made.WebhookID,
				TurnID:    "early",
				From:      kit.Position(early.Cursor),
				To:        early.Seq,
				Outcome:   picket.WebhookPassed,
			})
		kit.OK(t, err)
		if turn := f.acquireTurn(t, "idle"); turn.WebhookID != "" || turn.Wait != 0 || turn.Seq != early.Seq {
			t.Fatalf("there is nothing to be sent: %+v", turn)
		}
		for range 3 {
			f.MustSubmit(t, picket.TaskSpec{})
		}
		first := f.acquireTurn(t, "first")
		if first.WebhookID != made.WebhookID || first.Secret != made.Secret || first.Target != kit.EveryEvent.URL {
			t.Fatalf("claimed %+v", first)
		}
		if turn := f.acquireTurn(t, "second"); turn.WebhookID != "" || turn.Wait <= 0 ||
			turn.Wait > picket.WebhookTurnTTL {
			t.Fatalf("claimed twice, or no word of when: %+v", turn)
		}
		f.JumpStoreTime(t, 20*time.Second)
		from := kit.Position(first.Cursor)
		step := picket.WebhookStep{
			WebhookID: made.WebhookID,
			TurnID:    "first",
			From:      from,
			To:        from + 1,
			Outcome:   picket.WebhookTaken,
			Status:    200,
		}
		_, err = f.AdvanceWebhook(f.Ctx, step)
		kit.OK(t, err)
		f.JumpStoreTime(t, 20*time.Second)
		if turn := f.acquireTurn(t, "second"); turn.WebhookID != "" {
			t.Fatalf("40 s after the claim and 20 s after a step: %+v", turn)
		}
		f.JumpStoreTime(t, 11*time.Second)
		second := f.acquireTurn(t, "second")
		if second.WebhookID != made.WebhookID || kit.Position(second.Cursor) != from+1 {
			t.Fatalf("after the claim: %+v", second)
		}
		for _, stale := range []picket.WebhookStep{
			{From: from + 1, To: from + 2, Outcome: picket.WebhookTaken},
			{From: from + 1, To: from + 1, Outcome: picket.WebhookFailed},
			{From: from + 1, To: from + 1, Outcome: picket.WebhookGone},
		} {
			stale.WebhookID, stale.TurnID = made.WebhookID, "first"
			_, err = f.AdvanceWebhook(f.Ctx, stale)
			kit.Refused(t, err, picket.CodeStateConflict)
		}
		_, err = f.AdvanceWebhook(f.Ctx,
			picket.WebhookStep{
				WebhookID: made.WebhookID,
				TurnID:    "second",
				From:      from,
				To:        from + 5,
				Outcome:   picket.WebhookPassed,
			})
		kit.Refused(t, err, picket.CodeStateConflict) // from where it is not
		w, err := f.Webhook(f.Ctx, made.WebhookID)
		kit.OK(t, err)
		if w.Failures != 0 || w.State != picket.WebhookActive || kit.Position(w.Cursor) != from+1 {
			t.Errorf("after all this: %+v", w)
		}
	})
}

// Of many that claim at once each target is had by one.
func TestManyClaimsAtOnce(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	for range 5 {
		_, err := f.CreateWebhook(f.Ctx, kit.Operator, kit.EveryEvent)
		kit.OK(t, err)
	}
	f.MustSubmit(t, picket.TaskSpec{})
	var mu sync.Mutex
	had := map[string]int{}
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			turn, err := f.TakeWebhookTurn(f.Ctx, fmt.Sprint("claim_", i))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			had[turn.WebhookID]++
		})
	}
	group.Wait()
	if len(had) != 6 || had[""] != 15 {
		t.Errorf("claimed: %v", had)
	}
}

// What fails for a day is dead, however seldom it was tried.
// An outage of hours, or a failure or two on a quiet day, gives nobody up.
func TestADayOfFailuresIsEnough(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		made, err := f.CreateWebhook(f.Ctx, kit.Operator, kit.EveryEvent)
		kit.OK(t, err)
		f.MustSubmit(t, picket.TaskSpec{})
		fail := func(n int) picket.WebhookState {
			t.Helper()
			turn := f.acquireTurn(t, fmt.Sprint("claim_", n))
			state, err := f.AdvanceWebhook(f.Ctx,
				picket.WebhookStep{
					WebhookID: turn.WebhookID,
					TurnID:    turn.TurnID,
					From:      kit.Position(turn.Cursor),
					To:        kit.Position(turn.Cursor),
					Outcome:   picket.WebhookFailed,
					Delay:     time.Minute,
					Error:     strings.Repeat("é", 500),
				})
			kit.OK(t, err)
			return state
		}
		if state := fail(1); state != picket.WebhookActive {
			t.Fatalf("after one failure: %s", state)
		}
		w, err := f.Webhook(f.Ctx, made.WebhookID)
		kit.OK(t, err)
		if wait := w.NextAttemptAt.Time().Sub(w.CreatedAt.Time()); wait < time.Minute || wait > 2*time.Minute ||
			len(w.LastError) > 200 {
			t.Errorf("the next attempt comes %v after its creation; %d bytes of an error", wait, len(w.LastError))
		}
		if turn := f.acquireTurn(t, "soon"); turn.WebhookID != "" || turn.Wait > time.Minute {
			t.Errorf("before it is due: %+v", turn)
		}
		f.JumpStoreTime(t, 25*time.Hour)
		for n := 2; n < 20; n++ {
			if state := fail(n); state != picket.WebhookActive {
				t.Fatalf("%d failures in more than a day: %s", n, state)
			}
			f.JumpStoreTime(t, 2*time.Minute)
		}
		if state := fail(20); state != picket.WebhookDead {
			t.Errorf("20 failures in more than a day: %s", state)
		}
		_, err = f.ReviveWebhook(f.Ctx, kit.Operator, made.WebhookID)
		kit.OK(t, err)
		for n := 21; n < 46; n++ {
			if state := fail(n); state != picket.WebhookActive {
				t.Fatalf("%d failures in an hour: %s", n-20, state)
			}
			f.JumpStoreTime(t, 2*time.Minute)
		}
		f.JumpStoreTime(t, 23*time.Hour+10*time.Minute)
		if state := fail(46); state != picket.WebhookDead {
			t.Errorf("failures for a day: %s", state)
		}
	})
}

// What a webhook is made of stays secret in the store, in the log and in every
// view, and there are so many of them and no more.
func TestAWebhookKeepsItsSecrets(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		made, err := f.CreateWebhook(f.Ctx, kit.Idempotent("W"), kit.EveryEvent)
		kit.OK(t, err)
		again, err := f.CreateWebhook(f.Ctx, kit.Idempotent("W"), kit.EveryEvent)
		kit.OK(t, err)
		if again.WebhookID != made.WebhookID || again.Secret != made.Secret ||
			!strings.HasPrefix(made.Secret.Reveal(), picket.WebhookSecretPrefix) {
			t.Errorf("the same request again: %s", again.WebhookID)
		}
		other, err := f.CreateWebhook(f.Ctx, kit.Operator, kit.EveryEvent)
		kit.OK(t, err)
		if other.Secret == made.Secret {
			t.Error("two targets have one secret")
		}
		all, err := f.Webhooks(f.Ctx)
		kit.OK(t, err)
		gone, err := f.DeleteWebhook(f.Ctx, kit.Operator, other.WebhookID)
		kit.OK(t, err)
		store := f.storedText(t) + fmt.Sprintf("%+v %+v", all, gone)
		for _, secret := range []string{"a/secret", made.Secret.Reveal(), other.Secret.Reveal(),
			strings.TrimPrefix(made.Secret.Reveal(), picket.WebhookSecretPrefix)} {
			if strings.Contains(store, secret) {
				t.Errorf("%s stands in the store or in a view", secret)
			}
		}
		if len(all) != 2 || all[0].URL != "https://hooks.example.test/…" {
			t.Errorf("all: %+v", all)
		}
		for range picket.MaxWebhooks - 1 {
			_, err = f.CreateWebhook(f.Ctx, kit.Operator, kit.EveryEvent)
			kit.OK(t, err)
		}
		_, err = f.CreateWebhook(f.Ctx, kit.Operator, kit.EveryEvent)
		kit.Refused(t, err, picket.CodeStateConflict)
	})
}

// storedText is what the namespace holds, as text.
func (f *fixture) storedText(t *testing.T) string {
	t.Helper()
	text, err := kit.Dump(f.Ctx, f.Raw, nil)
	kit.OK(t, err)
	return text
}

// The same part of one target's record opens nowhere else.
func TestASealedURLCannotBeMoved(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	one, err := f.CreateWebhook(f.Ctx, kit.Operator, kit.EveryEvent)
	kit.OK(t, err)
	other := kit.EveryEvent
	other.URL = "https://elsewhere.example.test/"
	two, err := f.CreateWebhook(f.Ctx, kit.Operator, other)
	kit.OK(t, err)
	url, err := f.Raw.HGet(f.Ctx, "pk:{default}:webhook:"+one.WebhookID, "url").Result()
	kit.OK(t, err)
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:webhook:"+two.WebhookID, "url", url).Err())
	moved, err := f.WebhookTarget(f.Ctx, two.WebhookID)
	kit.OK(t, err)
	if moved.Target != "" || moved.Secret != "" {
		t.Errorf("a URL of another target: %s", moved.Target.Reveal())
	}
}
