package orchestrator

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// notifier is the one long-poll mechanism: goroutines wait for a topic, and one
// subscription per channel wakes them. It carries no state: whoever wakes up
// looks for itself.
type notifier struct {
	client    redis.UniversalClient
	channel   string
	log       *slog.Logger
	onMessage func(message string) // sees every message first; may be nil

	mu            sync.Mutex
	subscriptions map[*subscription]struct{}
	cancel        context.CancelFunc
	done          chan struct{}
}

// subscription waits for messages that match. shared waiters are all woken by one
// message; of the others one is.
type subscription struct {
	match  func(message string) bool
	shared bool
	wakeup chan string // the message; "" after a reconnect
}

func newNotifier(client redis.UniversalClient, channel string, log *slog.Logger, hear func(string)) *notifier {
	return &notifier{
		client:        client,
		channel:       channel,
		log:           log,
		onMessage:     hear,
		subscriptions: map[*subscription]struct{}{},
	}
}

// start subscribes; it returns when the subscription stands or the store is
// away, in which case it goes on trying. Starting twice is harmless.
func (h *notifier) start(ctx context.Context) {
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

func (h *notifier) listen(ctx context.Context, sub *redis.PubSub) {
	defer close(h.done)
	messages := sub.ChannelWithSubscriptions(redis.WithChannelSize(1000))
	go func() {
		<-ctx.Done()
		_ = sub.Close()
	}()
	for m := range messages {
		switch m := m.(type) {
		case *redis.Subscription:
			if h.onMessage != nil {
				h.onMessage("")
			}
			h.notifyAll() // a new connection: what came meanwhile was missed
		case *redis.Message:
			if h.onMessage != nil {
				h.onMessage(m.Payload)
			}
			h.notify(m.Payload)
		}
	}
}

func (h *notifier) close() {
	h.mu.Lock()
	cancel, done := h.cancel, h.done
	h.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
	h.notifyAll()
}

// subscribe registers a waiter; leave must be called. Register first, then look,
// then wait: nothing that happens in between is missed.
func (h *notifier) subscribe(shared bool, match func(string) bool) *subscription {
	w := &subscription{match: match, shared: shared, wakeup: make(chan string, 1)}
	h.mu.Lock()
	h.subscriptions[w] = struct{}{}
	h.mu.Unlock()
	return w
}

// unsubscribe removes a waiter. A message it was given and did not act on is passed
// on, so a wake-up is never lost with a client that went away.
func (h *notifier) unsubscribe(w *subscription) {
	h.mu.Lock()
	delete(h.subscriptions, w)
	h.mu.Unlock()
	select {
	case message := <-w.wakeup:
		if message != "" && !w.shared {
			h.notify(message)
		}
	default:
	}
}

// wakeAllMessage is the message that wakes every waiter.
const wakeAllMessage = "lane *"

func (h *notifier) notify(message string) {
	if message == wakeAllMessage {
		h.notifyAll()
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	one := false
	for w := range h.subscriptions {
		if (one && !w.shared) || !w.match(message) {
			continue
		}
		select {
		case w.wakeup <- message:
			one = one || !w.shared
		default: // woken already and not yet looking: the next one takes it
		}
	}
}

func (h *notifier) notifyAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.subscriptions {
		select {
		case w.wakeup <- "":
		default:
		}
	}
}
