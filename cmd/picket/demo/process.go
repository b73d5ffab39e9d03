package demo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket/adapter/process"
)

// childProcess is a process of a demo with all that it starts.
type childProcess struct {
	cmd    *exec.Cmd
	out    *syncBuffer
	errOut *syncBuffer
	done   chan struct{}
	seen   map[int]bool // descendants that were looked at
}

func (st *demoEnv) start(args ...string) (*childProcess, error) {
	a := &childProcess{
		cmd:    exec.Command(st.binary, args...),
		out:    &syncBuffer{},
		errOut: &syncBuffer{},
		done:   make(chan struct{}),
		seen:   map[int]bool{},
	}
	a.cmd.Dir, a.cmd.Env, a.cmd.Stdout, a.cmd.Stderr = st.dir, st.env, a.out, a.errOut
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	a.cmd.WaitDelay = time.Second // a left-over that holds the pipes must not hold us
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	st.actors = append(st.actors, a)
	go func() {
		_ = a.cmd.Wait()
		close(a.done)
	}()
	return a, nil
}

func (a *childProcess) stdout() string { return a.out.String() }
func (a *childProcess) stderr() string { return strings.TrimSpace(a.errOut.String()) }

func (a *childProcess) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

func (a *childProcess) pid() int { return a.cmd.Process.Pid }

// descendants answers the processes under the actor, without itself.
func (a *childProcess) descendants() []int {
	pids := descendants(a.pid())
	for _, p := range pids {
		a.seen[p] = true
	}
	return pids
}

// freeze stops a worker: the adapter first, so that it cannot react, then all
// that it started, until a look finds nothing moving. It answers the agent's
// processes.
func (a *childProcess) freeze(ctx context.Context) (agent []int, err error) {
	if err := unix.Kill(a.pid(), unix.SIGSTOP); err != nil {
		return nil, err
	}
	err = PollUntil(ctx, func() (bool, error) {
		agent = a.descendants()
		still := ProcessState(a.pid()) == 'T'
		var execing []int
		for _, p := range agent {
			if ProcessState(p) != 'T' {
				still = false
				if ProcessState(p) == 'D' {
					execing = append(execing, resumeChildren(p)...)
				}
				if slices.Contains(execing, p) {
					continue
				}
				if err := unix.Kill(p, unix.SIGSTOP); err != nil && ProcessAlive(p) {
					return false, err
				}
			}
		}
		return still, nil
	})
	return agent, err
}

// resumeChildren wakes the children of a process that waits for one of them to exec. A child that
// was stopped between vfork and exec would block it for ever, without the process being stopped
// itself. It answers the children; the next look stops them.
func resumeChildren(parent int) []int {
	children := descendants(parent)
	for _, child := range children {
		_ = unix.Kill(child, unix.SIGCONT)
	}
	return children
}

// allStopped reports whether every process is stopped.
func allStopped(pids ...int) bool {
	for _, p := range pids {
		if ProcessState(p) != 'T' {
			return false
		}
	}
	return true
}

// stop asks, then insists.
func (a *childProcess) stop() error {
	a.descendants()
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, 10 * time.Second}, {syscall.SIGTERM, 3 * time.Second}, {syscall.SIGKILL, 3 * time.Second}} {
		if a.ended() {
			return nil
		}
		_ = a.cmd.Process.Signal(step.signal)
		_ = a.cmd.Process.Signal(syscall.SIGCONT) // a stopped process hears nothing
		select {
		case <-a.done:
		case <-time.After(step.wait):
		}
	}
	if !a.ended() {
		return fmt.Errorf("process %d does not end", a.pid())
	}
	return nil
}

// ProcessAlive does not count a process that has ended and waits to be reaped.
func ProcessAlive(pid int) bool { s := ProcessState(pid); return s != 0 && s != 'Z' && s != 'X' }

// ProcessState is the letter of a process's state; 0 when there is none.
func ProcessState(pid int) byte {
	_, s := readProcessStat(pid)
	return s
}

// readProcessStat reads a process's parent and state. The name in between may hold any
// character, so the last parenthesis counts.
func readProcessStat(pid int) (parent int, state byte) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(f[1])
	return parent, f[0][0]
}

// isShim reports whether a process is the one between an adapter and an agent.
func isShim(pid int) bool {
	name, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return strings.TrimSpace(string(name)) == process.ShimName
}

// descendants lists the living processes under one, parents before children.
func descendants(root int) []int {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if parent, s := readProcessStat(pid); s != 0 && s != 'Z' {
				children[parent] = append(children[parent], pid)
			}
		}
	}
	var all []int
	for next := []int{root}; len(next) > 0; next = next[1:] {
		found := slices.Clone(children[next[0]])
		all = append(all, found...)
		next = append(next, found...)
	}
	return all
}

// syncBuffer collects what a process prints while others read it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
