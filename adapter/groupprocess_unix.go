//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package adapter

import (
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
