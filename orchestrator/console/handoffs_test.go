package console_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

var twoOptions = picket.HelpRequest{Question: "Which database?", Options: []string{"Postgres", "SQLite"}}

func TestAHandoffIsAnsweredWithoutScript(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		task, handoff := o.addHandoff("choose a store", twoOptions)
		list := s.mustGet("/console/handoffs")
		if !strings.Contains(list.text(), "Which database?") || !strings.Contains(list.body, "<title>(1) Hand-offs") {
			t.Errorf("the list: %s", list.text())
		}
		page := "/console/handoffs/" + handoff
		claimed := s.follow(s.submit(page, page+"/claim"))
		if !strings.Contains(claimed.text(), "You look after this") {
			t.Errorf("claimed: %s", claimed.text())
		}
		after := s.follow(s.submit(page, page+"/answer", "choice", "1", "answer", "it is\r\nsmall"))
		for _, part := range []string{"Answered. The task is queued again", "SQLite it is small", "you answered"} {
			if !strings.Contains(after.text(), part) {
				t.Errorf("no %q: %s", part, after.text())
			}
		}
		got, err := o.Task(t.Context(), task)
		must(t, err)
		if got.State != picket.TaskQueued || len(got.Answers) != 1 ||
			string(got.Answers[0].Answer) != `"it is\nsmall"` || *got.Answers[0].Option != "SQLite" ||
			got.Answers[0].By != s.key.KeyID {
			t.Errorf("the task: %s %+v", got.State, got.Answers)
		}
		if strings.Contains(s.mustGet(page+"?did=nonsense&id=words").text(), "nonsense") {
			t.Error("an unknown code is shown")
		}
	})
}

// The input that later runs get is edited in the same decision; the task keeps
// what was submitted.
func TestAnAnswerEditsTheInput(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		task, held := o.startRun(picket.TaskSpec{Title: "x", Input: picket.RawJSON(`{"n":1.0000000000000001}`)})
		h, err := o.RequestHelp(t.Context(), held, twoOptions)
		must(t, err)
		page := "/console/handoffs/" + h.HandoffID
		wrong := s.submit(page, page+"/answer", "answer", "so", "edit", "1", "input", `{"n":`, "inputAs", "json")
		if wrong.status != http.StatusBadRequest || !strings.Contains(wrong.text(), "not valid JSON") ||
			!strings.Contains(wrong.body, `{&#34;n&#34;:</textarea>`) ||
			!strings.Contains(wrong.body, ">so</textarea>") {
			t.Errorf("what was typed is gone: %d %s", wrong.status, wrong.text())
		}
		s.follow(s.submit(page, page+"/answer", "answer", "so", "edit", "1", "input", `{"n": 2.0000000000000001}`,
			"inputAs", "json"))
		got, err := o.Task(t.Context(), task)
		must(t, err)
		if string(got.Input) != `{"n":1.0000000000000001}` || len(got.Answers) != 1 ||
			!strings.Contains(string(got.Answers[0].Input), "2.0000000000000001") {
			t.Errorf("input %s, answers %+v", got.Input, got.Answers)
		}
		leases, err := o.Acquire(t.Context(), picket.Caller{Actor: "test"}, picket.AcquireRequest{AgentID: "a1"})
		must(t, err)
		if len(leases) != 1 || !strings.Contains(string(leases[0].Task.Input), "2.0000000000000001") {
			t.Errorf("the next run gets %+v", leases)
		}
	})
}

// The input can be edited to null as well, and the next page reports it.
func TestAnAnswerEditsTheInputToNull(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		_, held := o.startRun(picket.TaskSpec{Title: "x", Input: picket.RawJSON(`{"n":1}`)})
		h, err := o.RequestHelp(t.Context(), held, twoOptions)
		must(t, err)
		page := "/console/handoffs/" + h.HandoffID
		s.follow(s.submit(page, page+"/answer", "answer", "so", "edit", "1", "input", " null ", "inputAs", "json"))
		leases, err := o.Acquire(t.Context(), picket.Caller{Actor: "test"}, picket.AcquireRequest{AgentID: "a1"})
		must(t, err)
		if len(leases) != 1 || string(leases[0].Task.Input) != "null" || !leases[0].Answers[0].InputEdited {
			t.Fatalf("the next run gets %+v", leases)
		}
		held, err = o.sealer.OpenLeaseToken(leases[0].LeaseToken.Reveal())
		must(t, err)
		next, err := o.RequestHelp(t.Context(), held, twoOptions)
		must(t, err)
		if text := s.mustGet("/console/handoffs/" + next.HandoffID).
			text(); !strings.Contains(text, "and edited the input: null") {
			t.Errorf("the page of the next one: %s", text)
		}
	})
}

func TestAHandoffIsFinishedOrCancelled(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		one, h1 := o.addHandoff("one", twoOptions)
		two, h2 := o.addHandoff("two", twoOptions)
		page := "/console/handoffs/" + h1
		if p := s.submit(page, page+"/finish", "output", " "); p.status != http.StatusBadRequest ||
			!strings.Contains(p.text(), "no output yet") {
			t.Errorf("finished with nothing: %d", p.status)
		}
		s.follow(s.submit(page, page+"/finish", "output", `[1, 2]`, "as", "json"))
		page = "/console/handoffs/" + h2
		s.follow(s.submit(page, page+"/cancel", "reason", "no longer wanted"))
		first, err := o.Task(t.Context(), one)
		must(t, err)
		second, err := o.Task(t.Context(), two)
		must(t, err)
		if first.State != picket.TaskCompleted || !strings.HasPrefix(string(first.Output), "[1,") ||
			second.State != picket.TaskCancelled || second.Reason != "no longer wanted" {
			t.Errorf("%s %s, %s %s", first.State, first.Output, second.State, second.Reason)
		}
	})
}

// An operator helps where it is about money or a new attempt; a reviewer is
// shown what to ask for.
func TestWhoMayTopUpOrTryAgain(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		reviewer, operator := o.signedIn(picket.ScopeReviewer), o.signedIn(picket.ScopeOperator)
		task, handoff := o.addHandoff("poor", picket.HelpRequest{Question: "More?", Kind: picket.HandoffBudget})
		page := "/console/handoffs/" + handoff
		p := reviewer.mustGet(page)
		if strings.Contains(p.body, "/top-up") || !strings.Contains(p.text(), "picket budget top-up "+task) {
			t.Errorf("a reviewer sees: %s", p.text())
		}
		if p := reviewer.post(page+"/top-up", "usd", "5", "once", p.nonce(t)); p.status != http.StatusForbidden {
			t.Errorf("a reviewer tops up: %d", p.status)
		}
		before, err := o.Task(t.Context(), task)
		must(t, err)
		operator.follow(operator.submit(page, page+"/top-up", "usd", "0.20", "keep", "1")).
			wantText(t, "Topped up. The hand-off stays open.", "Only add")
		stale := operator.mustGet(page)
		operator.follow(operator.submit(page, page+"/top-up", "usd", "0.30", "tokens", "1000")).
			wantText(t, "The hand-off is answered, and the task is queued again", "topped up by $0.30 and 1000 tokens")
		// A person who still sees the open hand-off adds nothing.
		late := operator.post(page+"/top-up", "usd", "7", "once", stale.nonce(t))
		if late.status != http.StatusConflict {
			t.Errorf("a top-up of an answered hand-off: %d %s", late.status, late.text())
		}
		after, err := o.Task(t.Context(), task)
		must(t, err)
		if more := after.BudgetEnvelope.Sub(before.BudgetEnvelope); (more != budget.Envelope{
			Tokens: 1000,
			USD:    500_000_000,
		}) {
			t.Errorf("topped up by %+v", more)
		}
		failed, held := o.startRun(picket.TaskSpec{Title: "fails"})
		_, err = o.Fail(t.Context(), held, "cannot", false)
		must(t, err)
		got, err := o.Task(t.Context(), failed)
		must(t, err)
		page = "/console/handoffs/" + got.Handoff.HandoffID
		if p := reviewer.mustGet(page); strings.Contains(p.body, "/retry") {
			t.Error("a reviewer may try again")
		}
		operator.follow(operator.submit(page, page+"/retry")).wantText(t, "which does not ask for work now")
		if got, err := o.Task(t.Context(), failed); err != nil || got.State != picket.TaskQueued || got.Failures != 0 {
			t.Errorf("tried again: %s, %d failures, %v", got.State, got.Failures, err)
		}
	})
}

// The same form sent twice is one decision; the same form with other words is
// refused, and so is one without its number.
func TestAFormCountsOnce(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		task, handoff := o.addHandoff("x", twoOptions)
		page := "/console/handoffs/" + handoff
		form := s.mustGet(page).nonce(t)
		for range 3 {
			s.follow(s.post(page+"/answer", "answer", "yes", "once", form))
		}
		if p := s.post(page+"/answer", "answer", "no", "once", form); p.status != http.StatusUnprocessableEntity {
			t.Errorf("the same form with other words: %d %s", p.status, p.text())
		}
		got, err := o.Task(t.Context(), task)
		must(t, err)
		if len(got.Answers) != 1 {
			t.Errorf("%d answers", len(got.Answers))
		}
		for _, once := range []string{"", "short", strings.Repeat("x", 65)} {
			if p := s.post(page+"/answer", "answer", "yes", "once", once); p.status != http.StatusForbidden {
				t.Errorf("a form with number %q: %d", once, p.status)
			}
		}
	})
}

// Two people decide at the same time: exactly one does; the other sees who
// decided what, and keeps what was typed.
func TestTheLoserOfADecisionSeesTheWinner(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		ada, bob := o.signedIn(picket.ScopeReviewer), o.signedIn(picket.ScopeOperator)
		for round := range 10 {
			_, handoff := o.addHandoff("race", twoOptions)
			page := "/console/handoffs/" + handoff
			forms := []string{ada.mustGet(page).nonce(t), bob.mustGet(page).nonce(t)}
			papers := make([]response, 2)
			var race sync.WaitGroup
			for i, s := range []*browser{ada, bob} {
				race.Go(func() {
					papers[i] = s.post(page+"/answer", "answer", []string{"words of Ada", "words of Bob"}[i], "once",
						forms[i])
				})
			}
			race.Wait()
			won, lost, winner, words := 0, 1, ada, "words of Ada"
			if papers[1].status == http.StatusSeeOther {
				won, lost, winner, words = 1, 0, bob, "words of Bob"
			}
			if papers[won].status != http.StatusSeeOther || papers[lost].status != http.StatusConflict {
				t.Fatalf("round %d: %d and %d", round, papers[0].status, papers[1].status)
			}
			text := papers[lost].text()
			for _, part := range []string{winner.key.KeyID, words, "What you wrote was not sent",
				[]string{"words of Ada", "words of Bob"}[lost]} {
				if !strings.Contains(text, part) {
					t.Fatalf("round %d: the second does not see %q: %s", round, part, text)
				}
			}
		}
	})
}

func TestAClaimIsTakenOver(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		ada, bob := o.signedIn(picket.ScopeReviewer), o.signedIn(picket.ScopeReviewer)
		_, handoff := o.addHandoff("x", twoOptions)
		page := "/console/handoffs/" + handoff
		early := bob.mustGet(page).nonce(t)
		ada.follow(ada.submit(page, page+"/claim"))
		p := bob.post(page+"/claim", "once", early)
		if p.status != http.StatusConflict || !strings.Contains(p.text(), ada.key.KeyID) ||
			!strings.Contains(p.text(), "Take over from") {
			t.Errorf("the second claim: %d %s", p.status, p.text())
		}
		bob.follow(bob.submit(page, page+"/claim", "takeOver", "1"))
		if h, err := o.Handoff(t.Context(), handoff); err != nil || h.ClaimedBy != bob.key.KeyID {
			t.Errorf("claimed by %s, %v", h.ClaimedBy, err)
		}
		ada.follow(ada.submit(page, page+"/answer", "answer", "a claim is a courtesy"))
	})
}
