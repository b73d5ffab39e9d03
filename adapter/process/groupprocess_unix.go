//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package process

import (
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
)

// ownGroup makes the program the leader of a new process group. It is not
// tied to the adapter's life: when the adapter is killed, the lease expires on
// schedule and the fence keeps the orphan from writing.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// Containment is the process group: a process that leaves it escapes.
func (p *groupProcess) Containment() string { return picket.ContainmentGroup }

// Terminate sends SIGTERM, and SIGCONT so that stopped processes see it.
func (p *groupProcess) Terminate() {
	p.signal(unix.SIGTERM)
	p.signal(unix.SIGCONT)
}

// Kill sends SIGKILL to the whole group.
func (p *groupProcess) Kill() { p.signal(unix.SIGKILL) }

func (p *groupProcess) signal(sig unix.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		unix.Kill(-p.pid, sig)
	}
}

// reap waits for the leader and takes the rest of the group with it. The group
// is killed while the dead leader still holds its process id, so the signal
// cannot meet a stranger.
func (p *groupProcess) reap() {
	awaitDeath(p.pid)
	p.mu.Lock()
	unix.Kill(-p.pid, unix.SIGKILL)
	err := p.cmd.Wait()
	p.reaped = true
	p.mu.Unlock()
	p.exit = exitStatus(p.cmd, err)
	awaitGroupGone(p.pid, time.Second)
}

func exitStatus(cmd *exec.Cmd, err error) Exited {
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		return Exited{Code: 128 + int(status.Signal()), Signal: unix.SignalName(status.Signal())}
	case ok && status.Exited():
		return Exited{Code: status.ExitStatus()}
	case err == nil:
		return Exited{}
	}
	return Exited{Code: 1}
}

// awaitGroupGone waits until nobody of the group runs any more: SIGKILL takes
// effect soon, but not at once.
func awaitGroupGone(pgid int, atMost time.Duration) {
	for end := time.Now().Add(atMost); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if errors.Is(unix.Kill(-pgid, 0), unix.ESRCH) || !groupAlive(pgid) {
			return
		}
	}
}

// Exec runs a program in the agent's process group, so that it ends with the
// agent. What it starts and leaves behind, and what leaves the group, is only
// found where processes can be listed.
func (p *groupProcess) Exec(ctx context.Context, job ExecJob) (Exited, error) {
	ctx, cancel := context.WithTimeout(ctx, job.Timeout)
	defer cancel()
	path, err := findProgram(job.Argv[0])
	if err != nil {
		return Exited{}, err
	}
	mark := execMark(p.runID, job.ID)
	cmd := &exec.Cmd{Path: path, Args: job.Argv, Dir: p.cmd.Dir, Env: append(p.cmd.Environ(), mark)}
	cmd.Stdin, cmd.WaitDelay = job.Stdin, time.Second
	out, err := newOutputPipes(job.Stdout, job.Stderr)
	if err != nil {
		return Exited{}, err
	}
	cmd.Stdout, cmd.Stderr = out.writers[0], out.writers[1]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: p.pid}
	if err := p.startExec(cmd); err != nil {
		out.abandon()
		return Exited{}, err
	}
	out.copyInBackground()
	end := p.waitForExec(ctx, cmd, mark)
	killMarked(0, mark) // what it has left behind
	out.finish()
	return end, nil
}

// countInterval is how often the processes of a program are counted, which takes a
// look at all processes of the machine.
const countInterval = 250 * time.Millisecond

// waitForExec waits for the end of a program, and kills it at its limits.
func (p *groupProcess) waitForExec(ctx context.Context, cmd *exec.Cmd, mark string) Exited {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	count := time.NewTicker(countInterval)
	defer count.Stop()
	passed := ""
	for {
		select {
		case err := <-ended:
			return exitStatus(cmd, err)
		case <-count.C:
			passed = p.execLimits.exceeded(func() int { return countMarked(cmd.Process.Pid, mark) })
			if passed == "" {
				continue
			}
		case <-ctx.Done():
		}
		killMarked(cmd.Process.Pid, mark)
		<-ended // a child that was killed first may have let it end on its own
		return Exited{Code: 128 + int(syscall.SIGKILL), Signal: "SIGKILL", LimitHit: passed}
	}
}

// startExec starts a program while the agent's leader still holds its process
// group.
func (p *groupProcess) startExec(cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return errAgentEnded
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	limitExecFiles(cmd.Process.Pid)
	limitExecMemory(cmd.Process.Pid, p.execLimits)
	return nil
}

const canExec = true
