//go:build linux

package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// Cancel takes the whole tree with it, however deaf it is.
func TestCancelledTree(t *testing.T) {
	w := newTestEnv(t)
	w.up()
	pid := w.fifo("pid")
	w.worker("first", `trap "" TERM INT HUP
(trap "" TERM; sleep 1001) &
nohup sleep 1002 >/dev/null 2>&1 &
sh -c 'trap "" TERM; while :; do sleep 1003; done' &
echo $$ >"$E2E/pid"
while :; do sleep 1004; done`)
	task := w.submit(spec("deaf", 60))
	agent := pid.takePID()
	tree := groupOf(agent)
	if len(tree) < 4 {
		t.Fatalf("the tree has only %v", tree)
	}
	began := time.Now()
	w.ok("task", "cancel", task.TaskID, "--reason", "enough")
	said := time.Since(began)
	gone(t, "the tree of a cancelled task", tree...)
	t.Logf("cancel was answered after %s, %d processes were dead after %s", said.Round(time.Millisecond), len(tree),
		time.Since(began).Round(time.Millisecond))
	w.of(task.TaskID, picket.EventTaskCancelled)
	w.of(task.TaskID, picket.EventRunExited)
	got := w.task(task.TaskID)
	if got.State != picket.TaskCancelled || got.Runs[0].State != picket.RunCancelled || got.Runs[0].Containment == "" {
		t.Errorf("%s, run %+v", got.State, got.Runs[0])
	}
	if exit := got.Runs[0].Exit; exit == nil || exit.Class != picket.ExitCancelled || exit.Signal == nil ||
		*exit.Signal != "SIGKILL" {
		t.Errorf("the exit is %+v", exit)
	}
	w.refused(4, picket.CodeTaskClosed, "task", "cancel", task.TaskID)
}

// The first SIGTERM lets the current task finish and takes no new one; the
// second gives the current one back.
func TestDrain(t *testing.T) {
	w := newTestEnv(t)
	w.up()
	pid := w.fifo("pid")
	w.fifo("go")
	const script = `echo $$ >"$E2E/pid"; read x <"$E2E/go"; picket tool mark_complete --output done`
	first := w.worker("first", script)
	one := w.submit(spec("finishes", 60))
	agent := pid.takePID()
	first.signal(syscall.SIGTERM)
	first.says("draining")
	two := w.submit(spec("waits", 60))
	w.give("go")
	if code := first.wait(); code != 0 {
		t.Errorf("after draining the exit code is %d", code)
	}
	gone(t, "the agent", agent)
	if got := w.task(one.TaskID); got.State != picket.TaskReview {
		t.Errorf("the current task is %s", got.State)
	}
	if got := w.task(two.TaskID); got.State != picket.TaskQueued || got.Attempts != 0 {
		t.Errorf("the next task is %s after %d attempts", got.State, got.Attempts)
	}

	second := w.worker("second", script)
	agent = pid.takePID()
	began := time.Now()
	second.signal(syscall.SIGTERM)
	second.says("draining")
	second.signal(syscall.SIGTERM)
	if code := second.wait(); code != 0 {
		t.Errorf("after giving back the exit code is %d", code)
	}
	t.Logf("given back and ended after %s", time.Since(began).Round(time.Millisecond))
	gone(t, "the agent", agent)
	exit := exitOf(t, w.of(two.TaskID, picket.EventLeaseReleased))
	if exit.Class != picket.ExitReleased {
		t.Errorf("the run ended as %s", exit.Class)
	}
	if got := w.task(two.TaskID); got.State != picket.TaskQueued || got.Failures != 0 || got.Attempts != 1 {
		t.Errorf("the task that was given back is %s with %d failures after %d attempts", got.State, got.Failures,
			got.Attempts)
	}
}

// ctrlC is what a terminal does: the signal goes to the whole group.
func (p *process) ctrlC() {
	p.t.Helper()
	if err := syscall.Kill(-p.pid(), syscall.SIGINT); err != nil {
		p.t.Fatal(err)
	}
}

// Ctrl-C leaves an attached run going; a second one cancels it.
func TestCtrlC(t *testing.T) {
	w := newTestEnv(t)
	w.up()
	pid := w.fifo("pid")
	w.fifo("go")
	attached := w.start("run", "run", "--env", "E2E", "--", "sh", "-c",
		`echo $$ >"$E2E/pid"; read x <"$E2E/go"; echo made`)
	agent := pid.takePID()
	adapter := adapterOf(t, agent)
	attached.ctrlC()
	attached.says("leaving")
	if code := attached.wait(); code != 130 {
		t.Errorf("the exit code of a detached run is %d", code)
	}
	id := w.ok("task", "list", "-o", "name")
	if got := w.task(id); got.State != picket.TaskLeased {
		t.Errorf("the task is %s after Ctrl-C", got.State)
	}
	w.give("go")
	w.of(id, picket.EventTaskReview)
	gone(t, "the agent or its adapter", agent, adapter)
	if got := w.task(id); !strings.Contains(string(got.Output), "made") || got.Attempts != 1 {
		t.Errorf("output %s after %d attempts", got.Output, got.Attempts)
	}

	attached = w.start("run", "run", "--env", "E2E", "--title", "twice", "--", "sh", "-c",
		`echo $$ >"$E2E/pid"; read x <"$E2E/go"; echo never`)
	agent = pid.takePID()
	attached.ctrlC()
	attached.says("leaving")
	attached.ctrlC()
	cancelled := w.event("task.cancelled", func(ev picket.Event) bool { return ev.Type == picket.EventTaskCancelled })
	gone(t, "the agent", agent)
	if code := attached.wait(); code != 1 && code != 130 {
		t.Errorf("the exit code of a cancelled run is %d", code)
	}
	if got := w.task(cancelled.TaskID); got.State != picket.TaskCancelled || got.Title != "twice" {
		t.Errorf("%q is %s", got.Title, got.State)
	}
}

// A task's own timeout kills the agent and reports it.
func TestTimeout(t *testing.T) {
	w := newTestEnv(t)
	w.up()
	ran := w.cli("run", "--timeout", "1s", "--", "sh", "-c", "sleep 1000")
	if ran.code != 124 {
		t.Errorf("exit code %d\n%s", ran.code, ran.errOut)
	}
	id := w.ok("task", "list", "-o", "name")
	exit := exitOf(t, w.of(id, picket.EventLeaseReleased))
	if exit.Class != picket.ExitTimeout || exit.Signal == nil || *exit.Signal != "SIGTERM" {
		t.Errorf("the exit is %+v", exit)
	}
	got := w.task(id)
	if got.State != picket.TaskHandoff || got.Handoff == nil || got.Handoff.Kind != picket.HandoffEscalation ||
		got.Failures != 1 {
		t.Errorf("the task is %s with %d failures, hand-off %+v", got.State, got.Failures, got.Handoff)
	}
	w.ok("task", "cancel", id)
}
