package adapter

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
)

// killTree kills whoever of the tree is there now, without the shim's help.
func (p *shimProcess) killTree() {
	if p.group.dir != "" {
		_ = p.group.kill()
	}
	p.signalTree(unix.SIGKILL)
}

func (p *shimProcess) signalTree(sig unix.Signal) {
	for _, id := range p.tree() {
		id.signal(sig)
	}
}

// killWithoutShim ends the tree of a shim that is dead, stopped or deaf, and then the
// shim. How the leader ended is not known: that is reported as a kill.
func (p *shimProcess) killWithoutShim() {
	p.exit = Exited{Code: 128 + int(unix.SIGKILL), Signal: unix.SignalName(unix.SIGKILL)}
	_ = p.cmd.Process.Signal(unix.SIGSTOP) // it is to start nobody any more
	pause := time.Millisecond
	for end := bootClock() + killTimeout; bootClock() < end; {
		if p.group.dir != "" {
			_ = p.group.kill()
		}
		left := p.survivors()
		p.unkillable = pidsOf(left)
		if len(left) == 0 && (p.group.dir == "" || !p.group.populated()) {
			break
		}
		for _, s := range left {
			s.signal(unix.SIGKILL)
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
	_ = p.cmd.Process.Kill()
	if p.group.dir != "" {
		p.group.removeSoon()
	}
}

// survivors are the living processes of the tree, found also when the shim is
// dead and they have other parents: by the session it made and the run's
// variable, and by their own parents.
func (p *shimProcess) survivors() []procStat {
	shim := p.record.Shim
	mark := ""
	if p.record.Containment != picket.ContainmentCgroup && p.runID != "" {
		mark = "PICKET_RUN_ID=" + p.runID
	}
	all := processes(nil)
	found := map[int]procStat{}
	add := func(tree ...procStat) {
		for _, s := range tree {
			if s.PID != shim.PID && s.PID != os.Getpid() && !s.dead() {
				found[s.PID] = s
			}
		}
	}
	add(descendants(all, shim.PID)...)
	for _, s := range all {
		if s.Start >= shim.Start && (s.session == shim.PID || mark != "" && hasEnvVariable(s.PID, mark)) {
			add(s)
			add(descendants(all, s.PID)...)
		}
	}
	left := make([]procStat, 0, len(found))
	for _, s := range found {
		left = append(left, s)
	}
	return left
}
