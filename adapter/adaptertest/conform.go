//go:build unix

package adaptertest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// Worker runs an adapter under test: it leases from s with [Key], launches the
// command for each lease, and returns when ctx has ended and what ran has
// finished.
type Worker func(ctx context.Context, s *Server, command []string) error

// Conform checks an adapter against what the protocol asks of one, with real
// processes. It takes some seconds, since one check lets a lease of 2 s end.
func Conform(t *testing.T, work Worker) {
	for name, check := range map[string]func(*testing.T, *bench){
		"confirms the lease before it launches":         confirmsFirst,
		"reports a crash with code and class":           reportsCrash,
		"reports a signal":                              reportsSignal,
		"reports a process without a result":            reportsNoResult,
		"hands in the output of onExit complete":        handsIn,
		"kills the tree of a cancelled task":            func(t *testing.T, b *bench) { kills(t, b, b.s.Cancel) },
		"kills the tree of a superseded lease":          func(t *testing.T, b *bench) { kills(t, b, func(id string) { b.s.Supersede(id) }) },
		"reclaims its lease in an adopted store":        reclaims,
		"kills the tree of a lease it cannot reclaim":   func(t *testing.T, b *bench) { kills(t, b, func(id string) { b.s.Adopt(); b.s.Expire(id) }) },
		"is done with a tree before the lease ends":     killsInTime,
		"keeps its agent through an outage that passes": keeps,
	} {
		t.Run(name, func(t *testing.T) { check(t, newBench(t, work)) })
	}
}

// bench is one adapter at work and a FIFO through which its agent says that it
// runs.
type bench struct {
	s    *Server
	work Worker
	ctx  context.Context
	post string
}

func newBench(t *testing.T, work Worker) *bench {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	b := &bench{s: Start(t), work: work, ctx: ctx, post: filepath.Join(t.TempDir(), "post")}
	if err := syscall.Mkfifo(b.post, 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

// run queues a task and starts the adapter with a shell script as its agent,
// for which $1 is the FIFO.
func (b *bench) run(t *testing.T, task Task, script string) (id string) {
	t.Helper()
	id = b.s.Queue(task)
	ctx, stop := context.WithCancel(b.ctx)
	ended := make(chan error, 1)
	go func() { ended <- b.work(ctx, b.s, []string{"sh", "-c", script, "sh", b.post}) }()
	t.Cleanup(func() {
		b.s.Pause(true)
		b.s.Cancel(id) // so that nothing is left to finish
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the adapter ended with: %v", err)
		}
	})
	return id
}

// said waits for the agent and answers the process ids that it wrote.
func (b *bench) said(t *testing.T) []int {
	t.Helper()
	defer context.AfterFunc(b.ctx, func() { // a reader of a FIFO waits for a writer
		if f, err := os.OpenFile(b.post, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			f.Close()
		}
	})()
	text, err := os.ReadFile(b.post)
	if err != nil || len(text) == 0 {
		t.Fatalf("the agent was not launched: %v", err)
	}
	var pids []int
	for _, word := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

func (b *bench) await(t *testing.T, id string, ok func(View) bool) View {
	t.Helper()
	v, err := b.s.Await(b.ctx, id, ok)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func released(v View) bool { return len(v.Runs) > 0 && v.Runs[0].Released != nil }

const tree = `sleep 1000 & echo $$ $! > $1; wait`

func confirmsFirst(t *testing.T, b *bench) {
	id := b.run(t, Task{}, tree)
	b.said(t)
	if v := b.s.View(id); v.Runs[0].Renewals == 0 {
		t.Error("the agent was launched for a lease that was not renewed yet")
	}
}

func reportsCrash(t *testing.T, b *bench) {
	v := b.await(t, b.run(t, Task{}, `exit 3`), released)
	if e := v.Runs[0].Released; e.Class != picket.ExitCrash || e.Code == nil || *e.Code != 3 {
		t.Errorf("released with %+v, want class crash and code 3", e)
	}
}

func reportsSignal(t *testing.T, b *bench) {
	v := b.await(t, b.run(t, Task{}, `kill -9 $$`), released)
	if e := v.Runs[0].Released; e.Class != picket.ExitCrash || e.Signal == nil || *e.Signal != "SIGKILL" {
		t.Errorf("released with %+v, want class crash and SIGKILL", e)
	}
}

func reportsNoResult(t *testing.T, b *bench) {
	v := b.await(t, b.run(t, Task{}, `exit 0`), released)
	if e := v.Runs[0].Released; e.Class != picket.ExitNoResult {
		t.Errorf("released with %+v, want class no_result", e)
	}
}

func handsIn(t *testing.T, b *bench) {
	id := b.run(t, Task{OnExit: picket.OnExitComplete}, `echo hi`)
	v := b.await(t, id, func(v View) bool { return v.State == picket.TaskReview })
	if string(v.Output) != `"hi\n"` {
		t.Errorf("the output is %s", v.Output)
	}
	b.await(t, id, func(v View) bool { return v.Runs[0].Evidence != nil })
}

func kills(t *testing.T, b *bench, end func(id string)) {
	id := b.run(t, Task{}, tree)
	pids := b.said(t)
	b.s.Pause(true)
	end(id)
	b.await(t, id, func(v View) bool { return v.Runs[0].Evidence != nil })
	dead(t, pids)
}

func killsInTime(t *testing.T, b *bench) {
	id := b.run(t, Task{Window: 2 * time.Second}, tree)
	pids := b.said(t)
	mend := b.s.Fail("/v1/", Unavailable, -1)
	defer mend()
	b.s.mu.Lock()
	end := b.s.tasks[id].runs[0].deadline
	b.s.mu.Unlock()
	select {
	case <-time.After(time.Until(end)): // what is tested is a deadline
	case <-b.ctx.Done():
	}
	dead(t, pids)
}

func keeps(t *testing.T, b *bench) {
	id := b.run(t, Task{Window: 2 * time.Second}, tree)
	pids := b.said(t)
	b.s.Fail("/v1/lease/renew", DropReply, 1)
	v := b.await(t, id, func(v View) bool { return v.Runs[0].Renewals >= 5 || v.State != picket.TaskLeased })
	if v.State != picket.TaskLeased || syscall.Kill(pids[0], 0) != nil {
		t.Errorf("the task is %s", v.State)
	}
}

func reclaims(t *testing.T, b *bench) {
	id := b.run(t, Task{Window: 2 * time.Second}, tree)
	pids := b.said(t)
	b.s.Adopt()
	renewed := b.s.View(id).Runs[0].Renewals
	v := b.await(t, id, func(v View) bool { return v.Runs[0].Renewals >= renewed+3 || v.State != picket.TaskLeased })
	if v.State != picket.TaskLeased || v.Runs[0].Reclaims != 1 || syscall.Kill(pids[0], 0) != nil {
		t.Errorf("the task is %s after %d reclaims", v.State, v.Runs[0].Reclaims)
	}
}

// dead fails the test for every process that still runs. A dead one may wait
// for its parent to take notice, so its state is read where there is /proc.
func dead(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if syscall.Kill(pid, 0) != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if _, state, _ := strings.Cut(string(b), ") "); err == nil && (strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")) {
			continue
		}
		t.Errorf("process %d survived", pid)
		syscall.Kill(pid, syscall.SIGKILL)
	}
}
