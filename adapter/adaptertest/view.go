package adaptertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/picket-dev/picket"
)

// Call is a request that arrived, in the order of arrival.
type Call struct {
	Method string
	Path   string // the path without its query
	RunID  string // of the lease presented; empty on the control plane
	At     time.Time
	Status int // of the answer; 0 when it was dropped or is under way
}

// View is what became of a task.
type View struct {
	State    picket.TaskState
	Token    int64 // the highest fencing token granted
	Output   picket.RawJSON
	Summary  string
	Reports  []picket.Progress
	Question string  // of request_human_help
	Bundle   *Bundle // of its branch, the one that was handed in last
	Runs     []RunView
}

// RunView is what became of one lease of a task, oldest first in View.Runs.
type RunView struct {
	RunID       string
	LeaseToken  picket.Secret
	AgentToken  picket.Secret // empty when the acquire did not ask for one
	Renewals    int
	Reclaims    int              // those that raised the token
	Released    *picket.Exit     // what it was released with
	ExitReport  *picket.Exit     // what was reported as evidence, last
	Changes     *picket.Evidence // what the run has changed, as handed in last
	Containment string
	Stdout      string
	Stderr      string
	Events      []picket.RunEvent
	Usage       []picket.UsageReport         // as they arrived, repeated ones too
	Execs       map[string]picket.ExecResult // the first result of each program, by its call
	ExecPosts   int                          // results that arrived, repeated and refused ones too
	Ended       time.Time                    // zero while the lease is held
}

// View answers what has become of a task.
func (s *Server) View(taskID string) View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view(taskID)
}

func (s *Server) view(taskID string) View {
	t, ok := s.tasks[taskID]
	if !ok {
		return View{}
	}
	v := t.view
	v.Reports = slices.Clone(v.Reports)
	for _, l := range t.runs {
		run := l.run
		run.Stdout, run.Stderr = string(l.logs["stdout"]), string(l.logs["stderr"])
		run.Events, run.Execs, run.Usage = slices.Clone(run.Events), maps.Clone(run.Execs), slices.Clone(run.Usage)
		v.Runs = append(v.Runs, run)
	}
	return v
}

// Await returns as soon as ok holds for the task, or with ctx's error. ok is
// asked after every change.
func (s *Server) Await(ctx context.Context, taskID string, ok func(View) bool) (View, error) {
	for {
		s.mu.Lock()
		v, changed := s.view(taskID), s.changed
		s.mu.Unlock()
		if ok(v) {
			return v, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return v, fmt.Errorf("task %s is %s: %w", taskID, v.State, ctx.Err())
		}
	}
}

// AwaitCalls returns as soon as n calls of a path have arrived.
func (s *Server) AwaitCalls(ctx context.Context, path string, n int) error {
	for {
		s.mu.Lock()
		got, changed := len(s.callsOf(path)), s.changed
		s.mu.Unlock()
		if got >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d calls of %s: %w", got, n, path, ctx.Err())
		}
	}
}

// Calls are the requests that arrived for a path; all of them for "".
func (s *Server) Calls(path string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.callsOf(path)
}

func (s *Server) callsOf(path string) []Call {
	var out []Call
	for _, c := range s.calls {
		if path == "" || c.Path == path {
			out = append(out, c)
		}
	}
	return out
}
