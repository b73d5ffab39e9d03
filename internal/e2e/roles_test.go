//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// serverSet is an orchestrator with the proxy that it puts into its leases, and a
// reaper.
type serverSet struct {
	processes []*process
	proxyURL  string
	mainURL   string
}

// serve starts one role; again at the same address when it has been there.
func (w *testEnv) serve(role, name, url string, flags ...string) (*process, string) {
	w.t.Helper()
	listen := "127.0.0.1:0"
	if url != "" {
		listen = strings.TrimPrefix(url, "http://")
	}
	p := w.start(name, append([]string{"serve", role, "--redis", w.storeURL(), "--secret-file", w.path("secret.key"),
		"--listen", listen, "--log-level", "warn"}, flags...)...)
	return p, p.ready()
}

// dialAll starts the processes of a pair.
func (p *serverSet) dialAll(w *testEnv, name string) {
	w.t.Helper()
	p.processes = make([]*process, 3)
	p.processes[0], _ = w.serve("reaper", "reaper"+name, "")
	p.processes[1], p.proxyURL = w.serve("toolproxy", "proxy"+name, p.proxyURL)
	p.processes[2], p.mainURL = w.serve("orchestrator", "orchestrator"+name, p.mainURL, "--proxy-url", p.proxyURL)
}

// pairs starts two of each role over one store. The world's own requests go to
// the second.
func (w *testEnv) pairs() (pairs [2]serverSet) {
	w.t.Helper()
	w.ok("init", "--redis", w.storeURL(), "--secret-file", w.path("secret.key"), "--admin-key-file",
		w.path("data", "picket", "admin.key"))
	w.key = w.secret("admin.key")
	for i := range pairs {
		pairs[i].dialAll(w, strconv.Itoa(i))
	}
	w.url = pairs[1].mainURL
	w.events = followEvents(w)
	return pairs
}

// Two of each role, twenty workers and two hundred tasks on one store; in the
// middle one of each role is killed. Every task is done, each by one holder at
// a time, and the log says how.
func TestRolesApart(t *testing.T) {
	const workers, slots, tasks = 4, 5, 200
	w := newTestEnv(t)
	w.store()
	pairs := w.pairs()
	for i := range tasks {
		s := spec(fmt.Sprintf("task %d", i), 3)
		s.OnExit, s.Review, s.Escalate = picket.OnExitComplete, picket.ReviewByNone, picket.EscalateFail
		w.submit(s)
	}
	began := time.Now()
	for i := range workers {
		w.resident(fmt.Sprintf("worker%d", i), pairs[i%2].mainURL, slots)
	}
	w.completed(tasks / 8)
	t.Logf("%d tasks were done after %s; now one of each role is killed", tasks/8, time.Since(began).
		Round(time.Millisecond))
	for _, p := range pairs[0].processes {
		p.kill()
	}
	w.completed(tasks)
	t.Logf("all %d were done after %s", tasks, time.Since(began).Round(time.Millisecond))
	w.checkShares(tasks)

	pairs[0].dialAll(w, "0-again")
	s := spec("the worker is back", 3)
	s.Agent, s.OnExit, s.Review = "worker0", picket.OnExitComplete, picket.ReviewByNone
	w.of(w.submit(s).TaskID, picket.EventTaskCompleted)
}

// resident starts a worker with several slots at one of the orchestrators.
func (w *testEnv) resident(name, url string, slots int) {
	w.t.Helper()
	cmd := exec.Command(binary(), "adapter", "--agent-id", name, "--max", strconv.Itoa(slots), "--workspace", "here",
		"--log-level", "warn", "--", "true")
	env := w.env
	w.env = append(env[:len(env):len(env)], "PICKET_URL="+url, "PICKET_API_KEY="+w.key)
	w.launch(name, cmd)
	w.env = env
}

// checkShares looks at who did what.
func (w *testEnv) checkShares(tasks int) {
	w.t.Helper()
	events := w.allEvents()
	told, _ := replay(events)
	again, byAgent := 0, map[string]int{}
	for id, is := range told {
		if is.state != picket.TaskCompleted {
			w.t.Errorf("%s is %s", id, is.state)
		}
		if is.attempts > 1 {
			again++
		}
	}
	for _, ev := range events {
		if ev.Type == picket.EventTaskLeased {
			byAgent[ev.AgentID]++
		}
	}
	w.t.Logf("%d tasks needed a second lease; leases by worker: %v", again, byAgent)
	if len(told) != tasks {
		w.t.Errorf("the log has %d tasks", len(told))
	}
	var stats picket.Stats
	w.into(&stats, http.MethodGet, "/stats", nil)
	if stats.Tasks[picket.TaskCompleted] != int64(tasks) {
		w.t.Errorf("the server counts %v", stats.Tasks)
	}
}

// completed waits until n tasks are.
func (w *testEnv) completed(n int) {
	w.t.Helper()
	seen := map[string]bool{}
	w.eventWithin(2*waitLimit, fmt.Sprintf("%d tasks completed", n), func(ev picket.Event) bool {
		if ev.Type == picket.EventTaskCompleted {
			seen[ev.TaskID] = true
		}
		return len(seen) >= n
	})
}
