package store

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Namespace is one namespace of a store. It runs scripts on it, adopts the
// store where that is needed, and wakes those who wait for something in it.
type Namespace struct {
	// OnMessage is called with every wake-up message before any waiter sees it,
	// and with "" after a reconnect. It is set before the store is opened; nil
	// does nothing.
	OnMessage func(message string)
	// OnAdopt is called after this process has adopted the store with a floor.
	// Floor 0 is that of a namespace that nobody ever knew. It must return soon.
	OnAdopt func(floor int64)

	name        string
	store       *Store
	wakeups     *notifier
	newEvents   *notifier
	witness     *witness     // nil: this process adopts nothing
	knownGrants grantCount   // what this process knows of the number of grants
	doubts      atomic.Int64 // new connections that led to a store which has to be checked first
	migrating   atomic.Bool  // whether this process converts the store in the background
	log         *slog.Logger
}

func (n *Namespace) open() error {
	n.wakeups = newNotifier(n.store.logClient, wakeChannel(n.name), n.log, n.OnMessage)
	n.newEvents = newNotifier(n.store.logClient, eventChannel(n.name), n.log, nil)
	if n.store.cfg.Witness == "" {
		return nil
	}
	var err error
	n.witness, err = openWitness(n.store.cfg.Witness, n.name, storeAddress(n.store.cfg), n.store.cfg.Fault)
	return err
}

// Name is the name of the namespace.
func (n *Namespace) Name() string { return n.name }

// Run runs a script. If the store turns out to be another one than this process
// knows, it is adopted first. The error is a refusal of the script or
// CodeUnavailable; picket.ErrUnknown is its cause if the script may have run.
func (n *Namespace) Run(ctx context.Context, script string, args ...any) (any, error) {
	return n.retryAdopted(ctx, func() (any, error) { return n.store.runner.run(ctx, n.name, script, args...) })
}

// RunGrant runs a script that grants leases. build makes its arguments from the floor, above which
// the new tokens will be, and from the number of grants under that floor that this process knows
// of. RunGrant returns the floor of the call that was answered. Pass the result to
// [Namespace.NoteGrants].
func (n *Namespace) RunGrant(ctx context.Context, script string,
	build func(floor, known int64) []any) (got any, floor int64, err error) {
	got, err = n.retryAdopted(ctx, func() (any, error) {
		floor = n.witness.current().Floor
		under, known := n.knownGrants.last()
		if under != floor {
			known = 0
		}
		return n.store.runner.run(ctx, n.name, script, build(floor, known)...)
	})
	return got, floor, err
}

// NoteGrants records what a granting script answered: how many grants there are
// under a floor, and the newest sequence number.
func (n *Namespace) NoteGrants(floor, grants, seq int64) {
	n.knownGrants.raise(floor, grants)
	n.raiseCeiling(seq)
}

// MayGrant reports whether this process keeps a witness, without which it must
// not grant leases.
func (n *Namespace) MayGrant() bool { return n.witness != nil }

// RunUnchecked runs a script past the adoption and the shared connections. It is
// for tests that play another process.
func (n *Namespace) RunUnchecked(ctx context.Context, script string, args ...any) (any, error) {
	return n.uncheckedRun()(ctx, script, args...)
}

// ReadLog runs a plain read of the event log. The error of a missing field or
// stream is redis.Nil.
func ReadLog[T any](ctx context.Context, n *Namespace,
	read func(client redis.UniversalClient) (T, error)) (got T, err error) {
	g := n.store.runner
	if err := n.resolveDoubts(ctx); err != nil {
		return got, err
	}
	if err := g.faultPoint("redis.events.before"); err != nil {
		return got, Unavailable("the request was not sent", err)
	}
	got, err = read(n.store.logClient)
	if lost := g.faultPoint("redis.events.after"); lost != nil {
		err = lost
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return got, n.store.runner.replyError("events", err)
	}
	return got, err
}

// Subscribe registers a subscription to topics. All subscriptions to a topic
// receive each of its messages. [Namespace.WaitUntil] ends it.
func (n *Namespace) Subscribe(topics ...Topic) *Subscription {
	return n.wakeups.subscribe(topics...)
}

// SubscribeOne makes a subscription for work that one waiter can take: of all such
// subscriptions that a message is for, one receives it. describe is called when
// the first look of [Namespace.WaitUntil] found nothing. The subscription costs next to
// nothing before that.
func (n *Namespace) SubscribeOne(describe func() Waiter) *Subscription {
	return n.wakeups.subscribeOne(describe)
}

// SubscribeEvents registers a subscription that is woken by every new event.
func (n *Namespace) SubscribeEvents() *Subscription {
	n.newEvents.start(n.store.ctx)
	return n.newEvents.subscribeAll()
}

// WaitEnd says how a wait ended that had no error.
type WaitEnd int

const (
	WaitDone    WaitEnd = iota // look was satisfied
	WaitExpired                // the limit has passed
	WaitStopped                // the store was closed
)

// NoLimit is the limit of a wait that only its context or the store ends.
const NoLimit time.Duration = -1

// WaitUntil calls look until it reports that it is done: at first, then after
// each message of the subscription, and when the time has passed that look
// returns as again, if that is positive. The subscription must exist before the
// first look, so that nothing in between is missed; WaitUntil ends it. A
// subscription of [Namespace.SubscribeOne] is registered after the first look.
// The error is that of look, or CodeUnavailable when ctx ends.
func (n *Namespace) WaitUntil(ctx context.Context, s *Subscription, limit time.Duration,
	look func() (done bool, again time.Duration, err error)) (WaitEnd, error) {
	defer s.end()
	began := time.Now()
	done, again, err := look()
	if err != nil || done {
		return WaitDone, err
	}
	s.join()
	var expired <-chan time.Time
	if limit != NoLimit {
		timer := time.NewTimer(limit - time.Since(began))
		defer timer.Stop()
		expired = timer.C
	}
	for {
		end, err := n.waitForMessage(ctx, s, expired, again)
		if err != nil || end != WaitDone {
			return end, err
		}
		done, again, err = look()
		if err != nil || done {
			return WaitDone, err
		}
	}
}

// waitForMessage waits for a message of the subscription, or until again has
// passed.
func (n *Namespace) waitForMessage(ctx context.Context, s *Subscription, expired <-chan time.Time,
	again time.Duration) (WaitEnd, error) {
	var due <-chan time.Time
	if again > 0 {
		timer := time.NewTimer(again)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case s.taken = <-s.wakeup:
		return WaitDone, nil
	case <-due:
		return WaitDone, nil
	case <-expired:
		return WaitExpired, nil
	case <-ctx.Done():
		return WaitDone, Unavailable("the request was given up", ctx.Err())
	case <-n.store.ctx.Done():
		return WaitStopped, nil
	}
}

// Stopping is the error of a wait that must not end without a result. cause
// is ErrUnknown where the result may exist.
func Stopping(cause error) error { return Unavailable("the server is stopping", cause) }
