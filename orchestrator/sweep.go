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
	due, err := e.TickDue(ctx)
	if err == nil && due.Overdue {
		_, err = e.HandleOverdue(ctx, sweepBatch)
	}
	return err
}

// TickDue keeps store time true, moves due delayed tasks on, and says which other
// work of the reaper is due.
func (e *Engine) TickDue(ctx context.Context) (due picket.DueWork, err error) {
	r := e.run(ctx, "tick", sweepBatch)
	for _, work := range r.List(r.Value) {
		switch r.Text(work) {
		case "leases":
			due.Leases = true
		case "chores":
			due.Chores = true
		case "overdue":
			due.Overdue = true
		case "agents":
			due.Agents = true
		case "calls":
			due.Calls = true
		case "totals":
			due.Totals = true
		}
	}
	return due, r.Err
}

// HandleOverdue applies the deadline policy of up to limit hand-offs that nobody has
// decided in time, writes the events of refused writes that were only counted, and
// returns how many it handled.
func (e *Engine) HandleOverdue(ctx context.Context, limit int) (int, error) {
	return e.runCount(ctx, "overdue", limit)
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

// spendingAge is how long the totals of a day are kept.
const spendingAge = picket.MaxSpendingDays * 24 * time.Hour

// ApplyRetention deletes up to limit tasks, limit agents that are gone and limit events
// and of the audit log that are older than they are kept, and returns how many.
// Agents are kept as long as tasks, and messages for picket.MessageRetention. What was spent is
// counted before the ledger loses it.
func (e *Engine) ApplyRetention(ctx context.Context, keep picket.Retention, limit int) (int, error) {
	tasks := cmp.Or(keep.Tasks, 30*24*time.Hour)
	events := cmp.Or(keep.Events, 7*24*time.Hour)
	if _, err := e.CountSpending(ctx); err != nil {
		return 0, err
	}
	return e.runCount(ctx, "retain", tasks.Milliseconds(), events.Milliseconds(), cmp.Or(keep.MaxEvents, 1_000_000),
		limit, cmp.Or(keep.AuditAge, 400*24*time.Hour).Milliseconds(), cmp.Or(keep.AuditEvents, 1_000_000),
		spendingAge.Milliseconds(), picket.MessageRetention.Milliseconds())
}

// RemindPeople writes an event for up to limit hand-offs and reviews that have been open for
// longer than a rule allows, and returns how many it looked at. A rule reminds of each of
// them once, in whichever process and however often it is called.
func (e *Engine) RemindPeople(ctx context.Context, rules []picket.ReminderRule, limit int) (int, error) {
	if len(rules) > picket.MaxReminderRules {
		return 0, picket.Invalid("reminders", "Use fewer reminders.", "there are %d reminders, at most %d are allowed",
			len(rules), picket.MaxReminderRules)
	}
	args := []any{limit}
	for _, r := range rules {
		if err := r.Check(); err != nil {
			return 0, err
		}
		args = append(args, r.Name, r.After.Milliseconds(), r.Role, r.Label, r.Webhook)
	}
	return e.runCount(ctx, "remind", args...)
}

func (e *Engine) runCount(ctx context.Context, script string, args ...any) (int, error) {
	r := e.run(ctx, script, args...)
	return int(r.Int(r.Value)), r.Err
}
