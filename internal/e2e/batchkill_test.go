//go:build linux

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// The server is killed while a file of tasks is submitted. The same command again submits the rest:
// every line once, in the order of the file.
func TestTheServerIsKilledWhileAFileIsSubmitted(t *testing.T) {
	const lines = 900 // the rate of the key lets 500 pass at once, and the others take seconds
	w := newTestEnv(t)
	w.store()
	env := w.env
	w.env = append(env[:len(env):len(env)], "PICKET_RATE_PER_KEY=100")
	server := w.up("--redis", w.storeURL())
	w.env = env
	var file strings.Builder
	for n := range lines {
		fmt.Fprintf(&file, "{\"title\":\"line %d\"}\n", n+1)
	}
	if err := os.WriteFile(w.path("tasks.jsonl"), []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	submit := []string{"task", "create", "--from", w.path("tasks.jsonl"), "--key-prefix", "once", "-o", "name"}
	first := w.start("submit", submit...)
	seen := 0
	w.event("600 tasks were submitted", func(ev picket.Event) bool {
		if ev.Type == picket.EventTaskSubmitted {
			seen++
		}
		return seen == 600
	})
	server.kill()
	if code := first.wait(); code != 6 || !strings.Contains(first.err.text(), "next: picket task create --from ") {
		t.Errorf("without its server: exit %d\n%s", code, first.err.text())
	}
	w.up("--redis", w.storeURL())
	again := w.cliFor(3*waitLimit, submit...)
	ids := strings.Fields(again.out)
	if again.code != 0 || len(ids) != lines {
		t.Fatalf("again: exit %d with %d ids\n%s", again.code, len(ids), again.errOut)
	}
	done := strings.Fields(first.out.text())
	if len(done) == 0 || len(done) == lines {
		t.Errorf("%d lines were done when the server was killed", len(done))
	}
	if !slices.Equal(done, ids[:len(done)]) {
		t.Errorf("%d tasks of the first time are others now", len(done))
	}
	tasks := w.allTasks()
	if len(tasks) != lines {
		t.Fatalf("there are %d tasks", len(tasks))
	}
	slices.Reverse(tasks) // the oldest comes first
	for i, task := range tasks {
		if want := fmt.Sprint("line ", i+1); task.TaskID != ids[i] || task.Title != want {
			t.Fatalf("task %d is %q, and the id of its line is %s: %+v", i, task.Title, ids[i], task)
		}
	}
	t.Logf("%d of %d lines were done when the server was killed", len(done), lines)
}
