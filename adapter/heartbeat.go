package adapter

import (
	"cmp"
	"math"
	"path/filepath"
	"strconv"
	"time"

	"github.com/picket-dev/picket"
)

// HeartbeatConfig says how often a running agent is told of, and when its
// timeout is near. The agent has no part in it.
type HeartbeatConfig struct {
	// Interval lies between two heartbeats. Defaults to 30 s.
	Interval time.Duration
	// TimeoutWarningThreshold is the share of the task's timeout after which
	// one warning is told, above 0 and up to 1. Defaults to 0.8.
	TimeoutWarningThreshold float64
}

// Elapsed is what Config.OnHeartbeat is told.
type Elapsed struct {
	// Seconds since the launch, those in suspend included.
	Seconds float64
	// TimeoutPercentage is the share of the task's timeout that is over, 0 to
	// 1; 0 for a task without a timeout.
	TimeoutPercentage float64
}

func (h *HeartbeatConfig) fill() error {
	h.Interval = cmp.Or(h.Interval, 30*time.Second)
	h.TimeoutWarningThreshold = cmp.Or(h.TimeoutWarningThreshold, 0.8)
	if h.Interval < 0 {
		return picket.Invalid("Heartbeat.Interval", "Set it to a time such as 30 s, or leave it out.",
			"the interval of heartbeats is %s", h.Interval)
	}
	if t := h.TimeoutWarningThreshold; !(t > 0 && t <= 1) {
		return picket.Invalid("Heartbeat.TimeoutWarningThreshold", "Set it to a share such as 0.8, or leave it out.",
			"the threshold of the timeout's warning is %v, not a share of 1", t)
	}
	return nil
}

// pulse is the time of one launched agent: what is due of heartbeats, of the
// warning and of the timeout. It has no timer and no goroutine: its supervisor
// asks it, so nothing of it outlives the run. All times are readings of clock.
type pulse struct {
	clock    func() time.Duration
	about    picket.RunEvent // what all events have in common
	session  string
	began    time.Duration
	next     time.Duration // heartbeat
	interval time.Duration
	timeout  time.Duration // 0: none
	warning  time.Duration // after which elapsed time; 0: never, or told already
}

func (r *run) newPulse() *pulse {
	p := &pulse{
		clock:    r.cfg.clock,
		began:    r.launchedAt,
		interval: r.cfg.Heartbeat.Interval,
		session:  r.lease.RunID,
		about: picket.RunEvent{
			TaskID:         r.lease.TaskID,
			LauncherFields: picket.LauncherFields{Agent: r.agentName(), IssueNumber: r.issueNumber()},
		},
	}
	p.next = p.began + p.interval
	if s := r.lease.Task.TimeoutSeconds; s != nil {
		p.timeout = time.Duration(*s) * time.Second
		p.warning = time.Duration(float64(p.timeout) * r.cfg.Heartbeat.TimeoutWarningThreshold)
	}
	return p
}

// agentName is what people call the agent: the first that there is of the
// configured name, the roles of task and adapter, the program and the worker.
func (r *run) agentName() string {
	program := ""
	if len(r.cfg.Command) > 0 {
		program = filepath.Base(r.cfg.Command[0])
		if picket.CheckName("", program) != nil {
			program = ""
		}
	}
	return cmp.Or(r.cfg.AgentName, r.lease.Task.Role, r.cfg.Role, program, r.cfg.AgentID)
}

// issueNumber is the label "issue" of the task, if it is a number.
func (r *run) issueNumber() *int64 {
	n, err := strconv.ParseInt(r.lease.Task.Labels["issue"], 10, 64)
	if err != nil || n < 0 || n >= 1<<53 {
		return nil
	}
	return &n
}

func (p *pulse) elapsed() time.Duration { return p.clock() - p.began }

// due answers the events that are to be told now, in their order. Heartbeats
// missed in suspend are not made up for; the warning is.
func (p *pulse) due() (events []picket.RunEvent) {
	now := p.clock()
	if now >= p.next {
		p.next += ((now-p.next)/p.interval + 1) * p.interval
		events = append(events, p.heartbeat(now-p.began))
	}
	if elapsed := now - p.began; p.warning > 0 && elapsed > p.warning {
		p.warning = 0
		events = append(events, p.timeoutWarning(elapsed))
	}
	return events
}

// expired reports whether the timeout is over.
func (p *pulse) expired() bool { return p.timeout > 0 && p.elapsed() >= p.timeout }

// dying ends the warnings: the process is being killed.
func (p *pulse) dying() { p.warning = 0 }

// wait is the time until something is due, at most a tick, since timers stand
// still in suspend.
func (p *pulse) wait() time.Duration {
	now, due := p.clock(), p.next
	if p.warning > 0 {
		due = min(due, p.began+p.warning+1)
	}
	if p.timeout > 0 && now < p.began+p.timeout {
		due = min(due, p.began+p.timeout)
	}
	return max(min(due-now, tick), 0)
}

func (p *pulse) heartbeat(elapsed time.Duration) picket.RunEvent {
	e := p.about
	e.Type, e.SessionID, e.ElapsedSeconds = picket.EventAgentHeartbeat, p.session, seconds(elapsed)
	if p.timeout > 0 {
		share := min(math.Round(1e4*float64(elapsed)/float64(p.timeout))/1e4, 1)
		e.TimeoutSeconds, e.TimeoutPercentage = seconds(p.timeout), &share
	}
	return e
}

func (p *pulse) timeoutWarning(elapsed time.Duration) picket.RunEvent {
	e := p.about
	e.Type, e.ElapsedSeconds, e.TimeoutSeconds = picket.EventAgentTimeoutWarning, seconds(elapsed), seconds(p.timeout)
	e.RemainingSeconds = seconds(max(p.timeout-elapsed, 0))
	return e
}

func (p *pulse) timedOut() picket.RunEvent {
	e := p.about
	e.Type, e.TimeoutSeconds = picket.EventAgentTimedOut, seconds(p.timeout)
	return e
}

// seconds are whole milliseconds.
func seconds(d time.Duration) *float64 {
	s := d.Round(time.Millisecond).Seconds()
	return &s
}

// elapsedOf is what a heartbeat says, for OnHeartbeat.
func elapsedOf(e picket.RunEvent) Elapsed {
	out := Elapsed{Seconds: *e.ElapsedSeconds}
	if e.TimeoutPercentage != nil {
		out.TimeoutPercentage = *e.TimeoutPercentage
	}
	return out
}
