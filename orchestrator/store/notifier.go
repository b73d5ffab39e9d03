package store

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// notifier is the one long-poll mechanism: goroutines wait for a topic, and one
// subscription per channel wakes them. It carries no state: a waiter that wakes up
// looks for itself.
type notifier struct {
	client    redis.UniversalClient
	channel   string
	log       *slog.Logger
	onMessage func(message string) // sees every message first; may be nil

	mu            sync.Mutex
	subscriptions map[*Subscription]struct{}
	cancel        context.CancelFunc
	done          chan struct{}
}

// Topic is a message that wakes the long polls of a namespace.
type Topic string

// Matches reports whether a message is of the topic.
func (t Topic) Matches(message string) bool { return string(t) == message }

// Subscription waits for messages that match. All shared subscriptions are woken
// by one message; of the others one is.
type Subscription struct {
	of     *notifier
	match  func(message string) bool
	shared bool
	wakeup chan string // the message; "" after a reconnect
	taken  string      // the message that was received last
}

func newNotifier(client redis.UniversalClient, channel string, log *slog.Logger, hear func(string)) *notifier {
	return &notifier{
		client:        client,
		channel:       channel,
		log:           log,
		onMessage:     hear,
		subscriptions: map[*Subscription]struct{}{},
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
	// look at ctx meanwhile. It subscribes again automatically.
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
			for message := range strings.SplitSeq(m.Payload, "\n") { // one call of the store can cause several
				if h.onMessage != nil {
					h.onMessage(message)
				}
				h.notify(message)
			}
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

// subscribe registers a subscription to topics that shares its messages with all
// others; end must be called.
func (h *notifier) subscribe(topics ...Topic) *Subscription {
	return h.register(true, func(message string) bool {
		return slices.ContainsFunc(topics, func(t Topic) bool { return t.Matches(message) })
	})
}

// register makes a subscription. Register first, then look, then wait: nothing
// that happens in between is missed.
func (h *notifier) register(shared bool, match func(string) bool) *Subscription {
	s := &Subscription{of: h, match: match, shared: shared, wakeup: make(chan string, 1)}
	h.mu.Lock()
	h.subscriptions[s] = struct{}{}
	h.mu.Unlock()
	return s
}

// end removes a subscription. Messages that it does not share are handed on, because the message
// that it received last may not have led to a result, and another may not have been received at
// all. No wake-up is lost with a client that has gone away.
func (s *Subscription) end() {
	s.of.mu.Lock()
	delete(s.of.subscriptions, s)
	s.of.mu.Unlock()
	if s.shared {
		return
	}
	waiting := ""
	select {
	case waiting = <-s.wakeup:
	default:
	}
	for _, message := range []string{waiting, s.taken} {
		if message != "" {
			s.of.notify(message)
		}
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
