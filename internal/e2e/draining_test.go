//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// finishing is an agent that completes when it is told to, and a child that
// nobody hears.
const finishing = `setsid sh -c 'trap "" TERM HUP; echo $$ >"$E2E/pid"; while :; do sleep 1001; done' &
echo $$ >"$E2E/pid"; read x <"$E2E/go"; exec picket tool mark_complete --output done`

// drainTest is a worker that drains while its agent works, and another that waits.
type drainTest struct {
	*testEnv
	first *process
	task  picket.Task
	tree  []int
}

func newDrainTest(t *testing.T, flags ...string) *drainTest {
	d := &drainTest{testEnv: newTestEnv(t)}
	d.up()
	pid := d.fifo("pid")
	d.fifo("go")
	// It gets a drain at once, and is not found silent, however busy the machine is.
	flags = append(flags, "--linger", "1s", "--role", "story", "--heartbeat", "1s", "--unhealthy-after", "30s",
		"--dead-after", "90s")
	d.first = d.worker("first", finishing, flags...)
	d.lifecycle("first", picket.AgentActive, picket.ReasonRegistered, 1)
	s := spec("under way", 60)
	s.Role, s.Review = "story", picket.ReviewByNone
	backoff := 0
	s.Retry = &picket.Retry{BackoffSeconds: &backoff}
	d.task = d.submit(s)
	d.tree = []int{pid.takePID(), pid.takePID()}
	return d
}

// patch changes the status of the first agent as an operator does.
func (d *drainTest) patch(change picket.AgentStatusChange) picket.Agent {
	d.t.Helper()
	var operator picket.NewKey
	d.into(&operator, http.MethodPost, "/keys",
		picket.KeyRequest{Name: "operator", Scopes: []picket.Scope{picket.ScopeOperator}})
	got := d.call(operator.Key.Reveal(), http.MethodPatch, d.url+"/api/v1/agents/first/status", change, "If-Match",
		fmt.Sprintf(`"%d"`, d.agent("first").Version))
	var a picket.Agent
	if err := json.Unmarshal(got.body, &a); err != nil || got.status != http.StatusOK {
		d.t.Fatalf("PATCH: %d %s", got.status, got.body)
	}
	return a
}

// expectUndiscovered looks at the registry and offers the draining agent work.
func (d *drainTest) expectUndiscovered() picket.Task {
	d.t.Helper()
	listed := func(query string) (ids []string) {
		var page picket.AgentPage
		d.into(&page, http.MethodGet, "/agents?role_id=story"+query, nil)
		for _, a := range page.Agents {
			ids = append(ids, a.AgentID)
		}
		return ids
	}
	if active, draining := listed(""), listed("&status=draining"); slices.Contains(active, "first") ||
		!slices.Contains(draining, "first") {
		d.t.Errorf("active are %v, draining are %v", active, draining)
	}
	if got, err := (&rawAgent{testEnv: d.testEnv, id: "first"}).post(picket.AcquireRequest{
		AgentID: "first",
		Role:    "story",
	}); err != nil || got.status != http.StatusConflict || got.code() != picket.CodeAgentDraining {
		d.t.Errorf("a draining agent asks for a lease: %d %v %s", got.status, err, got.body)
	}
	s := spec("for somebody else", 60)
	s.Role, s.Review = "story", picket.ReviewByNone
	return d.submit(s)
}

// finish lets the agent complete and waits for the end of its worker.
func (d *drainTest) finish(other picket.Task) {
	d.t.Helper()
	d.give("go")
	d.of(d.task.TaskID, picket.EventTaskCompleted)
	d.lifecycle("first", picket.AgentDeregistered, picket.ReasonDrainCompleted, 1)
	if code := d.first.wait(); code != 0 {
		d.t.Errorf("a drained worker ended with %d:\n%s", code, tail(d.first.err.text()))
	}
	gone(d.t, "the tree of a drained worker", d.tree...)
	d.expectStatuses(d.t, "first", "registering > active: registered", "active > draining: drain_initiated",
		"draining > deregistered: drain_completed")
	if got := d.testEnv.task(d.task.TaskID); got.Attempts != 1 || got.Failures != 0 || string(got.Output) != `"done"` {
		d.t.Errorf("output %s after %d attempts and %d failures", got.Output, got.Attempts, got.Failures)
	}
	if got := d.testEnv.task(other.TaskID); got.State != picket.TaskQueued || got.Attempts != 0 {
		d.t.Errorf("what was not for a draining agent is %s after %d attempts", got.State, got.Attempts)
	}
	if got, err := (&rawAgent{testEnv: d.testEnv, id: "first"}).beat(); err != nil || got.status != http.StatusGone {
		d.t.Errorf("heartbeat of a deregistered agent: %d %v %s", got.status, err, got.body)
	}
}

// SIGTERM drains a worker: the registry knows at once, the agent finishes.
func TestAgentDrainsOnSIGTERM(t *testing.T) {
	d := newDrainTest(t)
	d.first.signal(syscall.SIGTERM)
	ev := d.lifecycle("first", picket.AgentDraining, picket.ReasonDrainInitiated, 1)
	if ev.Actor != "first" {
		t.Errorf("the drain was initiated by %s", ev.Actor)
	}
	d.finish(d.expectUndiscovered())
}

// An operator drains a worker, which gets the command with the answer to its next heartbeat.
func TestAgentDrainedByAnOperator(t *testing.T) {
	d := newDrainTest(t)
	if a := d.patch(picket.AgentStatusChange{Status: picket.AgentDraining}); a.Status != picket.AgentDraining ||
		a.Version != 2 || a.DrainDeadlineAt.IsZero() {
		t.Errorf("after PATCH it is %+v", a)
	}
	ev := d.lifecycle("first", picket.AgentDraining, picket.ReasonDrainInitiated, 1)
	if !strings.HasPrefix(ev.Actor, "key_") {
		t.Errorf("the drain was initiated by %s", ev.Actor)
	}
	d.finish(d.expectUndiscovered())
}

// The same by a command that the worker honours.
func TestAgentDrainedByCommand(t *testing.T) {
	d := newDrainTest(t)
	seconds := 100
	var accepted picket.CommandAccepted
	d.into(&accepted, http.MethodPost, "/agents/first/commands",
		picket.AgentCommand{Command: picket.CommandDrain, Reason: "maintenance_window", DrainTimeoutSeconds: &seconds})
	ev := d.lifecycle("first", picket.AgentDraining, picket.ReasonDrainInitiated, 1)
	if ev.Actor != "first" {
		t.Errorf("the drain was initiated by %s", ev.Actor)
	}
	if left := d.agent("first").DrainDeadlineAt - ev.Timestamp; left < 90_000 || left > 101_000 {
		t.Errorf("the drain may last %d ms", left)
	}
	d.finish(d.expectUndiscovered())
}

// A drain whose time is over while a lease is held: a warning, the end of the
// agent, of its lease and of its processes, and the task goes to the next one.
func TestAgentDrainOverdue(t *testing.T) {
	for name, drain := range map[string]func(d *drainTest){
		"by an operator": func(d *drainTest) {
			one := 1
			d.patch(picket.AgentStatusChange{Status: picket.AgentDraining, DrainTimeoutSeconds: &one})
		},
		"on SIGTERM": func(d *drainTest) { d.first.signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDrainTest(t, "--drain-timeout", "1s")
			drain(d)
			d.lifecycle("first", picket.AgentDead, picket.ReasonDrainTimeout, 1)
			gone(t, "the tree of an agent whose drain was overdue", d.tree...)
			if code := d.first.wait(); code != 0 {
				t.Errorf("a worker whose drain was overdue ended with %d:\n%s", code, tail(d.first.err.text()))
			}
			d.briskWorker("second", replacing)
			if next := d.leased(d.task.TaskID, 2); next.AgentID != "second" {
				t.Errorf("%s has it", next.AgentID)
			}
			d.give("go")
			d.of(d.task.TaskID, picket.EventTaskCompleted)
			d.expectOverdue()
		})
	}
}

// expectOverdue reads the order from the log.
func (d *drainTest) expectOverdue() {
	d.t.Helper()
	var got []string
	for _, ev := range d.allEvents() {
		switch {
		case ev.Type == picket.EventAgentLifecycle && ev.LifecycleAgentID == "first":
			got = append(got, string(ev.NewStatus)+" "+ev.Reason)
		case ev.Type == picket.EventAgentDrainOverdue:
			got = append(got, ev.Type)
		case ev.Type == picket.EventLeaseExpired && ev.TaskID == d.task.TaskID:
			got = append(got, ev.Type+" "+ev.Reason)
		case ev.Type == picket.EventTaskLeased && ev.TaskID == d.task.TaskID, ev.Type == picket.EventTaskCompleted:
			got = append(got, fmt.Sprintf("%s %d", ev.Type, ev.FencingToken))
		}
	}
	want := []string{"active registered", "task.leased 1", "draining drain_initiated", "agent.drain_overdue",
		"dead drain_timeout",
		"lease.expired drain_timeout", "task.leased 2", "task.completed 2"}
	if !slices.Equal(got, want) {
		d.t.Errorf("the log tells %q, want %q", got, want)
	}
	if task := d.testEnv.task(d.task.TaskID); task.Failures != 0 {
		d.t.Errorf("the drain counts %d failures", task.Failures)
	}
}
