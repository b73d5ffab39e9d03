package process

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// procStat is what is needed of /proc/PID/stat.
type procStat struct {
	processID
	state   byte // such as R, S, T, Z
	parent  int
	group   int
	session int
	threads int
}

// dead reports whether the process only waits for its parent to take note. One
// whose first thread has ended looks the same, but others go on.
func (p procStat) dead() bool {
	return p.state == 'Z' && p.threads <= 1 || p.state == 'X' || p.state == 'x'
}

// readProcStat reads one process; false when there is none of that id.
func readProcStat(pid int) (p procStat, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return p, false
	}
	// pid (name) state ppid pgrp session …: the name may hold anything, even ")".
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return p, false
	}
	number := func(i int) int { n, _ := strconv.Atoi(string(fields[i])); return n }
	start, _ := strconv.ParseUint(string(fields[19]), 10, 64)
	return procStat{
		processID: processID{pid, start}, state: fields[0][0],
		parent: number(1), group: number(2), session: number(3), threads: number(17),
	}, true
}

// alive reports whether the very process of id still runs.
func (id processID) alive() bool {
	p, ok := readProcStat(id.PID)
	return ok && p.Start == id.Start && !p.dead()
}

// signal reaches the very process of id or nobody.
func (id processID) signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if id.alive() {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0) // it may have ended just now
	}
}

// listPIDs are the ids of all processes, newest first on a machine whose ids have
// not wrapped: what is being forked just now is looked at first.
func listPIDs() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	ids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			ids = append(ids, pid)
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids
}

// processes reads all processes, and tells each to see as soon as it is read.
func processes(see func(procStat)) []procStat {
	var all []procStat
	for _, pid := range listPIDs() {
		if p, ok := readProcStat(pid); ok {
			if see != nil {
				see(p)
			}
			all = append(all, p)
		}
	}
	return all
}

// descendants picks those that are children of root or of one of its
// descendants, parents before their children. The dead are left out.
func descendants(all []procStat, root int) []procStat {
	children := map[int][]procStat{}
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}
	var found []procStat
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			next = append(next, p.PID)
			if !p.dead() {
				found = append(found, p)
			}
		}
	}
	return found
}

func pidsOf(tree []procStat) (pids []int) {
	for _, p := range tree {
		pids = append(pids, p.PID)
	}
	return pids
}

// allStopped reports whether there are processes and all of them are stopped.
func allStopped(tree []procStat) bool {
	return len(tree) > 0 && !slices.ContainsFunc(tree,
		func(p procStat) bool { return p.state != 'T' && p.state != 't' })
}

// hasEnvVariable reports whether the environment that a process was started with has
// the variable NAME=value. Where its first thread has ended, another one tells.
func hasEnvVariable(pid int, variable string) bool {
	proc := "/proc/" + strconv.Itoa(pid)
	b, err := os.ReadFile(proc + "/environ")
	if err == nil && len(b) == 0 {
		others, _ := filepath.Glob(proc + "/task/*/environ")
		for _, file := range others {
			more, _ := os.ReadFile(file)
			b = append(b, more...)
		}
	}
	return slices.ContainsFunc(bytes.Split(b, []byte{0}), func(v []byte) bool { return string(v) == variable })
}
