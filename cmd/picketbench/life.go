package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
)

const (
	lifeText = "Each task is submitted, granted and completed on Picket, and enqueued, dequeued and done on asynq. " +
		"There are as many submitters as workers, and each payload has 1 KiB. Both sides use the same Redis " +
		"and run in one process. asynq runs one server with as many workers and connections, and looks for " +
		"work every millisecond, which is its best setting here. Picket shares its connections. Picket also " +
		"writes three events and keeps the finished task, while asynq deletes it."
	life5Text = "As life, but Picket does five transitions. It also renews and reports, and the end goes to review. " +
		"asynq does the same three as before."
	lifeHTTPText = "As life, but Picket is used through the control plane and the tool proxy on a loopback port, as an " +
		"adapter does it. Keys are checked and bodies are decoded strictly. asynq has no HTTP, so this shows " +
		"what HTTP costs and compares no equal programs."
)

// life is one scenario of Picket's side.
type life struct {
	layer    string // engine, or http: through the control plane and the tool proxy
	review   picket.ReviewBy
	busy     bool             // with a renewal and a report between lease and end
	must     map[string]*goal // by fsync
	moonshot map[string]*goal
}

// lifeKinds are the lives by scenario.
var lifeKinds = map[string]life{
	"life": {layer: "engine", review: picket.ReviewByNone,
		must:     map[string]*goal{"off": atLeast(0.8), "everysec": atLeast(0.75), "always": atLeast(2)},
		moonshot: map[string]*goal{"off": atLeast(1.5), "everysec": atLeast(1.5), "always": atLeast(4)}},
	"life5": {layer: "engine", review: picket.ReviewByHuman, busy: true,
		must:     map[string]*goal{"off": atLeast(0.5), "everysec": atLeast(0.5), "always": atLeast(1.8)},
		moonshot: map[string]*goal{"off": atLeast(1), "everysec": atLeast(1), "always": atLeast(4)}},
	"life-http": {layer: "http", review: picket.ReviewByNone},
}

// lives measures one kind of life against asynq, for every durability setting.
func lives(ctx context.Context, b *bench, name string) error {
	l := lifeKinds[name]
	for _, fsync := range b.fsyncs {
		server, err := startRedis(ctx, fsync)
		if err != nil {
			return err
		}
		defer server.stop()
		onEmpty := func(round func(context.Context, plan,
			*redisServer) (sample, error)) func(context.Context) (sample, error) {
			return func(ctx context.Context) (sample, error) {
				if err := server.empty(ctx); err != nil {
					return sample{}, err
				}
				return round(ctx, b.plan, server)
			}
		}
		sides, err := b.inTurn(ctx, name+", fsync "+fsync, "tasks/s",
			contender{"picket", onEmpty(l.run)}, contender{"asynq", onEmpty(asynqLife)})
		if err != nil {
			return err
		}
		b.add(line{Scenario: name, Case: "fsync " + fsync, Layer: l.layer, Unit: "tasks/s", Fsync: fsync,
			Sides: sides, Must: l.must[fsync], Moonshot: l.moonshot[fsync]}, rate, server.version)
		server.stop()
	}
	return nil
}

// entry is how a worker reaches Picket: the engine itself, or HTTP.
type entry struct {
	submit  func(context.Context, picket.TaskSpec) error
	acquire func(context.Context, picket.AcquireRequest) ([]picket.Lease, error)
	hold    func(picket.Lease) (holder, error)
}

// holder is what a worker does under its lease.
type holder struct {
	renew    func(context.Context) error
	report   func(context.Context) error
	complete func(context.Context) error
}

var (
	halfway = picket.Progress{Summary: "half of it is done"}
	output  = picket.RawJSON(`"done"`)
	asBench = picket.Caller{Actor: "bench"}
)

func engineEntry(e *orchestrator.Engine, sealer *seal.Sealer) entry {
	return entry{
		submit: func(ctx context.Context, spec picket.TaskSpec) error {
			_, err := e.Submit(ctx, asBench, spec)
			return err
		},
		acquire: func(ctx context.Context, req picket.AcquireRequest) ([]picket.Lease, error) {
			return e.Acquire(ctx, asBench, req)
		},
		hold: func(lease picket.Lease) (holder, error) {
			held, err := sealer.OpenLeaseToken(lease.LeaseToken.Reveal())
			return holder{
				renew:  func(ctx context.Context) error { _, err := e.Renew(ctx, held); return err },
				report: func(ctx context.Context) error { _, err := e.Report(ctx, held, "r1", halfway); return err },
				complete: func(ctx context.Context) error {
					_, err := e.Complete(ctx, held, picket.Completion{Output: output})
					return err
				},
			}, err
		},
	}
}

// run submits from as many goroutines as there are workers, while the workers
// acquire one lease at a time and complete it.
func (l life) run(ctx context.Context, p plan, r *redisServer) (sample, error) {
	store, sealer, err := openStore(ctx, r, true)
	if err != nil {
		return sample{}, err
	}
	defer store.Close()
	d := engineEntry(store.Engine("default"), sealer)
	if l.layer == "http" {
		site, err := openSite(ctx, store, sealer, p.Workers)
		if err != nil {
			return sample{}, err
		}
		defer site.close()
		d = clientEntry(site)
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
	return lifeSample(p.Tasks, took, before, after), nil
}

// work lets every task of the plan live.
func (l life) work(ctx context.Context, p plan, d entry) error {
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
func (l life) one(ctx context.Context, d entry) error {
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

// lifeSample turns a round's wall time and the two looks at Redis into figures
// a task.
func lifeSample(tasks int, took time.Duration, before, after usage) sample {
	n := float64(tasks)
	return sample{Value: round(n/took.Seconds(), 0), More: map[string]float64{
		"redis µs a task":    round((after.cpuSeconds-before.cpuSeconds)*1e6/n, 1),
		"redis calls a task": round(float64(after.calls-before.calls)/n, 2),
		"client µs a task":   round((after.ownSeconds-before.ownSeconds)*1e6/n, 1),
	}}
}
