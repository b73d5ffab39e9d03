//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// elsewhere is worker with a state of its own, as on another machine.
func (w *testEnv) elsewhere(name, script string, flags ...string) *process {
	w.t.Helper()
	env := w.env
	defer func() { w.env = env }()
	w.env = append(env[:len(env):len(env)], "XDG_STATE_HOME="+w.path("state-"+name))
	return w.worker(name, script, flags...)
}

const steps = 10

// tenSteps is an agent that works as a good one does: it goes on after the last
// step that was reported, does each step once, keyed by its number, and reports
// it. It stands still before and after each effect, so that it can be killed
// there: at the cue "at" it says where, "go" lets it on.
const tenSteps = `
done=$(sed -n 's/.*"nextStep": *"step \([0-9]*\)".*/\1/p' "$PICKET_LAST_REPORT")
step=${done:-1}
while [ "$step" -le 10 ]; do
	echo "$$ before $step" >"$E2E/at"; read x <"$E2E/go" || exit
	[ -e "$E2E/steps/$step" ] || { echo "$PICKET_RUN_ID" >>"$E2E/effects-$step"; : >"$E2E/steps/$step"; }
	echo "$$ after $step" >"$E2E/at"; read x <"$E2E/go" || exit
	picket tool report_progress --summary "did step $step" --nextStep "step $((step+1))" || exit
	step=$((step+1))
done
picket tool mark_complete --output done`

// resumes are what is killed, and how the next run comes about.
var resumes = []struct {
	name string
	kill func(w *testEnv, worker *process, agent int)
}{
	{"agent", func(w *testEnv, _ *process, agent int) { w.must(unix.Kill(agent, unix.SIGKILL)) }},
	{"adapter", func(_ *testEnv, worker *process, _ int) { worker.kill() }},
	{"both", func(w *testEnv, worker *process, agent int) {
		proctest.Stop(w.t, worker.pid()) // so that it cannot report the agent's end
		w.must(unix.Kill(agent, unix.SIGKILL))
		worker.kill()
	}},
}

func (w *testEnv) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// kill -9 at every step of an agent that has ten, before and after the step's
// effect: the task goes on with the last report, in a new run of a worker that
// was started again, and in the end each step was done once.
func TestResumeAtEveryStep(t *testing.T) {
	for _, victim := range resumes {
		t.Run(victim.name, func(t *testing.T) {
			w := newTestEnv(t)
			w.up()
			w.must(os.MkdirAll(w.path("steps"), 0o700))
			at := w.fifo("at")
			w.fifo("go")
			s := spec("ten steps", 60)
			most := 3 * steps
			s.Retry = &picket.Retry{
				MaxAttempts:    &most,
				On:             []picket.ExitClass{picket.ExitCrash},
				BackoffSeconds: new(int),
			}
			task := w.submit(s)
			worker := w.worker("first", tenSteps, "--workspace", "here")
			kills := 0
			for step := 1; step <= steps; step++ {
				for _, where := range []string{"before", "after"} {
					var agent, got int
					var side string
					if _, err := fmt.Sscanf(at.take(), "%d %s %d", &agent, &side, &got); err != nil || got != step ||
						side != where {
						t.Fatalf("the agent is %s step %d, want %s %d: %v", side, got, where, step, err)
					}
					// Killed before the even steps and after the odd ones.
					if (step%2 == 0) == (where == "before") {
						victim.kill(w, worker, agent)
						kills++
						if worker.ended() {
							worker = w.worker(fmt.Sprintf("worker-%d", kills), tenSteps, "--workspace", "here")
						}
						// It comes back to where it was: nothing was reported since.
						if _, err := fmt.Sscanf(at.take(), "%d %s %d", &agent, &side, &got); err != nil ||
							got != step || side != "before" {
							t.Fatalf("the next agent is %s step %d, want before %d: %v", side, got, step, err)
						}
						if where == "after" {
							w.give("go")
							at.take()
						}
					}
					w.give("go")
				}
			}
			w.of(task.TaskID, picket.EventTaskReview)
			w.eachStepOnce()
			got := w.task(task.TaskID)
			if got.Attempts != kills+1 || len(got.Runs) != kills+1 {
				t.Errorf("%d attempts after %d kills", got.Attempts, kills)
			}
			if failed := got.Failures; victim.name == "agent" && failed != kills ||
				victim.name != "agent" && failed != 0 {
				t.Errorf("%d failures after %d kills of the %s", failed, kills, victim.name)
			}
			w.noSurvivors(got)
			t.Logf("resume: %s killed %d times, %d steps, each done once", victim.name, kills, steps)
		})
	}
}

// eachStepOnce looks at the effects, not at what anybody said of them.
func (w *testEnv) eachStepOnce() {
	w.t.Helper()
	for step := 1; step <= steps; step++ {
		if n := strings.Count(w.read(fmt.Sprintf("effects-%d", step)), "run_"); n != 1 {
			w.t.Errorf("step %d was done %d times", step, n)
		}
	}
	var reports struct {
		Reports []picket.Report `json:"reports"`
	}
	tasks := w.ok("task", "list", "-o", "name")
	w.into(&reports, http.MethodGet, "/tasks/"+tasks+"/reports", nil)
	if len(reports.Reports) != steps {
		w.t.Errorf("%d reports of %d steps", len(reports.Reports), steps)
	}
}

// noSurvivors looks for processes that carry the id of an ended run.
func (w *testEnv) noSurvivors(task picket.Task) {
	w.t.Helper()
	w.until("the processes of all runs are gone", func() bool {
		environs, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, file := range environs {
			env, _ := os.ReadFile(file)
			for _, run := range task.Runs {
				if strings.Contains(string(env), "PICKET_RUN_ID="+run.RunID+"\x00") {
					return false
				}
			}
		}
		return true
	})
}
