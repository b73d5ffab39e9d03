package e2e

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
)

// The demonstration is true, and leaves nothing behind.
func TestDemoZombie(t *testing.T) {
	w := newWorld(t)
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

// A whole worker stands still past its lease and wakes up at once: its agent
// writes on until its adapter has seen that the lease is gone. Nothing that it
// writes gets in.
func TestFrozenWorker(t *testing.T) {
	w := newWorld(t)
	w.up()
	pid := w.cue("pid")
	w.cue("hold")
	task := w.submit(spec("frozen", 2))
	first := w.worker("first", `echo $$ >"$E2E/pid"
while :; do picket tool report_progress --summary "as if nothing had happened" >>"$E2E/answers" 2>&1; done`)
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
	before := len(w.read("answers"))
	for _, p := range frozen {
		_ = unix.Kill(p, unix.SIGCONT)
	}
	woken := time.Now()
	gone(t, "the first agent's tree", frozen[1:]...)
	t.Logf("the old agent was dead %s after it woke", time.Since(woken).Round(time.Millisecond))
	first.says("run ended")
	t.Logf("%d of its writes were refused", strings.Count(w.read("answers")[before:], string(picket.CodeStaleFence)))
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
	if err := unix.Kill(adapter, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := []int{adapter}
	for known := -1; known != len(stopped); { // a process may fork while its group is read
		known = len(stopped)
		if err := unix.Kill(-agent, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		stopped = append([]int{adapter}, groupOf(agent)...)
	}
	return stopped
}
