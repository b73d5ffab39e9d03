package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/redis/go-redis/v9"
)

// life is one scenario of Picket's side.
type life struct {
	layer  string // engine, or http: through the control plane and the tool proxy
	review picket.ReviewBy
	busy   bool // with a renewal and a report between lease and end
}

// lives are the scenarios by name.
var lives = map[string]life{
	"life":      {layer: "engine", review: picket.ReviewByNone},
	"life5":     {layer: "engine", review: picket.ReviewByHuman, busy: true},
	"life-http": {layer: "http", review: picket.ReviewByNone},
}

// door is the way into Picket: the engine itself, or HTTP.
type door struct {
	submit  func(context.Context, picket.TaskSpec) error
	acquire func(context.Context, picket.AcquireRequest) ([]picket.Lease, error)
	hold    func(picket.Lease) (holder, error)
}

// holder is what a worker does under its lease.
type holder struct {
	renew, report, complete func(context.Context) error
}

var (
	halfway = picket.Progress{Summary: "half of it is done"}
	output  = picket.RawJSON(`"done"`)
	bench   = picket.Caller{Actor: "bench"}
)

func engineDoor(e *orchestrator.Engine, sealer *picket.Sealer) door {
	return door{
		submit: func(ctx context.Context, spec picket.TaskSpec) error {
			_, err := e.Submit(ctx, bench, spec)
			return err
		},
		acquire: func(ctx context.Context, req picket.AcquireRequest) ([]picket.Lease, error) {
			return e.Acquire(ctx, bench, req)
		},
		hold: func(lease picket.Lease) (holder, error) {
			held, err := sealer.Open(lease.LeaseToken.Reveal())
			return holder{
				renew:    func(ctx context.Context) error { _, err := e.Renew(ctx, held); return err },
				report:   func(ctx context.Context) error { _, err := e.Report(ctx, held, "r1", halfway); return err },
				complete: func(ctx context.Context) error { _, err := e.Complete(ctx, held, output, ""); return err },
			}, err
		},
	}
}

// run submits from as many goroutines as there are workers, while the workers
// acquire one lease at a time and complete it.
func (l life) run(ctx context.Context, p plan, r *redisServer) (sample, error) {
	sealer, err := picket.NewSealer(bytes.Repeat([]byte("k"), 32))
	if err != nil {
		return sample{}, err
	}
	store, err := orchestrator.Open(ctx, orchestrator.Config{
		Redis: redis.UniversalOptions{Addrs: []string{r.socket}}, Sealer: sealer,
	})
	if err != nil {
		return sample{}, fmt.Errorf("open store: %w", err)
	}
	defer store.Close()
	d := engineDoor(store.Engine("default"), sealer)
	if l.layer == "http" {
		var closeDoor func() error
		if d, closeDoor, err = httpDoor(ctx, store, sealer, p.Workers); err != nil {
			return sample{}, err
		}
		defer closeDoor()
	}
	before, err := r.look(ctx)
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	if err := l.work(ctx, p, d); err != nil {
		return sample{}, err
	}
	took := time.Since(began)
	after, err := r.look(ctx)
	if err != nil {
		return sample{}, err
	}
	return sampleOf(p.Tasks, took, before, after), nil
}

// work lets every task of the plan live.
func (l life) work(ctx context.Context, p plan, d door) error {
	submitted := make(chan error, 1)
	go func() {
		submitted <- spread(p, func() error {
			return d.submit(ctx, picket.TaskSpec{Title: "life", Input: payload(p), Review: l.review})
		})
	}()
	err := spread(p, func() error { return l.one(ctx, d) })
	return errors.Join(err, <-submitted)
}

// one acquires a lease and completes it.
func (l life) one(ctx context.Context, d door) error {
	wait := 50
	leases, err := d.acquire(ctx, picket.AcquireRequest{WaitSeconds: &wait})
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	if len(leases) != 1 {
		return fmt.Errorf("no lease within %d s", wait)
	}
	h, err := d.hold(leases[0])
	if err != nil {
		return fmt.Errorf("open lease token: %w", err)
	}
	if l.busy {
		if err := h.renew(ctx); err != nil {
			return fmt.Errorf("renew: %w", err)
		}
		if err := h.report(ctx); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	if err := h.complete(ctx); err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	return nil
}
