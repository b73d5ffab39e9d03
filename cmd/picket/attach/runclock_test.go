package attach

import (
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
)

func launcherEvent(kind string, elapsed, timeout, remaining float64) picket.Event {
	e := picket.Event{Type: kind, RunID: "run_1"}
	e.Agent = "code-migrator"
	for _, f := range []struct {
		to *(*float64)
		v  float64
	}{{&e.ElapsedSeconds, elapsed}, {&e.TimeoutSeconds, timeout}, {&e.RemainingSeconds, remaining}} {
		if f.v != 0 {
			*f.to = &f.v
		}
	}
	return e
}

// The live line goes on between heartbeats by the local clock, and is about the
// run of the last of them only.
func TestLiveLineOfAnAgent(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	p := runClock{}
	if got := p.text("run_1", now); got != "" {
		t.Errorf("nothing is known yet: %q", got)
	}
	p.handleEvent(launcherEvent(picket.EventAgentHeartbeat, 270, 600, 0), now)
	for _, tt := range []struct {
		run  string
		wait time.Duration
		want string
	}{
		{"run_1", 2 * time.Second, "code-migrator running for 4m32s (timeout in 5m28s)"},
		{"run_1", 400 * time.Second, "code-migrator running for 11m10s (timeout in 0s)"},
		{"run_2", 2 * time.Second, ""},
	} {
		if got := p.text(tt.run, now.Add(tt.wait)); got != tt.want {
			t.Errorf("%s after %s: %q, want %q", tt.run, tt.wait, got, tt.want)
		}
	}
	p.handleEvent(launcherEvent(picket.EventAgentHeartbeat, 30, 0, 0), now)
	if got := p.text("run_1", now); got != "code-migrator running for 30s" {
		t.Errorf("without a timeout: %q", got)
	}
}

// What is said of an event, and how the log lists it.
func TestLauncherEventText(t *testing.T) {
	for _, tt := range []struct {
		event picket.Event
		said  bool
		want  string
	}{
		{launcherEvent(picket.EventAgentHeartbeat, 272, 600, 0), false,
			"code-migrator running for 4m32s (timeout in 5m28s)"},
		{launcherEvent(picket.EventAgentTimeoutWarning, 525, 600, 75), true,
			"code-migrator approaches its limit of 10m00s: 8m45s elapsed, 1m15s left"},
		{launcherEvent(picket.EventAgentTimedOut, 0, 600, 0), true, "code-migrator is killed: its 10m00s are over"},
	} {
		tt.event.Data = picket.RawJSON("{}")
		if got := cli.EventText(tt.event); got != tt.want {
			t.Errorf("%s is listed as %q, want %q", tt.event.Type, got, tt.want)
		}
		if got := new(runClock).handleEvent(tt.event, time.Now()); (got == tt.want) != tt.said {
			t.Errorf("%s: said %q", tt.event.Type, got)
		}
	}
}
