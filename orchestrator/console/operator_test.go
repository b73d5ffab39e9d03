package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
)

// What a reviewer may not open is not linked for them: they read the name.
func TestAReviewerIsNotSentToAgents(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		reviewer, operator := o.signedIn(picket.ScopeReviewer), o.signedIn(picket.ScopeOperator)
		id, _ := o.startRun(picket.TaskSpec{Title: "x"})
		for _, path := range []string{"/console/tasks/" + id, "/console/leases", "/console/events"} {
			operator.mustGet(path).wantText(t, "/console/agents/a1")
			p := reviewer.mustGet(path)
			p.wantNoText(t, "/console/agents")
			p.wantText(t, "a1")
		}
	})
}

// What happened to a task long after its state was last changed is on its page,
// the task that was made from it as well.
func TestTheLatestEventsOfATaskAreOnItsPage(t *testing.T) {
	rig.SkipShort(t)
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		task, err := o.Submit(t.Context(), picket.Caller{Actor: "test"}, picket.TaskSpec{Title: "x"})
		must(t, err)
		page := "/console/tasks/" + task.TaskID
		o.passTime(20 * time.Minute)
		s.follow(s.submit(page, page+"/top-up", "usd", "1", "reason", "an hour later")).
			wantText(t, "budget.topped_up an hour later", "task.submitted")
		s.follow(s.submit(page, page+"/cancel", "reason", "no"))
		o.passTime(20 * time.Minute)
		s.follow(s.submit(page, page+"/retry", "reason", "after all")).
			wantText(t, "this task is queued, but no worker waits for it now", "picket adapter -- COMMAND")
		s.mustGet(page).wantText(t, "task.retried after all", "task.cancelled no", "budget.topped_up", "task.submitted")
	})
}

// An operator whose page is older than the agent gets a message of the console. The engine's remedy
// is meant for the agent.
func TestAnAgentThatHasRegisteredAgain(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		o.registerAgent("a7", "coder", 1)
		const page = "/console/agents/a7"
		seen := s.mustGet(page).hidden(page + "/drain")
		s.follow(s.submit(page, page+"/deregister"))
		o.registerAgent("a7", "coder", 1)
		p := s.post(page+"/drain", seen...)
		if p.status != http.StatusGone {
			t.Errorf("what was meant for an earlier registration: %d", p.status)
		}
		p.wantText(t, "since this page was opened", "decide again")
		p.wantNoText(t, "Stop all work")
	})
}

// An id is found as lists show it, and no page of a search claims to be all.
func TestTaskSearchByIDAndTitle(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		for range 70 {
			_, err := o.Submit(t.Context(), picket.Caller{Actor: "test"}, picket.TaskSpec{Title: "alike"})
			must(t, err)
		}
		shown := between(s.mustGet("/console/tasks").body, `">task_…`, "<")
		one := s.mustGet("/console/tasks?q=" + url.QueryEscape("task_…"+shown))
		if n := strings.Count(one.body, "<tr data-row"); n != 1 {
			t.Errorf("task_…%s finds %d tasks", shown, n)
		}
		one.wantText(t, "ids of 70 tasks were looked through, which is all of them")
		second := s.mustGet(nextOf(s.mustGet("/console/tasks?q=alike")))
		second.wantText(t, "ids of 20 more tasks were looked through, the oldest ones")
		second.wantNoText(t, "all of them")
	})
}

// An amount that is left empty is the usual one, as the field says.
func TestABudgetOfDollarsAloneHasTokens(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		s.mustGet("/console/tasks/new").wantText(t, "the usual one: $1.00 · 1.0M tokens")
		for _, c := range []struct {
			usd    string
			tokens string
			want   budget.Envelope
		}{
			{"0.50", "", budget.Envelope{USD: 50 * cent, Tokens: 1_000_000}},
			{"", "7", budget.Envelope{USD: 100 * cent, Tokens: 7}},
			{"0", "0", budget.Envelope{}},
		} {
			made := s.submit("/console/tasks/new", "/console/tasks", "title", "x", "usd", c.usd, "tokens", c.tokens)
			id := between(made.header.Get("Location"), "/console/tasks/", "?")
			task, err := o.Task(t.Context(), id)
			must(t, err)
			if task.BudgetEnvelope != c.want {
				t.Errorf("%q dollars and %q tokens: %+v", c.usd, c.tokens, task.BudgetEnvelope)
			}
		}
	})
}

// A day without a limit of tokens reports it, before its first task too.
func TestADayWithoutALimitOfTokens(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		o.store.SetBudgets(&budget.Envelope{USD: 2000 * cent, Tokens: budget.MaxTokens}, nil)
		for range 2 {
			s.mustGet("/console/budgets").wantText(t, "granted $20.00", "tokens left unlimited")
			s.mustGet("/console/budgets/house").wantText(t, "available $20.00 unlimited tokens")
			o.startRun(picket.TaskSpec{Title: "x", BudgetEnvelope: &budget.Envelope{Tokens: 1000}})
		}
	})
}

// What was typed stays in the form that it was typed into.
func TestAReasonStaysInItsForm(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s, long := o.signedIn(picket.ScopeOperator), strings.Repeat("x", 5000)
		must(t, o.Tick(t.Context()))
		s.follow(s.submit("/console/stop", "/console/pause"))
		p := s.post("/console/pause", "hard", "yes", "reason", long, "once", s.mustGet("/console/stop").nonce(t))
		if form := between(p.body, `name="hard" value="yes">`, "</form>"); !strings.Contains(form, long) ||
			strings.Count(p.body, long) != 1 {
			t.Errorf("the reason of the stop is elsewhere: %s", p.text())
		}
	})
}

// A text that was cut reports it and says where all of it is. A worker that takes leases without
// having registered has no page, and the console says that.
func TestThePageOfAnAgentSaysWhatIsNotOnIt(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		for id, size := range map[string]int{"small": 10, "large": 20_000} {
			_, err := o.Register(t.Context(), picket.Caller{Actor: "test"},
				picket.Registration{AgentID: id, Metadata: picket.RawJSON(`{"x":"` + strings.Repeat("y", size) + `"}`)})
			must(t, err)
		}
		s.mustGet("/console/agents/large").wantText(t, "its beginning; all of it: picket agent get large -o json")
		s.mustGet("/console/agents/small").wantNoText(t, "its beginning")
		o.startRun(picket.TaskSpec{Title: "x"}) // a1's, which has not registered
		p := s.get("/console/agents/a1")
		if p.status != http.StatusNotFound {
			t.Errorf("a worker that has not registered: %d", p.status)
		}
		p.wantText(t, "there is no such agent", "without having registered")
		p.wantNoText(t, "POST /api")
	})
}

// A retry tells that nothing takes the task, and which agent it is pinned to. A link alone
// tells nothing.
func TestARetryTellsWhatTakesTheTask(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		retried := func(spec picket.TaskSpec) response {
			task, err := o.Submit(t.Context(), picket.Caller{Actor: "test"}, spec)
			must(t, err)
			_, err = o.Cancel(t.Context(), picket.Caller{Actor: "test"}, task.TaskID, "no")
			must(t, err)
			at := "/console/tasks/" + task.TaskID
			return s.follow(s.submit(at, at+"/retry", "reason", "after all"))
		}
		retried(picket.TaskSpec{Title: "x", Agent: "run-1"}).wantText(t,
			"queued for agent run-1, which does not ask for work now", "picket adapter --agent-id run-1 --pinned-only")
		if p := s.mustGet("/console/tasks?did=retried_pinned&id=run+1%3Cb%3E"); strings.Contains(p.text(), "run 1") {
			t.Errorf("a link names an agent: %s", p.text())
		}
		retried(picket.TaskSpec{Title: "x", Role: "other"}).wantText(t, "no worker waits for it now")
	})
}
