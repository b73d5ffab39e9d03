//go:build linux

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket/internal/rig/cleanup"
)

// process is a program that a test started. What it prints is kept in a file
// and can be waited for line by line.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	out  *outputLines // stdout
	err  *outputLines // stderr
	done chan struct{}
	rank int // of its end
}

// start starts picket in a process group of its own, as a shell would.
func (w *testEnv) start(name string, args ...string) *process {
	w.t.Helper()
	return w.launch(name, exec.Command(binary(), args...))
}

func binary() string { return filepath.Join(suiteDir, "bin", "picket") }

// launch starts any program like that. What cmd.Env has is added to the environment of all.
func (w *testEnv) launch(name string, cmd *exec.Cmd) *process {
	w.t.Helper()
	p := &process{t: w.t, name: name, cmd: cmd, done: make(chan struct{})}
	w.count++
	p.out = newLines(w.t, w.path("out", fmt.Sprintf("%02d-%s.stdout", w.count, name)))
	p.err = newLines(w.t, w.path("out", fmt.Sprintf("%02d-%s.stderr", w.count, name)))
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = w.dir, slices.Concat(w.env, cmd.Env), p.out, p.err
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // an orphan may hold the pipes for longer
	start := cmd.Start
	if w.within != nil {
		start = func() error { return w.within.do(cmd.Start) }
	}
	if err := start(); err != nil {
		w.t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		_ = cmd.Wait()
		p.out.close()
		p.err.close()
		close(p.done)
	}()
	w.processes = append(w.processes, p)
	return p
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("signal %s with %s: %v", p.name, sig, err)
	}
}

// kill is kill -9 of this process alone.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.wait()
}

// wait answers the exit code; 128 and the signal's number for a killed one.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(waitLimit):
		p.t.Fatalf("%s does not end; it said:\n%s%s", p.name, p.out.text(), p.err.text())
	}
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// says waits until the process has printed a line with text on stderr.
func (p *process) says(text string) { p.t.Helper(); p.saysAgain(text, 0) }

// saysAgain waits until it has printed more than n such lines.
func (p *process) saysAgain(text string, n int) {
	p.t.Helper()
	if !p.err.await(func(all string) bool { return strings.Count(all, text) > n }) {
		p.t.Fatalf("%s never said %q; it said:\n%s", p.name, text, p.err.text())
	}
}

func (p *process) said(text string) int { return strings.Count(p.err.text(), text) }

// outputLines collects output in memory and in a file.
type outputLines struct {
	mu      sync.Mutex
	b       bytes.Buffer
	file    *os.File
	changed chan struct{}
	over    bool
}

func newLines(t *testing.T, path string) *outputLines {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	return &outputLines{file: f, changed: make(chan struct{})}
}

func (l *outputLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Write(p)
	l.wake()
	return l.file.Write(p)
}

func (l *outputLines) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.wake()
	l.file.Close()
}

func (l *outputLines) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *outputLines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// await waits until the whole text is as wanted; false when it never will be.
func (l *outputLines) await(as func(string) bool) bool {
	late := time.After(waitLimit)
	for {
		l.mu.Lock()
		ok, over, changed := as(l.b.String()), l.over, l.changed
		l.mu.Unlock()
		if ok || over {
			return ok
		}
		select {
		case <-changed:
		case <-late:
			return false
		}
	}
}

// processesOf lists the living processes that carry a path in their
// environment, their arguments or as their directory.
func processesOf(path string) []string {
	var found []string
	for pid, line := range cleanup.Processes(path) {
		found = append(found, fmt.Sprintf("%d %s", pid, line))
	}
	slices.Sort(found)
	return found
}

// gone waits until a process, child of ours or not, has ended.
func gone(t *testing.T, what string, pids ...int) {
	t.Helper()
	deadline := time.Now().Add(waitLimit)
	for _, pid := range pids {
		if err := awaitEnd(pid, deadline); err != nil {
			t.Fatalf("%s (pid %d): %v", what, pid, err)
		}
	}
}

func awaitEnd(pid int, deadline time.Time) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return context.DeadlineExceeded
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left/time.Millisecond)+1)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// groupOf lists the processes of a group, the dead ones that nobody reaped not
// among them.
func groupOf(pgid int) []int {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		pid, err := strconv.Atoi(e.Name())
		if err == nil && len(f) > 2 && f[2] == strconv.Itoa(pgid) && f[0] != "Z" && f[0] != "X" {
			pids = append(pids, pid)
		}
	}
	return pids
}
