package store

import (
	"context"
	"log/slog"
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
	subscriptions subscriptionIndex
	missed        missedMessages
	cancel        context.CancelFunc
	done          chan struct{}
}

// Topic is a message that wakes the long polls of a namespace.
type Topic string

// Subscription waits for messages. All shared subscriptions are woken by one message;
// of the others one is.
type Subscription struct {
	of         *notifier
	shared     bool
	everything bool          // it is woken by every message
	topics     []Topic       // that wake it
	describe   func() Waiter // of a subscription that does not share
	waiter     Waiter        // what describe has returned
	joined     bool
	since      uint64      // number of the first message that came after the subscription was made
	wakeup     chan string // the message; "" after a reconnect
	taken      string      // the message that was received last
}

// Waiter says what wakes a subscription that does not share its messages: a request that waits for a lease.
type Waiter struct {
	// Agent is the agent that asks, if it is known. The lanes of this agent wake the waiter.
	Agent string
	// Class names what the waiter takes from lanes that are not of its agent. All waiters of a class take the same.
	Class string
	// Covers reports whether the class takes tasks of a lane. It may be nil if it takes none.
	Covers func(lane string) bool
	// Topics also wake the waiter.
	Topics []Topic
}

func newNotifier(client redis.UniversalClient, channel string, log *slog.Logger, hear func(string)) *notifier {
	return &notifier{
		client:        client,
		channel:       channel,
		log:           log,
		onMessage:     hear,
		subscriptions: newSubscriptionIndex(),
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
	s := &Subscription{of: h, shared: true, topics: topics}
	s.join()
	return s
}

// subscribeAll registers a subscription that is woken by every message.
func (h *notifier) subscribeAll() *Subscription {
	s := &Subscription{of: h, shared: true, everything: true}
	s.join()
	return s
}

// subscribeOne makes a subscription that does not share its messages. It is registered by join, which does not miss
// a message that comes between the two.
func (h *notifier) subscribeOne(describe func() Waiter) *Subscription {
	return &Subscription{of: h, describe: describe, since: h.missed.number()}
}

// join registers a subscription, if it is not registered yet. Look after join, then wait: nothing that happens in
// between is missed. A look before join must begin after the subscription was made. It is repeated if a message has
// come since then that nobody has received.
func (s *Subscription) join() {
	if s.joined {
		return
	}
	s.joined, s.wakeup = true, make(chan string, 1)
	if s.describe != nil {
		s.waiter = s.describe()
		s.topics = s.waiter.Topics
	}
	h := s.of
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscriptions.add(s)
	if s.shared {
		return
	}
	if message, ok := h.missed.take(s); ok {
		s.wakeup <- message
	}
}

// wake gives a message to a subscription. It reports false if it was woken already and does not look yet.
func (s *Subscription) wake(message string) bool {
	select {
	case s.wakeup <- message:
		return true
	default:
		return false
	}
}

// end removes a subscription. Messages that it does not share are handed on, because the message
// that it received last may not have led to a result, and another may not have been received at
// all. No wake-up is lost with a client that has gone away.
func (s *Subscription) end() {
	if !s.joined {
		return
	}
	s.of.mu.Lock()
	s.of.subscriptions.remove(s)
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
	if !h.subscriptions.notify(message) {
		h.missed.add(message)
	}
}

func (h *notifier) notifyAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subscriptions.all {
		s.wake("")
	}
	h.missed.add("")
}
