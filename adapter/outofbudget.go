package adapter

import (
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// Out of budget: what the end of such a run says, and what helps.

// exitCodeOutOfBudget is the exit code of a run that was not started for want of
// budget; picket's own commands end with it, too.
const exitCodeOutOfBudget = 5

// launchDetailPrefix begins the detail of the end of an agent that was not started.
const launchDetailPrefix = "launch agent"

// outOfBudgetMark marks that of one for want of budget.
const outOfBudgetMark = "[" + string(picket.CodeBudgetExceeded) + "]"

// NeededToStart is what is to be added to what a task has left before a coding agent
// is started for it, which needs some dollars and some tokens.
func NeededToStart(left budget.Envelope) (add budget.Envelope) {
	if left.USD <= 0 {
		add.USD = 1_000_000_000 - left.USD
	}
	if left.Tokens <= 0 {
		add.Tokens = 100_000 - left.Tokens
	}
	return add
}

// NotStartedForBudget reports whether a run ended like that of a coding agent that
// was not started for want of budget.
func NotStartedForBudget(e *picket.Exit) bool {
	return e != nil && e.Class == picket.ExitCrash && e.Code != nil && *e.Code == exitCodeOutOfBudget &&
		strings.HasPrefix(e.Detail, launchDetailPrefix) && strings.Contains(e.Detail, outOfBudgetMark)
}

// budgetRefusal refuses to start a coding agent on what a task has left.
func budgetRefusal(task string, left budget.Envelope) error {
	add := NeededToStart(left)
	tokens := strconv.FormatInt(left.Tokens, 10) + " tokens"
	lacks := left.USD.Dollars() + " left"
	switch {
	case add.USD == 0:
		lacks = tokens + " left"
	case add.Tokens != 0:
		lacks = left.USD.Dollars() + " and " + tokens + " left"
	}
	return picket.Refuse(picket.CodeBudgetExceeded, "Top up: "+picket.TopUpCommand(task, add),
		"%s, a coding agent needs some %s", lacks, outOfBudgetMark)
}
