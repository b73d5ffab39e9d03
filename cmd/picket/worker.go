package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
)

// worker is the adapter of one `picket run`: a process in a session of its own
// from the start, so that neither Ctrl-C nor a closed terminal nor the end of
// `picket run` touches the task. What the agent prints goes through files,
// which, unlike a pipe, do not break when the reader goes.
type worker struct {
	binary  string
	args    []string // flags of `picket adapter`
	command []string // what it launches
	env     []string
	dir     string // of its files
	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended
	err     error
}

const keepWorkers = 7 * 24 * time.Hour

func newWorker(cmd *cobra.Command, s *server, spec picket.TaskSpec, command []string) (*worker, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the picket binary: %w", err)
	}
	f := cmd.Flags()
	workspace, _ := f.GetString("workspace")
	switch workspace {
	case "here", "empty":
	case "worktree", "copy":
		return nil, notYet("--workspace "+workspace, "worktree workspaces")
	default:
		return nil, usage("--workspace %s: choose here or empty", workspace)
	}
	args := []string{"adapter", "--agent-id", spec.Agent, "--pinned-only", "--workspace", workspace}
	names, _ := f.GetStringSlice("env")
	for _, n := range names {
		args = append(args, "--env", n)
	}
	if config, _ := f.GetString("config"); config != "" {
		args = append(args, "--config", config)
	}
	return &worker{binary: binary, args: args, command: command, env: append(os.Environ(), s.environment()...)}, nil
}

// start starts the adapter for a task; again after it has ended.
func (w *worker) start(task string) error {
	root := filepath.Join(stateDir(), "runs")
	forgetOld(root, keepWorkers)
	w.dir = filepath.Join(root, task)
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return err
	}
	stdout, err := w.open("stdout")
	if err != nil {
		return err
	}
	defer stdout.Close()
	stderr, err := w.open("stderr")
	if err != nil {
		return err
	}
	defer stderr.Close()
	args := append([]string{}, w.args...)
	args = append(args, "--pass-output", "--for-task", task, "--log-file", filepath.Join(w.dir, "adapter.log"), "--")
	w.process = exec.Command(w.binary, append(args, w.command...)...)
	w.process.Env, w.process.Stdout, w.process.Stderr = w.env, stdout, stderr
	w.process.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := w.process.Start(); err != nil {
		return fmt.Errorf("start the adapter: %w", err)
	}
	process, ended := w.process, make(chan struct{})
	w.ended = ended
	go func() {
		w.err = process.Wait()
		close(ended)
	}()
	return nil
}

func (w *worker) open(stream string) (*os.File, error) {
	return os.OpenFile(filepath.Join(w.dir, stream), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// failure is why the adapter ended, in its own last words.
func (w *worker) failure() string {
	text, _ := os.ReadFile(filepath.Join(w.dir, "stderr"))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return last
	}
	return fmt.Sprint(w.err)
}

// again is the command that serves the task once more after it was retried: its
// own adapter has ended with it.
func (w *worker) again() string {
	return "picket " + commandLine(w.args) + " -- " + commandLine(w.command)
}

// forget removes the files of a task that is over; the adapter keeps the full
// output in its own directory.
func (w *worker) forget() { _ = os.RemoveAll(w.dir) }

func forgetOld(root string, after time.Duration) {
	entries, _ := os.ReadDir(root)
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) > after && picket.CheckID("task", "task", e.Name()) == nil {
			_ = os.RemoveAll(filepath.Join(root, e.Name()))
		}
	}
}

// tail passes on what a growing file has got since the last call.
type tail struct {
	path   string
	offset int64
}

func (t *tail) copyTo(w io.Writer) (int64, error) {
	f, err := os.Open(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := f.Seek(t.offset, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := io.Copy(w, f)
	t.offset += n
	return n, err
}
