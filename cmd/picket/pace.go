package main

import (
	"fmt"
	"time"

	"github.com/picket-dev/picket"
)

// pace is what is known of a running agent: its heartbeats say how long it
// has run, and the local clock goes on between them.
type pace struct {
	run     string
	agent   string
	began   time.Time
	timeout time.Duration // 0: none
}

// hear takes an event of the log. What is said of it to a person is answered,
// "" for nothing.
func (p *pace) hear(e picket.Event, now time.Time) string {
	switch e.Type {
	case picket.EventRunLaunched:
		p.run, p.began = e.RunID, now
	case picket.EventAgentHeartbeat:
		p.run, p.agent = e.RunID, e.Agent
		p.began, p.timeout = now.Add(-span(e.ElapsedSeconds)), span(e.TimeoutSeconds)
	case picket.EventAgentTimeoutWarning, picket.EventAgentTimedOut:
		return launcherText(e)
	case picket.EventRunStalled:
		return "the agent seems to be stuck and was nudged: " + oneLine(e.Reason)
	case picket.EventBudgetWarning, picket.EventBudgetExceeded, picket.EventBudgetToppedUp, picket.EventBudgetOverrun,
		picket.EventBudgetUncertain,
		picket.EventBudgetUnverified:
		return moneyText(e)
	}
	return ""
}

// text is the beginning of the live line while a run's agent is at work, ""
// when nothing is known of it.
func (p *pace) text(run string, now time.Time) string {
	if p.run != run || p.began.IsZero() {
		return ""
	}
	return runningFor(p.agent, now.Sub(p.began), p.timeout)
}

func runningFor(agent string, elapsed, timeout time.Duration) string {
	text := fmt.Sprintf("%s running for %s", agent, spoken(elapsed))
	if timeout > 0 {
		text += fmt.Sprintf(" (timeout in %s)", spoken(timeout-elapsed))
	}
	return text
}

// launcherText says what an event of the launcher tells, "" of any other.
func launcherText(e picket.Event) string {
	agent, elapsed, timeout := oneLine(e.Agent), span(e.ElapsedSeconds), span(e.TimeoutSeconds)
	switch e.Type {
	case picket.EventAgentHeartbeat:
		return runningFor(agent, elapsed, timeout)
	case picket.EventAgentTimeoutWarning:
		return fmt.Sprintf("%s approaches its limit of %s: %s elapsed, %s left", agent, spoken(timeout),
			spoken(elapsed), spoken(span(e.RemainingSeconds)))
	case picket.EventAgentTimedOut:
		return fmt.Sprintf("%s is killed: its %s are over", agent, spoken(timeout))
	}
	return ""
}

func span(seconds *float64) time.Duration {
	if seconds == nil {
		return 0
	}
	return time.Duration(*seconds * float64(time.Second))
}

// spoken is short in whole seconds.
func spoken(d time.Duration) string {
	if d = max(d, 0).Round(time.Second); d == 0 {
		return "0s"
	}
	return short(d)
}
