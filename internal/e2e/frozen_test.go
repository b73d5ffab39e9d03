//go:build linux

package e2e

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// The demonstration is true, and leaves nothing behind.
func TestDemoZombie(t *testing.T) {
	w := newTestEnv(t)
	demo := w.start("demo", "demo", "zombie")
	if code := demo.wait(); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, demo.out.text(), demo.err.text())
	}
	for _, part := range []string{"fencing token 2", "stale_fence", "no process is left"} {
		if !strings.Contains(demo.out.text(), part) {
			t.Errorf("it does not say %q:\n%s", part, demo.out.text())
		}
	}
}

// A whole worker stands still past its lease. Its agent wakes first and writes
// on, which is refused; then its adapter wakes and ends the agent on its own.
// There is no shim, which would not let it come to that.
func TestFrozenWorker(t *testing.T) {
	w := newTestEnv(t)
	w.up()
	pid := w.fifo("pid")
	w.fifo("hold")
	task := w.submit(spec("frozen", 8)) // a loaded machine may renew late by seconds
	first := w.worker("first", `echo $$ >"$E2E/pid"
n=0; while n=$((n+1)); do picket tool report_progress --summary "as if nothing had happened, $n" >>"$E2E/answers" 2>&1; done`, "--containment", picket.ContainmentGroup)
	agent := pid.takePID()
	w.of(task.TaskID, picket.EventTaskProgress)
	frozen := freeze(t, first.pid(), agent)
	stopped := time.Now()
	second := w.worker("second", `echo $$ >"$E2E/pid"; read x <"$E2E/hold"; picket tool mark_complete --output done`)
	next := w.leased(task.TaskID, 2)
	t.Logf("leased again %s after the worker stood still", time.Since(stopped).Round(time.Millisecond))
	if next.AgentID != "second" {
		t.Errorf("%s took the next lease", next.AgentID)
	}
	pid.takePID()
	for _, p := range frozen[1:] {
		_ = unix.Kill(p, unix.SIGCONT)
	}
	refused := w.of(task.TaskID, picket.EventWriteRefused)
	for _, part := range []string{`"code":"stale_fence"`, `"presented":1`, `"current":2`} {
		if !strings.Contains(string(refused.Data), part) {
			t.Errorf("write.refused lacks %s: %s", part, refused.Data)
		}
	}
	woken := time.Now()
	if err := unix.Kill(first.pid(), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	gone(t, "the first agent", agent)
	t.Logf("the old agent was dead %s after its adapter woke", time.Since(woken).Round(time.Millisecond))
	first.says("run ended")
	if got := w.task(task.TaskID); got.State != picket.TaskLeased || got.FencingToken != 2 {
		t.Errorf("the task is %s under %d", got.State, got.FencingToken)
	}
	w.give("hold")
	w.of(task.TaskID, picket.EventTaskReview)
	for _, ev := range w.allEvents() {
		if ev.Type == picket.EventTaskProgress && ev.Seq > next.Seq {
			t.Errorf("event %d: progress under %d after the takeover", ev.Seq, ev.FencingToken)
		}
	}
	if first.ended() || second.ended() {
		t.Error("a resident worker is gone")
	}
}

// freeze stops an adapter first, so that it cannot react, and then the tree of
// its agent until nothing in it moves. It answers what was stopped, the adapter
// first.
func freeze(t *testing.T, adapter, agent int) []int {
	t.Helper()
	proctest.Stop(t, adapter)
	stopped := []int{adapter}
	for known := -1; known != len(stopped); { // a process may fork while its group is read
		known = len(stopped)
		if err := unix.Kill(-agent, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		stopped = append([]int{adapter}, groupOf(agent)...)
	}
	for _, pid := range stopped {
		proctest.AwaitStopped(t, pid)
	}
	return stopped
}
