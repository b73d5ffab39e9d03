//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// Twenty readers of the event stream and people who go on deciding, while the
// server is stopped once and killed once: every reader has every event, in
// order and each once.
func TestReadersMissNothingAcrossRestarts(t *testing.T) {
	const readers, writers = 20, 4
	w := newTestEnv(t)
	server := w.up()
	journals := make([]*eventLog, readers)
	for i := range journals {
		journals[i] = followEvents(w)
		defer journals[i].stop()
	}
	var wrote atomic.Int64
	over := make(chan struct{})
	var group sync.WaitGroup
	for i := range writers {
		write := eventWriter{t, w.url + "/api/v1", w.key, fmt.Sprint("writer-", i), &wrote, over}
		group.Go(write.tasks)
	}
	w.until("some events", func() bool { return wrote.Load() > 300 })
	server.signal(syscall.SIGTERM)
	if code := server.wait(); code != 0 {
		t.Errorf("the server was asked to stop and ended with %d", code)
	}
	server = w.up()
	between := wrote.Load()
	w.until("some more", func() bool { return wrote.Load() > between+300 })
	server.kill()
	w.up()
	after := wrote.Load()
	w.until("some at the end", func() bool { return wrote.Load() > after+300 })
	close(over)
	group.Wait()

	all := w.allEvents()
	for i, j := range journals {
		w.until(fmt.Sprint("reader ", i, " at the end"), func() bool { return j.last() >= all[len(all)-1].Seq })
		got := j.all()
		if !slices.EqualFunc(got, all,
			func(a, b picket.Event) bool { return a.Seq == b.Seq && a.Type == b.Type && a.TaskID == b.TaskID }) {
			t.Errorf("reader %d has %d events, the log %d; it differs first at %d", i, len(got), len(all),
				firstDifference(got, all))
		}
	}
	t.Logf("%d readers, %d events, one stop and one kill of the server", readers, len(all))
}

func firstDifference(a, b []picket.Event) int {
	for i := range min(len(a), len(b)) {
		if a[i].Seq != b[i].Seq {
			return i
		}
	}
	return min(len(a), len(b))
}

// eventWriter submits tasks and cancels them until it is over.
type eventWriter struct {
	t     *testing.T
	url   string
	key   string
	name  string
	wrote *atomic.Int64
	over  <-chan struct{}
}

func (s eventWriter) tasks() {
	for i := 0; ; i++ {
		select {
		case <-s.over:
			return
		default:
		}
		once := fmt.Sprint(s.name, "-", i)
		var task picket.Task
		if made := s.send("/tasks", spec(once, 60), once); made != nil {
			decodeInto(s.t, made, &task)
			s.send("/tasks/"+task.TaskID+"/cancel", map[string]string{"reason": "written"}, once+"-cancel")
		}
	}
}

// send sends what the server did not answer again, under the same key.
func (s eventWriter) send(path string, body any, once string) []byte {
	for {
		got, err := tryFor(5*time.Second, s.key, http.MethodPost, s.url+path, body, "Idempotency-Key", once)
		if err == nil && got.status/100 == 2 {
			s.wrote.Add(1)
			return got.body
		}
		if err == nil && got.status < 500 {
			s.t.Errorf("%s: %d %s", path, got.status, got.body)
			return nil
		}
		select {
		case <-s.over:
			return nil
		case <-time.After(20 * time.Millisecond): // between attempts
		}
	}
}
