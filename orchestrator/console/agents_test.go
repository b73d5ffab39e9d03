package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// registerAgent registers an agent.
func (o *fixture) registerAgent(id, role string, most int) picket.Agent {
	o.t.Helper()
	a, err := o.Register(o.t.Context(), picket.Caller{Actor: "test"},
		picket.Registration{
			AgentID:      id,
			RoleID:       role,
			Name:         "Agent " + id,
			Capabilities: []string{"go"},
			Capacity:     &picket.DeclaredCapacity{MaxConcurrentTasks: &most},
			Metadata:     picket.RawJSON(`{"version":"1.20"}`),
		})
	must(o.t, err)
	return a
}

// sendHeartbeat is a heartbeat of an agent; it gets the commands that wait for it.
func (o *fixture) sendHeartbeat(id string, load int) []picket.PendingCommand {
	o.t.Helper()
	got, err := o.Heartbeat(o.t.Context(), picket.Caller{Actor: "test"}, id,
		picket.Heartbeat{Status: picket.AgentActive, CurrentLoad: &load, ClientTimestamp: picket.InstantOf(time.Now())})
	must(o.t, err)
	return got.PendingCommands
}

func TestAgentsAreListed(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		s.mustGet("/console/agents").wantText(t, "No agent is registered.", "picket adapter --role coder -- COMMAND")
		for n := range 60 {
			o.registerAgent(fmt.Sprintf("c%02d", n), "coder", 4)
		}
		o.registerAgent("w1", "writer", 1)
		o.sendHeartbeat("c00", 3)
		p := s.mustGet("/console/agents")
		p.wantText(t, "registered 61", "active 61", "unhealthy 0", "3 / 4", "coder 60 active 3 240 237",
			"writer 1 active 0 1 1", "of 61")
		if n := strings.Count(p.body, `<td class="main"><a href="/console/agents/`); n != 50 {
			t.Errorf("%d rows", n)
		}
		if second := s.mustGet(p.next()); strings.Count(second.body,
			`<td class="main"><a href="/console/agents/`) != 11 ||
			second.next() != "" {
			t.Errorf("the second page: %s", second.text())
		}
		one := s.mustGet("/console/agents?role=writer")
		one.wantText(t, "w1")
		one.wantNoText(t, "/console/agents/c00")
		o.passTime(100 * time.Second)
		_, err := o.JudgeAgents(t.Context(), 100)
		must(t, err)
		o.sendHeartbeat("c00", 0)
		s.mustGet("/console/agents?status=unhealthy").wantText(t, "unhealthy 60", "1 min ago")
		if p := s.get("/console/agents?status=lost"); p.status != http.StatusBadRequest {
			t.Errorf("no such status: %d", p.status)
		}
		reviewer := o.signedIn(picket.ScopeReviewer)
		reviewer.mustGet("/console/").wantNoText(t, `href="/console/agents"`)
		for _, path := range []string{"/console/agents", "/console/agents/c00"} {
			if p := reviewer.get(path); p.status != http.StatusForbidden {
				t.Errorf("a reviewer sees %s: %d", path, p.status)
			}
		}
	})
}

func TestAnAgentIsCommanded(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s, reviewer := o.signedIn(picket.ScopeOperator), o.signedIn(picket.ScopeReviewer)
		id, _ := o.startRun(picket.TaskSpec{Title: "its work"})
		o.registerAgent("a2", "coder", 2)
		page := "/console/agents/a2"
		p := s.mustGet(page)
		p.wantText(t, "Agent a2", "active", "every 30 s; unhealthy after 90 s, dead after 300 s",
			"&#34;version&#34;: &#34;1.20&#34;", "It holds none", "agent.lifecycle registered",
			"unhealthy unless it is heard")
		other, _ := o.startRun(picket.TaskSpec{Title: "more work"}) // a2's
		s.mustGet(page).wantText(t, "/console/tasks/"+other)
		s.mustGet(page).wantNoText(t, "/console/tasks/"+id)
		s.follow(s.submit(page, page+"/ping", "reason", "there?")).
			wantText(t, "Asked. It answers with its next heartbeat.", "agent.command")
		s.follow(s.submit(page, page+"/stop-task", "task", " "+other+" ", "reason", "wrong one")).wantText(t, "Asked.")
		got := o.sendHeartbeat("a2", 1)
		if len(got) != 2 || got[0].Command != "ping" || got[0].Reason != "there?" || got[1].Command != "stop_task" ||
			got[1].TaskID != other {
			t.Errorf("it hears %+v", got)
		}
		p = s.post(page+"/stop-task", "task", "no such thing!", "reason", "kept", "once", s.mustGet(page).nonce(t))
		if p.status != http.StatusBadRequest {
			t.Errorf("no task: %d", p.status)
		}
		p.wantText(t, `value="no such thing!"`, `value="kept"`, `<details class="act" open>`)
		for _, verb := range []string{"ping", "drain", "deregister", "stop-task"} {
			if p := reviewer.post(page+"/"+verb, "once", reviewer.newNonce()); p.status != http.StatusForbidden {
				t.Errorf("a reviewer may %s: %d", verb, p.status)
			}
		}
		seen := between(s.mustGet(page).body, `name="incarnation" value="`, `"`)
		s.follow(s.submit(page, page+"/drain", "incarnation", seen)).
			wantText(t, "Draining. It takes nothing new", "drain ends by force")
		s.mustGet(page).wantNoText(t, page+"/drain")
		s.follow(s.submit(page, page+"/deregister", "incarnation", seen)).wantText(t, "Deregistered.", "deregistered")
		task, err := o.Task(t.Context(), other)
		must(t, err)
		if task.State != picket.TaskQueued || task.Failures != 0 {
			t.Errorf("its task is %s with %d failures", task.State, task.Failures)
		}
		o.registerAgent("a2", "coder", 2)
		p = s.post(page+"/drain", "incarnation", seen, "once", s.mustGet(page).nonce(t))
		if p.status != http.StatusGone {
			t.Errorf("what was meant for an earlier registration: %d", p.status)
		}
		if a, _, err := o.Agent(t.Context(), "a2"); err != nil || a.Status != picket.AgentActive {
			t.Errorf("the later one is %s, %v", a.Status, err)
		}
		if p := s.get("/console/agents/nobody"); p.status != http.StatusNotFound {
			t.Errorf("no such agent: %d", p.status)
		}
	})
}

func TestLeasesAreListedAndTaken(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s, reviewer := o.signedIn(picket.ScopeOperator), o.signedIn(picket.ScopeReviewer)
		s.mustGet("/console/leases").wantText(t, "Nobody holds a lease.", "picket adapter")
		var last string
		var held picket.LeaseCredential
		for n := range 60 {
			last, held = o.startRun(picket.TaskSpec{Title: fmt.Sprint("work ", n)})
		}
		_, err := o.Renew(t.Context(), held)
		must(t, err)
		p := s.mustGet("/console/leases")
		p.wantText(t, "60 live", "work 0", "in 30 s", "/console/agents/a1", "Expire…")
		if n := strings.Count(p.body, "<tr data-row"); n != 50 {
			t.Errorf("%d rows", n)
		}
		second := s.mustGet(p.next())
		second.wantText(t, "work 59", "in 5 min", "Before")
		reviewer.mustGet("/console/leases").wantNoText(t, "Expire…", "/expire")
		path := "/console/leases/" + last + "/expire"
		if p := reviewer.post(path, "once", second.nonce(t)); p.status != http.StatusForbidden {
			t.Errorf("a reviewer takes a lease: %d", p.status)
		}
		s.follow(s.post(path, "reason", "it hangs", "once", second.nonce(t))).
			wantText(t, "The lease has been taken", "59 live")
		p = s.post(path, "reason", "kept", "once", s.mustGet("/console/leases").nonce(t))
		if p.status != http.StatusConflict {
			t.Errorf("taken twice: %d", p.status)
		}
		p.wantText(t, `role="alert"`)
		task, err := o.Task(t.Context(), last)
		must(t, err)
		if task.State != picket.TaskQueued || task.Runs[0].Exit.Class != picket.ExitByOperator {
			t.Errorf("%s, %+v", task.State, task.Runs[0].Exit)
		}
	})
}

// The stop button is on every page of an operator, and everybody sees that it
// was pressed.
func TestTheStopButton(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s, reviewer := o.signedIn(picket.ScopeOperator), o.signedIn(picket.ScopeReviewer)
		id, held := o.startRun(picket.TaskSpec{Title: "x"})
		must(t, o.Tick(t.Context()))
		pages := []string{"/console/", "/console/handoffs", "/console/reviews", "/console/tasks",
			"/console/tasks/" + id, "/console/leases", "/console/budgets", "/console/budgets/" + id,
			"/console/ledger", "/console/events"}
		for _, path := range append(pages, "/console/agents", "/console/stop", "/console/tasks/new") {
			s.mustGet(path).wantText(t, `href="/console/stop"`, "Stop…")
		}
		s.follow(s.submit("/console/stop", "/console/pause", "reason", "looking into it")).
			wantText(t, "Paused. Nothing new is granted.", "End what still runs")
		for _, path := range pages {
			s.mustGet(path).wantText(t, "Paused. Nothing new is granted:", "“looking into it”", "Resume…")
			p := reviewer.mustGet(path)
			p.wantText(t, "Paused.", "“looking into it”")
			p.wantNoText(t, "/console/stop", "Resume…")
		}
		if _, err := o.Renew(t.Context(), held); err != nil {
			t.Errorf("a run that had begun: %v", err)
		}
		s.follow(s.submit("/console/stop", "/console/pause", "hard", "yes", "reason", "all of it")).
			wantText(t, "Stopped. Every run is being ended", "Stopped. Every run was ended and nothing is granted:")
		if _, err := o.RunChores(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		if task, err := o.Task(t.Context(), id); err != nil || task.State != picket.TaskQueued {
			t.Errorf("after a hard stop it is %s, %v", task.State, err)
		}
		s.follow(s.submit("/console/stop", "/console/resume", "reason", "found it")).
			wantText(t, "Resumed. Tasks are granted again.")
		s.mustGet("/console/tasks").wantNoText(t, "Nothing new is granted:")
		for _, path := range []string{"/console/stop", "/console/pause", "/console/resume"} {
			p := reviewer.post(path, "reason", "x", "once", reviewer.newNonce())
			if path == "/console/stop" {
				p = reviewer.get(path)
			}
			if p.status != http.StatusForbidden {
				t.Errorf("a reviewer at %s: %d", path, p.status)
			}
		}
		events, err := o.Events(t.Context(),
			picket.EventQuery{Types: []string{picket.EventPaused, picket.EventResumed}})
		must(t, err)
		for i, want := range []string{"looking into it", "all of it", "found it"} {
			if len(events.Events) != 3 || events.Events[i].Actor != s.key.KeyID ||
				!strings.Contains(string(events.Events[i].Data)+events.Events[i].Reason, want) {
				t.Fatalf("the log says %+v", events.Events)
			}
		}
		long := strings.Repeat("x", 5000)
		p := s.post("/console/pause", "hard", "yes", "reason", long, "once", s.mustGet("/console/stop").nonce(t))
		if p.status != http.StatusBadRequest || strings.Count(p.body, long) != 1 {
			t.Errorf("a reason that is too long: %d, kept %d times", p.status, strings.Count(p.body, long))
		}
	})
}

// Pools of which nothing is left but records are not shown. The workers of `picket run` are in
// the list of agents and in none of the pools.
func TestPoolsWithoutLivingMembersAreHidden(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		o.registerAgent("w1", "writer", 1)
		o.registerAgent("c1", "coder", 4)
		o.registerAgent("run-1", picket.RoleAttached, 5)
		shown := func(role string) bool {
			pools := between(s.mustGet("/console/agents").body, `id="pools"`, `</section>`)
			return strings.Contains(pools, ">"+role+"</a>")
		}
		if !shown("writer") || !shown("coder") || shown(picket.RoleAttached) {
			t.Error("the pools of living members are not those shown")
		}
		s.mustGet("/console/agents").wantText(t, "run-1", "Agent run-1", picket.RoleAttached)
		s.mustGet("/console/agents?role=attached").wantText(t, "run-1")
		_, err := o.Deregister(t.Context(), picket.Caller{Actor: "test"}, "w1", nil)
		must(t, err)
		if shown("writer") || !shown("coder") {
			t.Error("a pool of which only a record is left is shown, or one with a member is not")
		}
	})
}
