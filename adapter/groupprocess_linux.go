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

// groupAlive reports whether a process of the group is alive. Zombies, which
// wait for a parent that may never reap them, are not.
func groupAlive(pgid int) bool {
	return len(groupMembers(pgid)) > 0
}

func groupMembers(pgid int) []procStat {
	return slices.DeleteFunc(processes(nil), func(p procStat) bool { return p.group != pgid || p.dead() })
}

// Stopped implements Observer.
func (p *groupProcess) Stopped() bool { return allStopped(groupMembers(p.pid)) }

// record names the leader: in front of its own end it cannot be a stranger.
func (p *groupProcess) record() processRecord {
	leader, _ := readProcStat(p.pid)
	return processRecord{BootID: bootID(), Leader: leader.processID, Containment: p.Containment()}
}
