package webhooks

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/reaper/turns"
)

// Bounds of a turn.
const (
	pageSize   = 100
	firstDelay = time.Second
	maxDelay   = 5 * time.Minute
)

// targetTurn is a target while this deliverer has it.
type targetTurn struct {
	*namespaceTurns
	turn      picket.WebhookTurn
	heldSince time.Time // the claim lasts from then on
	position  int64     // the target's position in the store
	readTo    int64     // how far the log was looked at
}

func parseCursor(w picket.Webhook) int64 {
	n, _ := strconv.ParseInt(w.Cursor, 10, 64)
	return n
}

// serve sends what there is for the target and gives it back: when nothing is
// left, when it fails, or when the deliverer is to stop.
func (t *targetTurn) serve(ctx context.Context) {
	t.readTo = t.position
	for {
		if ctx.Err() != nil || !t.hasTimeLeft() {
			t.release(ctx, t.readTo)
			return
		}
		q := picket.EventQuery{
			After:       t.readTo,
			Limit:       pageSize,
			Types:       t.turn.Types,
			NoticesOnly: len(t.turn.Types) == 0,
		}
		if !q.NoticesOnly { // reminders can be for one target, whatever types it has
			q.Types = append(slices.Clone(q.Types), picket.EventHandoffReminder, picket.EventReviewReminder)
		}
		page, err := t.queue.Events(ctx, q)
		switch {
		case picket.CodeOf(err) == picket.CodeCursorExpired:
			if !t.skipGap(ctx, err) {
				return
			}
			continue
		case err != nil:
			turns.Sleep(ctx, turns.RetryDelay)
			continue // until the claim is too old
		}
		for _, ev := range page.Events {
			if t.isFor(ev) && !t.send(ctx, ev) {
				return
			}
		}
		next, _ := strconv.ParseInt(page.Next, 10, 64)
		if next <= t.readTo {
			t.release(ctx, max(t.readTo, t.turn.Seq)) // all that had happened at the claim was read
			return
		}
		t.readTo = next
	}
}

// isFor reports whether the target gets an event that was read.
func (t *targetTurn) isFor(ev picket.Event) bool {
	if only := ev.ReminderTarget(); only != "" {
		return only == t.turn.Name || only == t.turn.WebhookID
	}
	return len(t.turn.Types) == 0 || slices.Contains(t.turn.Types, ev.Type)
}

// hasTimeLeft reports whether a request can be made and its outcome written while the
// claim lasts. A process that was stopped for a while finds that it cannot.
func (t *targetTurn) hasTimeLeft() bool {
	return time.Since(t.heldSince) < picket.WebhookTurnTTL-t.d.cfg.Sender.cfg.Timeout-turns.StoreTimeout
}

// send posts one event. It returns false when the turn is over.
func (t *targetTurn) send(ctx context.Context, ev picket.Event) bool {
	if ctx.Err() != nil || !t.hasTimeLeft() {
		t.release(ctx, t.position)
		return false
	}
	sending, done := turns.WithGrace(ctx, t.d.cfg.Grace)
	defer done()
	d := t.d.cfg.Sender.Send(sending, t.turn.WebhookTarget, ev)
	if d.Outcome == picket.WebhookFailed && errors.Is(context.Cause(sending), turns.ErrStopping) {
		t.release(ctx, t.position) // it may have arrived; it will be sent again
		return false
	}
	if d.Outcome == picket.WebhookTaken {
		ok := t.advance(ctx, picket.WebhookStep{To: ev.Seq, Outcome: picket.WebhookTaken, Status: d.Status})
		if ok && t.turn.Failures > 0 {
			t.log.Info("the webhook takes events again", "webhook", t.turn.WebhookID, "url", t.turn.URL)
			t.turn.Failures = 0
		}
		return ok
	}
	t.postpone(ctx, d)
	return false
}

// postpone puts the target off. Between attempts there is a random pause of up to
// one second, twice as long after each failure, or what the target asks for.
func (t *targetTurn) postpone(ctx context.Context, d Delivery) {
	most := min(firstDelay<<min(t.turn.Failures, 20), maxDelay)
	delay := max(t.d.cfg.Jitter(most), d.RetryAfter)
	if t.turn.Failures == 0 {
		t.log.Warn("the webhook does not take an event, it will be sent again", "webhook", t.turn.WebhookID, "url",
			t.turn.URL, "status", d.Status, "reason", d.Error)
	}
	t.advance(ctx, picket.WebhookStep{
		To:      t.position,
		Outcome: d.Outcome,
		Status:  d.Status,
		Error:   d.Error,
		Delay:   delay,
	})
}

// skipGap moves the target over what retention has deleted.
func (t *targetTurn) skipGap(ctx context.Context, expired error) bool {
	refusal, _ := picket.RefusalOf(expired)
	first, _ := refusal.Facts["first"].(int64)
	if first <= t.readTo {
		return false // nothing is known of a gap: the claim runs out
	}
	t.log.Warn("events for the webhook were deleted before it took them", "webhook", t.turn.WebhookID, "url",
		t.turn.URL, "after", t.position, "upTo", first-1)
	ok := t.advance(ctx, picket.WebhookStep{To: first - 1, Outcome: picket.WebhookGap})
	t.readTo = t.position
	return ok
}

// release ends the claim, with what was passed over.
func (t *targetTurn) release(ctx context.Context, to int64) {
	t.advance(ctx, picket.WebhookStep{To: to, Outcome: picket.WebhookPassed})
}

// advance writes one step down and repeats it while nobody knows whether it is.
// It returns false when the claim is over, or cannot be relied on any more. A
// step belongs to a request that was made, so it is taken while the server
// stops, too.
func (t *targetTurn) advance(ctx context.Context, s picket.WebhookStep) bool {
	s.WebhookID, s.TurnID, s.From = t.turn.WebhookID, t.turn.TurnID, t.position
	began := time.Now() // a repeat of a step that was taken prolongs nothing
	for {
		asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), turns.StoreTimeout)
		state, err := t.queue.AdvanceWebhook(asked, s)
		cancel()
		if err == nil {
			t.position, t.heldSince = s.To, began
			if state != picket.WebhookActive {
				t.log.Warn("the webhook is given up", "webhook", s.WebhookID, "url", t.turn.URL, "state", string(state),
					"reason", s.Error)
			}
			return true
		}
		if !picket.CodeOf(err).Retryable() || !t.hasTimeLeft() || ctx.Err() != nil {
			return false
		}
		turns.Sleep(ctx, turns.RetryDelay/4)
	}
}
