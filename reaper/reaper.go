package reaper

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

// Sweeper is what a reaper does to one namespace. The counts say how much a
// call did; fewer than limit means that nothing is left for now.
type Sweeper interface {
	// Tick moves store time on and wakes what has become due.
	Tick(ctx context.Context) error
	// ExpireDue ends up to limit leases past their deadline.
	ExpireDue(ctx context.Context, limit int) (int, error)
	// RunChores does up to limit pieces of book-keeping left by a transition.
	RunChores(ctx context.Context, limit int) (int, error)
	// JudgeAgents looks at up to limit agents whose silence or drain has become due.
	JudgeAgents(ctx context.Context, limit int) (int, error)
	// SettleOverdueCalls settles up to limit paid calls that nobody has settled in time.
	SettleOverdueCalls(ctx context.Context, limit int) (int, error)
	// ApplyRetention deletes up to limit things older than their retention.
	ApplyRetention(ctx context.Context, keep picket.Retention, limit int) (int, error)
	// InspectNext holds about limit entries more against the invariants and
	// repairs what is safe to repair; where it goes on is kept in the store.
	InspectNext(ctx context.Context, limit int) error
	// MeasureMemory adds up the memory of the next keys of the namespace, among about
	// limit keys of the store; where it goes on is kept in the store.
	MeasureMemory(ctx context.Context, limit int) (int, error)
}

// MaxTick is the longest pause between two ticks: store time stands still
// while nobody ticks, so the bound is part of the lease protocol.
const MaxTick = 500 * time.Millisecond

// measureKeys is about how many keys one step of measuring looks at, so that no
// other request waits for it longer than a millisecond or two.
const measureKeys = 500

// Config says what to sweep and how often.
type Config struct {
	// Namespaces holds the namespaces by name. Required.
	Namespaces map[string]Sweeper
	// TickEvery is the longest pause between two ticks, at most [MaxTick].
	// Defaults to 500 ms.
	TickEvery time.Duration
	// SweepEvery is the longest pause between two rounds of expiry, between two
	// of chores, of judging agents, and of settling calls. Defaults to 500 ms.
	SweepEvery time.Duration
	// RetainEvery is the pause between two rounds of retention. Defaults to
	// one minute.
	RetainEvery time.Duration
	// InspectEvery is the pause between two looks of the invariant scanner,
	// each at one batch. Defaults to 10 s.
	InspectEvery time.Duration
	// MeasureEvery is the pause between two steps of measuring how much memory a
	// namespace takes. Defaults to 1 s.
	MeasureEvery time.Duration
	// Retention says what is old. Defaults to those of picket.Retention.
	Retention picket.Retention
	// Batch is how much one call may do, 1 to 1,000. Defaults to 100.
	Batch int
	// MaxBatches bounds the calls of one round of these four; the next
	// round goes on. Retention has a minute between its rounds and no one
	// waits for it, so it goes on until nothing is left. Defaults to 100.
	MaxBatches int
	// Log takes what changed. Defaults to slog.Default().
	Log *slog.Logger
}

// Reaper sweeps its namespaces until it is told to stop.
type Reaper struct{ cfg Config }

// New fills in the defaults and refuses a configuration that would not keep
// leases honest.
func New(cfg Config) (*Reaper, error) {
	cfg.TickEvery = cmp.Or(cfg.TickEvery, MaxTick)
	cfg.SweepEvery = cmp.Or(cfg.SweepEvery, MaxTick)
	cfg.RetainEvery = cmp.Or(cfg.RetainEvery, time.Minute)
	cfg.InspectEvery = cmp.Or(cfg.InspectEvery, 10*time.Second)
	cfg.MeasureEvery = cmp.Or(cfg.MeasureEvery, time.Second)
	cfg.Batch = cmp.Or(cfg.Batch, 100)
	cfg.MaxBatches = cmp.Or(cfg.MaxBatches, 100)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	switch {
	case len(cfg.Namespaces) == 0:
		return nil, errors.New("reaper: at least one namespace is needed")
	case cfg.TickEvery < time.Millisecond || cfg.TickEvery > MaxTick:
		return nil, errors.New("reaper: TickEvery is 1 ms to 500 ms")
	case cfg.SweepEvery < time.Millisecond || cfg.RetainEvery < time.Millisecond ||
		cfg.InspectEvery < time.Millisecond || cfg.MeasureEvery < time.Millisecond:
		return nil, errors.New("reaper: SweepEvery, RetainEvery, InspectEvery and MeasureEvery are at least 1 ms")
	case cfg.Batch < 1 || cfg.Batch > 1000 || cfg.MaxBatches < 1:
		return nil, errors.New("reaper: Batch is 1 to 1000, MaxBatches at least 1")
	}
	return &Reaper{cfg: cfg}, nil
}

// Run sweeps until ctx ends; then it returns nil and leaves nothing running.
// A store that is away is logged once and tried again with the next round.
func (r *Reaper) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for namespace, sweeps := range r.cfg.Namespaces {
		for _, l := range r.loops(namespace, sweeps) {
			wg.Go(func() { l.run(ctx) })
		}
	}
	wg.Wait()
	return nil
}

// loops are the eight sweeps of a namespace. Each has a goroutine of its own,
// so a slow one never holds up the tick.
func (r *Reaper) loops(namespace string, s Sweeper) []*sweepLoop {
	cfg := r.cfg
	log := cfg.Log.With("namespace", namespace)
	return []*sweepLoop{
		{name: "tick", every: cfg.TickEvery, log: log, sweep: s.Tick},
		{
			name:  "expire",
			every: cfg.SweepEvery,
			log:   log,
			sweep: r.inBatches(log, "leases expired", cfg.MaxBatches, s.ExpireDue),
		},
		{
			name:  "chore",
			every: cfg.SweepEvery,
			log:   log,
			sweep: r.inBatches(log, "chores done", cfg.MaxBatches, s.RunChores),
		},
		{
			name:  "judge",
			every: cfg.SweepEvery,
			log:   log,
			sweep: r.inBatches(log, "agents judged", cfg.MaxBatches, s.JudgeAgents),
		},
		{
			name:  "holds",
			every: cfg.SweepEvery,
			log:   log,
			sweep: r.inBatches(log, "calls settled", cfg.MaxBatches, s.SettleOverdueCalls),
		},
		{
			name:  "retain",
			every: cfg.RetainEvery,
			log:   log,
			sweep: r.inBatches(log, "old records deleted", math.MaxInt,
				func(ctx context.Context, limit int) (int, error) {
					return s.ApplyRetention(ctx, cfg.Retention, limit)
				}),
		},
		{
			name:  "inspect",
			every: cfg.InspectEvery,
			log:   log,
			sweep: func(ctx context.Context) error { return s.InspectNext(ctx, cfg.Batch) },
		},
		{name: "measure", every: cfg.MeasureEvery, log: log, sweep: func(ctx context.Context) error {
			_, err := s.MeasureMemory(ctx, measureKeys)
			return err
		}},
	}
}

// inBatches makes a round of a sweep: full batches until one comes back short.
func (r *Reaper) inBatches(log *slog.Logger, done string, most int,
	sweep func(context.Context, int) (int, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		total := 0
		defer func() {
			if total > 0 {
				log.Info(done, "count", total)
			}
		}()
		for range most {
			n, err := sweep(ctx, r.cfg.Batch)
			total += n
			if err != nil || n < r.cfg.Batch || ctx.Err() != nil {
				return err
			}
		}
		return nil
	}
}
