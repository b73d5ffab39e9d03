package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// RunningFor says how long an agent has run and, unless timeout is zero, how much time it has
// left.
func RunningFor(agent string, elapsed, timeout time.Duration) string {
	text := fmt.Sprintf("%s running for %s", agent, WholeSeconds(elapsed))
	if timeout > 0 {
		text += fmt.Sprintf(" (timeout in %s)", WholeSeconds(timeout-elapsed))
	}
	return text
}

// LauncherEventText says what an event of the launcher tells, "" of any other.
func LauncherEventText(e picket.Event) string {
	agent, elapsed, timeout := term.OneLine(e.Agent), FromSeconds(e.ElapsedSeconds), FromSeconds(e.TimeoutSeconds)
	switch e.Type {
	case picket.EventAgentHeartbeat:
		return RunningFor(agent, elapsed, timeout)
	case picket.EventAgentTimeoutWarning:
		return fmt.Sprintf("%s approaches its limit of %s: %s elapsed, %s left", agent, WholeSeconds(timeout),
			WholeSeconds(elapsed), WholeSeconds(FromSeconds(e.RemainingSeconds)))
	case picket.EventAgentTimedOut:
		return fmt.Sprintf("%s is killed: its %s are over", agent, WholeSeconds(timeout))
	}
	return ""
}

// FromSeconds is a number of seconds as a duration; nil is zero.
func FromSeconds(seconds *float64) time.Duration {
	if seconds == nil {
		return 0
	}
	return time.Duration(*seconds * float64(time.Second))
}

// WholeSeconds is short in whole seconds.
func WholeSeconds(d time.Duration) string {
	if d = max(d, 0).Round(time.Second); d == 0 {
		return "0s"
	}
	return term.ShortDuration(d)
}

// Lacked is what a refused call needed beyond what there was.
func (d MoneyData) Lacked() (less budget.Envelope) {
	less.USD = max(0, d.Need.USD-d.Available.USD).CeilCent()
	less.Tokens = max(0, d.Need.Tokens-d.Available.Tokens)
	return less
}

// MoneyData is what the events of money tell.
type MoneyData struct {
	Tool      string          `json:"tool"`
	Outcome   string          `json:"outcome"`
	Detail    string          `json:"detail"`
	Cost      budget.Envelope `json:"cost"`
	Need      budget.Envelope `json:"need"`
	Available budget.Envelope `json:"available"`
	Added     budget.Envelope `json:"added"`
	Dimension string          `json:"dimension"`
	Percent   int             `json:"percent"`
	Envelope  string          `json:"envelope"`
	Usage     budget.Envelope `json:"usage"`
	Reason    string          `json:"reason"`
}

// MoneyOf reads the data of an event of money.
func MoneyOf(e picket.Event) (d MoneyData, ok bool) {
	if e.Type != picket.EventToolCalled && !strings.HasPrefix(e.Type, "budget.") {
		return d, false
	}
	return d, json.Unmarshal(e.Data, &d) == nil
}

// MoneyEventText says what an event of money tells, "" of any other.
func MoneyEventText(e picket.Event) string {
	d, ok := MoneyOf(e)
	if !ok {
		return ""
	}
	tool := term.OneLine(d.Tool)
	switch e.Type {
	case picket.EventToolCalled:
		return strings.TrimSpace(fmt.Sprintf("%s %s, %s %s", tool, d.Outcome, AmountText(d.Cost),
			term.OneLine(d.Detail)))
	case picket.EventBudgetWarning:
		return fmt.Sprintf("%d %% of its %s are used", d.Percent,
			map[string]string{"usd": "dollars", "tokens": "tokens"}[d.Dimension])
	case picket.EventBudgetExceeded:
		return fmt.Sprintf("a call of %s was refused: it needs %s, %s are left", tool, AmountText(d.Need),
			AmountText(inDimensionsOf(d.Available, d.Need)))
	case picket.EventBudgetToppedUp:
		return fmt.Sprintf("topped up by %s: %s are left", AmountText(d.Added), AmountText(d.Available))
	case picket.EventBudgetOverrun:
		return fmt.Sprintf("it is overdrawn (%s), and paid calls are refused until a top-up", AmountText(d.Available))
	case picket.EventBudgetUncertain:
		return fmt.Sprintf("nobody knows what came of a call of %s: charged %s", tool, AmountText(d.Cost))
	case picket.EventBudgetUnverified:
		return fmt.Sprintf("%s reported %s, which is charged to nobody: %s", tool, AmountText(d.Usage),
			term.OneLine(d.Reason))
	case picket.EventBudgetLate:
		return fmt.Sprintf("%s came late and were paid by %s", AmountText(d.Cost), term.OneLine(d.Envelope))
	}
	return ""
}

// AmountText is an amount in the dimensions that it has.
func AmountText(e budget.Envelope) string {
	switch {
	case e.Tokens == 0:
		return Dollars(e.USD)
	case e.USD == 0:
		return fmt.Sprintf("%d tokens", e.Tokens)
	}
	return fmt.Sprintf("%s and %d tokens", Dollars(e.USD), e.Tokens)
}

// inDimensionsOf is an amount in the dimensions that another one has, or is short of.
func inDimensionsOf(e, other budget.Envelope) budget.Envelope {
	if other.USD == 0 && e.USD >= 0 {
		e.USD = 0
	}
	if other.Tokens == 0 && e.Tokens >= 0 {
		e.Tokens = 0
	}
	return e
}
