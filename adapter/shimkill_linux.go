package adapter

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// kill ends the tree, and goes on until nobody is left: whoever forks while he
// is looked for is found in the next round.
func (s *shim) kill() {
	if s.killInterval == 0 {
		s.killInterval, s.killStarted = time.Millisecond, bootClock()
		s.killOnce()
	}
}

// killOnce kills everybody who is there now.
func (s *shim) killOnce() {
	if s.group.dir != "" {
		_ = s.group.kill() // what it leaves, the rest of this and the next round finds
	}
	if s.leaderExit == nil {
		_ = unix.Kill(-s.record.Leader.PID, unix.SIGKILL)
	}
	if !s.reap() {
		self := os.Getpid()
		all := processes(func(p procStat) {
			if p.parent == self && !p.dead() {
				s.killChild(p)
			}
		})
		for _, p := range descendants(all, self) {
			if p.parent != self {
				p.signal(unix.SIGKILL)
			}
		}
	}
	s.killTimer = time.After(s.killInterval)
	s.killInterval = min(2*s.killInterval, 100*time.Millisecond)
}

// killChild kills a child, whose id is its own until it is reaped, and its process
// group: that takes those along that it is forking just now. Only descendants
// can be in a group of a descendant, but for the shim's own one.
func (s *shim) killChild(p procStat) {
	if p.group != os.Getpid() {
		_ = unix.Kill(-p.group, unix.SIGKILL)
	}
	_ = unix.Kill(p.PID, unix.SIGKILL)
}

// terminate asks everybody to end, once each, and wakes those who are stopped.
func (s *shim) terminate() {
	if s.leaderExit != nil {
		return
	}
	leader := s.record.Leader.PID
	tree := treeOf(os.Getpid(), s.group)
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGCONT} {
		_ = unix.Kill(-leader, sig)
		for _, p := range tree {
			if p.group != leader {
				p.signal(sig)
			}
		}
	}
}

// treeOf are the living processes of a tree: the descendants of its shim and
// who else is in its cgroup.
func treeOf(shim int, group cgroup) []procStat {
	tree := descendants(processes(nil), shim)
	if group.dir == "" {
		return tree
	}
	known := map[int]bool{}
	for _, p := range tree {
		known[p.PID] = true
	}
	for _, pid := range group.pids() {
		if p, ok := readProcStat(pid); ok && !known[pid] && !p.dead() {
			tree = append(tree, p)
		}
	}
	return tree
}
