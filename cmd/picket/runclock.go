package main

import (
	"fmt"
	"time"

	"github.com/picket-dev/picket"
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

// handleEvent takes an event of the log. What is said of it to a person is answered,
// "" for nothing.
func (p *runClock) handleEvent(e picket.Event, now time.Time) string {
	switch e.Type {
	case picket.EventRunLaunched:
		p.run, p.began = e.RunID, now
	case picket.EventAgentHeartbeat:
		p.run, p.agent = e.RunID, e.Agent
		p.began, p.timeout = now.Add(-fromSeconds(e.ElapsedSeconds)), fromSeconds(e.TimeoutSeconds)
	case picket.EventAgentTimeoutWarning, picket.EventAgentTimedOut:
		return launcherEventText(e)
	case picket.EventRunStalled:
		return "the agent seems to be stuck and was nudged: " + term.OneLine(e.Reason)
	case picket.EventBudgetWarning, picket.EventBudgetExceeded, picket.EventBudgetToppedUp, picket.EventBudgetOverrun,
		picket.EventBudgetUncertain,
		picket.EventBudgetUnverified:
		return moneyEventText(e)
	}
	return ""
}

// text is the beginning of the live line while a run's agent is at work, ""
// when nothing is known of it.
func (p *runClock) text(run string, now time.Time) string {
	if p.run != run || p.began.IsZero() {
		return ""
	}
	return runningFor(p.agent, now.Sub(p.began), p.timeout)
}

func runningFor(agent string, elapsed, timeout time.Duration) string {
	text := fmt.Sprintf("%s running for %s", agent, wholeSeconds(elapsed))
	if timeout > 0 {
		text += fmt.Sprintf(" (timeout in %s)", wholeSeconds(timeout-elapsed))
	}
	return text
}

// launcherEventText says what an event of the launcher tells, "" of any other.
func launcherEventText(e picket.Event) string {
	agent, elapsed, timeout := term.OneLine(e.Agent), fromSeconds(e.ElapsedSeconds), fromSeconds(e.TimeoutSeconds)
	switch e.Type {
	case picket.EventAgentHeartbeat:
		return runningFor(agent, elapsed, timeout)
	case picket.EventAgentTimeoutWarning:
		return fmt.Sprintf("%s approaches its limit of %s: %s elapsed, %s left", agent, wholeSeconds(timeout),
			wholeSeconds(elapsed), wholeSeconds(fromSeconds(e.RemainingSeconds)))
	case picket.EventAgentTimedOut:
		return fmt.Sprintf("%s is killed: its %s are over", agent, wholeSeconds(timeout))
	}
	return ""
}

func fromSeconds(seconds *float64) time.Duration {
	if seconds == nil {
		return 0
	}
	return time.Duration(*seconds * float64(time.Second))
}

// wholeSeconds is short in whole seconds.
func wholeSeconds(d time.Duration) string {
	if d = max(d, 0).Round(time.Second); d == 0 {
		return "0s"
	}
	return term.ShortDuration(d)
}
