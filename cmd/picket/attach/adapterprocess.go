package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// adapterProcess is the adapter of one `picket run`: a process in a session of its own from the
// start. Ctrl-C, a closed terminal and the end of `picket run` do not touch the task. What the
// agent prints goes through files, which, unlike a pipe, do not break when the reader goes.
type adapterProcess struct {
	binary   string
	args     []string // flags of `picket adapter`
	command  []string // what follows its --
	env      []string
	attached []string        // flags by which it registers
	agent    string          // its id
	s        *cli.Connection // makes its run key
	dir      string          // of its files
	keep     time.Duration   // of such directories
	process  *exec.Cmd
	ended    chan struct{} // closed when the process has ended
	err      error
}

// maxSubtaskRuns is how many tasks below its own the adapter of one `picket run`
// runs at once.
const maxSubtaskRuns = 4

func newAdapterProcess(cmd *cobra.Command, cfg settings.Settings, s *cli.Connection, spec picket.TaskSpec,
	l launch) (*adapterProcess, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the picket binary: %w", err)
	}
	general := runOptionsOf(cfg)
	cfg = cfg.ForRole(spec.Role)
	at, err := workspaceOptionsOf(cmd, cfg, l.preset)
	if err != nil {
		return nil, err
	}
	linger := []string(nil)
	if e, ok := cfg.AgentOfRole(spec.Role); ok {
		cli.FillHeartbeat(cmd, e)
		at.env = e.Env(at.env)
		if d := e.Linger; d != nil {
			linger = []string{"--linger", d.String()}
		}
	}
	silence, err := cli.ThresholdsOf(cmd)
	if err != nil {
		return nil, err
	}
	containment := cfg.Containment
	// The adapter is a process of its own; what it would refuse is refused here,
	// before there is a task.
	conf := adapter.Config{
		BaseURL:     s.URL(),
		AgentID:     spec.Agent,
		PinnedOnly:  true,
		Max:         1 + maxSubtaskRuns,
		Containment: containment,
	}
	l.applyTo(&conf)
	at.applyTo(&conf)
	runs := runOptionsOf(cfg)
	runs.applyTo(&conf)
	if _, err := adapter.New(conf); err != nil {
		return nil, err
	}
	args := append([]string{"adapter", "--agent-id", spec.Agent, "--pinned-only", "--max",
		strconv.Itoa(1 + maxSubtaskRuns)}, append(linger, at.commandFlags()...)...)
	if containment != "" {
		args = append(args, "--containment", containment)
	}
	if config, _ := cmd.Flags().GetString("config"); config != "" {
		args = append(args, "--config", config)
	}
	args = append(args, runs.commandFlags(cmd, general)...)
	args = append(args, l.commandFlags()...)
	return &adapterProcess{binary: binary, args: args, command: l.commandArgs(), agent: spec.Agent, s: s,
		keep:     runs.keep,
		attached: attachedFlags(l, silence.Config()),
		env:      append(withoutAPIKey(os.Environ()), "PICKET_URL="+s.URL())}, nil
}

// attachedFlags are the flags by which the adapter registers in the role attached. They need its
// run key. A drain takes as long as the task does, which is the longest that the registry allows.
func attachedFlags(l launch, silence picket.HeartbeatConfig) []string {
	return []string{
		"--attached", "--name", attachedName(l),
		"--heartbeat", strconv.Itoa(silence.IntervalSeconds) + "s",
		"--unhealthy-after", strconv.Itoa(silence.UnhealthyAfterSeconds) + "s",
		"--dead-after", strconv.Itoa(silence.DeadAfterSeconds) + "s",
		"--drain-timeout", strconv.Itoa(picket.MaxDrainTimeout) + "s",
	}
}

// attachedName is what people call the adapter: its program and the machine.
func attachedName(l launch) string {
	name := string(l.preset)
	if !l.preset.CodingAgent() && len(l.command) > 0 {
		name = filepath.Base(l.command[0])
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		name += "@" + host
	}
	return term.Clip(name, 64)
}

// HandoverHook is called for each step of start, for tests that end the process there.
var HandoverHook = func(string) {}

// start starts the adapter for a task; again after it has ended.
func (w *adapterProcess) start(task string) error {
	root := filepath.Join(settings.StateDir(), "runs")
	removeOldRuns(root, w.keep)
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
	args := slices.Concat(w.args, w.attached)
	HandoverHook("begun")
	key, err := newAdapterSecrets(context.Background(), w.s, w.agent)
	if err != nil {
		return err
	}
	HandoverHook("made")
	ours, adapters, err := secretSockets()
	if err != nil {
		return err
	}
	defer ours.Close()
	defer adapters.Close()
	args = append(args, "--handover", "3", "--pass-output", "--for-task", task, "--log-file",
		filepath.Join(w.dir, "adapter.log"))
	w.process = exec.Command(w.binary, append(args, w.dashArgs()...)...)
	w.process.Env, w.process.Stdout, w.process.Stderr = w.env, stdout, stderr
	w.process.ExtraFiles = []*os.File{adapters} // descriptor 3
	w.process.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := w.process.Start(); err != nil {
		return fmt.Errorf("start the adapter: %w", err)
	}
	adapters.Close() // else its end would not be noticed
	HandoverHook("started")
	process, ended := w.process, make(chan struct{})
	w.ended = ended
	go func() {
		w.err = process.Wait()
		close(ended)
	}()
	if err := key.send(ours); err != nil {
		return w.secretsNotTaken(err)
	}
	HandoverHook("sent")
	return nil
}

// secretsNotTaken ends an adapter that did not take its key, and says why.
func (w *adapterProcess) secretsNotTaken(err error) error {
	late := errors.Is(err, os.ErrDeadlineExceeded)
	if !late { // it is about to end, and may still say why
		select {
		case <-w.ended:
		case <-time.After(adapterExitWait):
		}
	}
	_ = w.process.Process.Kill()
	<-w.ended
	remedy := "See why in " + w.dir + ", and start it again."
	if late {
		return picket.Refuse(picket.CodeInternal, remedy,
			"the adapter was not hidden from other processes within %s, so it got no key", hideTimeout)
	}
	return picket.Refuse(picket.CodeInternal, remedy, "the adapter ended before it took its key: %s", w.failure())
}

// dashArgs is the end of the adapter's command line.
func (w *adapterProcess) dashArgs() []string {
	if len(w.command) == 0 {
		return nil
	}
	return append([]string{"--"}, w.command...)
}

func (w *adapterProcess) open(stream string) (*os.File, error) {
	return os.OpenFile(filepath.Join(w.dir, stream), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// failure is why the adapter ended, in its own last words: the line before the
// remedy, in a file that it shares with the agent.
func (w *adapterProcess) failure() string {
	text, _ := os.ReadFile(filepath.Join(w.dir, "stderr"))
	for _, line := range slices.Backward(strings.Split(string(text), "\n")) {
		if reason, ok := strings.CutPrefix(line, "picket: "); ok {
			return term.OneLine(reason)
		}
	}
	return fmt.Sprint(w.err)
}

// refusedToStart reports whether the adapter did not even begin: it ends the same way
// however often it is started.
func (w *adapterProcess) refusedToStart() bool {
	return w.process.ProcessState.ExitCode() == exit.Usage
}

// restartCommand is the command that serves the task once more after it was retried: its
// own adapter has ended with it.
func (w *adapterProcess) restartCommand(task string) string {
	again := "picket " + term.ShellJoin(w.args) + " --for-task " + task
	if len(w.command) > 0 {
		again += " -- " + term.ShellJoin(w.command)
	}
	return again
}

// removeFiles removes the files of a task that is over; the adapter keeps the full
// output in its own directory.
func (w *adapterProcess) removeFiles() { _ = os.RemoveAll(w.dir) }

func removeOldRuns(root string, after time.Duration) {
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
