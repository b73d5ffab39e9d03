package orchestrator

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// hub is the one long-poll mechanism: goroutines wait for a topic, and one
// subscription per channel wakes them. It carries no state: whoever wakes up
// looks for itself.
type hub struct {
	client  redis.UniversalClient
	channel string
	log     *slog.Logger
	hear    func(message string) // sees every message first; may be nil

	mu      sync.Mutex
	waiters map[*waiter]struct{}
	cancel  context.CancelFunc
	done    chan struct{}
}

// waiter waits for messages that match. shared waiters are all woken by one
// message; of the others one is.
type waiter struct {
	match  func(message string) bool
	shared bool
	c      chan string // the message; "" after a reconnect
}

func newHub(client redis.UniversalClient, channel string, log *slog.Logger, hear func(string)) *hub {
	return &hub{client: client, channel: channel, log: log, hear: hear, waiters: map[*waiter]struct{}{}}
}

// start subscribes; it returns when the subscription stands or the store is
// away, in which case it goes on trying. Starting twice is harmless.
func (h *hub) start(ctx context.Context) {
	h.mu.Lock()
	if h.done != nil {
		h.mu.Unlock()
		return
	}
	ctx, h.cancel = context.WithCancel(ctx)
	h.done = make(chan struct{})
	h.mu.Unlock()
	sub := h.client.Subscribe(ctx, h.channel)
	// With a limit: the driver would wait for a lost answer for ever, and not
	// look at ctx meanwhile. It subscribes again by itself.
	if _, err := sub.ReceiveTimeout(ctx, time.Second); err != nil {
		h.log.Warn("subscribe to wake-ups", "channel", h.channel, "error", err)
	}
	go h.listen(ctx, sub)
}

func (h *hub) listen(ctx context.Context, sub *redis.PubSub) {
	defer close(h.done)
	messages := sub.ChannelWithSubscriptions(redis.WithChannelSize(1000))
	go func() {
		<-ctx.Done()
		_ = sub.Close()
	}()
	for m := range messages {
		switch m := m.(type) {
		case *redis.Subscription:
			if h.hear != nil {
				h.hear("")
			}
			h.wakeAll() // a new connection: what came meanwhile was missed
		case *redis.Message:
			if h.hear != nil {
				h.hear(m.Payload)
			}
			h.wake(m.Payload)
		}
	}
}

func (h *hub) close() {
	h.mu.Lock()
	cancel, done := h.cancel, h.done
	h.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
	h.wakeAll()
}

// wait registers a waiter; leave must be called. Register first, then look,
// then wait: nothing that happens in between is missed.
func (h *hub) wait(shared bool, match func(string) bool) *waiter {
	w := &waiter{match: match, shared: shared, c: make(chan string, 1)}
	h.mu.Lock()
	h.waiters[w] = struct{}{}
	h.mu.Unlock()
	return w
}

// leave removes a waiter. A message it was given and did not act on is passed
// on, so a wake-up is never lost with a client that went away.
func (h *hub) leave(w *waiter) {
	h.mu.Lock()
	delete(h.waiters, w)
	h.mu.Unlock()
	select {
	case message := <-w.c:
		if message != "" && !w.shared {
			h.wake(message)
		}
	default:
	}
}

// allWaiters is the message that wakes every waiter.
const allWaiters = "lane *"

func (h *hub) wake(message string) {
	if message == allWaiters {
		h.wakeAll()
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	one := false
	for w := range h.waiters {
		if (one && !w.shared) || !w.match(message) {
			continue
		}
		select {
		case w.c <- message:
			one = one || !w.shared
		default: // woken already and not yet looking: the next one takes it
		}
	}
}

func (h *hub) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.waiters {
		select {
		case w.c <- "":
		default:
		}
	}
}
