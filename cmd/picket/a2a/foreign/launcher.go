package foreign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/internal/text"
)

// Launcher passes the tasks of a worker on to a foreign agent. It starts no program: the adapter itself speaks with
// the agent, so there are no processes to hold together, and the credential for the agent is handed to nobody. It is a
// [process.Launcher].
type Launcher struct {
	remote *Remote
	open   *openTasks
	limits limits
}

// limits are how long a run waits for what.
type limits struct {
	silence time.Duration // of a foreign agent that does not answer, before the run is given up
	first   time.Duration // the first pause after a failure; it doubles
	longest time.Duration // the longest one
	flush   time.Duration // between two reports of what the foreign agent has emitted
	inbox   time.Duration // that a read of the inbox waits for a message
	stream  time.Duration // after which a stream is opened again
	approve time.Duration // that a foreign task may wait for its approval after a person has said that it is given
}

var usualLimits = limits{
	silence: 10 * time.Minute,
	first:   time.Second,
	longest: 30 * time.Second,
	flush:   2 * time.Second,
	inbox:   30 * time.Second,
	stream:  10 * time.Minute,
	approve: 5 * time.Minute,
}

// NewLauncher makes the launcher of a worker. dir is where it notes foreign tasks that are open. c reads tasks with
// the key of the worker.
func NewLauncher(r *Remote, dir string, c *client.Client, log *slog.Logger) *Launcher {
	namespace, _ := picket.KeyNamespace(c.Key().Reveal())
	task := func(ctx context.Context, id string) (picket.Task, error) { return c.Tasks.Get(ctx, id) }
	return &Launcher{remote: r, limits: usualLimits, open: newOpenTasks(dir, c.URL()+" "+namespace, r, task, log)}
}

// CancelOpen cancels foreign tasks whose task is over, until ctx ends. Then it looks at them a last time, for at most
// as long as patience.
func (l *Launcher) CancelOpen(ctx context.Context, patience time.Duration) {
	l.open.run(ctx)
	last, stop := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer stop()
	l.open.sweep(last)
}

// HandleEvent takes the events of the adapter.
func (l *Launcher) HandleEvent(e adapter.Event) {
	if e.Kind == adapter.EventEnded {
		l.open.end(e.TaskID, e.RunID)
	}
}

// Launch begins to work on a task.
func (l *Launcher) Launch(_ context.Context, job process.Job) (process.Process, error) {
	ctx, end := context.WithCancelCause(context.Background())
	r := &foreignRun{
		Launcher: l,
		job:      job,
		proxy:    adapter.NewProxy(job.Lease, variable(job.Env, "PICKET_PROXY_URL"), nil),
		end:      end,
		done:     make(chan struct{}),
	}
	l.open.begin(job.Lease.TaskID, job.Lease.RunID)
	go r.run(ctx)
	return r, nil
}

// variable is the value of a variable of a job.
func variable(env []string, name string) string {
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// The reasons for which a run is ended from outside.
var (
	errTerminated = errors.New("the run was asked to end")
	errKilled     = errors.New("the run was ended")
)

// foreignRun is one run: the work on a task by a foreign agent. It is a [process.Process] without a process.
type foreignRun struct {
	*Launcher
	job   process.Job
	proxy *adapter.Proxy
	end   context.CancelCauseFunc
	done  chan struct{}
	exit  process.Exited // valid once done is closed
}

// PID is 0: there is no process.
func (r *foreignRun) PID() int { return 0 }

// Done is closed when the run speaks with nobody any more.
func (r *foreignRun) Done() <-chan struct{} { return r.done }

// Exit is how the run has ended, in the form of a process.
func (r *foreignRun) Exit() process.Exited { return r.exit }

// Terminate ends the run.
func (r *foreignRun) Terminate() { r.end(errTerminated) }

// Kill ends the run.
func (r *foreignRun) Kill() { r.end(errKilled) }

// Containment is empty: there is no process tree.
func (r *foreignRun) Containment() string { return "" }

// run works until the task is handed in or given up, or the run is ended.
func (r *foreignRun) run(ctx context.Context) {
	defer close(r.done)
	err := (&work{foreignRun: r, saved: checkpointIn(r.job.Lease.LastReport, r.remote.URL, r.job.Lease.TaskID)}).do(ctx)
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errKilled):
		r.exit = process.Exited{Code: 137, Signal: "SIGKILL"}
	case cause != nil:
		r.exit = process.Exited{Code: 143, Signal: "SIGTERM"}
	case err != nil:
		r.say(r.job.Stderr, "%v", err)
		r.exit.Code = 1
	}
	if r.job.Ended != nil {
		r.job.Ended(r.exit)
	}
}

// say writes a line of the output of the run.
func (r *foreignRun) say(w io.Writer, format string, args ...any) {
	if w != nil {
		_, _ = io.WriteString(w, text.OneLine(fmt.Sprintf(format, args...))+"\n")
	}
}
