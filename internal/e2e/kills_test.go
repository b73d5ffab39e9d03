//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// steppingAgent is an agent that works in steps, goes on after the last one that was
// reported, and keeps a ledger of what it was told to have done.
const steppingAgent = `ledger="$E2E/ledger/$PICKET_TASK_ID"
n=$(sed -n 's/.*"summary": *"step \([0-9]*\)".*/\1/p' "$PICKET_LAST_REPORT"); n=${n:-0}
echo "start $PICKET_FENCING_TOKEN $n" >>"$ledger"
insist() { while :; do "$@" && return; code=$?; [ $code = 6 ] || exit $code; sleep 0.1; done; }
while [ $n -lt 5 ]; do
	sleep 0.3; n=$((n+1))
	insist picket tool report_progress --summary "step $n"
	echo "did $PICKET_FENCING_TOKEN $n" >>"$ledger"
done
insist picket tool mark_complete --output "$n"`

// killTest is a full stack whose processes are killed one after the other.
type killTest struct {
	*testEnv
	random    *rand.Rand
	servers   serverSet
	redis     *process
	workers   [3]*process
	submitted map[string]bool
	kills     map[string]int
}

// Any process may be killed with SIGKILL at any time, again and again, while
// small tasks run: no task is lost, none is done under a token that was used
// before, each goes on after the last report that was acknowledged, all end,
// and nothing is left running.
func TestKillsAtRandom(t *testing.T) {
	kills := soakTimes(t, "kill -9", 15, 134)
	c := &killTest{
		testEnv:   newTestEnv(t),
		random:    rig.Random(t),
		submitted: map[string]bool{},
		kills:     map[string]int{},
	}
	if err := os.Mkdir(c.path("ledger"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.redis = c.store()
	c.ok("init", "--redis", c.storeURL(), "--secret-file", c.path("secret.key"), "--admin-key-file",
		c.path("data", "picket", "admin.key"))
	c.key = c.secret("admin.key")
	c.servers.dialAll(c.testEnv, "")
	c.url = c.servers.mainURL
	c.events = followEvents(c.testEnv)
	for i := range c.workers {
		c.startWorker(i)
	}
	began := time.Now()
	for range kills {
		c.submitTasks(1 + c.random.IntN(4))
		c.kill()
	}
	struck := time.Since(began)
	c.finish()
	again, resumed := c.audit()
	t.Logf("kill -9: %d kills %v in %s, %d tasks completed after %s, %d of them leased more than once, %d agents went on from a report",
		kills, c.kills, struck.Round(time.Second), len(c.submitted), time.Since(began).Round(time.Second), again,
		resumed)
}

func (c *killTest) startWorker(i int) {
	name := fmt.Sprintf("worker%d", i)
	args := []string{"adapter", "--agent-id", name, "--max", "3", "--env", "E2E", "--log-level", "warn", "--", "sh",
		"-c", steppingAgent}
	env := c.env
	c.env = append(env[:len(env):len(env)], "PICKET_URL="+c.servers.mainURL, "PICKET_API_KEY="+c.key)
	c.workers[i] = c.start(name, args...)
	c.env = env
}

// submitTasks submits n tasks, each until it is acknowledged; a few more than there is
// work for, so that every kill strikes something.
func (c *killTest) submitTasks(n int) {
	c.t.Helper()
	for range n {
		s := spec("a task in steps", 3)
		s.Review, s.Escalate = picket.ReviewByNone, picket.EscalateFail
		attempts, backoff := 100, 0
		s.Retry = &picket.Retry{
			MaxAttempts:    &attempts,
			BackoffSeconds: &backoff,
			On:             []picket.ExitClass{picket.ExitCrash, picket.ExitNoResult},
		}
		once := fmt.Sprintf("task-%d", len(c.submitted))
		c.until("a submitted task is acknowledged", func() bool {
			a, err := try(c.key, http.MethodPost, c.url+"/api/v1/tasks", s, "Idempotency-Key", once)
			if err != nil || a.status == http.StatusServiceUnavailable {
				return false
			}
			var task picket.Task
			if err := json.Unmarshal(a.body, &task); err != nil || a.status/100 != 2 || c.submitted[task.TaskID] {
				c.t.Fatalf("submit: %v, %d %s", err, a.status, a.body)
			}
			c.submitted[task.TaskID] = true
			return true
		})
	}
}

// kill lets the load run for a moment, kills one process and starts it again.
func (c *killTest) kill() {
	c.t.Helper()
	time.Sleep(time.Duration(c.random.IntN(500)) * time.Millisecond) // the instant is what is random
	switch i := c.random.IntN(7); {
	case i < 3:
		c.kills["adapter"]++
		c.workers[i].kill()
		c.startWorker(i)
	case i == 3:
		c.kills["redis"]++
		c.redis.kill()
		c.redis = c.store()
	default:
		role := []string{"reaper", "toolproxy", "orchestrator"}[i-4]
		c.kills[role]++
		c.servers.processes[i-4].kill()
		switch role {
		case "reaper":
			c.servers.processes[0], _ = c.serve(role, role, "")
		case "toolproxy":
			c.servers.processes[1], _ = c.serve(role, role, c.servers.proxyURL)
		default:
			c.servers.processes[2], _ = c.serve(role, role, c.servers.mainURL, "--proxy-url", c.servers.proxyURL)
		}
	}
}

// finish waits until every task is completed. A lease from before a restart of
// the store whose holder was killed, too, is given 30 s to be reclaimed.
func (c *killTest) finish() {
	c.t.Helper()
	done := map[string]bool{}
	c.eventWithin(6*waitLimit, fmt.Sprintf("%d tasks completed", len(c.submitted)), func(ev picket.Event) bool {
		if ev.Type == picket.EventTaskCompleted {
			done[ev.TaskID] = true
		}
		return len(done) >= len(c.submitted)
	})
	for id := range c.submitted {
		if got := c.task(id); got.State != picket.TaskCompleted || string(got.Output) != "5" {
			c.t.Errorf("%s is %s with output %s", id, got.State, got.Output)
		}
	}
	if tasks := c.allTasks(); len(tasks) != len(c.submitted) {
		c.t.Errorf("there are %d tasks, %d were submitted", len(tasks), len(c.submitted))
	}
	for i, w := range c.workers {
		w.signal(syscall.SIGTERM)
		if code := w.wait(); code != 0 {
			c.t.Errorf("worker%d ended with %d", i, code)
		}
	}
}

func (c *testEnv) allTasks() (all []picket.Task) {
	c.t.Helper()
	for path := "/tasks?limit=200"; ; {
		var page picket.TaskPage
		c.into(&page, http.MethodGet, path, nil)
		all = append(all, page.Tasks...)
		if page.NextCursor == nil {
			return all
		}
		path = "/tasks?limit=200&cursor=" + *page.NextCursor
	}
}

// launched is what the ledger says of one agent.
type launched struct {
	token int64
	began int
	did   int
}

// audit reads what the agents wrote down themselves.
func (c *killTest) audit() (again, resumed int) {
	c.t.Helper()
	for id := range c.submitted {
		var launches []launched
		for line := range strings.Lines(c.read("ledger/" + id)) {
			var what string
			var token int64
			var step int
			if _, err := fmt.Sscan(line, &what, &token, &step); err != nil {
				c.t.Fatalf("%s: %q: %v", id, line, err)
			}
			i := slices.IndexFunc(launches, func(l launched) bool { return l.token == token })
			switch {
			case what == "start" && i >= 0:
				c.t.Errorf("%s was run twice under token %d", id, token)
			case what == "start":
				launches = append(launches, launched{token: token, began: step, did: step})
			case i < 0:
				c.t.Errorf("%s: %s under token %d, which never started", id, what, token)
			default:
				launches[i].did = max(launches[i].did, step)
			}
		}
		slices.SortFunc(launches, func(a, b launched) int { return int(a.token - b.token) })
		for i, l := range launches {
			if i > 0 && l.began < launches[i-1].did {
				c.t.Errorf("%s began with step %d under token %d although %d was acknowledged under %d", id, l.began,
					l.token, launches[i-1].did, launches[i-1].token)
			}
			if l.began > 0 {
				resumed++
			}
		}
		if len(launches) > 1 {
			again++
		}
	}
	return again, resumed
}
