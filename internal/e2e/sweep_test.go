//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// family is an agent with a child that left its group and one that stayed; all
// say who they are and wait for ever. The next run completes.
const family = `
if [ -e "$E2E/again" ]; then cp "$PICKET_LAST_REPORT" "$E2E/last"; cp "$PICKET_TASK_FILE" "$E2E/task.json"; exec picket tool mark_complete --output done; fi
: >"$E2E/again"
picket tool report_progress --summary "half of it" --nextStep "the other half" || exit
setsid sh -c 'trap "" TERM HUP; echo $$ >"$E2E/pid"; while :; do sleep 1001; done' &
sh -c 'trap "" TERM HUP; echo $$ >"$E2E/pid"; while :; do sleep 1002; done' &
echo $$ >"$E2E/pid"
while :; do sleep 1003; done`

// runNotes are what a run's directory records about its processes.
type runNotes struct {
	BootID string `json:"bootId"`
	Shim   struct {
		PID int `json:"pid"`
	} `json:"shim"`
}

// runDir is where the state of the run is.
func (w *testEnv) runDir(run string) string { return w.path("state", "picket", "adapter", run) }

func (w *testEnv) notes(run string) (n runNotes) {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.runDir(run), "process.json"))
	w.must(err)
	w.must(json.Unmarshal(b, &n))
	return n
}

// kill -9 of an adapter, and of adapter and shim at once, leaves processes
// behind. The adapter that starts next ends them, gives the lease back before
// it asks for one, and the task goes on with the last report.
func TestStartUpSweep(t *testing.T) {
	for _, tt := range []struct {
		name        string
		containment string
		shim        bool // killed too
	}{
		{"adapter without a shim", picket.ContainmentGroup, false},
		{"adapter under a shim", "", false},
		{"adapter and shim", picket.ContainmentSubreaper, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newTestEnv(t)
			w.up()
			pid := w.fifo("pid")
			task := w.submit(spec("left behind", 60))
			var flags []string
			if tt.containment != "" {
				flags = []string{"--containment", tt.containment}
			}
			first := w.worker("first", family, flags...)
			tree := []int{pid.takePID(), pid.takePID(), pid.takePID()}
			run := w.task(task.TaskID).CurrentRun.RunID
			if tt.shim {
				shim := w.notes(run).Shim.PID
				proctest.Stop(t, shim) // so that it does nothing when the adapter goes
				first.kill()
				w.must(unix.Kill(shim, unix.SIGKILL))
			} else {
				first.kill()
			}
			if w.containment(task.TaskID) == picket.ContainmentGroup || tt.shim {
				w.lives(tree)
			}
			second := w.worker("second", family, flags...)
			given := w.of(task.TaskID, picket.EventLeaseReleased)
			if exit := exitOf(t, given); exit.Class != picket.ExitReleased ||
				!strings.Contains(string(given.Data), `"failures":0`) {
				t.Errorf("given back as %s", given.Data)
			}
			gone(t, "the old tree", tree...)
			if next := w.leased(task.TaskID, 2); next.Seq < given.Seq || next.AgentID != "second" {
				t.Errorf("event %d, %s", next.Seq, next.AgentID)
			}
			w.of(task.TaskID, picket.EventTaskReview)
			if last, task := w.read("last"), w.read("task.json"); !strings.Contains(last, "the other half") ||
				!strings.Contains(task, `"released"`) {
				t.Errorf("the next run was told %s and %s", last, task)
			}
			got := w.task(task.TaskID)
			w.noSurvivors(got)
			for _, r := range got.Runs {
				w.until("the run is settled", func() bool {
					_, err := os.Stat(filepath.Join(w.runDir(r.RunID), "lease.json"))
					return os.IsNotExist(err)
				})
			}
			if n := second.said("the lease of a dead adapter was given back"); n != 1 {
				t.Errorf("it reports it %d times", n)
			}
		})
	}
}

// containment is how the task's run was held together.
func (w *testEnv) containment(task string) string {
	w.t.Helper()
	w.of(task, picket.EventRunLaunched)
	return w.task(task).Runs[0].Containment
}

// lives reports that somebody of a tree is left, or the test proves nothing.
func (w *testEnv) lives(tree []int) {
	w.t.Helper()
	for _, pid := range tree {
		if unix.Kill(pid, 0) == nil {
			return
		}
	}
	w.t.Fatal("nobody is left behind: this test proves nothing")
}

// After a reboot nothing is killed, for the numbers are others' now; the lease
// is given back all the same. A run of a living adapter is left alone.
func TestSweepAfterAReboot(t *testing.T) {
	w := newTestEnv(t)
	w.up()
	pid := w.fifo("pid")
	w.fifo("go")
	const script = `echo $$ >"$E2E/pid"; read x <"$E2E/go"; picket tool mark_complete --output done`
	task := w.submit(spec("before the reboot", 60))
	first := w.worker("first", script, "--containment", picket.ContainmentGroup)
	stranger := pid.takePID()
	first.says("agent launched") // by then it has noted the process
	run := w.task(task.TaskID).CurrentRun.RunID
	first.kill()
	file := filepath.Join(w.runDir(run), "process.json")
	b, err := os.ReadFile(file)
	w.must(err)
	w.must(os.WriteFile(file, []byte(strings.Replace(string(b), w.notes(run).BootID, "another-boot", 1)), 0o600))

	second := w.worker("second", script)
	given := w.of(task.TaskID, picket.EventLeaseReleased)
	if exit := exitOf(t, given); exit.Class != picket.ExitReleased {
		t.Errorf("given back as %s", given.Data)
	}
	agent := pid.takePID()
	w.lives([]int{stranger})

	third := w.worker("third", script)
	w.waiting(1)
	if got := w.task(task.TaskID); got.State != picket.TaskLeased || got.FencingToken != 2 {
		t.Errorf("the run of a living adapter is %s under %d", got.State, got.FencingToken)
	}
	w.lives([]int{agent})
	w.give("go")
	w.give("go")
	w.of(task.TaskID, picket.EventTaskReview)
	gone(t, "both agents", agent, stranger)
	for _, p := range []*process{second, third} {
		w.must(p.cmd.Process.Signal(unix.SIGTERM))
		if code := p.wait(); code != 0 {
			t.Errorf("%s ended with %d", p.name, code)
		}
	}
	if text := fmt.Sprint(w.task(task.TaskID).Runs[0].Exit.Detail); !strings.Contains(text, "restarted") {
		t.Errorf("the old run's end: %s", text)
	}
}
