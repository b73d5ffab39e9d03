//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package process

import (
	"errors"

	"golang.org/x/sys/unix"
)

// awaitDeath returns when the child is dead and leaves it unreaped.
func awaitDeath(pid int) {
	kq, err := unix.Kqueue()
	if err != nil {
		return
	}
	defer unix.Close(kq)
	var change unix.Kevent_t
	unix.SetKevent(&change, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	change.Fflags = unix.NOTE_EXIT
	events := make([]unix.Kevent_t, 1)
	// ESRCH: the child is dead already.
	for {
		if _, err := unix.Kevent(kq, []unix.Kevent_t{change}, events, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func groupAlive(pgid int) bool { return !errors.Is(unix.Kill(-pgid, 0), unix.ESRCH) }

// record names the leader.
func (p *groupProcess) record() Record {
	return Record{Leader: processID{PID: p.pid}, Containment: p.Containment()}
}

// killMarked ends a program; what it started ends with the agent.
func killMarked(pid int, _ string) {
	if pid > 0 {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// countMarked counts nobody: there is no list to count in.
func countMarked(int, string) int { return 0 }

// limitExecMemory is left to the limits of the adapter itself, too.
func limitExecMemory(int, treeLimits) {}

// limitExecFiles is left to the limits of the adapter itself.
func limitExecFiles(int) {}
