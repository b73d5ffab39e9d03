package adapter

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

// eventQueue carries the events of a run to the proxy, in their order and without ever making
// anybody wait. While the proxy is away, the newest heartbeat replaces the one before. Every other
// event stays until it has arrived.
type eventQueue struct {
	post func(ctx context.Context, events ...picket.RunEvent) error
	log  *slog.Logger

	mu      sync.Mutex
	queue   []picket.RunEvent
	last    string // id of the newest event, "" before the first
	closed  bool
	changed chan struct{} // has room for one: something changed
}

func newEventQueue(p *Proxy, log *slog.Logger) *eventQueue {
	return &eventQueue{post: p.Events, log: log, changed: make(chan struct{}, 1)}
}

// add takes an event. Its id lets the proxy know it again when an answer was
// lost.
func (c *eventQueue) add(e picket.RunEvent) {
	e.ID = "event_" + newULID(time.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if e.Type == picket.EventAgentHeartbeat {
		c.queue = slices.DeleteFunc(c.queue, isHeartbeat)
	}
	c.queue, c.last = append(c.queue, e), e.ID
	wakeUp(c.changed)
}

// lastID is the id of the newest event, "" if there was none. The exit names it,
// so the proxy takes the events up to it, and none after.
func (c *eventQueue) lastID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// close lets run end as soon as everything has arrived.
func (c *eventQueue) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	wakeUp(c.changed)
}

func isHeartbeat(e picket.RunEvent) bool { return e.Type == picket.EventAgentHeartbeat }

// run posts until everything has arrived after close, until ctx ends, or until
// the credential is not good any more.
func (c *eventQueue) run(ctx context.Context) {
	pace := backoff{least: 200 * time.Millisecond, most: 5 * time.Second}
	for {
		batch, open := c.take()
		if len(batch) == 0 {
			if !open {
				return
			}
			select {
			case <-c.changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		try, cancel := context.WithTimeout(ctx, reportTimeout)
		err := c.post(try, batch...)
		cancel()
		switch {
		case err == nil:
			pace.reset()
			continue
		case leaseLost(err):
			c.log.Warn("the events of the run are not taken any more", "events", len(batch), "err", err)
			return
		case !isRetryable(err):
			c.log.Warn("events of the run were refused", "events", len(batch), "err", err)
			continue
		}
		c.putBack(batch)
		if !pace.pause(ctx) {
			return
		}
	}
}

// maxEventBatch is how many events go into one post.
const maxEventBatch = 50

func (c *eventQueue) take() (batch []picket.RunEvent, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.queue), maxEventBatch)
	batch, c.queue = c.queue[:n:n], c.queue[n:]
	return batch, !c.closed
}

// putBack queues again what may not have arrived; a heartbeat only if there is
// no newer one.
func (c *eventQueue) putBack(batch []picket.RunEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.queue, isHeartbeat) {
		batch = slices.DeleteFunc(batch, isHeartbeat)
	}
	c.queue = append(batch, c.queue...)
}
