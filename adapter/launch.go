package adapter

import (
	"context"
	"io"

	"github.com/picket-dev/picket"
)

// Launcher starts the agent process of a run.
type Launcher interface {
	// Launch starts the job and returns as soon as it runs. The context ends
	// only the start: the process is ended by its methods.
	Launch(ctx context.Context, job Job) (Process, error)
}

// Job is what a launcher is to start.
type Job struct {
	Lease picket.Lease
	// Dir is the workspace: the process's current directory.
	Dir string
	// Env are the variables of the lease, NAME=value. What else the process
	// gets is the launcher's choice.
	Env []string
	// Stdout and Stderr take the output. Writing never blocks for long.
	Stdout, Stderr io.Writer
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
	// Containment says how the tree is held together, such as "group".
	Containment() string
}

// Exited is how a process ended: with a code, or by a signal, whose code is
// 128 and its number.
type Exited struct {
	Code   int
	Signal string // such as SIGKILL; empty when it ended by itself
}
