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
	"strconv"
	"sync"
	"time"

	"github.com/picket-dev/picket"
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
		l := &namespaceLoop{
			d:         d,
			queue:     queue,
			log:       d.cfg.Log.With("namespace", namespace),
			turnEnded: make(chan struct{}, 1),
		}
		wg.Go(func() { l.run(ctx) })
	}
	wg.Wait()
	d.cfg.Sender.Close()
	return nil
}

// namespaceLoop is one namespace.
type namespaceLoop struct {
	d         *Deliverer
	queue     Queue
	log       *slog.Logger
	turnEnded chan struct{} // a turn is over: there may be more for its target

	failing picket.Code // of the store; empty while it goes well
}

// storeRetryDelay is how long a store that does not answer is left alone.
const storeRetryDelay = time.Second

// run claims what there is to claim, one goroutine a target, and sleeps until
// one is due, something happens, or a turn is over.
func (l *namespaceLoop) run(ctx context.Context) {
	var turns sync.WaitGroup
	defer turns.Wait()
	begin := func(turn picket.WebhookTurn, held time.Time) {
		turns.Go(func() {
			(&targetTurn{namespaceLoop: l, turn: turn, heldSince: held, position: parseCursor(turn.Webhook)}).serve(ctx)
			select {
			case l.turnEnded <- struct{}{}:
			default:
			}
		})
	}
	var claim string
	var began time.Time
	for ctx.Err() == nil {
		if claim == "" {
			claim, began = newTurnID(), time.Now()
		}
		turn, err := l.takeTurn(ctx, claim)
		if l.logChange(ctx, err); err != nil {
			sleep(ctx, storeRetryDelay)
			continue // with the same claim, from when it was first asked for: the reply may have been lost
		}
		claim = ""
		if turn.WebhookID == "" {
			l.wait(ctx, turn)
			continue
		}
		begin(turn, began)
	}
	if claim == "" {
		return
	}
	// The last reply was lost. If the store made the claim, it is given back.
	if turn, err := l.takeTurn(ctx, claim); err == nil && turn.WebhookID != "" {
		begin(turn, began)
	}
}

// takeTurn asks the store for a target. It waits for the reply also while the
// deliverer stops: a claim without a reply would keep its target from the other
// deliverers until it expires.
func (l *namespaceLoop) takeTurn(ctx context.Context, id string) (picket.WebhookTurn, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	return l.queue.TakeWebhookTurn(ctx, id)
}

// wait sleeps until a target is due or there is news.
func (l *namespaceLoop) wait(ctx context.Context, turn picket.WebhookTurn) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	if turn.Wait > 0 {
		timer := time.AfterFunc(turn.Wait, cancel)
		defer timer.Stop()
	}
	told := make(chan error, 1)
	go func() { told <- l.queue.Tail(waiting, turn.Seq) }()
	select {
	case <-l.turnEnded:
		cancel()
		<-told
	case err := <-told:
		switch {
		case err == nil:
			sleep(ctx, l.d.cfg.Gather)
		case waiting.Err() == nil:
			l.logChange(ctx, err)
			sleep(ctx, storeRetryDelay)
		}
	}
}

// logChange logs a change between going well and failing, not every failure.
func (l *namespaceLoop) logChange(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // stopping; the error says only that
	}
	var code picket.Code
	if err != nil {
		code = picket.CodeOf(err)
	}
	if code == l.failing {
		return
	}
	l.failing = code
	if err != nil {
		l.log.Warn("webhooks cannot be served, will be tried again", "code", string(code), "err", err)
		return
	}
	l.log.Info("webhooks are served again")
}

func newTurnID() string {
	return strconv.FormatUint(rand.Uint64(), 36) + strconv.FormatUint(rand.Uint64(), 36)
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
