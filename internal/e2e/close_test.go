//go:build linux

package e2e

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
)

// The order in which processes are asked to end: anyone who talks to a server
// before the server, and that before its store.
const (
	clientRank = iota
	serverRank
	storeRank
)

// close ends what is left and looks for what should not be.
func (w *testEnv) close() {
	if w.t.Failed() {
		w.dump()
	}
	if w.events != nil {
		w.events.check()
		w.events.stop()
	}
	http.DefaultClient.CloseIdleConnections()
	for rank := range storeRank + 1 {
		for _, p := range slices.Backward(w.processes) {
			if p.rank == rank {
				p.end()
			}
		}
	}
	for _, do := range w.atEnd {
		do()
	}
	w.expectNothingLeft()
}

// end asks twice, as an impatient person would: an adapter drains at the first
// SIGTERM and gives back at the second. SIGQUIT makes a process that does not
// end say where it hangs.
func (p *process) end() {
	began := time.Now()
	defer func() {
		if d := time.Since(began); d > time.Second {
			p.t.Logf("%s needed %s to end", p.name, d.Round(time.Millisecond))
		}
	}()
	asked := false
	for _, step := range []struct {
		sig   syscall.Signal
		limit time.Duration
	}{{syscall.SIGTERM, 5 * time.Second}, {syscall.SIGTERM, 15 * time.Second}, {syscall.SIGQUIT, 5 * time.Second},
		{syscall.SIGKILL, waitLimit}} {
		if p.ended() {
			if code := p.wait(); asked && code != 0 {
				p.t.Errorf("%s was asked to end and ended with %d:\n%s", p.name, code, p.err.text())
			}
			return
		}
		asked = true
		_ = p.cmd.Process.Signal(step.sig)
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		select {
		case <-p.done:
		case <-time.After(step.limit):
		}
		if step.sig == syscall.SIGQUIT {
			text := p.err.text()
			p.t.Errorf("%s did not end on its own; it said:\n%s", p.name, text[max(0, len(text)-20_000):])
		}
	}
}

// expectNothingLeft fails for each process, socket and directory that outlives
// its world, and ends the processes.
func (w *testEnv) expectNothingLeft() {
	deadline := time.Now().Add(5 * time.Second)
	for _, line := range processesOf(w.dir) {
		pid := atoi(line)
		if awaitEnd(pid, deadline) != nil {
			w.t.Errorf("left over: process %s", line)
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	_ = filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeSocket != 0 {
			w.t.Errorf("left over: socket %s", path)
		}
		return nil
	})
	if left, _ := os.ReadDir(w.path("tmp")); len(left) > 0 {
		w.t.Errorf("left over: %d entries in TMPDIR, such as %s", len(left), left[0].Name())
	}
}

func atoi(text string) (n int) {
	for _, c := range text {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// dump prints what the processes said last.
func (w *testEnv) dump() {
	for _, p := range w.processes {
		text := p.err.text()
		w.t.Logf("%s (pid %d, ended %v) said last:\n%s", p.name, p.pid(), p.ended(), text[max(0, len(text)-3000):])
	}
	if w.events == nil {
		return
	}
	for _, ev := range w.events.all() {
		if ev.Type == picket.EventAgentLifecycle {
			w.t.Logf("event %d at %s: %s %s > %s: %s, by %s", ev.Seq, ev.At, ev.AgentID, ev.PreviousStatus,
				ev.NewStatus, ev.Reason, ev.Actor)
		}
	}
	text := w.events.String()
	w.t.Logf("the log ends with\n%s", text[max(0, len(text)-10_000):])
}
