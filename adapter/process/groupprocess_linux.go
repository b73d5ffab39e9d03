package process

import (
	"errors"
	"maps"
	"os"
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
func (p *groupProcess) record() Record {
	leader, _ := readProcStat(p.pid)
	return Record{BootID: BootID(), Leader: leader.processID, Containment: p.Containment()}
}

// maxExecFile is the largest file that a program may write, in bytes.
const maxExecFile = 4 << 30

// limitExecFiles keeps a program that gets out of hand from filling the disk: no
// core file, no endless file. 0 is this process, whose children inherit the
// limits.
func limitExecFiles(pid int) {
	_ = unix.Prlimit(pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil)
	limit := unix.Rlimit{Cur: maxExecFile, Max: maxExecFile}
	var old unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &old) == nil && old.Max > maxExecFile {
		_ = unix.Prlimit(pid, unix.RLIMIT_FSIZE, &limit, nil)
	}
}

// limitExecMemory bounds the memory of each process of a program, where that of all
// together cannot be. Address space that is only reserved does not count.
func limitExecMemory(pid int, to treeLimits) {
	if to.Memory > 0 {
		limit := unix.Rlimit{Cur: uint64(to.Memory), Max: uint64(to.Memory)}
		_ = unix.Prlimit(pid, unix.RLIMIT_DATA, &limit, nil)
	}
}

// countMarked counts the processes of a program that is a child of this one.
func countMarked(pid int, mark string) int {
	all := processes(nil)
	return len(markedTree(all, all, mark, func(p procStat) bool { return p.PID == pid && p.parent == os.Getpid() }))
}

// killMarked ends a program that is a child of this process, with all that it
// started: its descendants, and who carries the mark in its environment. It
// looks until nobody is left.
func killMarked(pid int, mark string) {
	for range 50 {
		all := processes(nil)
		left := markedTree(all, all, mark, func(p procStat) bool { return p.PID == pid && p.parent == os.Getpid() })
		if len(left) == 0 {
			return
		}
		for _, p := range left {
			p.signal(unix.SIGKILL)
		}
	}
}

// markedTree picks of some processes the living ones of a program: its leader,
// who carries the mark, and the descendants of both.
func markedTree(all, of []procStat, mark string, leader func(procStat) bool) []procStat {
	found := map[int]procStat{}
	for _, p := range of {
		if !p.dead() && (leader(p) || hasEnvVariable(p.PID, mark)) {
			found[p.PID] = p
			for _, d := range descendants(all, p.PID) {
				found[d.PID] = d
			}
		}
	}
	return slices.Collect(maps.Values(found))
}
