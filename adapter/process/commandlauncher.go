package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/picket-dev/picket"
)

// CommandLauncher starts a program in a process group of its own, with an
// environment of the usual variables, those named in Env and the lease's. On
// Linux, except with [picket.ContainmentGroup], the agent runs under a shim: this
// very program started again, or Shim. It holds the whole tree together, and
// outlives a killed adapter for as long as it takes to kill the tree.
type CommandLauncher struct {
	// Command is the program and its arguments, never a shell line. A relative
	// path is one from the adapter's current directory. Required.
	Command []string
	// Env names variables passed on beside the usual ones. Defaults to none.
	Env []string
	// Containment is how the tree is held together, one of picket.Containments.
	// Defaults to the best that works here; one that does not is an error of
	// Launch.
	Containment string
	// Shim is a program, and its arguments, that imports this package.
	// Defaults to the running program.
	Shim []string
	// Limits bound what the program, and those that are run beside it, take of
	// the machine. Defaults to the defaults of [Limits].
	Limits Limits
}

// DefaultEnv names the variables of the adapter's environment that an agent
// gets: what programs need to find themselves and their language, and no
// credentials.
var DefaultEnv = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "NO_COLOR",
	"TMPDIR", "TMP", "TEMP", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "SystemRoot", "ComSpec", "PATHEXT", "USERPROFILE", "APPDATA", "LOCALAPPDATA",
}

// allowedEnv picks from environ the usual variables and those named.
func allowedEnv(environ, named []string) []string {
	var env []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if slices.Contains(DefaultEnv, name) || strings.HasPrefix(name, "LC_") || slices.Contains(named, name) {
			env = append(env, kv)
		}
	}
	return env
}

// Launch starts the program. If ctx has ended, it returns the error of ctx. A Containment or a limit that cannot be
// used is a *[picket.Error] with CodeValidation. Other errors come from the system, such as [exec.ErrNotFound] for a
// program that is not in PATH, or from the shim.
func (l CommandLauncher) Launch(ctx context.Context, job Job) (Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	level, err := l.plannedLevel()
	if err != nil {
		return nil, err
	}
	if err := l.Limits.Fill(); err != nil {
		return nil, err
	}
	program := l.Command[0]
	if strings.ContainsRune(program, filepath.Separator) {
		abs, err := filepath.Abs(program)
		if err != nil {
			return nil, fmt.Errorf("find program: %w", err)
		}
		program = abs
	}
	cmd := exec.Command(program, l.Command[1:]...)
	cmd.Args[0] = l.Command[0]
	cmd.Dir = job.Dir
	cmd.Env = append(allowedEnv(os.Environ(), l.Env), job.Env...)
	if cmd.Err != nil {
		return nil, fmt.Errorf("start %s: %w", l.Command[0], cmd.Err)
	}
	var p Process
	if level == picket.ContainmentGroup {
		p, err = l.launchGroup(job, cmd)
	} else {
		p, err = l.launchShim(ctx, job, cmd, level)
	}
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, startRemedy(cmd.Path, err))
	}
	return p, nil
}

// startRemedy tells what to do about a start that failed for a reason which its
// own words hide.
func startRemedy(program string, err error) string {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return "; the limit on open files is too low for the adapter: raise it (ulimit -n 1024), or run fewer agents at once (--max)"
	}
	if info, missing := os.Stat(program); missing != nil || !info.Mode().IsRegular() ||
		!errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	name := scriptInterpreter(program)
	if _, missing := os.Stat(name); name == "" || missing == nil {
		return ""
	}
	return fmt.Sprintf("; its first line names %s, which is not there", name)
}

// scriptInterpreter is what the first line of a script names; empty for other files.
func scriptInterpreter(program string) string {
	f, err := os.Open(program)
	if err != nil {
		return ""
	}
	defer f.Close()
	var start [256]byte
	n, _ := io.ReadFull(f, start[:])
	line, _, _ := strings.Cut(string(start[:n]), "\n")
	line, script := strings.CutPrefix(line, "#!")
	if words := strings.Fields(line); script && len(words) > 0 {
		return words[0]
	}
	return ""
}

// launchGroup starts the program without a shim.
func (l CommandLauncher) launchGroup(job Job, cmd *exec.Cmd) (Process, error) {
	ownGroup(cmd)
	out, err := newOutputPipes(job.Stdout, job.Stderr)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = out.writers[0], out.writers[1]
	if job.Stdin != nil {
		cmd.Stdin = job.Stdin
	}
	dir, err := startInHeldDir(cmd, job.HeldDir)
	if err != nil {
		out.abandon()
		return nil, err
	}
	InheritLock(cmd, job.Lock)
	if err := cmd.Start(); err != nil {
		out.abandon()
		dir.Close()
		return nil, fmt.Errorf("start %s: %w", l.Command[0], err)
	}
	out.copyInBackground()
	p := &groupProcess{
		cmd:        cmd,
		pid:        cmd.Process.Pid,
		runID:      job.Lease.RunID,
		execLimits: l.Limits.execLimits(),
		done:       make(chan struct{}),
		dir:        dir,
	}
	if job.StateDir != "" {
		_ = p.record().write(job.StateDir) // a run is not worth less without it
	}
	go func() {
		defer close(p.done)
		p.reap()
		dir.Close() // no program is started beside it any more
		out.finish()
		job.ended(p.exit)
	}()
	return p, nil
}

// startInHeldDir lets a command start in a directory that is held open. It answers a
// descriptor of it that the path in cmd.Dir needs as long as that is used.
func startInHeldDir(cmd *exec.Cmd, dir *os.File) (own *os.File, err error) {
	if dir == nil || HeldDirPath(dir) == dir.Name() {
		return nil, nil
	}
	if own, err = os.Open(HeldDirPath(dir)); err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	cmd.Dir = HeldDirPath(own)
	return own, nil
}

// groupProcess is a program and its process group.
type groupProcess struct {
	cmd        *exec.Cmd
	pid        int
	runID      string
	execLimits treeLimits // of programs beside the agent
	dir        *os.File   // that cmd.Dir leads to; may be nil
	done       chan struct{}
	exit       Exited // valid once done is closed

	mu     sync.Mutex
	reaped bool // the process id may belong to somebody else now
}

func (p *groupProcess) PID() int              { return p.pid }
func (p *groupProcess) Done() <-chan struct{} { return p.done }
func (p *groupProcess) Exit() Exited          { return p.exit }

// outputPipes copies the output of a process from pipes that it owns, so that a
// grandchild that keeps them open cannot hold up the end of a run.
type outputPipes struct {
	readers [2]*os.File
	writers [2]*os.File
	to      [2]io.Writer
	copying sync.WaitGroup
}

func newOutputPipes(to ...io.Writer) (*outputPipes, error) {
	d := &outputPipes{}
	for i := range d.to {
		d.to[i] = to[i]
		if d.to[i] == nil {
			d.to[i] = io.Discard
		}
		var err error
		if d.readers[i], d.writers[i], err = os.Pipe(); err != nil {
			d.abandon()
			return nil, fmt.Errorf("make pipe: %w", err)
		}
	}
	return d, nil
}

func (d *outputPipes) copyInBackground() {
	for i := range d.to {
		d.writers[i].Close()
		d.copying.Go(func() {
			// A writer that fails must not stop the agent with a full pipe.
			if _, err := io.Copy(d.to[i], d.readers[i]); err != nil {
				io.Copy(io.Discard, d.readers[i])
			}
		})
	}
}

// maxOutputDelay is how long output is still read after the tree is dead, from a pipe that
// an escaped process holds open.
const maxOutputDelay = time.Second

// finish reads what is left.
func (d *outputPipes) finish() {
	for _, r := range d.readers {
		r.SetReadDeadline(time.Now().Add(maxOutputDelay))
	}
	d.copying.Wait()
	for _, r := range d.readers {
		r.Close()
	}
}

func (d *outputPipes) abandon() {
	for i := range d.to {
		d.readers[i].Close()
		d.writers[i].Close()
	}
}

// ContainmentPlanner is a Launcher that knows before a launch how it will hold
// the tree. Process.Containment reports it after the launch.
type ContainmentPlanner interface {
	PlannedContainment() string
}

// PlannedContainment is the level that the next process gets except for a cgroup that cannot
// be made by then.
func (l CommandLauncher) PlannedContainment() string {
	level, err := l.plannedLevel()
	if err != nil {
		return ""
	}
	return level
}

// findProgram looks a program up in PATH, which the agent has, too; a name with
// a slash is taken as it is, relative to the agent's directory.
func findProgram(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	return exec.LookPath(name)
}

// SupportsExec says that beside every process of this launcher others can be run.
func (l CommandLauncher) SupportsExec() bool { return canExec }

// HeldDirPath is a path that leads to a directory that is held open, even if the
// directory was moved or replaced. It is valid in this process and in one that it
// starts. Without /proc it is the path by which the directory was opened.
func HeldDirPath(dir *os.File) string {
	path := "/proc/self/fd/" + strconv.Itoa(int(dir.Fd()))
	if held, err := dir.Stat(); err == nil {
		if info, err := os.Stat(path); err == nil && os.SameFile(held, info) {
			return path
		}
	}
	return dir.Name()
}

// InheritLock passes a lock on to a command that is not yet started: the lock is held
// until both the command and this process have closed it. It does nothing on Windows.
func InheritLock(cmd *exec.Cmd, lock *os.File) {
	if lock != nil && runtime.GOOS != "windows" {
		cmd.ExtraFiles = []*os.File{lock}
	}
}
