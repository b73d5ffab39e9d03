package attach

import (
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// runClock is what is known of a running agent: its heartbeats say how long it
// has run, and the local clock goes on between them.
type runClock struct {
	run     string
	agent   string
	began   time.Time
	timeout time.Duration // 0: none
}

// handleEvent takes an event of the log. It returns the line about it for a person,
// or "" for none.
func (p *runClock) handleEvent(e picket.Event, now time.Time) string {
	switch e.Type {
	case picket.EventRunLaunched:
		p.run, p.began = e.RunID, now
	case picket.EventAgentHeartbeat:
		p.run, p.agent = e.RunID, e.Agent
		p.began, p.timeout = now.Add(-cli.FromSeconds(e.ElapsedSeconds)), cli.FromSeconds(e.TimeoutSeconds)
	case picket.EventAgentTimeoutWarning, picket.EventAgentTimedOut:
		return cli.LauncherEventText(e)
	case picket.EventRunStalled:
		return "the agent seems to be stuck and was nudged: " + term.OneLine(e.Reason)
	case picket.EventBudgetWarning, picket.EventBudgetExceeded, picket.EventBudgetToppedUp, picket.EventBudgetOverrun,
		picket.EventBudgetUncertain,
		picket.EventBudgetUnverified:
		return cli.MoneyEventText(e)
	}
	return ""
}

// text is the beginning of the live line while a run's agent is at work, ""
// when nothing is known of it.
func (p *runClock) text(run string, now time.Time) string {
	if p.run != run || p.began.IsZero() {
		return ""
	}
	return cli.RunningFor(p.agent, now.Sub(p.began), p.timeout)
}
