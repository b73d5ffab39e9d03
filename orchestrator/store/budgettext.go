package store

import (
	"fmt"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

func explainBudget(f facts) (string, string) {
	message := fmt.Sprintf("this needs %s, and %s are available", f.amount("need"), f.amount("available"))
	if ParseInt(f["available"]) < 0 {
		message = fmt.Sprintf("the envelope is overdrawn (%s available): more was spent than it covers, so no paid call goes on", f.amount("available"))
	}
	if day, isHouse := strings.CutPrefix(f["envelope"], "house:"); isHouse {
		return "the installation's budget of " + day + ": " + message,
			"Approve or cancel tasks that are done (they give back what is left), raise budget.house, wait for the next day (UTC), or run: " + f.topUpCommand()
	}
	if said, remedy, ok := f.sessionBudget(message); ok {
		return said, remedy
	}
	return message, "Report what is done, then wait for a top-up (await_top_up) or ask a person; a person runs: " +
		f.topUpCommand()
}

// addAmounts states the facts of a shortage in dollars or tokens.
func addAmounts(e *picket.Error, f facts) {
	delete(e.Facts, "less_t")
	delete(e.Facts, "less_u")
	if !f.ofSession() {
		e.With("topUp", f.topUpCommand())
	}
	if f["dimension"] == "tokens" {
		return
	}
	for _, key := range []string{"need", "available", "held", "spent"} {
		e.With(key, budget.Money(ParseInt(f[key])))
	}
}

// What people and agents are told when an agent session may spend no more.

// ofSession reports whether the envelope of a shortage is one of agent sessions.
func (f facts) ofSession() bool {
	kind, _, _ := strings.Cut(strings.Replace(f["envelope"], "_", ":", 1), ":")
	return kind == "prompt" || kind == "wake" || kind == "sessions"
}

// sessionBudget says what an agent session lacks, which setting limits it and when the day ends.
func (f facts) sessionBudget(shortage string) (message, remedy string, ok bool) {
	if !f.ofSession() {
		return "", "", false
	}
	envelope := f["envelope"]
	if strings.HasPrefix(envelope, "prompt_") {
		return "the budget of this prompt: " + shortage,
			"Ask for a shorter answer, or end your answer here. A person raises agents.NAME.prompt_budget in picket.yaml.", true
	}
	parts := strings.Split(envelope, ":")
	day := parts[len(parts)-1]
	setting, whose := "wake.budget", "all agent sessions"
	if len(parts) == 3 {
		name := parts[1]
		setting, whose = "agents."+name+".prompts_budget", "the prompts of people to "+name
		if name == "-" {
			setting, whose = "agents.NAME.prompts_budget", "the prompts of people to sessions without an agent name"
		}
	}
	if ParseInt(f["held"]) > 0 && ParseInt(f["available"])+ParseInt(f["held"]) > 0 {
		return whose + " have reserved all that they may spend on " + day + " (UTC)",
			"Wait until one of them has been answered, or raise " + setting + " in picket.yaml.", true
	}
	return whose + " may spend nothing more on " + day + " (UTC)",
		"Wait until " + dayAfter(day) + ", when the next day begins, or raise " + setting + " in picket.yaml.", true
}

// dayAfter is the beginning of the day after a UTC day.
func dayAfter(day string) string {
	at, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return "midnight (UTC)"
	}
	return at.AddDate(0, 0, 1).Format("2006-01-02T15:04:05Z")
}
