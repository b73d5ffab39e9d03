package adapter

import (
	"context"
	crand "crypto/rand"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
)

// reportTimeout bounds one report, and all reports of a run that was told to give
// back its lease now.
const reportTimeout = 10 * time.Second

// maxPause bounds every wait, so that a resume from suspend, in which timers stand
// still, is noticed within a second.
const maxPause = time.Second

// backoff paces repeated attempts. Each pause is about twice as long as the one
// before it, from least up to most.
type backoff struct {
	least  time.Duration
	most   time.Duration
	next   time.Duration                       // 0: least
	jitter func(d time.Duration) time.Duration // nil: random
}

// pause waits for the next attempt and reports whether ctx still lives.
func (b *backoff) pause(ctx context.Context) bool { return b.pauseAfter(ctx, nil) }

// pauseAfter is pause after a refusal, which may ask for a longer wait.
func (b *backoff) pauseAfter(ctx context.Context, refusal error) bool {
	d := max(b.next, b.least)
	b.next = min(2*d, b.most)
	jitter := b.jitter
	if jitter == nil {
		jitter = rand.N[time.Duration]
	}
	return sleep(ctx, max(d/2, retryAfter(refusal))+jitter(d))
}

// reset begins again with the shortest pause.
func (b *backoff) reset() { b.next = 0 }

// sleep waits for d and reports whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// wakeUp signals a channel that has room for one, unless a signal waits there already.
func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// newULID makes an id of the time and 80 random bits.
func newULID() string { return ulid.MustNew(ulid.Now(), crand.Reader).String() }

// retry repeats a call, each try of which is bounded by reportTimeout, as long as it may
// succeed later, it is not tooLate, and ctx lives.
func retry(ctx context.Context, pace backoff, tooLate func() bool, call func(try context.Context) error) error {
	for {
		try, cancel := context.WithTimeout(ctx, reportTimeout)
		err := call(try)
		cancel()
		if !isRetryable(err) || tooLate() || !pace.pause(ctx) {
			return err
		}
	}
}

// outlast is a context for what has to be known after ctx has ended. It ends reportTimeout later than ctx.
func outlast(ctx context.Context) (context.Context, context.CancelFunc) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(reportTimeout, cancel) })
	return lasting, func() { stop(); cancel() }
}

// isRetryable reports whether the same call may succeed later.
func isRetryable(err error) bool {
	return errors.Is(err, picket.ErrUnknown) || picket.CodeOf(err).Retryable()
}

// leaseLost reports whether an error says for sure that the lease is gone.
func leaseLost(err error) bool { return err != nil && picket.CodeOf(err).Fenced() }

// leaseOrTaskEnded reports whether the lease or the task has ended already.
func leaseOrTaskEnded(err error) bool {
	return leaseLost(err) || errors.Is(err, picket.CodeTaskClosed) || errors.Is(err, picket.CodeStateConflict)
}

// routeMissing reports a server that does not know the path or the method. The answer
// of a load balancer does not count.
func routeMissing(err error) bool {
	return !errors.Is(err, client.ErrNotPicket) &&
		(errors.Is(err, picket.CodeNotFound) || errors.Is(err, picket.CodeMethodNotAllowed))
}

// textFact is a fact of a refusal, "" for none.
func textFact(err error, name string) string {
	var e *picket.Error
	if !errors.As(err, &e) {
		return ""
	}
	fact, _ := e.Facts[name].(string)
	return fact
}

// retryAfter is the wait that a refusal asks for, 0 for none.
func retryAfter(err error) time.Duration {
	var e *picket.Error
	if errors.As(err, &e) {
		return e.RetryAfter
	}
	return 0
}
