//go:build linux

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// All servers are killed for longer than a worker may be silent. The worker ends
// its agent, for it cannot know why nobody answers; but the time in which nobody
// could hear it is not held against it: it is not made dead, no failure is
// counted, and it takes its task again when the servers are back.
func TestServersAwayLongerThanSilence(t *testing.T) {
	w := newTestEnv(t)
	w.store()
	server := w.up("--redis", w.storeURL())
	pid, token := w.fifo("pid"), w.fifo("token")
	s := spec("survives an outage", 60)
	s.Role, s.Review = "story", picket.ReviewByNone
	worker := w.briskWorker("steady", strings.ReplaceAll(outlasting, `"title": *"quick"`, `"attempt": *2`))
	task := w.submit(s)
	tree := []int{pid.takePID(), pid.takePID()}
	token.take()
	server.kill()
	began := time.Now()
	gone(t, "the tree of a worker that nobody answers", tree...)
	t.Logf("the tree was dead %s after the servers", time.Since(began).Round(time.Millisecond))
	time.Sleep(time.Until(began.Add(6 * time.Second))) // how long they are away
	w.up("--redis", w.storeURL())
	w.of(task.TaskID, picket.EventTaskCompleted)
	if got := w.task(task.TaskID); got.Attempts != 2 || got.Failures != 0 {
		t.Errorf("%d attempts, %d failures", got.Attempts, got.Failures)
	}
	for _, status := range statuses(w.allEvents(), "steady") {
		if strings.Contains(status, "dead") {
			t.Errorf("the worker went %s", status)
		}
	}
	if worker.ended() {
		t.Error("the worker is gone")
	}
}
