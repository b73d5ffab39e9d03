package adapter

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/rig"
)

// observedRun is one agent under observation: what its launcher told, with the
// seconds since the launch on the clock that goes on in suspend.
type observedRun struct {
	suspend atomic.Int64 // ns: what that clock is ahead of the timers
	start   time.Time
	task    string
	mu      sync.Mutex
	told    []string // of the launcher, in order: kind and time
	events  []Event
	elapsed []Elapsed
	result  Result
	err     error
}

func (v *observedRun) clock() time.Duration {
	return time.Since(v.start) + time.Duration(v.suspend.Load())
}

func (v *observedRun) onEvent(e Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e.Launcher != nil || e.Kind == EventNudged || e.Kind == EventStalled || e.Kind == EventMessages {
		v.told = append(v.told, fmt.Sprintf("%s %.1f", e.Kind, v.clock().Seconds()))
		v.events = append(v.events, e)
	}
}

// toldOf are the lines of one kind.
func (v *observedRun) toldOf(kind EventKind) (out []string) {
	for _, line := range v.told {
		if strings.HasPrefix(line, string(kind)+" ") {
			out = append(out, line)
		}
	}
	return out
}

// runObserved runs one lease in a bubble. A goroutine or a timer that outlives the
// run would keep the bubble from ending, which fails the test.
func runObserved(t *testing.T, task adaptertest.Task, play scriptedLauncher,
	change ...func(*Config, *observedRun, *adaptertest.Server)) (*observedRun, adaptertest.RunView) {
	t.Helper()
	v := &observedRun{start: time.Now()}
	var s *adaptertest.Server
	a, s := newScriptedAdapter(t, play, func(c *Config) {
		c.OnEvent, c.clock = v.onEvent, v.clock
		c.OnProgressTick = func(e Elapsed) { v.elapsed = append(v.elapsed, e) }
	})
	for _, f := range change {
		f(&a.cfg, v, s)
	}
	if err := a.cfg.ProgressTick.fill(); err != nil {
		t.Fatal(err)
	}
	lease := s.Grant(task)
	v.task = lease.TaskID
	v.result, v.err = a.RunLease(t.Context(), lease)
	synctest.Wait() // the agent has taken notice
	return v, s.View(lease.TaskID).Runs[0]
}

func wantTold(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: told %v, want %v", what, got, want)
	}
}

// A heartbeat comes at every interval from launch to exit, 30 s by default,
// whatever the agent does, and none after it.
func TestProgressTickEveryInterval(t *testing.T) {
	for _, tt := range []struct {
		interval time.Duration
		runs     time.Duration
		want     []string
	}{
		{0, 95 * time.Second, []string{"agent-heartbeat 30.0", "agent-heartbeat 60.0", "agent-heartbeat 90.0"}},
		{0, 29 * time.Second, nil},
		{250 * time.Millisecond, time.Second - 1,
			[]string{"agent-heartbeat 0.2", "agent-heartbeat 0.5", "agent-heartbeat 0.8"}},
		{time.Minute, 3*time.Minute - 1, []string{"agent-heartbeat 60.0", "agent-heartbeat 120.0"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			v, run := runObserved(t, adaptertest.Task{}, runFor(tt.runs),
				func(c *Config, _ *observedRun, _ *adaptertest.Server) { c.ProgressTick.Interval = tt.interval })
			wantTold(t, tt.runs.String(), v.told, tt.want)
			if len(v.elapsed) != len(tt.want) {
				t.Errorf("the callback was told %d times", len(v.elapsed))
			}
			var last time.Time
			for _, e := range v.events {
				last = e.At
			}
			if !v.result.LastProgressTick.Equal(last) {
				t.Errorf("last heartbeat %v, want %v", v.result.LastProgressTick, last)
			}
			if v.result.TimedOut {
				t.Error("timed out without a timeout")
			}
			if got := len(run.Events) - 1; got != len(tt.want) { // beside run.launched
				t.Errorf("%d heartbeats in the log, want %d", got, len(tt.want))
			}
		})
	}
}

// The warning comes once, as soon as more than the threshold is over, whether
// or not a heartbeat is due then; the end for time is told when it is done.
func TestTimeoutWarningOnce(t *testing.T) {
	for _, tt := range []struct {
		name      string
		timeout   time.Duration
		threshold float64
		warned    string
		killed    bool
		runs      time.Duration
	}{
		{"by default at 80 %", 600 * time.Second, 0, "agent-timeout-warning 480.0", true, time.Hour},
		{"between two heartbeats", 100 * time.Second, 0.5, "agent-timeout-warning 50.0", true, time.Hour},
		{"before the first heartbeat", 10 * time.Second, 0.8, "agent-timeout-warning 8.0", true, time.Hour},
		{"done before the threshold", 600 * time.Second, 0.8, "", false, 479 * time.Second},
		{"done after the warning", 600 * time.Second, 0.8, "agent-timeout-warning 480.0", false, 500 * time.Second},
		{"at the threshold is not above it", 600 * time.Second, 0.8, "", false, 480 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			v, run := runObserved(t, adaptertest.Task{Timeout: tt.timeout}, runFor(tt.runs),
				func(c *Config, _ *observedRun, _ *adaptertest.Server) {
					c.ProgressTick.TimeoutWarningThreshold = tt.threshold
				})
			var want []string
			if tt.warned != "" {
				want = []string{tt.warned}
			}
			wantTold(t, tt.name, v.toldOf(EventTimeoutWarning), want)
			if n := count(run.Events, picket.EventAgentTimeoutWarning); n != len(want) {
				t.Errorf("%s: %d warnings in the log", tt.name, n)
			}
			if tt.killed {
				want = []string{fmt.Sprintf("agent-timed-out %.1f", tt.timeout.Seconds())}
			} else {
				want = nil
			}
			wantTold(t, tt.name, v.toldOf(EventTimedOut), want)
			if n := count(run.Events, picket.EventAgentTimedOut); n != len(want) {
				t.Errorf("%s: %d ends for time in the log", tt.name, n)
			}
			if v.result.TimedOut != tt.killed || (v.result.Exit.Class == picket.ExitTimeout) != tt.killed {
				t.Errorf("%s: %+v", tt.name, v.result)
			}
		})
	}
}

func count(events []picket.RunEvent, kind string) (n int) {
	for _, e := range events {
		if e.Type == kind {
			n++
		}
	}
	return n
}

// Every event has the members of its document and no others.
func TestLauncherEventFields(t *testing.T) {
	want := map[string]string{
		"agent-heartbeat":       `{"agent":"code-migrator","issueNumber":17,"taskId":"T","sessionId":"R","elapsedSeconds":30,"timeoutSeconds":40,"timeoutPercentage":0.75}`,
		"agent-timeout-warning": `{"agent":"code-migrator","issueNumber":17,"taskId":"T","elapsedSeconds":32,"timeoutSeconds":40,"remainingSeconds":8}`,
		"agent-timed-out":       `{"agent":"code-migrator","issueNumber":17,"taskId":"T","timeoutSeconds":40}`,
	}
	synctest.Test(t, func(t *testing.T) {
		task := adaptertest.Task{
			Timeout: 40 * time.Second,
			Role:    "code-migrator",
			Labels:  map[string]string{"issue": "17"},
		}
		v, run := runObserved(t, task, runForever)
		if len(v.events) != len(want) || len(run.Events) != len(want)+1 {
			t.Fatalf("told %v, logged %+v", v.told, run.Events)
		}
		for i, e := range v.events {
			logged := run.Events[i+1]
			if logged.ID == "" {
				t.Errorf("%s has no id in the log", e.Kind)
			}
			logged.ID = ""
			for _, got := range []picket.RunEvent{*e.Launcher, logged} {
				if text := asDocumented(t, got, v.result); text != want[string(e.Kind)] || got.Type != string(e.Kind) {
					t.Errorf("%s: %s\nwant %s", e.Kind, text, want[string(e.Kind)])
				}
			}
		}
	})
}

// asDocumented is an event as JSON in the order of the document, the run's own
// ids replaced by T and R.
func asDocumented(t *testing.T, e picket.RunEvent, r Result) string {
	t.Helper()
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	var members []string
	for _, name := range []string{"agent", "issueNumber", "taskId", "sessionId", "elapsedSeconds", "timeoutSeconds",
		"timeoutPercentage", "remainingSeconds"} {
		if value, ok := all[name]; ok {
			text, _ := json.Marshal(value)
			members = append(members, fmt.Sprintf("%q:%s", name, text))
			delete(all, name)
		}
	}
	if delete(all, "type"); len(all) > 0 {
		t.Errorf("%s has members that are not in the document: %v", e.Type, all)
	}
	return strings.NewReplacer(r.TaskID, "T", r.RunID, "R").Replace("{" + strings.Join(members, ",") + "}")
}

// Without a timeout a heartbeat has neither timeout nor share, and there is
// nothing to warn of.
func TestProgressTickWithoutTimeout(t *testing.T) {
	rig.SkipShort(t)
	synctest.Test(t, func(t *testing.T) {
		v, _ := runObserved(t, adaptertest.Task{}, runFor(24*time.Hour-time.Second))
		if n := len(v.told); n != 24*60*2-1 || len(v.toldOf(EventProgressTick)) != n {
			t.Errorf("%d events", n)
		}
		e := v.events[0].Launcher
		if *e.ElapsedSeconds != 30 || e.TimeoutSeconds != nil || e.TimeoutPercentage != nil ||
			e.RemainingSeconds != nil || e.IssueNumber != nil {
			t.Errorf("%+v", e)
		}
		if got := v.elapsed[0]; got.TaskID != v.task || got.RunID != v.events[0].RunID || got.Seconds != 30 ||
			got.TimeoutPercentage != nil {
			t.Errorf("%+v", got)
		}
	})
}

func TestOnProgressTickHasTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := runObserved(t, adaptertest.Task{Timeout: 2 * time.Minute}, runFor(100*time.Second))
		var got [][2]float64
		for _, e := range v.elapsed {
			if e.TaskID != v.task || e.RunID != v.events[0].RunID || e.TimeoutPercentage == nil {
				t.Fatalf("%+v of task %s, run %s", e, v.task, v.events[0].RunID)
			}
			got = append(got, [2]float64{e.Seconds, *e.TimeoutPercentage})
		}
		if want := [][2]float64{{30, 0.25}, {60, 0.5}, {90, 0.75}}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// The lease that a launcher gets names the directory in which the agent works.
func TestTheLeaseOfALauncherNamesItsDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runObserved(t, adaptertest.Task{}, func(p *scriptedProcess) {
			if path := p.job.Lease.WorkspacePath; path == "" || path != p.job.Dir {
				t.Errorf("the lease names %q, the agent works in %q", path, p.job.Dir)
			}
			p.endWith(process.Exited{})
		})
	})
}

// A heartbeat names the session of the agent as soon as its output has named it. What does not
// look like an id, or holds the credential of the agent, is not believed.
func TestHeartbeatsNameTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := runObserved(t, adaptertest.Task{}, func(p *scriptedProcess) {
			time.Sleep(40 * time.Second)
			p.job.Session("s-1")
			time.Sleep(30 * time.Second)
			for _, id := range []string{"", "two words", "a\nline", strings.Repeat("x", 129),
				p.job.Lease.AgentCredential().Reveal(), "at:" + p.job.Lease.AgentCredential().Reveal()} {
				p.job.Session(id)
			}
			time.Sleep(30 * time.Second)
			p.endWith(process.Exited{})
		})
		var got []string
		for _, e := range v.events {
			got = append(got, e.Launcher.SessionID)
		}
		if run := v.events[0].RunID; !slices.Equal(got, []string{run, "s-1", "s-1"}) {
			t.Errorf("sessions %q of run %s", got, run)
		}
	})
}

// A share that is rounded to 0 is still a share: the run has a timeout.
func TestOnProgressTickTellsNoTimeoutFromNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := runObserved(t, adaptertest.Task{Timeout: 168 * time.Hour}, runFor(31*time.Second))
		if got := v.elapsed[0].TimeoutPercentage; got == nil || *got > 0.0001 {
			t.Errorf("%v", got)
		}
	})
}

func TestProgressTickConfig(t *testing.T) {
	for _, tt := range []struct {
		give ProgressTickConfig
		want string // the field that is refused
	}{
		{ProgressTickConfig{}, ""},
		{ProgressTickConfig{TimeoutWarningThreshold: 1}, ""},
		{ProgressTickConfig{Interval: -1}, "ProgressTick.Interval"},
		{ProgressTickConfig{TimeoutWarningThreshold: -0.1}, "ProgressTick.TimeoutWarningThreshold"},
		{ProgressTickConfig{TimeoutWarningThreshold: 1.01}, "ProgressTick.TimeoutWarningThreshold"},
	} {
		_, err := New(Config{
			BaseURL:      "http://x",
			Command:      []string{"true"},
			StateDir:     t.TempDir(),
			ProgressTick: tt.give,
		})
		var refusal *picket.Error
		field := ""
		if errors.As(err, &refusal) {
			field, _ = refusal.Facts["field"].(string)
		}
		if field != tt.want || (err == nil) != (tt.want == "") {
			t.Errorf("%+v: refused for %q, want %q: %v", tt.give, field, tt.want, err)
		}
	}
	h := ProgressTickConfig{}
	if err := h.fill(); err != nil || h.Interval != 30*time.Second || h.TimeoutWarningThreshold != 0.8 {
		t.Errorf("defaults %+v, %v", h, err)
	}
}
