//go:build linux

package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// An agent asks a person and ends; the answer brings the task back to the same
// agent under a higher token, with the answer in its task file.
func TestHandoff(t *testing.T) {
	w := newTestEnv(t)
	w.up()
	pid := w.fifo("pid")
	const script = `echo $$ >"$E2E/pid"
if grep -q staging "$PICKET_TASK_FILE"; then
  cp "$PICKET_TASK_FILE" "$E2E/task.json"
  exec picket tool mark_complete --output "used staging"
fi
exec picket tool request_human_help --question "Which database?" --options live --options staging`
	w.worker("first", script)
	w.worker("second", script)
	task := w.submit(spec("asks", 60))
	pid.takePID()
	asked := w.of(task.TaskID, picket.EventTaskHandoff)
	waiting := w.task(task.TaskID)
	if waiting.State != picket.TaskHandoff || waiting.CurrentRun != nil ||
		waiting.Handoff.Question != "Which database?" {
		t.Fatalf("the task is %s, run %+v, hand-off %+v", waiting.State, waiting.CurrentRun, waiting.Handoff)
	}
	id := w.ok("handoff", "list", "-o", "name")
	if id != waiting.Handoff.HandoffID {
		t.Fatalf("the queue has %q", id)
	}
	w.refused(4, picket.CodeStateConflict, "review", "approve", task.TaskID)
	w.ok("handoff", "claim", id)
	w.ok("handoff", "answer", id, "--option", "2")
	again := w.leased(task.TaskID, 2)
	if again.AgentID != asked.AgentID {
		t.Errorf("%s asked and %s got the answer", asked.AgentID, again.AgentID)
	}
	w.of(task.TaskID, picket.EventTaskReview)
	if file := w.read("task.json"); !strings.Contains(file, `"staging"`) || !strings.Contains(file, "Which database?") {
		t.Errorf("the task file has no answer:\n%s", file)
	}
	w.refused(4, picket.CodeStateConflict, "handoff", "answer", id, "--text", "live")
	w.exited(task.TaskID, 2)
	w.ok("review", "approve", task.TaskID)
	w.refused(4, picket.CodeTaskClosed, "handoff", "answer", id, "--text", "live")
	if got := w.api(http.MethodPost, "/handoffs/"+id+"/answer",
		map[string]string{"answer": "live"}); got.status != http.StatusConflict {
		t.Errorf("an answer to a completed task: %d %s", got.status, got.body)
	}
	if got := w.task(task.TaskID); got.Failures != 0 || len(got.Answers) != 1 ||
		string(got.Output) != `"used staging"` {
		t.Errorf("%d failures, answers %+v, output %s", got.Failures, got.Answers, got.Output)
	}
}

// Nothing an agent prints carries its lease on: not the copy that its adapter
// passes on, not the files it keeps, not the log at the server.
func TestPrintedCredential(t *testing.T) {
	w := newTestEnv(t)
	w.up()
	done := w.fifo("done")
	worker := w.worker("loose-lipped",
		`env; echo "lease $PICKET_LEASE_TOKEN end" >&2; echo "$(env | grep -c pkk_)" >"$E2E/done"
picket tool report_progress --summary "no news"
exec picket tool mark_complete --output ok`, "--pass-output")
	task := w.submit(spec("prints", 60))
	if keys := done.take(); keys != "0" {
		t.Errorf("%s API keys are in the agent's environment", keys)
	}
	w.of(task.TaskID, picket.EventRunExited)
	if !worker.err.await(func(all string) bool { return strings.Contains(all, "run ended") }) {
		t.Fatal("the run does not end")
	}
	if text := worker.out.text(); !strings.Contains(text, "PICKET_LEASE_TOKEN=") {
		t.Errorf("the output was not passed on:\n%s", text)
	}
	for name, text := range map[string]string{
		"passed on": worker.out.text() + worker.err.text(),
		"the log":   w.ok("task", "logs", task.TaskID) + w.ok("task", "logs", "--stream", "stderr", task.TaskID),
		"the task":  w.ok("task", "get", task.TaskID, "-o", "json"),
	} {
		if hit := credential.FindString(text); hit != "" {
			t.Errorf("%s: it has the credential %s…", name, hit[:10])
		}
	}
	if log := w.ok("task", "logs", "--stream", "stderr", task.TaskID); !strings.Contains(log, "lease ") ||
		!strings.Contains(log, " end") {
		t.Errorf("the log of stderr is %q", log)
	}
}
