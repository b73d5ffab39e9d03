package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
)

const steadyText = "workers that go from task to task until a filled queue is empty: advance, which completes one lease and grants the next in a step, " +
	"against complete and then acquire, both on Picket and the same Redis; the queue was filled before the clock started, so submissions do not count."

// steady measures what advance saves, for every durability setting.
func steady(ctx context.Context, b *bench) error {
	for _, fsync := range b.fsyncs {
		server, err := startRedis(ctx, fsync)
		if err != nil {
			return err
		}
		defer server.stop()
		drains := func(w worker) func(context.Context) (sample, error) {
			return func(ctx context.Context) (sample, error) { return drain(ctx, b.plan, server, w) }
		}
		sides, err := b.inTurn(ctx, "steady, fsync "+fsync, "tasks/s", contender{"advance", drains(advances)},
			contender{"complete + acquire", drains(completes)})
		if err != nil {
			return err
		}
		b.add(line{
			Scenario: "steady",
			Case:     "fsync " + fsync,
			Layer:    "engine",
			Unit:     "tasks/s",
			Fsync:    fsync,
			Sides:    sides,
		}, rate, server.version)
		server.stop()
	}
	return nil
}

// worker completes one lease and gets the next, none when the queue is empty.
type worker func(ctx context.Context, e *orchestrator.Engine, held picket.LeaseCredential) ([]picket.Lease, error)

func advances(ctx context.Context, e *orchestrator.Engine, held picket.LeaseCredential) ([]picket.Lease, error) {
	got, err := e.Advance(ctx, held, asBench, picket.AdvanceRequest{Output: output})
	return got.Leases, err
}

func completes(ctx context.Context, e *orchestrator.Engine, held picket.LeaseCredential) ([]picket.Lease, error) {
	if _, err := e.Complete(ctx, held, picket.Completion{Output: output}); err != nil {
		return nil, err
	}
	return e.Acquire(ctx, asBench, picket.AcquireRequest{})
}

// drain fills a queue and measures how fast the workers empty it.
func drain(ctx context.Context, p plan, r *redisServer, w worker) (sample, error) {
	if err := r.empty(ctx); err != nil {
		return sample{}, err
	}
	store, sealer, err := openStore(ctx, r, true)
	if err != nil {
		return sample{}, err
	}
	defer store.Close()
	e := store.Engine("default")
	if err := fillQueued(ctx, p, e, p.Tasks); err != nil {
		return sample{}, fmt.Errorf("submit: %w", err)
	}
	before, err := r.look(ctx)
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	if err := drainBy(ctx, p, e, sealer, w); err != nil {
		return sample{}, err
	}
	took := time.Since(began)
	after, err := r.look(ctx)
	if err != nil {
		return sample{}, err
	}
	if stats, err := e.Stats(ctx); err != nil || stats.Tasks[picket.TaskCompleted] < int64(p.Tasks) {
		return sample{}, fmt.Errorf("%d of %d tasks completed (%w)", stats.Tasks[picket.TaskCompleted], p.Tasks, err)
	}
	return lifeSample(p.Tasks, took, before, after), nil
}

// drainBy lets the plan's workers work until nothing is left.
func drainBy(ctx context.Context, p plan, e *orchestrator.Engine, sealer *seal.Sealer, w worker) error {
	errs := make(chan error, p.Workers)
	var group sync.WaitGroup
	for range p.Workers {
		group.Go(func() {
			leases, err := e.Acquire(ctx, asBench, picket.AcquireRequest{})
			for err == nil && len(leases) > 0 {
				var held picket.LeaseCredential
				if held, err = sealer.OpenLeaseToken(leases[0].LeaseToken.Reveal()); err == nil {
					leases, err = w(ctx, e, held)
				}
			}
			if err != nil {
				errs <- err
			}
		})
	}
	group.Wait()
	close(errs)
	return <-errs
}
