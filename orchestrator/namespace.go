package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// storeNamespace is one namespace of a store. It runs scripts on it, adopts the
// store where that is needed, and wakes those who wait for something in it.
type storeNamespace struct {
	// OnMessage is called with every wake-up message before any waiter sees it,
	// and with "" after a reconnect. It is set before the store is opened; nil
	// does nothing.
	OnMessage func(message string)
	// OnAdopt is called after this process has adopted the store with a floor.
	// Floor 0 is that of a namespace that nobody ever knew. It must return soon.
	OnAdopt func(floor int64)

	name        string
	store       *storeConn
	wakeups     *notifier
	newEvents   *notifier
	witness     *witness     // nil: this process adopts nothing
	knownGrants grantCount   // what this process knows of the number of grants
	doubts      atomic.Int64 // new connections that led to a store which has to be checked first
	log         *slog.Logger
}

func (n *storeNamespace) open() error {
	n.wakeups = newNotifier(n.store.logClient, wakeChannel(n.name), n.log, n.OnMessage)
	n.newEvents = newNotifier(n.store.logClient, eventChannel(n.name), n.log, nil)
	if n.store.cfg.Witness == "" {
		return nil
	}
	var err error
	n.witness, err = openWitness(n.store.cfg.Witness, n.name, storeAddress(n.store.cfg.Redis), n.store.cfg.Fault)
	return err
}

// Name is the name of the namespace.
func (n *storeNamespace) Name() string { return n.name }

// Run runs a script. If the store turns out to be another one than this process
// knows, it is adopted first. The error is a refusal of the script or
// CodeUnavailable; picket.ErrUnknown is its cause if the script may have run.
func (n *storeNamespace) Run(ctx context.Context, script string, args ...any) (any, error) {
	return n.retryAdopted(ctx, func() (any, error) { return n.store.runner.run(ctx, n.name, script, args...) })
}

// RunGrant runs a script that grants leases. build makes its arguments from the
// floor, above which the new tokens will be, and from the number of grants under
// that floor that this process knows of. RunGrant returns the floor of the call
// that was answered. [storeNamespace.NoteGrants] must be told of the result.
func (n *storeNamespace) RunGrant(ctx context.Context, script string,
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
func (n *storeNamespace) NoteGrants(floor, grants, seq int64) {
	n.knownGrants.raise(floor, grants)
	n.raiseCeiling(seq)
}

// MayGrant reports whether this process keeps a witness, without which it must
// not grant leases.
func (n *storeNamespace) MayGrant() bool { return n.witness != nil }

// RunUnchecked runs a script past the adoption and the shared connections. It is
// for tests that play another process.
func (n *storeNamespace) RunUnchecked(ctx context.Context, script string, args ...any) (any, error) {
	return n.store.runner.through(n.store.uncheckedClient, n.name)(ctx, script, args...)
}

// readLog runs a plain read of the event log. The error of a missing field or
// stream is redis.Nil.
func readLog[T any](ctx context.Context, n *storeNamespace,
	read func(client redis.UniversalClient) (T, error)) (got T, err error) {
	g := n.store.runner
	if err := n.resolveDoubts(ctx); err != nil {
		return got, err
	}
	if err := g.faultPoint("redis.events.before"); err != nil {
		return got, unavailable("the request was not sent", err)
	}
	got, err = read(n.store.logClient)
	if lost := g.faultPoint("redis.events.after"); lost != nil {
		err = lost
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return got, replyError("events", err)
	}
	return got, err
}

// Subscribe registers a subscription to topics. All subscriptions to a topic
// receive each of its messages. [storeNamespace.WaitUntil] ends it.
func (n *storeNamespace) Subscribe(topics ...topic) *subscription {
	return n.wakeups.subscribe(topics...)
}

// SubscribeOne registers a subscription for work that one waiter can take: of all
// such subscriptions that match a message, one receives it.
func (n *storeNamespace) SubscribeOne(match func(message string) bool) *subscription {
	return n.wakeups.register(false, match)
}

// SubscribeEvents registers a subscription that is woken by every new event.
func (n *storeNamespace) SubscribeEvents() *subscription {
	n.newEvents.start(n.store.ctx)
	return n.newEvents.register(true, func(string) bool { return true })
}

// waitEnd says how a wait ended that had no error.
type waitEnd int

const (
	waitDone    waitEnd = iota // look was satisfied
	waitExpired                // the limit has passed
	waitStopped                // the store was closed
)

// noLimit is the limit of a wait that only its context or the store ends.
const noLimit time.Duration = -1

// WaitUntil calls look until it reports that it is done: at first, then after
// each message of the subscription, and when the time has passed that look
// returns as again, if that is positive. The subscription must exist before the
// first look, so that nothing in between is missed; WaitUntil ends it. The error
// is that of look, or CodeUnavailable when ctx ends.
func (n *storeNamespace) WaitUntil(ctx context.Context, s *subscription, limit time.Duration,
	look func() (done bool, again time.Duration, err error)) (waitEnd, error) {
	defer s.end()
	var expired <-chan time.Time
	if limit != noLimit {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		expired = timer.C
	}
	for {
		done, again, err := look()
		if err != nil || done {
			return waitDone, err
		}
		end, err := n.waitForMessage(ctx, s, expired, again)
		if err != nil || end != waitDone {
			return end, err
		}
	}
}

// waitForMessage waits for a message of the subscription, or until again has
// passed.
func (n *storeNamespace) waitForMessage(ctx context.Context, s *subscription, expired <-chan time.Time,
	again time.Duration) (waitEnd, error) {
	var due <-chan time.Time
	if again > 0 {
		timer := time.NewTimer(again)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case s.taken = <-s.wakeup:
		return waitDone, nil
	case <-due:
		return waitDone, nil
	case <-expired:
		return waitExpired, nil
	case <-ctx.Done():
		return waitDone, unavailable("the request was given up", ctx.Err())
	case <-n.store.ctx.Done():
		return waitStopped, nil
	}
}

// errStopping is the error of a wait that must not end without a result. cause
// is ErrUnknown where the result may exist.
func errStopping(cause error) error { return unavailable("the server is stopping", cause) }
