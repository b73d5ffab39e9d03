package toolproxy

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

// ender is told of the end of a lease.
type ender interface {
	// AwaitEnd waits until the lease has ended; ended is false when the wait ran
	// out first. It takes no command that is meant for the adapter.
	AwaitEnd(ctx context.Context, held picket.Held, wait time.Duration) (ended bool, err error)
}

// runs cuts off the calls of a run when its lease ends: the next holder waits
// for them. It watches each run once, while it has calls and a moment longer:
// the next call is often near. The zero value is ready.
type runs struct {
	mu     sync.Mutex
	open   map[watched]*calls
	closed bool
}

// watchLinger is how long a run without calls is watched on.
const watchLinger = 10 * time.Second

// calls are those of one run under way.
type calls struct {
	count int
	idle  *time.Timer     // while count is 0: when the watch is over
	ended context.Context // ends, with errLeaseEnded as its cause, when the lease has
	stop  context.CancelCauseFunc
}

// join puts a call under the watch of its run. Its context ends when the lease
// does; leave must be called when the call is over.
func (r *runs) join(ctx context.Context, eyes ender, held picket.Held,
	log *slog.Logger) (_ context.Context, leave func()) {
	who := watched{held.Namespace, held.TaskID, held.RunID}
	r.mu.Lock()
	defer r.mu.Unlock()
	mine := r.open[who]
	if mine == nil || mine.ended.Err() != nil && mine.count == 0 {
		mine = &calls{}
		mine.ended, mine.stop = context.WithCancelCause(context.WithoutCancel(ctx))
		if r.open == nil {
			r.open = map[watched]*calls{}
		}
		r.open[who] = mine
		go mine.watch(eyes, held, log)
	}
	if mine.idle != nil {
		mine.idle.Stop()
	}
	mine.count++
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(mine.ended, func() { cancel(context.Cause(mine.ended)) })
	return ctx, func() {
		forget()
		cancel(nil)
		r.leave(who, mine)
	}
}

func (r *runs) leave(who watched, c *calls) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.count--; c.count > 0 {
		return
	}
	if r.closed || c.ended.Err() != nil {
		r.forget(who, c)
		return
	}
	c.idle = time.AfterFunc(watchLinger, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if c.count == 0 {
			r.forget(who, c)
		}
	})
}

// forget ends the watch of a run without calls.
func (r *runs) forget(who watched, c *calls) {
	if r.open[who] == c {
		delete(r.open, who)
	}
	c.stop(nil)
}

// close ends the watches of runs without calls, now and from here on.
func (r *runs) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for who, c := range r.open {
		if c.count == 0 {
			c.idle.Stop()
			r.forget(who, c)
		}
	}
}

// watch waits for the end of the lease for as long as there are calls. That it
// cannot see is no reason to cut anything off: the deadline of each call is
// what the next holder waits for at most.
func (c *calls) watch(eyes ender, held picket.Held, log *slog.Logger) {
	for {
		ended, err := eyes.AwaitEnd(c.ended, held, MaxWait)
		var refusal *picket.Error
		switch {
		case c.ended.Err() != nil:
			return
		case ended, errors.As(err, &refusal) && refusal.Code.Fenced():
			c.stop(errLeaseEnded)
			return
		case err != nil:
			log.Debug("cannot see whether a lease has ended", "task", held.TaskID, "run", held.RunID, "err", err)
			select {
			case <-c.ended.Done():
				return
			case <-time.After(time.Second):
			}
		}
	}
}
