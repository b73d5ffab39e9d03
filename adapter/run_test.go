package adapter_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// newAdapter makes an adapter with short times and a state of its own.
func newAdapter(t *testing.T, s *adaptertest.Server, command []string,
	change ...func(*adapter.Config)) *adapter.Adapter {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	cfg := adapter.Config{
		BaseURL: s.URL, Key: adaptertest.Key, HTTP: &http.Client{Transport: transport},
		Command: command, StateDir: t.TempDir(),
		Linger: time.Minute, Grace: 300 * time.Millisecond,
	}
	for _, f := range change {
		f(&cfg)
	}
	a, err := adapter.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestHowAProcessEnds(t *testing.T) {
	rig.SkipShort(t)
	for _, tt := range []struct {
		name     string
		command  []string
		task     adaptertest.Task
		ending   adapter.Ending
		released picket.ExitClass // empty: not released
		evidence picket.ExitClass // empty: none
		code     int
		signal   string
		state    picket.TaskState
		output   string
	}{
		{"crash", []string{"sh", "-c", "echo oops >&2; exit 3"}, adaptertest.Task{}, adapter.EndReleased,
			picket.ExitCrash, "", 3, "", picket.TaskHandoff, ""},
		{"killed from outside", []string{"sh", "-c", "kill -9 $$"}, adaptertest.Task{}, adapter.EndReleased,
			picket.ExitCrash, "", 137, "SIGKILL", picket.TaskHandoff, ""},
		{"retried", []string{"sh", "-c", "exit 1"}, adaptertest.Task{Retries: 1}, adapter.EndReleased, picket.ExitCrash,
			"", 1, "", picket.TaskQueued, ""},
		{"no result", []string{"true"}, adaptertest.Task{}, adapter.EndReleased, picket.ExitNoResult, "", 0, "",
			picket.TaskHandoff, ""},
		{"not found", []string{"/nonexistent/agent"}, adaptertest.Task{}, adapter.EndReleased, picket.ExitCrash, "",
			127, "", picket.TaskHandoff, ""},
		{"timeout", []string{"sleep", "1000"}, adaptertest.Task{Timeout: time.Second}, adapter.EndReleased,
			picket.ExitTimeout, "", 143, "SIGTERM", picket.TaskHandoff, ""},
		{"on exit complete", []string{"sh", "-c", "echo hi"}, adaptertest.Task{OnExit: picket.OnExitComplete},
			adapter.EndCompleted, "", picket.ExitSuccess, 0, "", picket.TaskReview, `"hi\n"`},
		{"mark_complete", proctest.Agent("complete"), adaptertest.Task{}, adapter.EndCompleted, "", picket.ExitSuccess,
			0, "",
			picket.TaskReview, `{"answer":42}`},
		{"mark_complete, then exit 0 with onExit", proctest.Agent("complete"),
			adaptertest.Task{OnExit: picket.OnExitComplete},
			adapter.EndCompleted, "", picket.ExitSuccess, 0, "", picket.TaskReview, `{"answer":42}`},
		{"mark_complete, then crash", proctest.Agent("complete-then-crash"), adaptertest.Task{}, adapter.EndCompleted,
			"",
			picket.ExitCrash, 3, "", picket.TaskReview, `{"answer":42}`},
		{"mark_complete, then linger", proctest.Agent("complete-then-linger"), adaptertest.Task{}, adapter.EndCompleted,
			"",
			picket.ExitKilled, 143, "SIGTERM", picket.TaskReview, `{"answer":42}`},
		{"mark_complete, then stay", proctest.Agent("complete-then-stay"), adaptertest.Task{}, adapter.EndCompleted, "",
			picket.ExitKilled, 137, "SIGKILL", picket.TaskReview, `{"answer":42}`},
		{"request_human_help", proctest.Agent("ask"), adaptertest.Task{}, adapter.EndHandoff, "", picket.ExitSuccess, 0,
			"",
			picket.TaskHandoff, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := adaptertest.Start(t)
			lease := s.Grant(tt.task)
			a := newAdapter(t, s, tt.command, func(c *adapter.Config) {
				if tt.evidence == picket.ExitKilled {
					c.Linger = 100 * time.Millisecond
				}
			})
			res, err := a.RunLease(proctest.Patience(t), lease)
			if (err != nil) != (tt.name == "not found") {
				t.Fatal(err)
			}
			v := s.View(lease.TaskID)
			run := v.Runs[0]
			if res.Ending != tt.ending || v.State != tt.state {
				t.Errorf("ended %s, task %s; want %s, %s", res.Ending, v.State, tt.ending, tt.state)
			}
			if got := classOf(run.Released); got != tt.released {
				t.Errorf("released as %q, want %q", got, tt.released)
			}
			if got := classOf(run.ExitReport); got != tt.evidence {
				t.Errorf("evidence is %q, want %q", got, tt.evidence)
			}
			if said := run.ExitReport != nil &&
				strings.HasSuffix(run.ExitReport.Detail,
					"that it then ended so changes nothing]"); said != (tt.evidence == picket.ExitCrash) {
				t.Errorf("the evidence is %+v", run.ExitReport)
			}
			if res.Exit.Code == nil {
				t.Fatal("there is no code")
			}
			if got := *res.Exit.Code; got != tt.code {
				t.Errorf("code is %d, want %d", got, tt.code)
			}
			if tt.signal != "" && (res.Exit.Signal == nil || *res.Exit.Signal != tt.signal) {
				t.Errorf("signal is %v, want %s", res.Exit.Signal, tt.signal)
			}
			if string(v.Output) != tt.output {
				t.Errorf("output is %s, want %s", v.Output, tt.output)
			}
			if res.TimedOut != (tt.name == "timeout") {
				t.Errorf("timed out: %v", res.TimedOut)
			}
		})
	}
}

func classOf(e *picket.Exit) picket.ExitClass {
	if e == nil {
		return ""
	}
	return e.Class
}
