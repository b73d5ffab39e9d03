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
	"strconv"
	"sync"
	"time"

	"github.com/picket-dev/picket"
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
		l := &namespaceLoop{
			d:     d,
			queue: queue,
			log:   d.cfg.Log.With("namespace", namespace),
			free:  make(chan struct{}, d.cfg.Turns),
			open:  map[string]int{},
		}
		wg.Go(func() { l.run(ctx) })
	}
	wg.Wait()
	return nil
}

const (
	// maxWait is how long one look for a configuration waits.
	maxWait = time.Minute
	// storeRetryDelay is how long a store that does not answer is left alone.
	storeRetryDelay = time.Second
	// storeTimeout bounds a step, and a claim while the deliverer stops.
	storeTimeout = 2 * time.Second
	// clientDelay is how long a configuration waits at least whose client has its share of the turns.
	clientDelay = 3 * time.Second
)

// namespaceLoop is one namespace.
type namespaceLoop struct {
	d     *Deliverer
	queue Queue
	log   *slog.Logger
	free  chan struct{} // has an entry for each turn that is under way

	failing picket.Code // of the store; empty while it answers

	mu   sync.Mutex
	open map[string]int // how many turns each client has
}

// enter counts a turn of a client. It returns false if the client has to wait: while more than half of the turns are
// taken, each client has at most an eighth of them. So one client cannot hold up the others.
func (l *namespaceLoop) enter(client string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if turns := cap(l.free); len(l.free) > turns/2 && l.open[client] >= max(turns/8, 1) {
		return false
	}
	l.open[client]++
	return true
}

// leave ends a turn of a client.
func (l *namespaceLoop) leave(client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client]--; l.open[client] == 0 {
		delete(l.open, client)
	}
}

// run claims what is due, and serves each configuration in a goroutine of its own.
func (l *namespaceLoop) run(ctx context.Context) {
	var turns sync.WaitGroup
	defer turns.Wait()
	begin := func(turn picket.PushTurn) {
		turns.Go(func() {
			defer func() { <-l.free }()
			t := &turnServer{namespaceLoop: l, turn: turn, position: turn.Cursor}
			if !l.enter(turn.Client) {
				t.release(ctx, clientDelay+rand.N(clientDelay))
				return
			}
			defer l.leave(turn.Client)
			t.serve(ctx)
		})
	}
	claim, asked := "", time.Time{} // the claim whose reply was lost, and when it was first asked for
	for l.acquire(ctx) {
		if claim == "" {
			claim, asked = newClaim(), time.Time{}
		}
		began := time.Now()
		turn, err := l.queue.TakePushTurn(ctx, claim, maxWait)
		if l.logChange(ctx, err); err != nil {
			<-l.free
			asked = cmp.Or(asked, began)
			sleep(ctx, storeRetryDelay)
			continue // with the same claim: the store may have made it
		}
		claim = ""
		if turn.ID == "" {
			<-l.free
			continue
		}
		turn.HeldSince = cmp.Or(asked, turn.HeldSince)
		begin(turn)
	}
	if claim == "" {
		return
	}
	// The last reply was lost, or cut off. If the store made the claim, it is given back.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if turn, err := l.queue.TakePushTurn(last, claim, 0); err == nil && turn.ID != "" {
		l.free <- struct{}{}
		begin(turn)
	}
}

// acquire waits for a free turn. It returns false when the deliverer is to stop.
func (l *namespaceLoop) acquire(ctx context.Context) bool {
	select {
	case l.free <- struct{}{}:
		if ctx.Err() == nil {
			return true
		}
		<-l.free
	case <-ctx.Done():
	}
	return false
}

// logChange logs when the store begins to fail and when it answers again, and not every failure.
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
		l.log.Warn("push notifications cannot be served, will be tried again", "code", string(code), "err", err)
		return
	}
	l.log.Info("push notifications are served again")
}

func newClaim() string {
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
