package orchestrator

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/picket-dev/picket"
)

// What the reaper calls; every method is safe in any number of processes.

// sweepBatch bounds what one script of a sweep touches.
const sweepBatch = 100

// Tick keeps store time true, moves due delayed tasks on and applies the
// deadline policy of overdue hand-offs.
func (e *Engine) Tick(ctx context.Context) error {
	got, err := e.run(ctx, "tick", sweepBatch)
	if err != nil {
		return err
	}
	r := &reply{script: "tick"}
	l := r.list(got)
	if r.int(r.at(l, 1)) > 0 {
		if _, err := e.run(ctx, "overdue", sweepBatch); err != nil {
			return err
		}
	}
	return r.err
}

// ExpireDue ends up to limit leases that are past their deadline and returns
// how many.
func (e *Engine) ExpireDue(ctx context.Context, limit int) (int, error) {
	return e.runCount(ctx, "expire_due", "reaper", limit)
}

// RunChores does the book-keeping that a single write left behind, such as ending
// the runs of a hard pause, and returns how many it handled.
func (e *Engine) RunChores(ctx context.Context, limit int) (int, error) {
	return e.runCount(ctx, "chore", "reaper", limit)
}

// ApplyRetention deletes up to limit tasks, limit agents that are gone and limit events
// and of the audit log that are older than they are kept, and returns how many.
// Agents are kept as long as tasks.
func (e *Engine) ApplyRetention(ctx context.Context, keep picket.Retention, limit int) (int, error) {
	tasks := cmp.Or(keep.Tasks, 30*24*time.Hour)
	events := cmp.Or(keep.Events, 7*24*time.Hour)
	return e.runCount(ctx, "retain", tasks.Milliseconds(), events.Milliseconds(), cmp.Or(keep.MaxEvents, 1_000_000),
		limit,
		cmp.Or(keep.AuditAge, 400*24*time.Hour).Milliseconds(), cmp.Or(keep.AuditEvents, 1_000_000))
}

func (e *Engine) runCount(ctx context.Context, script string, args ...any) (int, error) {
	got, err := e.run(ctx, script, args...)
	if err != nil {
		return 0, err
	}
	r := &reply{script: script}
	return int(r.int(got)), r.err
}

// Pause presses the stop button: no grants; hard ends all runs too.
func (e *Engine) Pause(ctx context.Context, by picket.Caller, hard bool, reason string) (picket.PauseState, error) {
	return e.pause(ctx, by, hard, reason, "")
}

// PauseUnlessChanged is Pause by somebody who has seen the pause made at seen, 0 for
// none: where another has been made since, theirs stands, and state_conflict
// says whose it is. A stop (hard) is never refused.
func (e *Engine) PauseUnlessChanged(ctx context.Context, by picket.Caller, hard bool, reason string,
	seen picket.Instant) (picket.PauseState, error) {
	return e.pause(ctx, by, hard, reason, int64(seen))
}

func (e *Engine) pause(ctx context.Context, by picket.Caller, hard bool, reason string,
	seen any) (picket.PauseState, error) {
	flag := "0"
	if hard {
		flag = "1"
	}
	return e.pauseState(ctx, "pause", by.Actor, flag, reason, sweepBatch, by.Idempotency.Key, by.Idempotency.Body, seen)
}

// Resume lets grants flow again.
func (e *Engine) Resume(ctx context.Context, by picket.Caller, reason string) (picket.PauseState, error) {
	return e.pauseState(ctx, "resume", by.Actor, reason, by.Idempotency.Key, by.Idempotency.Body, "")
}

// ResumeUnlessChanged is Resume by somebody who has seen the pause made at seen: one that
// was made since, such as a stop, goes on, and state_conflict says whose it is.
func (e *Engine) ResumeUnlessChanged(ctx context.Context, by picket.Caller, reason string,
	seen picket.Instant) (picket.PauseState, error) {
	return e.pauseState(ctx, "resume", by.Actor, reason, by.Idempotency.Key, by.Idempotency.Body, int64(seen))
}

func (e *Engine) pauseState(ctx context.Context, script string, args ...any) (picket.PauseState, error) {
	got, err := e.run(ctx, script, args...)
	if err != nil {
		return picket.PauseState{}, err
	}
	r := &reply{script: script}
	l := r.list(got)
	p := newPauseState(r.text(r.at(l, 0)), r.text(r.at(l, 1)), r.text(r.at(l, 2)), r.int(r.at(l, 3)))
	return p, r.err
}

func newPauseState(mode, reason, by string, at int64) picket.PauseState {
	return picket.PauseState{Paused: mode != "", Hard: mode == "hard", Reason: reason, By: by, At: picket.Instant(at)}
}

// Ready is nil when the store answers and is adopted, the witness can be kept
// and a reaper ticks; otherwise it says what is wrong and what to do.
func (e *Engine) Ready(ctx context.Context) error {
	s, err := e.Stats(ctx)
	if err != nil {
		return err
	}
	if err := e.checkStore(ctx); err != nil {
		return err
	}
	if err := e.restoreWitness(); err != nil {
		return err
	}
	if !s.NoReaper() {
		return nil
	}
	since := "yet"
	if s.LastTick != 0 {
		since = fmt.Sprintf("for %d s", s.SinceTickMs/1000)
	}
	return picket.Refuse(picket.CodeUnavailable, "Start one with: picket serve reaper",
		"no reaper: nothing has kept store time %s, so leases do not expire", since)
}
