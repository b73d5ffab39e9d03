// Package process launches agents and holds their process trees: it starts a
// command with limits, kills the whole tree at a deadline, and finds what a dead
// adapter left behind. On Linux, except with [picket.ContainmentGroup], a shim process
// stands between adapter and agent. It is the program of the adapter, started again.
// A program that imports this package can be started as a shim: then it does nothing else.
//
// A program that cannot be started from its own file again, such as a library in a
// program in another language, sets [CommandLauncher.Containment] to that group, or
// names a program as [CommandLauncher.Shim].
package process

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/picket-dev/picket"
)

// Launcher starts the agent process of a run.
type Launcher interface {
	// Launch starts the job and returns as soon as it runs. The context ends
	// only the start: the process is ended by its methods.
	Launch(ctx context.Context, job Job) (Process, error)
}

// Job is what a launcher starts.
type Job struct {
	Lease picket.Lease
	// Dir is the workspace: the process's current directory.
	Dir string
	// Env are the variables of the lease, NAME=value. What else the process
	// gets is the launcher's choice.
	Env []string
	// Stdout and Stderr take the output. Writing never blocks for long.
	Stdout io.Writer
	Stderr io.Writer
	// StateDir is the run's own directory, for files beside the workspace.
	// Empty means that there is none.
	StateDir string
	// KillAt is the first deadline of a Deadliner, 0 for none.
	KillAt time.Duration
	// Used takes what the agent's own output says it has used: figures that only
	// grow, for each source and session. It never blocks and may be called until
	// the process is done. Nil: nobody wants to know.
	Used func(picket.UsageReport)
	// Session takes the id of the agent's own session, whenever its output names one. It never
	// blocks and may be called until the process is done. Nil: nobody wants to know.
	Session func(id string)
	// Fail ends the run as crashed, for a reason that people can act on. It
	// never blocks. Nil: it is not to be ended so.
	Fail func(reason string)
	// Ended is told how the process has ended, when all of its output was written and
	// before Done is closed. Nil: nobody wants to know.
	Ended func(Exited)

	// Stdin is what the process reads. Launch does not close it, and does not need it after it has
	// returned. Nil: there is nothing to read.
	Stdin *os.File
	// HeldDir is Dir, held open. The process starts in it even if the path leads
	// elsewhere by then. If it is nil, the process starts in the path.
	HeldDir *os.File
	// Lock is kept open until the whole tree is dead.
	Lock *os.File
}

// ended tells Ended.
func (j Job) ended(e Exited) {
	if j.Ended != nil {
		j.Ended(e)
	}
}

// Process is a running agent: a leader and all that it starts.
type Process interface {
	// PID is the leader's process id, 0 when there is none.
	PID() int
	// Done is closed when the leader has ended, what was left of its tree is
	// dead, and all output was written.
	Done() <-chan struct{}
	// Exit is the leader's end; valid once Done is closed.
	Exit() Exited
	// Terminate asks the whole tree to end (SIGTERM).
	Terminate()
	// Kill ends the whole tree now (SIGKILL). Done is closed soon after.
	Kill()
	// Containment says how the tree is held together: picket.ContainmentCgroup,
	// ContainmentSubreaper or ContainmentGroup, or empty when it is not.
	Containment() string
}

// DeadlineKeeper is a Process that ends at its deadline unless it gets a later one, for example
// after its adapter was killed.
type DeadlineKeeper interface {
	// KillAt says by when the tree must be dead, unless it is told again. The
	// time is a reading of the clock that counts from boot and goes on in
	// suspend (CLOCK_BOOTTIME on Linux).
	KillAt(at time.Duration)
}

// Observer is a Process that can look at its tree.
type Observer interface {
	// Stopped reports that there are processes and every one of them is stopped
	// (state T), as by SIGSTOP.
	Stopped() bool
}

// Exited is how a process ended: with a code, or by a signal, whose code is
// 128 and its number.
type Exited struct {
	Code   int
	Signal string // such as SIGKILL; empty when it ended on its own
	// LimitHit is the limit for which a program was killed, such as "more than 64
	// processes"; empty when it was not, and for agents.
	LimitHit string
}

// Executor is a Process beside whose agent further programs can be run, inside
// the same containment.
type Executor interface {
	// Exec runs a program in the agent's directory and with its environment. It
	// returns when the program and all that it started have ended; ctx ending
	// kills them, and so does the end of the agent. An error means that it could
	// not be started.
	Exec(ctx context.Context, job ExecJob) (Exited, error)
}

// ExecJob is a program to run beside the agent.
type ExecJob struct {
	ID   string   // names it among those of the run
	Argv []string // the program and its arguments; one without a slash is looked up in PATH
	// Timeout is when it is killed. At least 1 ms.
	Timeout time.Duration
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
}

// ExecSupporter is a Launcher that knows before a launch whether its processes are
// Executors.
type ExecSupporter interface {
	SupportsExec() bool
}

// execMark is the variable that a program and all that it starts carry: it
// tells them from the agent's own processes, no matter who is their parent. Ids of
// calls are those of a task, so the run is part of it.
func execMark(run, id string) string { return "PICKET_EXEC=" + run + "/" + id }

// errAgentEnded says that there is no agent any more beside which to run.
var errAgentEnded = errors.New("the agent has ended")
