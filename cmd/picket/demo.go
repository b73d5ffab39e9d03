package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
)

func newDemo() *cobra.Command {
	return noun("demo", "See it happen, offline, with real processes", newDemoZombie(), newDemoBudget())
}

func newDemoZombie() *cobra.Command {
	return &cobra.Command{
		Use: "zombie", Short: "A frozen worker wakes up after its task was given to another", Args: args(cobra.NoArgs),
		Long: "A worker and its agent are frozen with SIGSTOP, like a closed laptop, until their lease has run out.\n" +
			"A second worker takes the task over. Then the first agent wakes and writes, and is refused.\n" +
			"A server of its own, real processes, no network; exit 0 only if all of it was observed.",
		RunE: func(cmd *cobra.Command, _ []string) error { return staged(cmd, playZombie) },
	}
}

// staged plays a demo within a minute and until Ctrl-C.
func staged(cmd *cobra.Command, play func(context.Context, io.Writer) error) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the demo took longer than a minute"))
	defer cancel()
	return play(ctx, cmd.OutOrStdout())
}

// act is a part of a play; it fails when something was not observed to happen.
type act func(context.Context) error

// perform opens a stage, prepares it, opens its server, plays the acts, and
// ends every process whatever happened.
func perform(ctx context.Context, out io.Writer, prepare func(*stage) ([]act, error)) (err error) {
	if runtime.GOOS != "linux" {
		return notYet("the demo on "+runtime.GOOS, "a list of processes as Linux has it in /proc", "Run it on Linux.")
	}
	st, err := newStage(out)
	if err != nil {
		return err
	}
	defer func() {
		if closing := st.close(); closing != nil {
			err = errors.Join(err, closing)
		}
		if err == nil {
			st.tell("%s", painter(out).good("All of it was observed, and no process is left."))
		}
	}()
	acts, err := prepare(st)
	if err != nil {
		return err
	}
	if err := st.openServer(ctx); err != nil {
		return err
	}
	st.tell("A server of its own: %s", st.s.client.BaseURL)
	for _, play := range acts {
		if err := play(ctx); err != nil {
			if ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
				err = errors.Join(context.Cause(ctx), err)
			}
			return err
		}
	}
	return nil
}

// stage is where a demo plays: a directory, a server of its own, and the
// processes it started, which it ends, all of them, whatever happened.
type stage struct {
	dir    string
	binary string
	env    []string
	out    io.Writer
	began  time.Time
	actors []*actor
	s      *server
}

func newStage(out io.Writer) (*stage, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "picket-demo-")
	if err != nil {
		return nil, err
	}
	st := &stage{dir: dir, binary: binary, out: out, began: time.Now()}
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
		"XDG_CONFIG_HOME="+dir+"/config", "XDG_STATE_HOME="+dir+"/state", "XDG_DATA_HOME="+dir+"/data")
	return st, nil
}

// tell narrates one step.
func (st *stage) tell(format string, args ...any) {
	p := painter(st.out)
	fmt.Fprintf(st.out, "%s %s\n", p.dim(fmt.Sprintf("%5.1fs", time.Since(st.began).Seconds())), fmt.Sprintf(format, args...))
}

func (st *stage) path(name string) string { return filepath.Join(st.dir, name) }

// cue lets an agent's script go on.
func (st *stage) cue(name string) error { return os.WriteFile(st.path(name), nil, 0o600) }

// openServer starts the demo's own server and waits until it serves.
func (st *stage) openServer(ctx context.Context) error {
	up, err := st.start("up", "--listen", "127.0.0.1:0", "--data", st.path("data"), "--log-level", "warn")
	if err != nil {
		return err
	}
	var line string
	err = until(ctx, func() (bool, error) {
		line = up.said()
		if up.ended() {
			return false, fmt.Errorf("the server ended: %s", up.complained())
		}
		return strings.Contains(line, "\n"), nil
	})
	if err != nil {
		return fmt.Errorf("wait for the server: %w", err)
	}
	url := strings.TrimSpace(strings.TrimPrefix(line, "ready "))
	key, err := readSecret(st.path("data/admin.key"))
	if err != nil {
		return err
	}
	st.s = &server{client: &adapter.Client{BaseURL: url, Key: key}}
	st.env = append(st.env, st.s.environment()...)
	return nil
}

// task reads a task anew.
func (st *stage) task(ctx context.Context, id string) (t picket.Task, err error) {
	err = st.s.get(ctx, "/api/v1/tasks/"+segment(id), &t, nil)
	return t, err
}

// awaitTask waits until a task looks as expected.
func (st *stage) awaitTask(ctx context.Context, id, what string, as func(picket.Task) bool) (t picket.Task, err error) {
	err = until(ctx, func() (bool, error) {
		t, err = st.task(ctx, id)
		return err == nil && as(t), err
	})
	if err != nil {
		return t, fmt.Errorf("not observed: %s: %w", what, err)
	}
	return t, nil
}

// patience bounds the wait for one step.
const patience = 15 * time.Second

// until looks again and again until done, an error, or patience is over.
func until(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %s", patience))
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// close ends every process of the stage, newest first, and reports any that
// would not go.
func (st *stage) close() error {
	var errs []error
	for i := len(st.actors) - 1; i >= 0; i-- {
		errs = append(errs, st.actors[i].end())
	}
	for _, a := range st.actors {
		for pid := range a.seen {
			if living(pid) {
				_ = unix.Kill(pid, unix.SIGKILL)
				errs = append(errs, fmt.Errorf("process %d was left over", pid))
			}
		}
	}
	return errors.Join(append(errs, os.RemoveAll(st.dir))...)
}
