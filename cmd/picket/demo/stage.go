package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/text"
)

// demoEnv is where a demo plays: a directory, a server of its own, and the
// processes it started, which it ends, all of them, whatever happened.
type demoEnv struct {
	dir      string
	binary   string
	env      []string
	out      io.Writer
	began    time.Time
	actors   []*childProcess
	server   *childProcess
	s        *cli.Connection
	agents   strings.Builder // entries below agents in picket.yaml
	cleanups []func()        // what the chapters opened, newest last
}

func newDemoEnv(out io.Writer) (*demoEnv, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "picket-demo-")
	if err != nil {
		return nil, err
	}
	st := &demoEnv{dir: dir, binary: binary, out: out, began: time.Now()}
	bin := filepath.Join(dir, "bin")
	if err := errors.Join(os.Mkdir(bin, 0o700), os.Symlink(binary, filepath.Join(bin, "picket"))); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "PICKET_") && !strings.HasPrefix(e, "XDG_") && !strings.HasPrefix(e, "PATH=") {
			st.env = append(st.env, e)
		}
	}
	st.env = append(st.env, "PATH="+bin+":"+os.Getenv("PATH"), "DEMO_DIR="+dir, "NO_COLOR=1",
		"PICKET_CONFIG="+dir+"/picket.yaml",
		"XDG_CONFIG_HOME="+dir+"/config", "XDG_STATE_HOME="+dir+"/state", "XDG_DATA_HOME="+dir+"/data")
	if err := st.configure("# The keys of the chapters.\n"); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return st, nil
}

// narrate narrates one step.
func (st *demoEnv) narrate(format string, args ...any) {
	p := term.Painter(st.out)
	fmt.Fprintf(st.out, "%s %s\n", p.Dim(fmt.Sprintf("%5.1fs", time.Since(st.began).Seconds())),
		fmt.Sprintf(format, args...))
}

// printChapter opens a chapter.
func (st *demoEnv) printChapter(n, of int, c chapter) {
	p := term.Painter(st.out)
	fmt.Fprintf(st.out, "\n%s\n", p.Bold(fmt.Sprintf("%d of %d: %s", n, of, c.title)))
	fmt.Fprintf(st.out, "%s\n", p.Dim(c.lead))
}

func (st *demoEnv) path(name string) string { return filepath.Join(st.dir, name) }

// createFile lets an agent's script go on.
func (st *demoEnv) createFile(name string) error { return os.WriteFile(st.path(name), nil, 0o600) }

// script writes an agent's script and answers its path.
func (st *demoEnv) script(name, text string) (string, error) {
	return st.path(name), os.WriteFile(st.path(name), []byte(text), 0o700)
}

// configure adds keys to the picket.yaml of all that the demo starts. Chapters do so before the server is started,
// and no two name the same key.
func (st *demoEnv) configure(format string, args ...any) error {
	f, err := os.OpenFile(st.path("picket.yaml"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, format, args...)
	return errors.Join(err, f.Close())
}

// configureAgent adds an entry below agents. Chapters do so before the server is started.
func (st *demoEnv) configureAgent(format string, args ...any) {
	fmt.Fprintf(&st.agents, format, args...)
}

// runShell runs a command as a reader would type it, shows it with its answer, and
// fails unless it ends with the expected exit code.
func (st *demoEnv) runShell(ctx context.Context, want int, command string) (string, error) {
	fmt.Fprintln(st.out, "         $ "+command)
	sh := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	sh.Dir, sh.Env = st.dir, st.env
	sh.WaitDelay = time.Second
	answer, err := sh.CombinedOutput()
	text := strings.TrimSpace(string(answer))
	st.printOutput(text)
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return text, err
	}
	if got := sh.ProcessState.ExitCode(); got != want {
		return text, fmt.Errorf("expected exit code %d of %s, got %d", want, command, got)
	}
	return text, nil
}

// printOutput shows what a program has printed.
func (st *demoEnv) printOutput(output string) {
	for line := range strings.Lines(output) {
		fmt.Fprintln(st.out, "         | "+text.Printable(strings.TrimRight(line, "\n")))
	}
}

// openServer starts the demo's own server and makes it that of every command.
func (st *demoEnv) openServer(ctx context.Context) error {
	if st.agents.Len() > 0 {
		if err := st.configure("agents:%s", st.agents.String()); err != nil {
			return err
		}
	}
	url, err := st.serve(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	key, err := cli.ReadSecret(st.path("data/admin.key"))
	if err != nil {
		return err
	}
	st.s = cli.NewConnection(url, key)
	st.env = append(st.env, st.s.Environment()...)
	return nil
}

// serve starts a server and waits until it serves.
func (st *demoEnv) serve(ctx context.Context, address string) (url string, err error) {
	killed := st.server
	st.server, err = st.start("up", "--listen", address, "--data", st.path("data"), "--log-level", "warn")
	if err != nil {
		return "", err
	}
	if killed != nil { // its store is this one's now
		maps.Copy(st.server.seen, killed.seen)
		st.actors = slices.DeleteFunc(st.actors, func(a *childProcess) bool { return a == killed })
	}
	var line string
	err = PollUntil(ctx, func() (bool, error) {
		line = st.server.stdout()
		if st.server.ended() {
			return false, fmt.Errorf("the server ended: %s", st.server.stderr())
		}
		return strings.Contains(line, "\n"), nil
	})
	if err != nil {
		return "", fmt.Errorf("wait for the server: %w", err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "ready ")), nil
}

// killServer ends the server and leaves its store to the next one.
func (st *demoEnv) killServer() error {
	st.server.descendants()
	if err := unix.Kill(st.server.pid(), unix.SIGKILL); err != nil {
		return err
	}
	<-st.server.done
	return nil
}

// task reads a task again.
func (st *demoEnv) task(ctx context.Context, id string) (picket.Task, error) {
	return st.s.Tasks.Get(ctx, id)
}

// awaitTask waits until a task looks as expected. One that no worker has to do
// with any more will not change on its own.
func (st *demoEnv) awaitTask(ctx context.Context, id, what string,
	as func(picket.Task) bool) (t picket.Task, err error) {
	err = PollUntil(ctx, func() (bool, error) {
		if t, err = st.task(ctx, id); err != nil || as(t) {
			return err == nil, err
		}
		if t.State != picket.TaskQueued && t.State != picket.TaskLeased {
			return false, fmt.Errorf("the task is in state %s", t.State)
		}
		return false, nil
	})
	if err != nil {
		return t, fmt.Errorf("not observed: %s: %w", what, err)
	}
	return t, nil
}

// awaitExit waits until the exit of a task's last run is known. It comes after the
// result and changes the digest of the review.
func (st *demoEnv) awaitExit(ctx context.Context, id string) error {
	err := PollUntil(ctx, func() (bool, error) {
		t, err := st.task(ctx, id)
		if err != nil || len(t.Runs) == 0 {
			return false, err
		}
		exit := t.Runs[len(t.Runs)-1].Exit
		return exit != nil && (exit.Code != nil || exit.Signal != nil), nil
	})
	if err != nil {
		return fmt.Errorf("not observed: the exit of the agent: %w", err)
	}
	return nil
}

// awaitText waits until an agent has written a file with a text in it.
func (st *demoEnv) awaitText(ctx context.Context, name, text string) error {
	return PollUntil(ctx, func() (bool, error) {
		written, err := os.ReadFile(st.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return strings.Contains(string(written), text), err
	})
}

// demoStepTimeout bounds the wait for one step.
const demoStepTimeout = 30 * time.Second

// PollUntil looks again and again until done, an error, or patience is over.
func PollUntil(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, demoStepTimeout, fmt.Errorf("not within %s", demoStepTimeout))
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if err := cli.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// stopWorkers ends the workers of a chapter, newest first, and reports any process
// that would not go.
func (st *demoEnv) stopWorkers() error {
	var errs, left = []error(nil), []*childProcess(nil)
	for i := len(st.actors) - 1; i >= 0; i-- {
		if a := st.actors[i]; a != st.server {
			errs = append(errs, a.stop(), a.killLeftovers())
		} else {
			left = append(left, a)
		}
	}
	st.actors = left
	return errors.Join(errs...)
}

// close ends every process of the stage, the server last.
func (st *demoEnv) close() error {
	errs := []error{st.stopWorkers()}
	for _, a := range st.actors {
		errs = append(errs, a.stop(), a.killLeftovers())
	}
	for i := len(st.cleanups) - 1; i >= 0; i-- {
		st.cleanups[i]()
	}
	return errors.Join(append(errs, os.RemoveAll(st.dir))...)
}

// killLeftovers kills what an actor has started and left behind.
func (a *childProcess) killLeftovers() error {
	var errs []error
	for pid := range a.seen {
		if ProcessAlive(pid) {
			_ = unix.Kill(pid, unix.SIGKILL)
			errs = append(errs, fmt.Errorf("process %d was left over", pid))
		}
	}
	return errors.Join(errs...)
}
