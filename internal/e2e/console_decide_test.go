//go:build linux

package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// ask parks a task with a question of two options.
func (s *consoleFixture) ask(role, title string) (task, handoff string) {
	s.w.t.Helper()
	l := s.leased(role, "asker-"+role, title)
	var asked picket.HelpRequested
	decodeInto(s.w.t, s.with(l, "/v1/tools/request_human_help",
		map[string]any{"question": s.say("question", "Which one?"), "options": []string{"live", "staging"}}).body,
		&asked)
	return l.TaskID, asked.HandoffID
}

// role is of this test's own tasks.
func (s *consoleFixture) role() string {
	_, name, _ := strings.Cut(s.w.t.Name(), "/")
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "Visits/"), "/", "-"))
}

// Two people have the same question open: one answers, the other is told who
// did and what.
func answerOnce(t *testing.T, s *consoleFixture) {
	task, handoff := s.ask(s.role(), "Copy the table of "+s.role())
	other := s.otherTab("/console/handoffs/" + handoff)
	other.forgive("status of 409")
	b := s.signedInTab("/console/handoffs")
	b.open("/console/handoffs/" + handoff)
	b.reads("h1", "Copy the table of "+s.role())
	if !s.plain {
		other.live()
		other.fill("#answer", "live, I think")
		b.fill("#answer", "because of the backup")
	}
	b.submits(`button[name=choice][value="1"]`, "[role=status]", "Answered.")
	got := s.w.task(task)
	if len(got.Answers) != 1 || got.Answers[0].Option == nil || *got.Answers[0].Option != "staging" ||
		got.State != picket.TaskQueued {
		t.Errorf("the task is %s with the answers %+v", got.State, got.Answers)
	}
	if !s.plain {
		if !strings.Contains(string(got.Answers[0].Answer), "because of the backup") {
			t.Errorf("the answer is %s", got.Answers[0].Answer)
		}
		// What the other one has typed is not taken away, and there is a word.
		other.reads(".held", "changed while you were writing")
		other.submits(`#decide button.primary`, "[role=alert]", "staging")
	} else {
		other.submits(`button[name=choice][value="0"]`, "[role=alert]", "staging")
	}
	if got := s.w.task(task); len(got.Answers) != 1 {
		t.Errorf("a second answer was taken: %+v", got.Answers)
	}
}

// A result is approved with a note.
func approve(t *testing.T, s *consoleFixture) {
	task := s.result("Approve me in " + s.role())
	b := s.signedInTab("/console/reviews")
	b.open("/console/reviews/" + task)
	b.reads(".diff", "under the lock")
	b.reads("#result", "Guarded the counter")
	b.fill("#note", "well done")
	b.submits(`#decide button.primary`, "[role=status]", "Approved.")
	if got := s.w.task(task); got.State != picket.TaskCompleted || got.Review == nil ||
		got.Review.Note != "well done" || !strings.HasPrefix(got.Review.By, "key_") {
		t.Errorf("the task is %s, reviewed %+v", got.State, got.Review)
	}
}

// A result is rejected, and in the same step the task is queued that repairs it,
// with the note and the branch of the rejected one.
func rejectAndFix(t *testing.T, s *consoleFixture) {
	// Of a role of its own: another visit may not take the repair.
	task := s.resultOf(s.role(), "fixer-"+s.role(), "Reject me in "+s.role())
	b := s.signedInTab("/console/reviews/" + task)
	b.fill("#note", "Close may be called twice")
	b.click(`#decide button[formaction$="/fix"]`)
	b.reads("h1", "Reject and fix")
	b.click(`#fix button.danger`)
	b.reads("[role=status]", "which repairs it, is queued")
	got := s.w.task(task)
	if got.State != picket.TaskRejected || got.Review == nil || got.Review.FixTaskID == nil {
		t.Fatalf("the task is %s, reviewed %+v", got.State, got.Review)
	}
	fix := s.w.task(*got.Review.FixTaskID)
	if fix.State != picket.TaskQueued || fix.Fixes == nil || *fix.Fixes != task ||
		!strings.Contains(string(fix.Input), "Close may be called twice") {
		t.Errorf("the fix is %s, fixes %v, input %s", fix.State, fix.Fixes, fix.Input)
	}
}

// Money is added to an envelope, once, however often the button is pressed.
func topUp(t *testing.T, s *consoleFixture) {
	task := s.submit(s.role(), "Pay for "+s.role()).TaskID
	before := s.w.envelope(task)
	b := s.signedInTab("/console/budgets/" + task)
	b.fill("#usd", "0.75")
	b.fill("#tokens", "5000")
	b.click(`#topup button.primary`)
	b.reads("[role=status]", "Topped up.")
	after := s.w.envelope(task)
	if after.Available.USD-before.Available.USD != usd("0.75") ||
		after.Available.Tokens-before.Available.Tokens != 5000 {
		t.Errorf("available was %+v and is %+v", before.Available, after.Available)
	}
	topUps := 0
	for _, row := range s.w.rows(task) {
		if row.Kind == picket.LedgerTopUp {
			topUps++
		}
	}
	if topUps != 1 {
		t.Errorf("%d top-ups are in the ledger", topUps)
	}
}

// An agent is drained.
func drain(t *testing.T, s *consoleFixture) {
	id := "drained-" + s.role()
	s.w.into(&picket.Agent{}, http.MethodPost, "/agents",
		map[string]any{
			"agent_id": id,
			"role_id":  s.role(),
			"metadata": map[string]any{"note": s.say("metadata", "drain me")},
		})
	l := s.leased(s.role(), id, "Held by the one that drains")
	b := s.signedInTab("/console/agents/" + id)
	b.unfold(`form[action$="/drain"]`)
	b.click(`form[action$="/drain"] .actions button`)
	b.reads("[role=status]", "Draining.")
	var got picket.Agent
	s.w.into(&got, http.MethodGet, "/agents/"+id, nil)
	if got.Status != "draining" {
		t.Errorf("the agent is %s", got.Status)
	}
	if !s.plain {
		b.live()
		s.with(l, "/v1/tools/mark_complete", map[string]any{"output": "done"})
		b.reads("#head", "deregistered") // the drain is over: the page reports it on its own
	}
}

// The stop button stops what is granted, and lets it go on.
func stopButton(t *testing.T, s *consoleFixture) {
	var watcher *tab
	if !s.plain {
		watcher = s.signedInTab("/console/tasks")
	}
	b := s.signedInTab("/console/")
	b.click("a.stop")
	b.fill(`form:not(:has([name=hard])) [name=reason]`, "a strange bill")
	b.click(`form:not(:has([name=hard])) button.primary`)
	b.reads("[role=status]", "Paused.")
	var stats picket.Stats
	s.w.into(&stats, http.MethodGet, "/stats", nil)
	if !stats.Pause.Paused || stats.Pause.Hard || stats.Pause.Reason != "a strange bill" {
		t.Errorf("after the button: %+v", stats.Pause)
	}
	if !s.plain {
		watcher.reads("#notices", "a strange bill")
	}
	b.open("/console/stop")
	b.click(`form[action="/console/resume"] button.primary`)
	b.reads("[role=status]", "Resumed.")
	s.w.into(&stats, http.MethodGet, "/stats", nil)
	if stats.Pause.Paused {
		t.Error("it is still paused")
	}
	if !s.plain {
		watcher.readsNo("#notices", "a strange bill")
	}
}
