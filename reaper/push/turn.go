package push

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/reaper/turns"
	"github.com/picket-dev/picket/reaper/webhooks"
)

// The pause after a failure is random, up to firstDelay and twice as long after each further failure.
const (
	firstDelay = time.Second
	maxDelay   = 5 * time.Minute
)

// sendTime is how long one request and the step after it can take. A claim that ends sooner is given back instead.
const sendTime = 15*time.Second + turns.StoreTimeout

// maxTurn is how long a configuration is served while others wait. Then it goes behind them.
const maxTurn = 5 * time.Second

// tokenHeader carries the token of a configuration.
const tokenHeader = "X-A2A-Notification-Token"

// turnServer is a configuration while this deliverer has it.
type turnServer struct {
	*namespaceTurns
	turn     picket.PushTurn
	position int64 // the cursor in the store
}

// serve sends what the turn has, and gives the configuration back.
func (t *turnServer) serve(ctx context.Context) {
	if t.turn.Sealed {
		t.postpone(ctx, webhooks.Delivery{Outcome: picket.WebhookFailed, Error: "the configuration was sealed with a " +
			"secret key that this server does not have"})
		return
	}
	task, err := t.queue.Task(ctx, t.turn.TaskID)
	if err != nil {
		t.release(ctx, firstDelay) // the next turn finds the task, or the configuration is deleted with it
		return
	}
	began := time.Now()
	for _, u := range t.turn.Updates {
		if ctx.Err() != nil || !t.hasTimeLeft() || time.Since(began) > maxTurn {
			t.release(ctx, 0)
			return
		}
		if !t.deliver(ctx, task, u) {
			return
		}
	}
	t.release(ctx, 0) // there can be more, which the next turn has
}

// hasTimeLeft reports whether a request can be made and its outcome written while the claim lasts.
func (t *turnServer) hasTimeLeft() bool {
	return time.Since(t.turn.HeldSince) < picket.PushTurnTTL-sendTime
}

// deliver sends one update. It returns false when the turn is over.
func (t *turnServer) deliver(ctx context.Context, task picket.Task, u picket.TaskUpdate) bool {
	body, err := t.d.cfg.Render(task, u)
	if err != nil {
		t.postpone(ctx, webhooks.Delivery{Outcome: picket.WebhookFailed, Error: "the notification cannot be written"})
		return false
	}
	if body == nil {
		return t.advance(ctx, picket.PushStep{To: u.Seq, Outcome: picket.PushTaken})
	}
	sending, done := turns.WithGrace(ctx, t.d.cfg.Grace)
	defer done()
	d := t.d.cfg.Sender.Post(sending, t.message(u, body))
	switch {
	case d.Outcome == picket.WebhookTaken:
		if t.turn.Failures > 0 {
			t.logger().Info("the receiver takes push notifications again")
			t.turn.Failures = 0
		}
		return t.advance(ctx, picket.PushStep{To: u.Seq, Outcome: picket.PushTaken})
	case d.Outcome == picket.WebhookFailed && errors.Is(context.Cause(sending), turns.ErrStopping):
		t.release(ctx, 0) // it may have arrived; it will be sent again
	default:
		t.postpone(ctx, d)
	}
	return false
}

// message is the notification of an update.
func (t *turnServer) message(u picket.TaskUpdate, body []byte) webhooks.Message {
	m := webhooks.Message{
		URL:         t.turn.URL,
		ID:          t.turn.Name + "-" + strconv.FormatInt(u.Seq, 10),
		ContentType: t.d.cfg.ContentType,
		Header:      http.Header{},
		Body:        body,
		Secret:      webhooks.TokenSecret(t.turn.Token),
		HTTPS:       true,
	}
	if t.turn.Token != "" {
		m.Header.Set(tokenHeader, t.turn.Token.Reveal())
	}
	if t.turn.Credentials != "" {
		m.Header.Set("Authorization", t.turn.Scheme+" "+t.turn.Credentials.Reveal())
	}
	return m
}

// postpone puts the configuration off until the next attempt, or ends it if its receiver is gone.
func (t *turnServer) postpone(ctx context.Context, d webhooks.Delivery) {
	if t.turn.Failures == 0 && d.Outcome != picket.WebhookGone {
		t.logger().Warn("a push notification was not taken, it will be sent again", "status", d.Status, "reason", d.Error)
	}
	step := picket.PushStep{To: t.position, Outcome: picket.PushFailed}
	if d.Outcome == picket.WebhookGone {
		step.Outcome = picket.PushGone
	}
	most := min(firstDelay<<min(t.turn.Failures, 20), maxDelay)
	step.Delay = max(t.d.cfg.Jitter(most), d.RetryAfter)
	t.advance(ctx, step)
}

// release ends the claim. The next one begins after a delay.
func (t *turnServer) release(ctx context.Context, delay time.Duration) {
	t.advance(ctx, picket.PushStep{To: t.position, Outcome: picket.PushReleased, Delay: delay})
}

// advance writes one step down, and repeats it while nobody knows whether it was written. It returns false when the
// turn is over. A step belongs to a request that was made, so it is also taken while the server stops.
func (t *turnServer) advance(ctx context.Context, s picket.PushStep) bool {
	s.TaskID, s.ID, s.TurnID, s.From = t.turn.TaskID, t.turn.ID, t.turn.TurnID, t.position
	began := time.Now() // a repeat of a step that was taken prolongs nothing
	for {
		asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), turns.StoreTimeout)
		state, err := t.queue.AdvancePush(asked, s)
		cancel()
		switch {
		case err == nil:
			t.position, t.turn.HeldSince = s.To, began
			if state == picket.PushGivenUp {
				t.logger().Warn("the push configuration was given up and deleted", "failures", t.turn.Failures+1)
			}
			return state == picket.PushMore
		case !picket.CodeOf(err).Retryable() || !t.hasTimeLeft() || ctx.Err() != nil:
			return false
		}
		turns.Sleep(ctx, turns.RetryDelay/4)
	}
}

// logger names the configuration in the log, without its URL, which can be a secret.
func (t *turnServer) logger() *slog.Logger {
	return t.log.With("task", t.turn.TaskID, "push", t.turn.ID)
}
