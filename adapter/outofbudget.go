package adapter

import (
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// Out of budget: what the end of such a run says, and what helps.

// exitCodeOutOfBudget is the exit code of a run that was not started because its budget is spent.
// Picket's own commands use the same code.
const exitCodeOutOfBudget = 5

// launchDetailPrefix begins the detail of the end of an agent that was not started.
const launchDetailPrefix = "launch agent"

// outOfBudgetMark marks the detail if the reason is a spent budget.
const outOfBudgetMark = "[" + string(picket.CodeBudgetExceeded) + "]"

// NeededToStart is what has to be added to the envelope of a task before a coding agent is started
// for it. An agent needs some dollars and some tokens.
func NeededToStart(left budget.Envelope) (add budget.Envelope) {
	if left.USD <= 0 {
		add.USD = 1_000_000_000 - left.USD
	}
	if left.Tokens <= 0 {
		add.Tokens = 100_000 - left.Tokens
	}
	return add
}

// NotStartedForBudget reports whether a run ended because its coding agent was not started on a
// spent budget.
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
