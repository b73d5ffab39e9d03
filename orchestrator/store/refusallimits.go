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
