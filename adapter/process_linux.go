package adapter

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// awaitDeath returns when the child is dead and leaves it unreaped.
func awaitDeath(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// groupRuns reports whether a process of the group is alive. Zombies, which
// wait for a parent that may never reap them, are not.
func groupRuns(pgid int) bool {
	return len(groupOf(pgid)) > 0
}

func groupOf(pgid int) []processStat {
	return slices.DeleteFunc(processes(nil), func(p processStat) bool { return p.group != pgid || p.dead() })
}

// Stopped implements Observer.
func (p *groupProcess) Stopped() bool { return allStopped(groupOf(p.pid)) }

// record names the leader: in front of its own end it cannot be a stranger.
func (p *groupProcess) record() processRecord {
	leader, _ := statOf(p.pid)
	return processRecord{BootID: bootID(), Leader: leader.processID, Containment: p.Containment()}
}
