package adapter

import (
	"context"
	"log/slog"
	"slices"

	"github.com/picket-dev/picket"
)

// eventQueue carries the events of a run to the proxy. While the proxy is away, the newest
// heartbeat replaces the one before. Every other event stays until it has arrived.
type eventQueue struct {
	postQueue[picket.RunEvent]
	last string // id of the newest event, "" before the first
}

// maxEventBatch is how many events go into one post.
const maxEventBatch = 50

func newEventQueue(p *Proxy, log *slog.Logger) *eventQueue {
	return &eventQueue{postQueue: postQueue[picket.RunEvent]{
		most:    maxEventBatch,
		same:    func(a, b picket.RunEvent) bool { return a.ID == b.ID },
		final:   leaseLost,
		changed: make(chan struct{}, 1),
		post: func(ctx context.Context, events []picket.RunEvent) error {
			err := p.Events(ctx, events...)
			if err != nil && !isRetryable(err) {
				log.Warn("events of the run were refused", "events", len(events), "err", err)
			}
			return err
		},
	}}
}

// add takes an event. Its id lets the proxy know it again when an answer was
// lost.
func (c *eventQueue) add(e picket.RunEvent) {
	e.ID = "event_" + newULID()
	c.update(func(waiting []picket.RunEvent) []picket.RunEvent {
		c.last = e.ID
		if e.Type == picket.EventAgentHeartbeat {
			waiting = slices.DeleteFunc(waiting, func(w picket.RunEvent) bool { return w.Type == e.Type })
		}
		return append(waiting, e)
	})
}

// lastID is the id of the newest event, "" if there was none. The exit names it,
// so the proxy takes the events up to it, and none after.
func (c *eventQueue) lastID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}
