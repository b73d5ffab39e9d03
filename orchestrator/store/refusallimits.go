package store

import (
	"fmt"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// What a refused call is told about money: the amounts, and the exact command
// that helps.

// amount is one dimension of an envelope in words.
func (f facts) amount(key string) string {
	n := ParseInt(f[key])
	if f["dimension"] == "tokens" {
		return fmt.Sprintf("%d tokens", n)
	}
	return budget.Money(n).Dollars()
}

// topUpCommand is what a person runs so that the same call fits.
func (f facts) topUpCommand() string {
	return picket.TopUpCommand(f["envelope"],
		budget.Envelope{USD: budget.Money(ParseInt(f["less_u"])), Tokens: ParseInt(f["less_t"])})
}

func explainBudget(f facts) (string, string) {
	message := fmt.Sprintf("this needs %s, and %s are available", f.amount("need"), f.amount("available"))
	if ParseInt(f["available"]) < 0 {
		message = fmt.Sprintf("the envelope is overdrawn (%s available): more was spent than it covers, so no paid call goes on", f.amount("available"))
	}
	if day, isHouse := strings.CutPrefix(f["envelope"], "house:"); isHouse {
		return "the installation's budget of " + day + ": " + message,
			"Approve or cancel tasks that are done (they give back what is left), raise budget.house, wait for the next day (UTC), or run: " + f.topUpCommand()
	}
	return message, "Report what is done, then wait for a top-up (await_top_up) or ask a person; a person runs: " +
		f.topUpCommand()
}

// addAmounts states the facts of a shortage in dollars or tokens.
func addAmounts(e *picket.Error, f facts) {
	delete(e.Facts, "less_t")
	delete(e.Facts, "less_u")
	e.With("topUp", f.topUpCommand())
	if f["dimension"] == "tokens" {
		return
	}
	for _, key := range []string{"need", "available", "held", "spent"} {
		e.With(key, budget.Money(ParseInt(f[key])))
	}
}

// explainQuota returns the message and the remedy for a quota.
func explainQuota(f facts) (message, remedy string) {
	limit := f["limit"]
	switch f["quota"] {
	case "agents":
		return "the key has registered " + limit + " agents",
			"Register an id again that this key has used before, wait until records of deregistered agents are deleted, or use another key."
	case "metadata_bytes":
		return "the metadata of the agents of this key would have more than " + limit + " bytes",
			"Send less metadata, or deregister agents. Their records are deleted after retention.tasks."
	case "subtasks":
		return "the tree of this task has " + limit + " subtasks",
			"Do this part yourself, or complete the task with what you have and let a person submit the rest."
	case "calls":
		return "the tree of this task has made " + limit + " calls within a day",
			"Make fewer calls, or repeat the call in some hours."
	case "run_keys":
		return "the key has " + limit + " run keys",
			"Wait until a `picket run` with this key has ended, or use another key."
	case "open_calls":
		return limit + " calls of this task are under way", "Wait until one has ended, then repeat the call."
	default:
		return "the answers stored for the calls of this tree of tasks have reached their limit of " + limit,
			"Call without an Idempotency-Key, or repeat the call in some hours. Answers are stored for a day."
	}
}
