package attach

import (
	"context"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli"
)

// shortage describes a run that ended because its budget was spent.
type shortage struct {
	outOfBudget bool
	reason      string          // for people, "" where the end of the run says it
	lacked      budget.Envelope // what has to be added so that the task can go on
}

// shortageOf reports whether the budget ended the last run of a task: it was not started, its last
// paid call was refused, or it had spent too much.
func shortageOf(ctx context.Context, s *cli.Connection, t picket.Task) (short shortage) {
	if endedByOthers(t) {
		return shortage{}
	}
	q := picket.EventQuery{TaskID: t.TaskID, Limit: 1000, Types: []string{
		picket.EventToolCalled, picket.EventBudgetExceeded, picket.EventBudgetOverrun, picket.EventBudgetToppedUp,
	}}
	overdrawn := t.Available.USD < 0 || t.Available.Tokens < 0
	for e, err := range s.Events.All(ctx, q) {
		if err != nil {
			return shortage{}
		}
		short.handleEvent(e, cli.LastRun(t).RunID, overdrawn)
	}
	switch {
	case !short.outOfBudget && adapter.NotStartedForBudget(cli.LastRun(t).Exit):
		return shortage{outOfBudget: true, lacked: adapter.NeededToStart(t.Available)}
	case short.outOfBudget && short.lacked.IsZero():
		short.lacked = adapter.NeededToStart(t.Available)
		short.reason = "it has spent more than its budget, by " +
			cli.AmountText(budget.Envelope{USD: max(0, -t.Available.USD), Tokens: max(0, -t.Available.Tokens)})
	}
	return short
}

// endedByOthers reports whether it was not the agent's doing that a task has no
// result, or none that stayed.
func endedByOthers(t picket.Task) bool {
	e := cli.LastRun(t).Exit
	return t.State == picket.TaskCancelled || t.State == picket.TaskRejected ||
		e != nil && (e.Class == picket.ExitCancelled || e.Class == picket.ExitByOperator ||
			e.Class == picket.ExitSuccess)
}

// handleEvent takes in the next event of a task's money. A call that was paid for ends
// a shortage, but not that of an envelope that is overdrawn still.
func (short *shortage) handleEvent(e picket.Event, run string, overdrawn bool) {
	d, ok := cli.MoneyOf(e)
	switch {
	case e.Type == picket.EventToolCalled && short.outOfBudget && overdrawn:
	case ok && e.RunID == run && e.Type == picket.EventBudgetExceeded:
		*short = shortage{outOfBudget: true, lacked: d.Lacked()}
		short.reason = "its last call was refused because the budget lacked " + cli.AmountText(short.lacked)
	case ok && e.RunID == run && e.Type == picket.EventBudgetOverrun && overdrawn:
		*short = shortage{outOfBudget: true}
	default:
		*short = shortage{}
	}
}
