// Package webhooks posts events to webhooks: in order, at least once, one event a
// request, signed as Standard Webhooks says.
//
// Deliverers share nothing and have no leader. Each claims a target that has
// something to be sent, for half a minute of store time, and moves the target's
// position by compare-and-set, so any number of them may run side by side; one
// that dies is followed by another when its claims are over. What was sent
// twice carries the same webhook-id.
package webhooks

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/reaper/turns"
)

// Queue is a namespace as a deliverer sees it.
type Queue interface {
	// TakeWebhookTurn gives a target that has something to be sent; the same claim
	// again gives the same one.
	TakeWebhookTurn(ctx context.Context, claimID string) (picket.WebhookTurn, error)
	// AdvanceWebhook writes down what came of a target; the same step again
	// changes nothing, and state_conflict means that the claim is over.
	AdvanceWebhook(ctx context.Context, s picket.WebhookStep) (picket.WebhookState, error)
	// Events reads the log; cursor_expired has the fact "first".
	Events(ctx context.Context, q picket.EventQuery) (picket.EventPage, error)
	// Tail waits until there is an event after a sequence number.
	Tail(ctx context.Context, after int64) error
}

// Config says what to deliver.
type Config struct {
	// Queues holds the namespaces by name. Required.
	Queues map[string]Queue
	// Sender posts. Required.
	Sender *Sender
	// Gather is how long news is waited for after the first, so that one look
	// serves many events. Defaults to 100 ms.
	Gather time.Duration
	// Grace is how long a request that is under way may take when Run has to end. After it, the
	// event is left to the next deliverer. Defaults to 3 s.
	Grace time.Duration
	// Jitter picks the pause before the next attempt, from 0 to most. Defaults to
	// a random one.
	Jitter func(most time.Duration) time.Duration
	// Log takes what became of targets. Defaults to slog.Default().
	Log *slog.Logger
}

// Deliverer serves the targets of its namespaces until it is told to stop.
type Deliverer struct{ cfg Config }

// New fills in the defaults and refuses a configuration without anything to do.
func New(cfg Config) (*Deliverer, error) {
	if len(cfg.Queues) == 0 || cfg.Sender == nil {
		return nil, errors.New("webhooks: at least one namespace and a sender are needed")
	}
	cfg.Gather = cmp.Or(cfg.Gather, 100*time.Millisecond)
	cfg.Grace = cmp.Or(cfg.Grace, 3*time.Second)
	if cfg.Jitter == nil {
		cfg.Jitter = func(most time.Duration) time.Duration { return rand.N(most + 1) }
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	return &Deliverer{cfg: cfg}, nil
}

// Run delivers until ctx ends; then it returns nil, with every claim given
// back and nothing left running. A store that is away is logged once and tried
// again.
func (d *Deliverer) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for namespace, queue := range d.cfg.Queues {
		n := &namespaceTurns{
			d:         d,
			queue:     queue,
			log:       d.cfg.Log.With("namespace", namespace),
			turnEnded: make(chan struct{}, 1),
		}
		loop := &turns.Loop[picket.WebhookTurn]{Take: n.take, Serve: n.serve, Idle: n.idle, Subject: "webhooks",
			Log: n.log}
		wg.Go(func() { loop.Run(ctx) })
	}
	wg.Wait()
	d.cfg.Sender.Close()
	return nil
}

// namespaceTurns are the turns of one namespace.
type namespaceTurns struct {
	d         *Deliverer
	queue     Queue
	log       *slog.Logger
	turnEnded chan struct{} // a turn is over: there may be more for its target
}

// take asks the store for a target. It waits for the reply also while the
// deliverer stops: a claim without a reply would keep its target from the other
// deliverers until it expires.
func (n *namespaceTurns) take(ctx context.Context, c turns.Claim, _ bool) (picket.WebhookTurn, bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), turns.StoreTimeout)
	defer cancel()
	turn, err := n.queue.TakeWebhookTurn(ctx, c.ID)
	return turn, turn.WebhookID != "", err
}

// serve serves a target, and then wakes the loop.
func (n *namespaceTurns) serve(ctx context.Context, turn picket.WebhookTurn, c turns.Claim) {
	(&targetTurn{namespaceTurns: n, turn: turn, heldSince: c.Since, position: parseCursor(turn.Webhook)}).serve(ctx)
	select {
	case n.turnEnded <- struct{}{}:
	default:
	}
}

// idle sleeps until a target is due, something happens, or a turn is over.
func (n *namespaceTurns) idle(ctx context.Context, none picket.WebhookTurn) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	if none.Wait > 0 {
		timer := time.AfterFunc(none.Wait, cancel)
		defer timer.Stop()
	}
	told := make(chan error, 1)
	go func() { told <- n.queue.Tail(waiting, none.Seq) }()
	select {
	case <-n.turnEnded:
		cancel()
		<-told
	case err := <-told:
		switch {
		case err == nil:
			turns.Sleep(ctx, n.d.cfg.Gather)
		case waiting.Err() == nil:
			return err
		}
	}
	return nil
}
