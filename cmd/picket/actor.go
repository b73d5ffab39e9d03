package main

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

	"github.com/picket-dev/picket/adapter"
)

// actor is a process of a demo with all that it starts.
type actor struct {
	cmd    *exec.Cmd
	out    *safeBuffer
	errOut *safeBuffer
	done   chan struct{}
	seen   map[int]bool // descendants that were looked at
}

func (st *stage) start(args ...string) (*actor, error) {
	a := &actor{
		cmd:    exec.Command(st.binary, args...),
		out:    &safeBuffer{},
		errOut: &safeBuffer{},
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

func (a *actor) said() string       { return a.out.String() }
func (a *actor) complained() string { return strings.TrimSpace(a.errOut.String()) }

func (a *actor) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

func (a *actor) pid() int { return a.cmd.Process.Pid }

// tree answers the processes under the actor, without itself.
func (a *actor) tree() []int {
	pids := descendants(a.pid())
	for _, p := range pids {
		a.seen[p] = true
	}
	return pids
}

// freeze stops a worker: the adapter first, so that it cannot react, then all
// that it started, until a look finds nothing moving. It answers the agent's
// processes.
func (a *actor) freeze(ctx context.Context) (agent []int, err error) {
	if err := unix.Kill(a.pid(), unix.SIGSTOP); err != nil {
		return nil, err
	}
	err = until(ctx, func() (bool, error) {
		agent = a.tree()
		still := state(a.pid()) == 'T'
		var execing []int
		for _, p := range agent {
			if state(p) != 'T' {
				still = false
				if state(p) == 'D' {
					execing = append(execing, letExec(p)...)
				}
				if slices.Contains(execing, p) {
					continue
				}
				if err := unix.Kill(p, unix.SIGSTOP); err != nil && living(p) {
					return false, err
				}
			}
		}
		return still, nil
	})
	return agent, err
}

// letExec wakes the children of a process that waits for one of them to exec:
// a child that was stopped between vfork and exec would hold it for ever, short
// of being stopped itself. It answers the children; the next look stops them.
func letExec(parent int) []int {
	children := descendants(parent)
	for _, child := range children {
		_ = unix.Kill(child, unix.SIGCONT)
	}
	return children
}

// frozen reports whether every process is stopped.
func frozen(pids ...int) bool {
	for _, p := range pids {
		if state(p) != 'T' {
			return false
		}
	}
	return true
}

// end asks, then insists.
func (a *actor) end() error {
	a.tree()
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

// living does not count a process that has ended and waits to be reaped.
func living(pid int) bool { s := state(pid); return s != 0 && s != 'Z' && s != 'X' }

// state is the letter of a process's state; 0 when there is none.
func state(pid int) byte {
	_, s := stat(pid)
	return s
}

// stat reads a process's parent and state. The name in between may hold any
// character, so the last parenthesis counts.
func stat(pid int) (parent int, state byte) {
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
	return strings.TrimSpace(string(name)) == adapter.ShimName
}

// descendants lists the living processes under one, parents before children.
func descendants(root int) []int {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if parent, s := stat(pid); s != 0 && s != 'Z' {
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

// safeBuffer collects what a process prints while others read it.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
