package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// launchShim starts a shim and lets it start the program.
func (l CommandLauncher) launchShim(ctx context.Context, job Job, program *exec.Cmd, level string) (Process, error) {
	out, err := newOutputPipes(job.Stdout, job.Stderr)
	if err != nil {
		return nil, err
	}
	p, fds, err := l.startShim(out, job)
	if err != nil {
		out.abandon()
		return nil, err
	}
	p.runID, p.ackedDeadline, p.execLimits = job.Lease.RunID, job.KillAt, l.Limits.execLimits()
	self, _ := readProcStat(p.cmd.Process.Pid) // its child, so it is there even when it has ended
	p.record = Record{Shim: self.processID, Containment: level}
	if level == picket.ContainmentCgroup {
		p.group = shimCgroup(availableLevels().cgroupParent, p.runID, self.PID)
	}
	err = sendMessage(p.control, shimJob{
		Path:        []byte(program.Path),
		Args:        bytesOf(program.Args),
		Env:         bytesOf(program.Environ()),
		Dir:         []byte(program.Dir),
		DirFD:       fds.dir,
		StdinFD:     fds.stdin,
		StateDir:    []byte(job.StateDir),
		RunID:       job.Lease.RunID,
		Containment: level,
		Forced:      l.Containment != "",
		CgroupIn:    availableLevels().cgroupParent,
		KillAt:      int64(job.KillAt),
		Ceiling:     treeLimits{Processes: max(l.Limits.Processes, 0)},
		Controls:    availableLevels().controls,
	})
	out.copyInBackground()
	if err != nil {
		err = errShimGone
	} else {
		err = p.waitStarted(ctx, job.KillAt)
	}
	if err != nil {
		said := p.abandon()
		out.finish()
		return nil, fmt.Errorf("start %s: %w%s", l.Command[0], err, said)
	}
	go func() {
		defer close(p.done)
		p.follow()
		job.ended(p.exit)
	}()
	return p, nil
}

// jobFDs are the numbers that files of a job have in the shim, 0 for those that it does not have.
type jobFDs struct{ dir, stdin int }

// startShim starts this very program again, even when its file was replaced, or
// the one that was named.
func (l CommandLauncher) startShim(out *outputPipes, job Job) (p *shimProcess, fds jobFDs, err error) {
	controlEnd, control, err := os.Pipe()
	if err != nil {
		return nil, jobFDs{}, fmt.Errorf("make pipe: %w", err)
	}
	defer controlEnd.Close()
	status, statusEnd, err := os.Pipe()
	if err != nil {
		control.Close()
		return nil, jobFDs{}, fmt.Errorf("make pipe: %w", err)
	}
	defer statusEnd.Close()
	execs, execsEnd, err := execSocketPair()
	if err != nil {
		control.Close()
		status.Close()
		return nil, jobFDs{}, err
	}
	defer execsEnd.Close()
	p = &shimProcess{
		out:         out,
		control:     control,
		status:      status,
		execSocket:  execs,
		execWaiters: map[string]chan shimExecResult{},
		done:        make(chan struct{}),
		stopReading: make(chan struct{}),
		stderr:      &bytes.Buffer{},
	}
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{ShimName}}
	if len(l.Shim) > 0 {
		cmd = exec.Command(l.Shim[0], l.Shim[1:]...)
	}
	cmd.Dir, cmd.Env = "/", []string{shimVariable + "=" + shimVersion}
	for _, name := range []string{"GODEBUG", "GORACE"} { // the runtime's own settings
		if value, set := os.LookupEnv(name); set {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Stderr, cmd.WaitDelay = p.stderr, time.Second
	cmd.ExtraFiles = []*os.File{controlEnd, statusEnd, out.writers[0], out.writers[1], execsEnd}
	pass := func(f *os.File) (fd int) {
		if f == nil {
			return 0
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		return fdControl + len(cmd.ExtraFiles) - 1
	}
	pass(job.Lock) // the shim ends when its tree is dead; no other process gets it
	fds = jobFDs{dir: pass(job.HeldDir), stdin: pass(job.Stdin)}
	// A session of its own: what a terminal sends to the adapter is not meant
	// for the shim.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		control.Close()
		status.Close()
		execs.Close()
		return nil, jobFDs{}, fmt.Errorf("start shim: %w", err)
	}
	p.cmd = cmd
	p.messages = receiveMessages[shimMessage](jsontext.NewDecoder(status), p.stopReading)
	return p, fds, nil
}

var errShimGone = errors.New("the shim ended before the agent began")

// shimStartTimeout bounds the start of a shim and its agent.
const shimStartTimeout = 30 * time.Second

// waitStarted waits until the agent runs, but never beyond its deadline.
func (p *shimProcess) waitStarted(ctx context.Context, killAt time.Duration) error {
	within := shimStartTimeout
	if killAt > 0 {
		within = min(within, killAt-BootClock())
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case w, there := <-p.messages:
		switch {
		case there && w.Started != nil:
			p.record, p.group = *w.Started, cgroup{w.Started.Cgroup}
			return nil
		case there && w.Failed != nil:
			return w.Failed
		}
		return errShimGone
	case <-ctx.Done():
		return fmt.Errorf("the shim does not answer: %w", ctx.Err())
	}
}

// abandon ends a shim that did not say that its agent began; it may run all
// the same. It answers what the shim complained of, after a colon.
func (p *shimProcess) abandon() (said string) {
	p.control.Close()
	p.killWithoutShim()
	_ = p.cmd.Wait()
	close(p.stopReading)
	p.status.Close()
	p.execSocket.Close()
	if said := strings.TrimSpace(p.stderr.String()); said != "" {
		return ": " + text.Head(said, 500)
	}
	return ""
}

// plannedLevel is how this launcher holds the next tree.
func (l CommandLauncher) plannedLevel() (string, error) {
	if err := CheckContainment(l.Containment); err != nil {
		return "", err
	}
	if l.Containment != "" {
		return l.Containment, nil
	}
	return availableLevels().level, nil
}
