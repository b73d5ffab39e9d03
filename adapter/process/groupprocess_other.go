//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package process

import "os/exec"

func ownGroup(*exec.Cmd) {}

// Containment is empty: here the leader alone is held.
func (p *groupProcess) Containment() string { return "" }

// Terminate ends the leader; there is no softer way here.
func (p *groupProcess) Terminate() { p.Kill() }

// Kill ends the leader.
func (p *groupProcess) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		p.cmd.Process.Kill()
	}
}

func (p *groupProcess) reap() {
	p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
	p.exit = Exited{Code: p.cmd.ProcessState.ExitCode()}
}

// record names the leader.
func (p *groupProcess) record() Record {
	return Record{Leader: processID{PID: p.pid}}
}

const canExec = false
