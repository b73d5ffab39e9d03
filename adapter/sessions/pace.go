package sessions

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/picket-dev/picket"
)

const (
	// requestTimeout bounds one request to the server, in addition to what it may wait there.
	requestTimeout = 10 * time.Second
	// maxPause bounds a wait for a deadline, so that the end of a suspend, in which timers stand still,
	// is noticed within a second.
	maxPause = time.Second
)

// pace spaces repeated attempts. Each pause is about twice as long as the one before it, from least up
// to most.
type pace struct {
	least, most time.Duration
	next        time.Duration // 0: least
}

// retryPace is for requests that have failed.
func retryPace() pace { return pace{least: 200 * time.Millisecond, most: 30 * time.Second} }

// pause waits for the next attempt, at least as long as a refusal asks for, and reports whether ctx
// still lives.
func (p *pace) pause(ctx context.Context, refusal error) bool {
	d := max(p.next, p.least)
	p.next = min(2*d, p.most)
	least := d / 2
	if e, ok := errors.AsType[*picket.Error](refusal); ok {
		least = max(least, e.RetryAfter)
	}
	return sleep(ctx, least+rand.N(d))
}

// reset begins again with the shortest pause.
func (p *pace) reset() { p.next = 0 }

// sleep waits for d and reports whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// signal wakes what waits for a channel that has room for one signal.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// refusedForGood reports whether sending the same result again is useless.
func refusedForGood(err error) bool {
	switch picket.CodeOf(err) {
	case picket.CodeNotFound, picket.CodeStateConflict, picket.CodeValidation, picket.CodeForbidden:
		return !errors.Is(err, picket.ErrUnknown)
	}
	return false
}
