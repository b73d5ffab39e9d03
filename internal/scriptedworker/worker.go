// Package scriptedworker is an agent without a language model. It leases the tasks of a pool, and does with each what
// the id of its message asks for, such as tck-complete-task-1. These are the ids of the public test kit of A2A, so an
// endpoint whose pool has such a worker can be checked with the kit, and with package agenttoagent.
//
// It is also an example of a worker: it uses packages client and adapter alone, as any other worker does.
package scriptedworker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/client"
)

// Config is one worker.
type Config struct {
	// URL is the server, without a path. Required.
	URL string
	// Key is a key with scope agent. Required.
	Key picket.Secret
	// Role is the role of the pool. Empty: that of tasks without a role.
	Role string
	// AgentID names the worker. Defaults to "scripted-worker".
	AgentID string
	// Delay is how long it works on tasks whose work must be seen. Defaults to 2 s, as the public test kit expects.
	Delay time.Duration
	// Log. Defaults to discarding.
	Log *slog.Logger
}

const (
	parallel    = 32               // tasks at once
	acquireWait = 20               // seconds that one request for a lease waits
	longest     = 5 * time.Minute  // of a task that works until it is cancelled
	renewEvery  = 10 * time.Second // of a lease
	pause       = time.Second      // after a failed request for a lease
)

// worker runs a Config.
type worker struct {
	cfg    Config
	client *client.Client
}

// Run leases tasks and works on them until ctx ends, and returns its error. The tasks that it works on then are
// left to the next worker.
func Run(ctx context.Context, cfg Config) error {
	if cfg.URL == "" || cfg.Key == "" {
		return errors.New("scriptedworker: URL and Key are required")
	}
	cfg.AgentID, cfg.Delay = cmp.Or(cfg.AgentID, "scripted-worker"), cmp.Or(cfg.Delay, 2*time.Second)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	w := &worker{cfg: cfg, client: client.New(cfg.URL, cfg.Key, client.Options{})}
	var group sync.WaitGroup
	defer group.Wait()
	places := make(chan struct{}, parallel)
	for ctx.Err() == nil {
		leases, err := w.acquire(ctx)
		if err != nil {
			if wait(ctx, pause) == nil {
				cfg.Log.Warn("no lease was acquired", "error", err)
			}
			continue
		}
		for _, lease := range leases {
			places <- struct{}{}
			group.Go(func() {
				defer func() { <-places }()
				w.work(ctx, lease)
			})
		}
	}
	return context.Cause(ctx)
}

func (w *worker) acquire(ctx context.Context) ([]picket.Lease, error) {
	return w.client.Leases.Acquire(ctx, picket.AcquireRequest{AgentID: w.cfg.AgentID, Role: w.cfg.Role, Max: new(8),
		WaitSeconds: new(acquireWait)})
}

// work does what the message of a task asks for. A lease that is lost while it works belongs to somebody else.
func (w *worker) work(ctx context.Context, lease picket.Lease) {
	r := &run{Proxy: adapter.NewProxy(lease, w.cfg.URL, nil), lease: lease, delay: w.cfg.Delay}
	err := r.start(ctx)
	if err == nil {
		err = r.perform(ctx)
	}
	if err != nil && ctx.Err() == nil && !picket.CodeOf(err).Fenced() {
		w.cfg.Log.Warn("a task was given up", "task", lease.TaskID, "error", err)
	}
}

// run is the work on one task.
type run struct {
	*adapter.Proxy
	lease     picket.Lease
	delay     time.Duration
	messageID string
}

// start confirms the lease, and reads the id of the message.
func (r *run) start(ctx context.Context) error {
	if _, err := r.Renew(ctx); err != nil {
		return err
	}
	task, err := r.Task(ctx)
	if err == nil && task.Client != nil {
		r.messageID = task.Client.MessageID
	}
	return err
}

// wait waits for some time, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
