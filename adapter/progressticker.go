package adapter

import (
	"cmp"
	"math"
	"strconv"
	"time"

	"github.com/picket-dev/picket"
)

// ProgressTickConfig says how often a running agent is reported, and when its timeout is near. The
// agent has no part in it.
type ProgressTickConfig struct {
	// Interval lies between two heartbeats. Defaults to 30 s.
	Interval time.Duration
	// TimeoutWarningThreshold is the share of the task's timeout after which
	// one warning is told, above 0 and up to 1. Defaults to 0.8.
	TimeoutWarningThreshold float64
}

// Elapsed is how long the agent of a run has run, for Config.OnProgressTick.
type Elapsed struct {
	TaskID string
	RunID  string
	// Seconds since the launch, those in suspend included.
	Seconds float64
	// TimeoutPercentage is the share of the run's timeout that is over, 0 to 1. It is nil for
	// a run without a timeout.
	TimeoutPercentage *float64
}

func (h *ProgressTickConfig) fill() error {
	h.Interval = cmp.Or(h.Interval, 30*time.Second)
	h.TimeoutWarningThreshold = cmp.Or(h.TimeoutWarningThreshold, 0.8)
	if h.Interval < 0 {
		return picket.Invalid("ProgressTick.Interval", "Set it to a time such as 30 s, or leave it out.",
			"the interval of heartbeats is %s", h.Interval)
	}
	if t := h.TimeoutWarningThreshold; !(t > 0 && t <= 1) {
		return picket.Invalid("ProgressTick.TimeoutWarningThreshold", "Set it to a share such as 0.8, or leave it out.",
			"the threshold of the timeout's warning is %v, not a share of 1", t)
	}
	return nil
}

// progressTicker is the time of one launched agent: what is due of heartbeats, of the
// warning and of the timeout. It has no timer and no goroutine: its supervisor
// asks it, so nothing of it outlives the run. All times are readings of clock.
type progressTicker struct {
	clock      func() time.Duration
	base       picket.RunEvent // what all events have in common
	runID      string
	launchedAt time.Duration
	nextTick   time.Duration // heartbeat
	interval   time.Duration
	timeout    time.Duration // 0: none
	warnAfter  time.Duration // after which elapsed time; 0: never, or told already
}

func newProgressTicker(clock func() time.Duration, every ProgressTickConfig, lease picket.Lease, agent string,
	launchedAt time.Duration) *progressTicker {
	p := &progressTicker{
		clock:      clock,
		launchedAt: launchedAt,
		nextTick:   launchedAt + every.Interval,
		interval:   every.Interval,
		runID:      lease.RunID,
		base: picket.RunEvent{
			TaskID:         lease.TaskID,
			LauncherFields: picket.LauncherFields{Agent: agent, IssueNumber: issueNumber(lease)},
		},
	}
	if s := lease.Task.TimeoutSeconds; s != nil {
		p.timeout = time.Duration(*s) * time.Second
		p.warnAfter = time.Duration(float64(p.timeout) * every.TimeoutWarningThreshold)
	}
	return p
}

// issueNumber is the label "issue" of the task, if it is a number.
func issueNumber(lease picket.Lease) *int64 {
	n, err := strconv.ParseInt(lease.Task.Labels["issue"], 10, 64)
	if err != nil || n < 0 || n >= 1<<53 {
		return nil
	}
	return &n
}

func (p *progressTicker) elapsed() time.Duration { return p.clock() - p.launchedAt }

// dueEvents returns the events that have to be sent now, in their order. Heartbeats missed in
// suspend are not made up for; the warning is.
func (p *progressTicker) dueEvents() (events []picket.RunEvent) {
	now := p.clock()
	if now >= p.nextTick {
		p.nextTick += ((now-p.nextTick)/p.interval + 1) * p.interval
		events = append(events, p.tickEvent(now-p.launchedAt))
	}
	if elapsed := now - p.launchedAt; p.warnAfter > 0 && elapsed > p.warnAfter {
		p.warnAfter = 0
		events = append(events, p.warningEvent(elapsed))
	}
	return events
}

// expired reports whether the timeout is over.
func (p *progressTicker) expired() bool { return p.timeout > 0 && p.elapsed() >= p.timeout }

// stopWarning ends the warnings: the process is being killed.
func (p *progressTicker) stopWarning() { p.warnAfter = 0 }

// wait is the time until something is due, at most a tick, since timers stand
// still in suspend.
func (p *progressTicker) wait() time.Duration {
	now, due := p.clock(), p.nextTick
	if p.warnAfter > 0 {
		due = min(due, p.launchedAt+p.warnAfter+1)
	}
	if p.timeout > 0 && now < p.launchedAt+p.timeout {
		due = min(due, p.launchedAt+p.timeout)
	}
	return max(min(due-now, maxPause), 0)
}

func (p *progressTicker) tickEvent(elapsed time.Duration) picket.RunEvent {
	e := p.base
	e.Type, e.SessionID, e.ElapsedSeconds = picket.EventAgentHeartbeat, p.runID, roundedSeconds(elapsed)
	if p.timeout > 0 {
		share := min(math.Round(1e4*float64(elapsed)/float64(p.timeout))/1e4, 1)
		e.TimeoutSeconds, e.TimeoutPercentage = roundedSeconds(p.timeout), &share
	}
	return e
}

func (p *progressTicker) warningEvent(elapsed time.Duration) picket.RunEvent {
	e := p.base
	e.Type, e.ElapsedSeconds, e.TimeoutSeconds = picket.EventAgentTimeoutWarning, roundedSeconds(elapsed),
		roundedSeconds(p.timeout)
	e.RemainingSeconds = roundedSeconds(max(p.timeout-elapsed, 0))
	return e
}

func (p *progressTicker) timeoutEvent() picket.RunEvent {
	e := p.base
	e.Type, e.TimeoutSeconds = picket.EventAgentTimedOut, roundedSeconds(p.timeout)
	return e
}

// roundedSeconds are whole milliseconds.
func roundedSeconds(d time.Duration) *float64 { return new(d.Round(time.Millisecond).Seconds()) }

// elapsedOfTick is what a heartbeat says, for OnProgressTick.
func (p *progressTicker) elapsedOfTick(e picket.RunEvent) Elapsed {
	return Elapsed{
		TaskID:            p.base.TaskID,
		RunID:             p.runID,
		Seconds:           *e.ElapsedSeconds,
		TimeoutPercentage: e.TimeoutPercentage,
	}
}
