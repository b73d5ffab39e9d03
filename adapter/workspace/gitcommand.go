package workspace

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/text"
)

// GitTimeout is how long one git command, with all processes that it starts, may run.
const GitTimeout = 10 * time.Second

// GitContainment is how the processes of git commands are contained. Like the agent, each
// command has its own process tree, which is killed when the command has ended: filters
// and hooks may be programs of the agent.
type GitContainment struct {
	// Containment and Shim are as in [process.CommandLauncher].
	Containment string
	Shim        []string
	// RunID is the run that the commands are for, and StateDir is the run's own directory.
	// Both are empty for work beside a run.
	RunID    string
	StateDir string
	// LeaseLeft is how long the processes of the lease may still live. Nil means that
	// the commands are not for a lease.
	LeaseLeft func() time.Duration
}

// noProgramsArgs turns off the programs that a configuration can make git start, as
// far as git allows it. Filters can be turned off only by name, and git-lfs is a
// filter, so filters run in the containment.
var noProgramsArgs = []string{
	"-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false", "-c", "core.pager=cat", "-c", "core.editor=:",
	"-c", "core.sshCommand=false", "-c", "core.askPass=", "-c", "credential.helper=", "-c", "protocol.allow=never",
	"-c", "gpg.program=false", "-c", "gpg.ssh.program=false", "-c", "gpg.x509.program=false",
	"-c", "commit.gpgSign=false", "-c", "tag.gpgSign=false", "-c", "log.showSignature=false",
	"-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "submodule.recurse=false", "-c", "diff.submodule=short",
	"-c", "diff.ignoreSubmodules=dirty", "-c", "core.quotePath=true", "-c", "color.ui=false", "-c",
	"advice.detachedHead=false",
	"-c", "worktree.useRelativePaths=false",
}

// gitVariables are the variables of every git command. No transport is allowed,
// whatever the configuration says, so that a missing object is not fetched.
var gitVariables = []string{
	"GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1", "GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=:", "GIT_SEQUENCE_EDITOR=:",
	"GIT_PAGER=cat", "GIT_ASKPASS=", "SSH_ASKPASS=", "GIT_SSH_COMMAND=false", "GIT_TRACE2=0", "GIT_TRACE2_EVENT=0",
	"GIT_TRACE2_PERF=0", "LC_ALL=C",
}

// remoteVariables are those of the commands that talk to a remote. They ask nobody for credentials.
var remoteVariables = []string{
	"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=", "GIT_EDITOR=:", "GIT_PAGER=cat", "GIT_TRACE2=0",
	"GIT_TRACE2_EVENT=0", "GIT_TRACE2_PERF=0", "LC_ALL=C",
}

// gitEnv names the variables of the adapter that git gets beside the usual ones.
// GIT_CONFIG_COUNT and its variables are not in the list, because people keep
// credentials in them.
var gitEnv = []string{
	"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL",
	"GIT_COMMITTER_DATE", "EMAIL",
	"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH", "GIT_LFS_SKIP_SMUDGE",
}

// gitCommand is one command to run.
type gitCommand struct {
	dir     string
	heldDir *os.File // dir, if it is held open
	env     []string // beside that of every command
	argv    []string
	lock    *os.File      // held until its processes are dead
	limit   time.Duration // how long it may run; 0: GitTimeout
	inherit []string      // variables of the adapter that it gets beside gitEnv
	remote  bool          // it talks to a remote
}

// reading lets the command read a file on its standard input.
func (g gitCommand) reading(file string) gitCommand {
	g.argv = append([]string{"sh", "-c", `exec "$@" <"$0"`, file}, g.argv...)
	return g
}

// run runs a command in a process tree of its own and returns when the whole
// tree is dead. The tree is killed when ctx ends, when the lease ends, after
// its limit, and with this process.
func (c GitContainment) run(ctx context.Context, g gitCommand, out io.Writer) error {
	late, limit := ErrGitTimeout, GitTimeout
	if g.limit != 0 {
		late, limit = fmt.Errorf("killed after %s, the limit of this git command", g.limit), g.limit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	failed := &gitError{command: g.argv[len(g.argv)-1]}
	left := c.timeLeft(ctx, limit)
	if failed.err = context.Cause(ctx); failed.err == nil && left <= 0 {
		failed.err = ErrLeaseEnded
	}
	if failed.err != nil {
		return failed
	}
	launcher := process.CommandLauncher{
		Command:     g.argv,
		Env:         slices.Concat(gitEnv, g.inherit),
		Containment: c.Containment,
		Shim:        c.Shim,
	}
	variables := gitVariables
	if g.remote {
		variables = remoteVariables
	}
	job := process.Job{
		Dir:      g.dir,
		Env:      slices.Concat(variables, g.env),
		Stdout:   out,
		StateDir: c.StateDir,
		KillAt:   process.BootClock() + left,
		HeldDir:  g.heldDir,
		Lock:     g.lock,
	}
	job.Lease.RunID = cmp.Or(c.RunID, "git")
	if c.RunID != "" {
		job.Env = append(job.Env, "PICKET_RUN_ID="+c.RunID)
	}
	var said bytes.Buffer
	job.Stderr = &said
	p, err := launcher.Launch(ctx, job)
	if err != nil {
		failed.err = err
		return failed
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Kill()
		<-p.Done()
	}
	if failed.exit = p.Exit(); failed.exit.Code == 0 {
		return nil
	}
	failed.stderr, failed.err = strings.TrimSpace(said.String()), context.Cause(ctx)
	held := c.LeaseLeft == nil || c.LeaseLeft() > 0
	if failed.err == nil && held && process.BootClock() >= job.KillAt {
		failed.err = late // the tree was killed in time, just before ctx ended
	}
	return failed
}

// timeLeft is the time until a command must be dead.
func (c GitContainment) timeLeft(ctx context.Context, limit time.Duration) time.Duration {
	left := limit
	if end, bounded := ctx.Deadline(); bounded {
		left = min(left, time.Until(end))
	}
	if c.LeaseLeft != nil {
		left = min(left, c.LeaseLeft())
	}
	return left
}

var (
	// ErrGitTimeout reports that a git command took longer than GitTimeout and was killed.
	ErrGitTimeout = fmt.Errorf("killed after %s, the limit of each git command: the repository is too large, or a filter of its configuration too slow. "+
		"Make git faster (docs/operations/workers.md, Large repositories), or use the workspace here or copy",
		GitTimeout)
	// ErrLeaseEnded reports that a git command was not started, because nothing may run
	// after the lease.
	ErrLeaseEnded = errors.New("not started, because the lease has ended")
)

// gitError is the error of a git command, with the output of git.
type gitError struct {
	command string
	stderr  string
	exit    process.Exited
	err     error // why it was killed or not started; nil when it exited on its own
}

func (e *gitError) Error() string {
	switch {
	case e.err != nil:
		return fmt.Sprintf("git: %v (%s)", e.err, e.command)
	case e.stderr == "" && e.exit.Signal != "":
		return fmt.Sprintf("git: killed by %s (%s)", e.exit.Signal, e.command)
	case e.stderr == "":
		return fmt.Sprintf("git: exit status %d (%s)", e.exit.Code, e.command)
	}
	// a filter may have written it
	return "git: " + text.Head(strings.ReplaceAll(text.Printable(e.stderr), "\n", "; "), 1024)
}

func (e *gitError) Unwrap() error { return e.err }

// boundedOutput keeps the beginning of what is written.
type boundedOutput struct {
	text   bytes.Buffer
	limit  int
	more   bool
	onFull func() // called when there is more
}

func (b *boundedOutput) Write(p []byte) (int, error) {
	keep := min(len(p), b.limit-b.text.Len())
	b.text.Write(p[:keep])
	if keep < len(p) && !b.more {
		b.more = true
		b.onFull()
	}
	return len(p), nil
}
