// Package reaper does the background work of a namespace, a batch at a time. It moves
// store time on, ends leases that were not renewed, and judges agents by their silence.
// It finishes the book-keeping of transitions, settles calls that are overdue, deletes
// what is older than its retention, and checks the invariants. It also counts how runs
// have ended, and measures how much memory the namespace takes.
//
// Reapers share nothing and have no leader. Every sweep is one atomic step of
// the store that does nothing when somebody else did it first, so any number
// of them may run side by side.
package reaper

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
)

// Sweeper is what a reaper does to one namespace. The counts say how much a
// call did; fewer than limit means that nothing is left for now.
type Sweeper interface {
	// TickDue moves store time on, moves on the tasks that have become due, and says which other
	// work has.
	TickDue(ctx context.Context) (picket.DueWork, error)
	// ExpireDue ends up to limit leases past their deadline.
	ExpireDue(ctx context.Context, limit int) (int, error)
	// RunChores does up to limit pieces of book-keeping left by a transition.
	RunChores(ctx context.Context, limit int) (int, error)
	// HandleOverdue does up to limit pieces of work of hand-offs that nobody has decided in time,
	// and of refused writes.
	HandleOverdue(ctx context.Context, limit int) (int, error)
	// JudgeAgents looks at up to limit agents whose silence or drain has become due.
	JudgeAgents(ctx context.Context, limit int) (int, error)
	// SettleOverdueCalls settles up to limit paid calls that nobody has settled in time.
	SettleOverdueCalls(ctx context.Context, limit int) (int, error)
	// CountEnded adds up to limit runs that have ended and charges to the totals by role.
	CountEnded(ctx context.Context, limit int) (int, error)
	// RemindPeople looks at up to limit hand-offs and reviews that wait for longer than a
	// rule allows.
	RemindPeople(ctx context.Context, rules []picket.ReminderRule, limit int) (int, error)
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
	// TickEvery is the longest pause between two ticks, at most [MaxTick]. A tick
	// starts the sweeps that are due: expiry, chores, overdue hand-offs, judging agents,
	// settling calls and counting. If a tick fails, all of them run. Defaults to 500 ms.
	TickEvery time.Duration
	// RemindEvery is the longest pause between two rounds of reminding people.
	// Defaults to 500 ms.
	RemindEvery time.Duration
	// RetainEvery is the pause between two rounds of retention. Defaults to
	// one minute.
	RetainEvery time.Duration
	// InspectEvery is the pause between two looks of the invariant scanner,
	// each at one batch. Defaults to 10 s.
	InspectEvery time.Duration
	// MeasureEvery is the pause between two steps of measuring how much memory a
	// namespace takes. Defaults to 1 s.
	MeasureEvery time.Duration
	// Reminders says which hand-offs and reviews people are reminded of. Defaults to none.
	Reminders []picket.ReminderRule
	// Retention says what is old. Defaults to those of picket.Retention.
	Retention picket.Retention
	// Batch is how much one call may do, 1 to 1,000. Defaults to 100.
	Batch int
	// MaxBatches bounds the calls of one round of a sweep; the next
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
	cfg.RemindEvery = cmp.Or(cfg.RemindEvery, MaxTick)
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
	case cfg.RemindEvery < time.Millisecond || cfg.RetainEvery < time.Millisecond ||
		cfg.InspectEvery < time.Millisecond || cfg.MeasureEvery < time.Millisecond:
		return nil, errors.New("reaper: RemindEvery, RetainEvery, InspectEvery and MeasureEvery are at least 1 ms")
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

// loops are the sweeps of a namespace. Each has a goroutine of its own, so a
// slow one never holds up the tick.
func (r *Reaper) loops(namespace string, s Sweeper) []*sweepLoop {
	cfg := r.cfg
	log := cfg.Log.With("namespace", namespace)
	loop := func(name string, every time.Duration, sweep func(context.Context) error) *sweepLoop {
		return &sweepLoop{name: name, every: every, log: log, sweep: sweep}
	}
	var onTick []*sweepLoop
	whenDue := func(name, done string, sweep func(context.Context, int) (int, error)) *sweepLoop {
		l := loop(name, 0, r.inBatches(log, done, cfg.MaxBatches, sweep))
		l.due = make(chan struct{}, 1)
		onTick = append(onTick, l)
		return l
	}
	expire := whenDue("expire", "leases expired", s.ExpireDue)
	chore := whenDue("chore", "chores done", s.RunChores)
	overdue := whenDue("overdue", "overdue hand-offs and refused writes handled", s.HandleOverdue)
	judge := whenDue("judge", "agents judged", s.JudgeAgents)
	holds := whenDue("holds", "calls settled", s.SettleOverdueCalls)
	count := whenDue("count", "", s.CountEnded)
	tick := func(ctx context.Context) error {
		due, err := s.TickDue(ctx)
		if err != nil { // a record that breaks the tick need not break the sweeps
			due = picket.DueWork{Leases: true, Chores: true, Overdue: true, Agents: true, Calls: true, Totals: true}
		}
		expire.startIf(due.Leases)
		chore.startIf(due.Chores)
		overdue.startIf(due.Overdue)
		judge.startIf(due.Agents)
		holds.startIf(due.Calls)
		count.startIf(due.Totals)
		return err
	}
	retain := func(ctx context.Context, limit int) (int, error) { return s.ApplyRetention(ctx, cfg.Retention, limit) }
	loops := []*sweepLoop{
		loop("tick", cfg.TickEvery, tick),
		loop("retain", cfg.RetainEvery, r.inBatches(log, "old records deleted", math.MaxInt, retain)),
		loop("inspect", cfg.InspectEvery, func(ctx context.Context) error { return s.InspectNext(ctx, cfg.Batch) }),
		loop("measure", cfg.MeasureEvery, func(ctx context.Context) error {
			_, err := s.MeasureMemory(ctx, measureKeys)
			return err
		}),
	}
	loops = append(loops, onTick...)
	if len(cfg.Reminders) > 0 {
		remind := func(ctx context.Context, limit int) (int, error) { return s.RemindPeople(ctx, cfg.Reminders, limit) }
		loops = append(loops, loop("remind", cfg.RemindEvery,
			r.inBatches(log, "entries of queues looked at for reminders", cfg.MaxBatches, remind)))
	}
	return loops
}

// inBatches makes a round of a sweep: full batches until one comes back short. It logs what was
// done, unless done is empty.
func (r *Reaper) inBatches(log *slog.Logger, done string, most int,
	sweep func(context.Context, int) (int, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		total := 0
		defer func() {
			if total > 0 && done != "" {
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

// sweepLoop repeats one sweep of one namespace.
type sweepLoop struct {
	name  string
	every time.Duration // the longest pause from the start of one round to the next, if time starts them
	due   chan struct{} // starts the rounds of a sweep that a tick starts
	log   *slog.Logger
	sweep func(context.Context) error

	failing picket.Code // of the last round; empty while it goes well
	again   atomic.Bool // the last round has failed, so the next tick starts one in any case
}

// startIf starts a round if it is due, or if the last one has failed. One that runs already is
// followed by another.
func (l *sweepLoop) startIf(due bool) {
	if !due && !l.again.Load() {
		return
	}
	select {
	case l.due <- struct{}{}:
	default:
	}
}

// run makes the rounds of a sweep.
func (l *sweepLoop) run(ctx context.Context) {
	if l.due == nil {
		l.runRepeatedly(ctx)
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.due:
			err := l.sweep(ctx)
			l.again.Store(err != nil)
			l.logChange(ctx, err)
		}
	}
}

// runRepeatedly makes the first round at once and the others every l.every, less up to a
// fifth, so that reapers started together drift apart.
func (l *sweepLoop) runRepeatedly(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		l.logChange(ctx, l.sweep(ctx))
		pause := l.every - rand.N(l.every/5+1) - time.Since(began)
		// A round that took longer than its turn still lets others breathe.
		timer.Reset(max(pause, l.every/10))
	}
}

// logChange logs a change between going well and failing, not every failure. It
// compares codes, since the text of a network error differs every time.
func (l *sweepLoop) logChange(ctx context.Context, err error) {
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
		l.log.Warn("sweep fails, will be tried again", "sweep", l.name, "code", string(code), "err", err)
		return
	}
	l.log.Info("sweep goes well again", "sweep", l.name)
}
