//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
)

// spec is a task with a lease window in seconds.
func spec(title string, window int) picket.TaskSpec {
	return picket.TaskSpec{Title: title, LeaseWindowSeconds: &window}
}

// exitOf reads the exit that an event carries.
func exitOf(t *testing.T, ev picket.Event) picket.Exit {
	t.Helper()
	var data struct {
		Exit  picket.Exit      `json:"exit"`
		Class picket.ExitClass `json:"class"`
	}
	if err := json.Unmarshal(ev.Data, &data); err != nil {
		t.Fatal(err)
	}
	if data.Exit.Class == "" {
		data.Exit.Class = data.Class
	}
	return data.Exit
}

// kill -9 of an agent: its adapter notices, and another worker has the next
// lease at once. The first adapter drains by then: it would compete for it.
func TestKilledAgent(t *testing.T) {
	w := newTestEnv(t)
	w.up()
	pid := w.fifo("pid")
	w.fifo("first")
	w.fifo("second")
	script := func(hold string) string {
		return `echo $$ >"$E2E/pid"; read x <"$E2E/` + hold + `"; picket tool mark_complete --output done`
	}
	s := spec("killed agent", 60)
	s.Retry = &picket.Retry{On: []picket.ExitClass{picket.ExitCrash}}
	task := w.submit(s)
	first := w.worker("first", script("first"))
	agent := pid.takePID()
	w.worker("second", script("second"))
	w.waiting(1)
	first.signal(syscall.SIGTERM)
	first.says("draining")

	killed := time.Now()
	if err := unix.Kill(agent, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended := w.of(task.TaskID, picket.EventLeaseReleased)
	exit := exitOf(t, ended)
	if exit.Class != picket.ExitCrash || exit.Signal == nil || *exit.Signal != "SIGKILL" || exit.Code == nil ||
		*exit.Code != 137 {
		t.Errorf("the exit is recorded as %s", ended.Data)
	}
	next := w.leased(task.TaskID, 2)
	if next.AgentID != "second" {
		t.Errorf("%s took the next lease", next.AgentID)
	}
	second := pid.takePID()
	t.Logf("kill -9 of the agent -> the next agent runs: %s", time.Since(killed).Round(time.Millisecond))
	w.give("second")
	done := w.of(task.TaskID, picket.EventTaskReview)
	gone(t, "the second agent", second)
	if code := first.wait(); code != 0 {
		t.Errorf("the first worker's exit code is %d", code)
	}
	got := w.task(task.TaskID)
	if done.FencingToken != 2 || got.Failures != 1 || len(got.Runs) != 2 || got.Runs[0].Exit.Class != picket.ExitCrash {
		t.Errorf("token %d, %d failures, runs %+v", done.FencingToken, got.Failures, got.Runs)
	}
}

// waiting waits until n requests for a lease are waiting at the server.
func (w *testEnv) waiting(n int64) {
	w.t.Helper()
	w.until(fmt.Sprintf("%d requests for a lease wait", n), func() bool {
		var stats picket.Stats
		w.into(&stats, http.MethodGet, "/stats", nil)
		return stats.Waiters == n
	})
}

// kill -9 of an adapter that nobody starts again: nobody renews, so the lease
// ends on schedule. Without a shim its agent lives on as an orphan, and what it writes is refused.
func TestKilledAdapter(t *testing.T) {
	w := newTestEnv(t)
	w.up()
	pid, code, token := w.fifo("pid"), w.fifo("code"), w.fifo("token")
	w.fifo("wake")
	w.fifo("hold")
	task := w.submit(spec("killed adapter", 2))
	first := w.worker("first", `echo $$ >"$E2E/pid"; echo "$PICKET_PROXY_URL $PICKET_LEASE_TOKEN" >"$E2E/token"
read x <"$E2E/wake"
picket tool report_progress --summary late >"$E2E/answer" 2>&1
echo $? >"$E2E/code"`, "--containment", picket.ContainmentGroup)
	orphan := pid.takePID()
	proxy, bearer, _ := strings.Cut(token.take(), " ")

	first.kill()
	var live struct {
		Leases []picket.LiveLease `json:"leases"`
	}
	w.into(&live, http.MethodGet, "/leases", nil)
	if len(live.Leases) != 1 {
		t.Fatalf("%d leases are live", len(live.Leases))
	}
	due := live.Leases[0].LeaseExpiresAt.Time()
	w.elsewhere("second", `echo $$ >"$E2E/pid"; read x <"$E2E/hold"; picket tool mark_complete --output done`)
	expired := w.of(task.TaskID, picket.EventLeaseExpired)
	if class := exitOf(t, expired).Class; class != picket.ExitLeaseExpired {
		t.Errorf("the run ended as %s: %s", class, expired.Data)
	}
	late := expired.At.Time().Sub(due)
	if late < -100*time.Millisecond {
		t.Errorf("the lease ended %s before its time", -late)
	}
	t.Logf("the lease ended %s after its deadline", late)
	if next := w.leased(task.TaskID, 2); next.AgentID != "second" {
		t.Errorf("%s took the next lease", next.AgentID)
	}
	pid.takePID()

	if err := unix.Kill(orphan, 0); err != nil {
		t.Fatalf("without a shim the orphan should live on: %v", err)
	}
	w.give("wake")
	said := code.take()
	if text := w.read("answer"); said != "4" || !strings.Contains(text, string(picket.CodeStaleFence)) {
		t.Errorf("the orphan's write: exit code %s, %s", said, text)
	}
	gone(t, "the orphan", orphan)
	if got := w.call(bearer, http.MethodPost, proxy+"/v1/tools/report_progress",
		map[string]string{"summary": "again"}); got.status != http.StatusPreconditionFailed ||
		got.code() != picket.CodeStaleFence {
		t.Errorf("a write with the old lease: %d %s", got.status, got.body)
	}
	refused := w.of(task.TaskID, picket.EventWriteRefused)
	for _, part := range []string{`"code":"stale_fence"`, `"presented":1`, `"current":2`} {
		if !strings.Contains(string(refused.Data), part) {
			t.Errorf("write.refused lacks %s: %s", part, refused.Data)
		}
	}
	w.give("hold")
	w.of(task.TaskID, picket.EventTaskReview)
	if got := w.task(task.TaskID); got.LastReport != nil || got.FencingToken != 2 || got.Failures != 1 {
		t.Errorf("token %d, %d failures, report %+v", got.FencingToken, got.Failures, got.LastReport)
	}
}

// kill -9 of the server while an agent runs: the store goes on without it, and
// so do adapter and agent when it is back.
func TestKilledServer(t *testing.T) {
	w := newTestEnv(t)
	server := w.up()
	pid := w.fifo("pid")
	w.fifo("one")
	w.fifo("two")
	waiting := w.submit(picket.TaskSpec{Title: "waits", Role: "nobody"})
	task := w.submit(spec("killed server", 12)) // the server is back in time on a busy machine, too
	worker := w.worker("first", `echo $$ >"$E2E/pid"; read x <"$E2E/one"
picket tool report_progress --summary "still here" || exit
read x <"$E2E/two"; picket tool mark_complete --output done`)
	agent := pid.takePID()
	store := w.storePID()
	before := w.allEvents()
	renewed := worker.said("lease renewed")

	server.kill()
	if store != w.storePID() {
		t.Fatal("the store did not survive its server")
	}
	back := time.Now()
	w.up()
	if store != w.storePID() {
		t.Fatal("the store was not found again")
	}
	t.Logf("serving again after %s", time.Since(back).Round(time.Millisecond))
	worker.saysAgain("lease renewed", renewed)
	for i, ev := range w.allEvents()[:len(before)] {
		if ev.Seq != before[i].Seq || ev.Type != before[i].Type {
			t.Fatalf("event %d was %s and is %s", before[i].Seq, before[i].Type, ev.Type)
		}
	}
	w.give("one")
	if ev := w.of(task.TaskID, picket.EventTaskProgress); ev.FencingToken != 1 {
		t.Errorf("it goes on under token %d", ev.FencingToken)
	}
	w.give("two")
	w.of(task.TaskID, picket.EventTaskReview)
	w.exited(task.TaskID, 1)
	gone(t, "the agent", agent)
	if got := w.task(task.TaskID); got.Attempts != 1 || got.Failures != 0 || string(got.Output) != `"done"` {
		t.Errorf("%d attempts, %d failures, output %s", got.Attempts, got.Failures, got.Output)
	}
	if got := w.task(waiting.TaskID); got.State != picket.TaskQueued {
		t.Errorf("the waiting task is %s", got.State)
	}
	w.ok("review", "approve", task.TaskID)
	worker.signal(syscall.SIGTERM)
	if code := worker.wait(); code != 0 {
		t.Errorf("the worker's exit code is %d", code)
	}
}
