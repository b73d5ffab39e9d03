//go:build linux

package e2e

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
)

// adapterOf is the adapter of an agent: its parent, or that of its shim.
func adapterOf(t *testing.T, agent int) int {
	t.Helper()
	parent := parentOf(t, agent)
	if name, _ := os.ReadFile("/proc/" + strconv.Itoa(parent) +
		"/comm"); strings.TrimSpace(string(name)) == "picket-shim" {
		return parentOf(t, parent)
	}
	return parent
}

// parentOf is the process that started another one.
func parentOf(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	text := string(stat)
	parent, err := strconv.Atoi(strings.Fields(text[strings.LastIndexByte(text, ')')+1:])[1])
	if err != nil {
		t.Fatal(err)
	}
	return parent
}

// kill -9 of the adapter behind an attached run: it is started again and gives
// the lease back, if that has not ended on its own before, and the task goes on
// under the next token. Only an expiry is a failure.
func TestAttachedAdapterKilled(t *testing.T) {
	w := newTestEnv(t)
	w.up()
	pid := w.fifo("pid")
	w.fifo("go")
	attached := w.start("run", "run", "--lease-window", "2s", "--env", "E2E", "--", "sh", "-c",
		`echo $$ >"$E2E/pid"; read x <"$E2E/go"; echo "token $PICKET_FENCING_TOKEN"`)
	orphan := pid.takePID()
	id := w.ok("task", "list", "-o", "name")
	if err := unix.Kill(adapterOf(t, orphan), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, "the agent of the killed adapter", orphan)
	attached.says("starting it again")
	w.leased(id, 2)
	second := pid.takePID()
	w.give("go")
	if code := attached.wait(); code != 0 {
		t.Errorf("the attached run ended with %d: %s", code, attached.err.text())
	}
	gone(t, "the second agent", second)
	if got := w.task(id); got.State != picket.TaskReview || !strings.Contains(string(got.Output), "token 2") {
		t.Errorf("%s, output %s", got.State, got.Output)
	} else if expired := got.Runs[0].Exit.Class == picket.ExitLeaseExpired; expired != (got.Failures == 1) {
		t.Errorf("%d failures, the first run ended as %s", got.Failures, got.Runs[0].Exit.Class)
	}
}

// kill -9 of the attached run itself, or a closed terminal: the task goes on.
func TestAttachedRunKilled(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"SIGKILL": syscall.SIGKILL, "SIGHUP": syscall.SIGHUP} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t)
			w.up()
			pid := w.fifo("pid")
			w.fifo("go")
			attached := w.start("run", "run", "--env", "E2E", "--", "sh", "-c",
				`echo $$ >"$E2E/pid"; read x <"$E2E/go"; echo made`)
			agent := pid.takePID()
			adapter := adapterOf(t, agent)
			if err := unix.Kill(-attached.pid(), sig); err != nil {
				t.Fatal(err)
			}
			attached.wait()
			w.give("go")
			id := w.ok("task", "list", "-o", "name")
			w.of(id, picket.EventTaskReview)
			gone(t, "the agent or its adapter", agent, adapter)
			if got := w.task(id); got.Attempts != 1 || !strings.Contains(string(got.Output), "made") {
				t.Errorf("output %s after %d attempts", got.Output, got.Attempts)
			}
		})
	}
}
