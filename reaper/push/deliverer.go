// Package push delivers the push notifications of tasks: for each configuration in order, at least once, and one
// update a request.
//
// Deliverers share nothing and have no leader. Each claims a configuration that has something to send, for half a
// minute of store time, and moves its cursor by compare-and-set. Any number of them may run side by side. If one dies,
// another one goes on when its claims are over. An update that is sent twice has the same webhook-id.
package push

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
	"github.com/picket-dev/picket/reaper/webhooks"
)

// Queue is a namespace as a deliverer sees it.
type Queue interface {
	// TakePushTurn waits for a configuration that has something to send. The same claim again gives the same one.
	TakePushTurn(ctx context.Context, claimID string, wait time.Duration) (picket.PushTurn, error)
	// AdvancePush records how far a configuration was served. The same step again changes nothing.
	AdvancePush(ctx context.Context, s picket.PushStep) (picket.PushState, error)
	// Task reads a task with its emissions.
	Task(ctx context.Context, taskID string) (picket.Task, error)
}

// Poster posts messages, as a [webhooks.Sender] does.
type Poster interface {
	Post(ctx context.Context, m webhooks.Message) webhooks.Delivery
}

// Config says what to deliver.
type Config struct {
	// Queues holds the namespaces by name. Required.
	Queues map[string]Queue
	// Sender posts. Required.
	Sender Poster
	// Render makes the body of the notification of an update, or nil if the client is not told about it. Required.
	Render func(t picket.Task, u picket.TaskUpdate) ([]byte, error)
	// ContentType is the media type of the bodies. Required.
	ContentType string
	// Turns is how many configurations of a namespace are served at once. Defaults to 256.
	Turns int
	// Grace is how long a request that is under way may take when Run has to end. Defaults to 3 s.
	Grace time.Duration
	// Jitter picks the pause before the next attempt, from 0 to most. Defaults to a random one.
	Jitter func(most time.Duration) time.Duration
	// Log takes what became of configurations. Defaults to slog.Default().
	Log *slog.Logger
}

// Deliverer serves the push configurations of its namespaces until it is told to stop.
type Deliverer struct{ cfg Config }

// New fills in the defaults and refuses a configuration without anything to do.
func New(cfg Config) (*Deliverer, error) {
	if len(cfg.Queues) == 0 || cfg.Sender == nil || cfg.Render == nil || cfg.ContentType == "" {
		return nil, errors.New("push: at least one namespace, Sender, Render and ContentType are required")
	}
	cfg.Turns = cmp.Or(cfg.Turns, 256)
	cfg.Grace = cmp.Or(cfg.Grace, 3*time.Second)
	if cfg.Jitter == nil {
		cfg.Jitter = func(most time.Duration) time.Duration { return rand.N(most + 1) }
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	return &Deliverer{cfg: cfg}, nil
}

// Run delivers until ctx ends. Then it gives every claim back, and returns nil with nothing left running.
func (d *Deliverer) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for namespace, queue := range d.cfg.Queues {
		n := &namespaceTurns{
			d:     d,
			queue: queue,
			log:   d.cfg.Log.With("namespace", namespace),
			slots: make(chan struct{}, d.cfg.Turns),
			open:  map[string]int{},
		}
		loop := &turns.Loop[picket.PushTurn]{Take: n.take, Serve: n.serve, Slots: n.slots,
			Subject: "push notifications", Log: n.log}
		wg.Go(func() { loop.Run(ctx) })
	}
	wg.Wait()
	return nil
}

const (
	// maxWait is how long one look for a configuration waits.
	maxWait = time.Minute
	// clientDelay is how long a configuration waits at least whose client has its share of the turns.
	clientDelay = 3 * time.Second
)

// namespaceTurns are the turns of one namespace.
type namespaceTurns struct {
	d     *Deliverer
	queue Queue
	log   *slog.Logger
	slots chan struct{} // has an entry for each turn that is under way

	mu   sync.Mutex
	open map[string]int // how many turns each client has
}

// enter counts a turn of a client. It returns false if the client has to wait: while more than half of the turns are
// taken, each client has at most an eighth of them. So one client cannot hold up the others.
func (n *namespaceTurns) enter(client string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if most := cap(n.slots); len(n.slots) > most/2 && n.open[client] >= max(most/8, 1) {
		return false
	}
	n.open[client]++
	return true
}

// leave ends a turn of a client.
func (n *namespaceTurns) leave(client string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open[client]--; n.open[client] == 0 {
		delete(n.open, client)
	}
}

// take waits for a configuration that has something to send. The last look does not wait.
func (n *namespaceTurns) take(ctx context.Context, c turns.Claim, stopping bool) (picket.PushTurn, bool, error) {
	wait := maxWait
	if stopping {
		wait = 0
	}
	turn, err := n.queue.TakePushTurn(ctx, c.ID, wait)
	return turn, turn.ID != "", err
}

// serve serves a configuration, unless its client has its share of the turns.
func (n *namespaceTurns) serve(ctx context.Context, turn picket.PushTurn, c turns.Claim) {
	if c.Repeated { // the store may have made the claim when it was asked for the first time
		turn.HeldSince = c.Since
	}
	t := &turnServer{namespaceTurns: n, turn: turn, position: turn.Cursor}
	if !n.enter(turn.Client) {
		t.release(ctx, clientDelay+rand.N(clientDelay))
		return
	}
	defer n.leave(turn.Client)
	t.serve(ctx)
}
