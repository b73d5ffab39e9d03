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

// lives are Picket's side of each scenario.
var lives = map[string]func(context.Context, plan, *redisServer) (sample, error){
	// submit, grant, complete: three transitions, as asynq has.
	"life": func(ctx context.Context, p plan, r *redisServer) (sample, error) {
		return picketLife(ctx, p, r, picket.ReviewByNone, nil)
	},
	// submit, grant, renew, report, complete into review: five transitions.
	"life5": func(ctx context.Context, p plan, r *redisServer) (sample, error) {
		return picketLife(ctx, p, r, picket.ReviewByHuman, work)
	},
}

// work is what a steady agent does between its lease and its end.
func work(ctx context.Context, e *orchestrator.Engine, held picket.Held) error {
	if _, err := e.Renew(ctx, held); err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	if _, err := e.Report(ctx, held, "r1", picket.Progress{Summary: "half of it is done"}); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// picketLife submits from as many goroutines as there are workers, while the
// workers acquire one lease at a time and complete it.
func picketLife(ctx context.Context, p plan, r *redisServer, review picket.ReviewBy, between func(context.Context, *orchestrator.Engine, picket.Held) error) (sample, error) {
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
	engine := store.Engine("default")
	before, err := r.look(ctx)
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	submitted := make(chan error, 1)
	go func() {
		submitted <- spread(p, func() error {
			_, err := engine.Submit(ctx, picket.Caller{Actor: "bench"}, picket.TaskSpec{Title: "life", Input: payload(p), Review: review})
			return err
		})
	}()
	w := worker{engine: engine, sealer: sealer, between: between}
	err = spread(p, func() error { return w.one(ctx) })
	if err := errors.Join(err, <-submitted); err != nil {
		return sample{}, err
	}
	took := time.Since(began)
	after, err := r.look(ctx)
	if err != nil {
		return sample{}, err
	}
	return sampleOf(p.Tasks, took, before, after), nil
}

// worker acquires one lease and completes it.
type worker struct {
	engine  *orchestrator.Engine
	sealer  *picket.Sealer
	between func(context.Context, *orchestrator.Engine, picket.Held) error
}

func (w worker) one(ctx context.Context) error {
	wait := 50
	leases, err := w.engine.Acquire(ctx, picket.Caller{Actor: "bench"}, picket.AcquireRequest{WaitSeconds: &wait})
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	if len(leases) != 1 {
		return fmt.Errorf("no lease within %d s", wait)
	}
	held, err := w.sealer.Open(leases[0].LeaseToken.Reveal())
	if err != nil {
		return fmt.Errorf("open lease token: %w", err)
	}
	if w.between != nil {
		if err := w.between(ctx, w.engine, held); err != nil {
			return err
		}
	}
	if _, err := w.engine.Complete(ctx, held, picket.RawJSON(`"done"`), ""); err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	return nil
}
