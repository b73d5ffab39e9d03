// Package turns is the loop of a deliverer. It takes one turn after the other from the store, and serves each in a
// goroutine of its own. A turn is a claim on one receiver that has something to be sent.
package turns

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

const (
	// RetryDelay is how long a store that does not answer is left alone.
	RetryDelay = time.Second
	// StoreTimeout bounds a step of a turn, and the claims that are made while the deliverer stops.
	StoreTimeout = 2 * time.Second
)

// Claim is a request for a turn. It is repeated until the store has answered it, because the store may have made it.
type Claim struct {
	ID string
	// Since is when the store was first asked. The turn lasts from then on, or longer.
	Since time.Time
	// Repeated is set if a reply to it was lost.
	Repeated bool
}

// Loop takes the turns of one namespace.
type Loop[Turn any] struct {
	// Take asks the store for a turn, and reports whether it has one. The same claim again gives the same turn. When
	// the loop ends, it repeats a claim whose reply was lost, with stopping set. Then Take must not wait for a turn.
	Take func(ctx context.Context, c Claim, stopping bool) (turn Turn, found bool, err error)
	// Serve serves a turn until it is given back.
	Serve func(ctx context.Context, turn Turn, c Claim)
	// Idle waits until there may be a turn, after Take has found none. It is nil if Take waits.
	Idle func(ctx context.Context, none Turn) error
	// Slots bounds the turns that are under way: each has an entry in it. It is nil if there is no bound.
	Slots chan struct{}
	// Subject is what is delivered, for the log.
	Subject string
	// Log takes when the store fails and when it answers again. Required.
	Log *slog.Logger

	failing picket.Code // of the store; empty while it answers
}

// Run takes turns until ctx ends. It returns when each turn has been served, and a turn whose reply was lost was given
// to Serve, too.
func (l *Loop[Turn]) Run(ctx context.Context) {
	var serving sync.WaitGroup
	defer serving.Wait()
	serve := func(turn Turn, c Claim) {
		serving.Go(func() {
			defer l.release()
			l.Serve(ctx, turn, c)
		})
	}
	var c Claim // has an id while its reply is missing
	for l.acquire(ctx) {
		if c.ID == "" {
			c = Claim{ID: newID(), Since: time.Now()}
		}
		turn, found, err := l.Take(ctx, c, false)
		if err != nil {
			l.release()
			l.fail(ctx, err)
			c.Repeated = true
			continue
		}
		l.logChange(ctx, nil)
		if found {
			serve(turn, c)
		} else {
			l.release()
			l.idle(ctx, turn)
		}
		c = Claim{}
	}
	if c.ID == "" {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), StoreTimeout)
	defer cancel()
	if turn, found, err := l.Take(last, c, true); err == nil && found {
		if l.Slots != nil {
			l.Slots <- struct{}{}
		}
		serve(turn, c)
	}
}

// acquire waits for a slot. It returns false when the deliverer is to stop.
func (l *Loop[Turn]) acquire(ctx context.Context) bool {
	if l.Slots == nil || ctx.Err() != nil {
		return ctx.Err() == nil
	}
	select {
	case l.Slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// release frees the slot of a turn.
func (l *Loop[Turn]) release() {
	if l.Slots != nil {
		<-l.Slots
	}
}

func (l *Loop[Turn]) idle(ctx context.Context, none Turn) {
	if l.Idle == nil {
		return
	}
	if err := l.Idle(ctx, none); err != nil {
		l.fail(ctx, err)
	}
}

// fail logs an error of the store, and leaves the store alone for a while.
func (l *Loop[Turn]) fail(ctx context.Context, err error) {
	l.logChange(ctx, err)
	Sleep(ctx, RetryDelay)
}

// logChange logs when the store begins to fail and when it answers again, and not every failure.
func (l *Loop[Turn]) logChange(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // stopping; the error says only that
	}
	var code picket.Code
	if err != nil {
		code = picket.CodeOf(err)
	}
	if code == l.failing {
		return
	}
	l.failing = code
	if err != nil {
		l.Log.Warn(l.Subject+" cannot be served, will be tried again", "code", string(code), "err", err)
		return
	}
	l.Log.Info(l.Subject + " are served again")
}

func newID() string {
	return strconv.FormatUint(rand.Uint64(), 36) + strconv.FormatUint(rand.Uint64(), 36)
}

// Sleep waits for a time, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// ErrStopping is why a request was cut off when the deliverer stopped.
var ErrStopping = errors.New("the server is stopping")

// WithGrace is a context for one request. It goes on for a while after ctx has ended, and then ends with the cause
// ErrStopping. done must be called after the request.
func WithGrace(ctx context.Context, grace time.Duration) (sending context.Context, done func()) {
	sending, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		Sleep(sending, grace)
		cancel(ErrStopping)
	})
	return sending, func() { stop(); cancel(nil) }
}
