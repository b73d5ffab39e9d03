package toolproxy

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

// errLeaseEnded is why a call with external effects was cut off.
var errLeaseEnded = errors.New("the lease of the call ended")

// leaseEndWatcher cuts off the calls of a run when its lease ends, because the next
// holder waits for them. It watches each run once, while the run has calls and for
// [watchLinger] longer. The zero value is ready.
type leaseEndWatcher struct {
	mu     sync.Mutex
	byRun  map[runKey]*runCalls
	closed bool
}

// watchLinger is how long a run without calls is watched on.
const watchLinger = 10 * time.Second

// runCalls counts the calls of one run that are under way.
type runCalls struct {
	count int
	idle  *time.Timer     // while count is 0: when the watch is over
	ended context.Context // ends, with errLeaseEnded as its cause, when the lease has
	stop  context.CancelCauseFunc
}

// track puts a call under the watch of its run. Its context ends when the lease
// does; leave must be called when the call is over.
func (r *leaseEndWatcher) track(ctx context.Context, backend leaseEndWaiter, held picket.LeaseCredential,
	log *slog.Logger) (_ context.Context, leave func()) {
	who := runKey{held.Namespace, held.TaskID, held.RunID}
	r.mu.Lock()
	defer r.mu.Unlock()
	mine := r.byRun[who]
	if mine == nil || mine.ended.Err() != nil && mine.count == 0 {
		mine = &runCalls{}
		mine.ended, mine.stop = context.WithCancelCause(context.WithoutCancel(ctx))
		if r.byRun == nil {
			r.byRun = map[runKey]*runCalls{}
		}
		r.byRun[who] = mine
		go mine.awaitLeaseEnd(backend, held, log)
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
		r.untrack(who, mine)
	}
}

func (r *leaseEndWatcher) untrack(who runKey, c *runCalls) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.count--; c.count > 0 {
		return
	}
	if r.closed || c.ended.Err() != nil {
		r.stopWatching(who, c)
		return
	}
	c.idle = time.AfterFunc(watchLinger, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if c.count == 0 {
			r.stopWatching(who, c)
		}
	})
}

// stopWatching ends the watch of a run without calls.
func (r *leaseEndWatcher) stopWatching(who runKey, c *runCalls) {
	if r.byRun[who] == c {
		delete(r.byRun, who)
	}
	c.stop(nil)
}

// close ends the watches of runs without calls, now and from here on.
func (r *leaseEndWatcher) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for who, c := range r.byRun {
		if c.count == 0 {
			c.idle.Stop()
			r.stopWatching(who, c)
		}
	}
}

// awaitLeaseEnd waits for the end of the lease for as long as there are calls. If the
// store does not answer, no call is cut off: the next holder waits for the deadline of
// each call at most.
func (c *runCalls) awaitLeaseEnd(backend leaseEndWaiter, held picket.LeaseCredential, log *slog.Logger) {
	for {
		ended, err := backend.AwaitEnd(c.ended, held, maxWait)
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
