//go:build linux

package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// The story of the README: a command is submitted, leased, run and reviewed;
// what was decided stays decided.
func TestStory(t *testing.T) {
	w := newTestEnv(t)
	w.up()
	ran := w.cli("run", "--", "sh", "-c", "echo hi")
	if ran.code != 0 || ran.out != "hi\n" {
		t.Fatalf("picket run: exit %d, printed %q\n%s", ran.code, ran.out, ran.errOut)
	}
	id := w.ok("review", "list", "-o", "name")
	task := w.task(id)
	if task.State != picket.TaskReview || string(task.Output) != `"hi\n"` {
		t.Fatalf("the task is %s with output %s", task.State, task.Output)
	}
	if task.FencingToken != 1 || task.Attempts != 1 {
		t.Errorf("token %d after %d attempts", task.FencingToken, task.Attempts)
	}
	if show := w.ok("review", "show", id); !strings.Contains(show, "hi") {
		t.Errorf("review show does not show the output:\n%s", show)
	}
	if log := w.ok("task", "logs", id); log != "hi" {
		t.Errorf("the log is %q", log)
	}
	w.ok("review", "approve", id, "--note", "fine")
	if task = w.task(id); task.State != picket.TaskCompleted || task.Review == nil || task.Review.Note != "fine" {
		t.Fatalf("after the approval: %s, %+v", task.State, task.Review)
	}
	for _, verb := range [][]string{{"task", "cancel", id}, {"review", "approve", id},
		{"review", "reject", id, "--note", "no"}} {
		w.refused(4, picket.CodeTaskClosed, verb...)
	}
	for _, path := range []string{"/tasks/" + id + "/cancel", "/reviews/" + id + "/approve",
		"/reviews/" + id + "/reject"} {
		if got := w.api(http.MethodPost, path, struct{}{}); got.status != http.StatusConflict {
			t.Errorf("POST %s on a closed task: %d %s", path, got.status, got.body)
		}
	}
	var told []string
	for line := range strings.Lines(w.ok("events", "--task", id, "-o", "jsonl")) {
		var ev picket.Event
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		told = append(told, ev.Type)
	}
	if want := "task.submitted task.leased run.launched task.review run.exited task.approved"; strings.Join(told,
		" ") != want {
		t.Errorf("the log says %v, want %s", told, want)
	}
}
