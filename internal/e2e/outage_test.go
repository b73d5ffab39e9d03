//go:build linux

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// The server is killed under a worker with three agents and is away for less
// than their leases last: it costs no run, also where agents end meanwhile, and
// the worker takes the tasks that wait, from completion to completion.
func TestOutageCostsNoRun(t *testing.T) {
	w := newTestEnv(t)
	server := w.up()
	at := w.fifo("at")
	w.fifo("go")
	var ids []string
	for n := range 6 {
		s := spec(fmt.Sprint("task ", n), 60)
		s.OnExit = picket.OnExitComplete
		ids = append(ids, w.submit(s).TaskID)
	}
	worker := w.worker("first",
		`echo ready >"$E2E/at"; read x <"$E2E/go"; echo "result of $PICKET_TASK_ID"; : >"$E2E/done-$PICKET_TASK_ID"`,
		"--max", "3")
	for range 3 {
		at.take()
	}
	var held []string
	for _, id := range ids {
		if w.task(id).State == picket.TaskLeased {
			held = append(held, id)
		}
	}
	server.kill()
	for range 3 {
		w.give("go")
	}
	// They end without a server; their worker keeps what they said.
	for _, id := range held {
		w.until("the agent has ended", func() bool { _, err := os.Stat(w.path("done-" + id)); return err == nil })
	}
	w.up()
	for range 3 {
		at.take()
		w.give("go")
	}
	for _, id := range ids {
		w.of(id, picket.EventTaskReview)
		if got := w.task(id); got.Attempts != 1 || got.Failures != 0 ||
			!strings.Contains(string(got.Output), "result of "+id) {
			t.Errorf("%d attempts, %d failures, output %s", got.Attempts, got.Failures, got.Output)
		}
	}
	if n := w.counted(`route="/api/v1/leases/advance",status="200"`); n < 3 {
		t.Errorf("advanced %d times", n)
	}
	worker.signal(15)
	if code := worker.wait(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
}
