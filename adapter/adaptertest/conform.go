//go:build unix

package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// AdapterFunc runs an adapter under test: it leases from s with [Key], launches the
// command for each lease with the lease in its environment, and returns when
// ctx has ended and what ran has finished. One that registers does so with
// [Server.Thresholds], where there are any.
type AdapterFunc func(ctx context.Context, s *Server, command []string) error

// Conform checks an adapter, in any language as long as a Worker can run it,
// against every rule but those named, with real processes, several side by
// side. It takes some seconds, since some rules are about the end of a lease of
// 2 s.
func Conform(t *testing.T, work AdapterFunc, except ...string) {
	rules := slices.DeleteFunc(Rules(), func(r Rule) bool { return slices.Contains(except, r.Name) })
	for i, checked := range runParallel(t.Context(), rules, work) {
		t.Run(rules[i].Name, func(t *testing.T) {
			if err := <-checked; err != nil {
				t.Error(err)
			}
		})
	}
}

// runParallel starts all checks, eight at a time, and answers where each will
// tell what it found.
func runParallel(ctx context.Context, rules []Rule, work AdapterFunc) []chan error {
	busy := make(chan struct{}, 8)
	found := make([]chan error, len(rules))
	for i, rule := range rules {
		found[i] = make(chan error, 1)
		go func() {
			busy <- struct{}{}
			defer func() { <-busy }()
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			found[i] <- rule.Check(ctx, work)
		}()
	}
	return found
}

// Rule is one thing that the protocol asks of an adapter.
type Rule struct {
	Name string
	Why  string // what goes wrong for people without it
	test func(*ruleCheck)
}

// Rules are all of them.
func Rules() []Rule { return slices.Concat(runRules(), faultRules(), agentRules()) }

// Check runs an adapter against the rule and answers what it did wrong. An
// adapter that has not done what is asked when ctx ends, has failed.
func (r Rule) Check(ctx context.Context, work AdapterFunc) error {
	b, err := newRuleCheck(ctx, work)
	if err != nil {
		return fmt.Errorf("prepare check: %w", err)
	}
	tested := make(chan struct{})
	go func() {
		defer close(tested)
		defer b.close()
		r.test(b)
	}()
	<-tested
	if err := errors.Join(b.failures...); err != nil {
		return fmt.Errorf("%w\n(%s)", err, r.Why)
	}
	return nil
}

// ruleCheck is one adapter at work and a FIFO through which its agents say that
// they run.
type ruleCheck struct {
	s        *Server
	adapter  AdapterFunc
	ctx      context.Context
	dir      string
	fifo     string
	tasks    []string
	pids     []int // that agents have told
	closers  []func()
	failures []error

	end     func()        // tells the adapter to
	ended   chan struct{} // closed when it has
	mayFail bool          // it may end with an error
}

func newRuleCheck(ctx context.Context, work AdapterFunc) (*ruleCheck, error) {
	dir, err := os.MkdirTemp("", "conform")
	if err != nil {
		return nil, err
	}
	s := New()
	h := httptest.NewServer(s)
	s.URL = h.URL
	b := &ruleCheck{s: s, adapter: work, ctx: ctx, dir: dir, fifo: filepath.Join(dir, "post")}
	b.closers = append(b.closers, func() {
		h.CloseClientConnections() // ends open long polls
		h.Close()
		os.RemoveAll(dir)
	})
	return b, syscall.Mkfifo(b.fifo, 0o600)
}

func (b *ruleCheck) close() {
	for i := range b.closers {
		b.closers[len(b.closers)-1-i]()
	}
}

// errorf notes something that the adapter did wrong.
func (b *ruleCheck) errorf(format string, args ...any) {
	b.failures = append(b.failures, fmt.Errorf(format, args...))
}

// fatalf ends the check: there is nothing to look at any more.
func (b *ruleCheck) fatalf(format string, args ...any) {
	b.errorf(format, args...)
	runtime.Goexit()
}

// run queues a task and starts the adapter with a shell script as its agent,
// for which $1 is the FIFO.
func (b *ruleCheck) run(task Task, script string) (id string) {
	id = b.queue(task)
	ctx, stop := context.WithCancel(context.WithoutCancel(b.ctx))
	var err error
	b.end, b.ended = stop, make(chan struct{})
	go func() {
		defer close(b.ended)
		err = b.adapter(ctx, b.s, []string{"sh", "-c", script, "sh", b.fifo})
	}()
	b.closers = append(b.closers, func() {
		stop()
		b.stopAll()
		select {
		case <-b.ended:
			if err != nil && !b.mayFail && !errors.Is(err, context.Canceled) {
				b.errorf("the adapter ended with: %v", err)
			}
		case <-time.After(time.Minute):
			b.errorf("the adapter did not end although its context had ended and its task was cancelled")
		}
	})
	return id
}

func (b *ruleCheck) queue(task Task) (id string) {
	id = b.s.Queue(task)
	b.tasks = append(b.tasks, id)
	return id
}

// stopAll leaves an adapter nothing to finish, even one that is broken.
func (b *ruleCheck) stopAll() {
	b.s.ClearFaults()
	b.s.Pause(true)
	for _, id := range b.tasks {
		b.s.Cancel(id)
	}
	for _, pid := range b.pids {
		if alive(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// agentPIDs waits for an agent and answers the process ids that it wrote.
func (b *ruleCheck) agentPIDs() (pids []int) {
	defer context.AfterFunc(b.ctx, func() { // a reader of a FIFO waits for a writer
		if f, err := os.OpenFile(b.fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			f.Close()
		}
	})()
	text, err := os.ReadFile(b.fifo)
	if err != nil || len(text) == 0 {
		b.fatalf("the agent was not launched: %v", err)
	}
	for _, word := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			b.fatalf("what the agent said makes no sense: %v", err)
		}
		pids = append(pids, pid)
	}
	b.pids = append(b.pids, pids...)
	return pids
}

// await waits until the server has seen of a task what is wanted.
func (b *ruleCheck) await(id, what string, ok func(View) bool) View {
	v, err := b.s.Await(b.ctx, id, ok)
	if err != nil {
		b.fatalf("not seen in time: %s; the task is %s, its runs %+v", what, v.State, v.Runs)
	}
	return v
}

// expectDead notes every process that still runs.
func (b *ruleCheck) expectDead(pids []int) {
	for _, pid := range pids {
		if alive(pid) {
			b.errorf("process %d survived", pid)
		}
	}
}

// alive reports whether a process runs. A dead one may wait for its parent to
// take notice, so its state is read where there is /proc.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, state, _ := strings.Cut(string(stat), ") ")
	return err != nil || !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
