package orchestrator

import (
	"cmp"
	"context"
	"time"

	"github.com/picket-dev/picket"
)

// What the reaper calls; every method is safe in any number of processes.

// sweepBatch bounds what one script of a sweep touches.
const sweepBatch = 100

// Tick keeps store time true, moves due delayed tasks on and applies the
// deadline policy of overdue hand-offs.
func (e *Engine) Tick(ctx context.Context) error {
	r := e.run(ctx, "tick", sweepBatch)
	if r.Int(r.Value) > 0 {
		r = e.run(ctx, "overdue", sweepBatch)
	}
	return r.Err
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
		limit, cmp.Or(keep.AuditAge, 400*24*time.Hour).Milliseconds(), cmp.Or(keep.AuditEvents, 1_000_000))
}

func (e *Engine) runCount(ctx context.Context, script string, args ...any) (int, error) {
	r := e.run(ctx, script, args...)
	return int(r.Int(r.Value)), r.Err
}
