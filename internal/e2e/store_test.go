//go:build linux

package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
)

// store starts a redis-server of the test's own on a file that is kept.
func (w *testEnv) store() *process {
	w.t.Helper()
	dir := w.path("store")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	p := w.launch("redis", exec.Command("redis-server", "--port", "0", "--unixsocket", w.path("redis.sock"), "--dir",
		dir,
		"--appendonly", "yes", "--appendfsync", "always", "--save", "", "--maxmemory-policy", "noeviction"))
	p.rank = storeRank
	if !p.out.await(func(all string) bool { return strings.Contains(all, "is now ready to accept connections") }) {
		w.t.Fatalf("redis-server is not ready: %s%s", p.out.text(), p.err.text())
	}
	return p
}

func (w *testEnv) storeURL() string { return "unix://" + w.path("redis.sock") }

// holder is an agent that hands its credential to the test and then does as it
// is told: report, then complete.
const holder = `echo $$ >"$E2E/pid"; echo "$PICKET_PROXY_URL $PICKET_LEASE_TOKEN" >"$E2E/token"
read x <"$E2E/go"; picket tool report_progress --summary "went on" || exit
exec picket tool mark_complete --output done`

// sampleRequests are requests of each kind, to be sent while the store is away.
func (w *testEnv) sampleRequests(proxy, bearer string) map[string]func() (answer, error) {
	control := func(method, path string, body any, header ...string) func() (answer, error) {
		return func() (answer, error) { return try(w.key, method, w.url+"/api/v1"+path, body, header...) }
	}
	tool := func(path string, body any, header ...string) func() (answer, error) {
		return func() (answer, error) { return try(bearer, http.MethodPost, proxy+path, body, header...) }
	}
	return map[string]func() (answer, error){
		"list tasks": control(http.MethodGet, "/tasks", nil),
		"submit": control(http.MethodPost, "/tasks", spec("submitted in the dark", 60), "Idempotency-Key",
			"dark"),
		"acquire":  control(http.MethodPost, "/leases", map[string]any{"agentId": "nobody", "role": "nothing"}),
		"get_task": tool("/v1/tools/get_task", struct{}{}),
		"report_progress": tool("/v1/tools/report_progress", map[string]string{"summary": "never"}, "Idempotency-Key",
			"never"),
	}
}

// expectAway knocks at every door at once and expects 503 with a remedy.
func (w *testEnv) expectAway(proxy, bearer string) {
	w.t.Helper()
	var group sync.WaitGroup
	for what, knock := range w.sampleRequests(proxy, bearer) {
		group.Go(func() {
			began := time.Now()
			got, err := knock()
			w.t.Logf("%s without a store: %d after %s", what, got.status, time.Since(began).Round(time.Millisecond))
			if err != nil || got.status != http.StatusServiceUnavailable || got.code() != picket.CodeUnavailable ||
				got.header.Get("Retry-After") == "" {
				w.t.Errorf("%s without a store: %d, %v, Retry-After %q: %s", what, got.status, err,
					got.header.Get("Retry-After"), got.body)
			}
		})
	}
	group.Wait()
	if got := w.cli("task", "list"); got.code != 6 {
		w.t.Errorf("task list without a store: exit %d\n%s", got.code, got.errOut)
	}
}

// The store is killed and started again on its file: what was acknowledged is
// there, nothing was written meanwhile, and the lease goes on.
func TestStoreKilled(t *testing.T) {
	w := newTestEnv(t)
	store := w.store()
	w.up("--redis", w.storeURL())
	pid, token := w.fifo("pid"), w.fifo("token")
	w.fifo("go")
	w.worker("first", holder)
	task := w.submit(spec("outlives its store", 30))
	pid.takePID()
	proxy, bearer, _ := strings.Cut(token.take(), " ")
	w.of(task.TaskID, picket.EventRunLaunched)
	before := w.allEvents()

	store.kill()
	w.expectAway(proxy, bearer)
	w.store()
	w.serves()
	for _, ev := range w.allEvents()[len(before):] {
		if ev.Type != picket.EventStoreAdopted && ev.Type != picket.EventLeaseReclaimed {
			t.Errorf("without a store the log got %s:\n%s", ev.Type, w.events)
		}
	}
	if tasks := w.tasks(); len(tasks) != 1 {
		t.Errorf("there are %d tasks", len(tasks))
	}
	w.give("go")
	if ev := w.of(task.TaskID, picket.EventTaskProgress); ev.FencingToken <= 1<<21 {
		t.Errorf("it goes on under token %d", ev.FencingToken)
	}
	w.of(task.TaskID, picket.EventRunExited)
	if got := w.task(task.TaskID); got.State != picket.TaskReview || got.Attempts != 1 || got.Failures != 0 ||
		got.LastReport.Summary != "went on" {
		t.Errorf("%s after %d attempts, report %+v", got.State, got.Attempts, got.LastReport)
	}
}

// serves waits until the server can work with its store again.
func (w *testEnv) serves() {
	w.t.Helper()
	w.until("the server is ready", func() bool {
		return w.call(w.key, http.MethodGet, w.url+"/readyz", nil).status == http.StatusOK
	})
}

func (w *testEnv) tasks() []picket.Task {
	w.t.Helper()
	var page picket.TaskPage
	w.into(&page, http.MethodGet, "/tasks?limit=200", nil)
	return page.Tasks
}

// The store stands still and moves again: a request whose answer was lost is
// repeated under its key and has happened once.
func TestStoreFrozen(t *testing.T) {
	w := newTestEnv(t)
	w.up()
	pid, token := w.fifo("pid"), w.fifo("token")
	w.fifo("go")
	w.worker("first", holder)
	task := w.submit(spec("outlives a frozen store", 30))
	pid.takePID()
	proxy, bearer, _ := strings.Cut(token.take(), " ")
	w.of(task.TaskID, picket.EventRunLaunched)

	store := w.storePID()
	if err := unix.Kill(store, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	w.expectAway(proxy, bearer)
	if err := unix.Kill(store, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.serves()
	got := w.api(http.MethodPost, "/tasks", spec("submitted in the dark", 60), "Idempotency-Key", "dark")
	var dark picket.Task // it may run by now: there is a worker
	if err := json.Unmarshal(got.body, &dark); err != nil || got.status/100 != 2 {
		t.Fatalf("the repeated submit: %d %s", got.status, got.body)
	}
	if tasks := w.tasks(); len(tasks) != 2 {
		t.Errorf("there are %d tasks, want the two submitted ones", len(tasks))
	}
	w.give("go")
	w.of(task.TaskID, picket.EventTaskReview)
	if got := w.task(task.TaskID); got.Attempts != 1 || got.Failures != 0 || got.LastReport.Summary != "went on" {
		t.Errorf("%d attempts, %d failures, report %+v", got.Attempts, got.Failures, got.LastReport)
	}
	w.ok("task", "cancel", dark.TaskID)
}

// The managed store is killed: its server starts it again, and the work under
// way goes on.
func TestManagedStoreKilled(t *testing.T) {
	w := newTestEnv(t)
	server := w.up()
	pid, token := w.fifo("pid"), w.fifo("token")
	w.fifo("go")
	w.worker("first", holder)
	task := w.submit(spec("outlives its store", 30))
	pid.takePID()
	token.take()
	store := w.storePID()
	if err := unix.Kill(store, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	server.says("the store is back")
	w.serves()
	t.Logf("serving again %s after kill -9 of the store", time.Since(began).Round(time.Millisecond))
	w.give("go")
	w.of(task.TaskID, picket.EventTaskReview)
	if got := w.task(task.TaskID); got.Attempts != 1 || got.FencingToken <= 1<<21 {
		t.Errorf("%d attempts, token %d", got.Attempts, got.FencingToken)
	}
}

// The store is away for longer than a lease lasts: the adapter ends its agent
// on its own, and the task is leased again when the store is back.
func TestStoreAwayTooLong(t *testing.T) {
	w := newTestEnv(t)
	store := w.store()
	w.up("--redis", w.storeURL())
	pid := w.fifo("pid")
	w.worker("first", `echo $$ >"$E2E/pid"
if grep -q '"attempt": 2' "$PICKET_TASK_FILE"; then exec picket tool mark_complete --output "second try"; fi
picket tool report_progress --summary "half"; echo reported >"$E2E/pid"
while :; do sleep 1000; done`)
	task := w.submit(spec("a long absence", 2))
	agent := pid.takePID()
	pid.take()
	store.signal(syscall.SIGKILL)
	store.wait()
	began := time.Now()
	gone(t, "the agent of a lease that cannot be renewed", agent)
	t.Logf("the agent was dead %s after the store, the window is 2s", time.Since(began).Round(time.Millisecond))
	w.store()
	again := w.leasedAgain(task.TaskID)
	t.Logf("leased again %s after the store was gone", time.Since(began).Round(time.Millisecond))
	if again.AgentID != "first" {
		t.Errorf("%s has it", again.AgentID)
	}
	w.of(task.TaskID, picket.EventTaskReview)
	if got := w.task(task.TaskID); string(got.Output) != `"second try"` || got.LastReport == nil ||
		got.LastReport.Summary != "half" {
		t.Errorf("output %s, report %+v", got.Output, got.LastReport)
	}
}
