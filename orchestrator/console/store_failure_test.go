package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// The answer of the store is lost after the decision took effect: the person is
// told that nobody knows, presses the same button again, and it counts once.
func TestALostReplyIsSettledByPressingAgain(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		task, handoff := o.addHandoff("x", twoOptions)
		page := "/console/handoffs/" + handoff
		once := s.mustGet(page).nonce(t)
		o.loseReplies = true
		p := s.post(page+"/answer", "answer", "yes", "once", once)
		for _, part := range []string{"Whether it took effect is not known", "What you wrote Your answer yes",
			"you answered"} {
			if p.status != http.StatusServiceUnavailable || !strings.Contains(p.text(), part) {
				t.Errorf("%d, no %q: %s", p.status, part, p.text())
			}
		}
		o.loseReplies = false
		s.follow(s.post(page+"/answer", "answer", "yes", "once", once))
		if got, err := o.Task(t.Context(), task); err != nil || len(got.Answers) != 1 {
			t.Errorf("%d answers, %v", len(got.Answers), err)
		}
	})
}

// A question is lost on its way: the form is there again under its number, with
// what was typed.
func TestALostRequestIsRepeated(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		task, handoff := o.addHandoff("x", twoOptions)
		page := "/console/handoffs/" + handoff
		once := s.mustGet(page).nonce(t)
		o.dropRequests = true
		p := s.post(page+"/answer", "answer", "yes", "once", once)
		if p.status != http.StatusServiceUnavailable || p.nonce(t) != once ||
			!strings.Contains(p.body, ">yes</textarea>") {
			t.Fatalf("%d %s", p.status, p.text())
		}
		o.dropRequests = false
		s.follow(s.post(page+"/answer", "answer", "yes", "once", once))
		if got, err := o.Task(t.Context(), task); err != nil || len(got.Answers) != 1 {
			t.Errorf("%d answers, %v", len(got.Answers), err)
		}
	})
}

// A store that does not answer is a page that reports it, with the status that
// programs know; nobody is signed out by it.
func TestAStoreThatIsAway(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		o.storeDown = true
		for _, path := range []string{"/console/", "/console/handoffs", "/console/nowhere"} {
			p := s.get(path)
			if p.status < 400 || p.status == http.StatusUnauthorized ||
				!strings.Contains(p.header.Get("Content-Type"), "text/html") || len(s.cookies) != 1 {
				t.Errorf("%s: %d %s", path, p.status, p.text())
			}
		}
		if p := s.get("/console/"); p.status != http.StatusServiceUnavailable ||
			!strings.Contains(p.text(), "Request req_") {
			t.Errorf("%d %s", p.status, p.text())
		}
		o.storeDown = false
		s.mustGet("/console/")
	})
}

func TestTheOverviewCounts(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		if p := s.mustGet("/console/"); !strings.Contains(p.text(), "Nobody waits for you") ||
			!strings.Contains(p.text(), "picket demo handoff") || !strings.Contains(p.text(), "No superseded run") {
			t.Errorf("an empty one: %s", p.text())
		}
		ctx := t.Context()
		o.addHandoff("ask me", twoOptions)
		o.addFullReview("look at this")
		id, held := o.startRun(picket.TaskSpec{Title: "slow"})
		_, err := o.Expire(ctx, picket.Caller{Actor: "test"}, id, "stuck")
		must(t, err)
		_, err = o.Report(ctx, held, "", picket.Progress{Summary: "late"})
		refusal, _ := picket.RefusalOf(err)
		if picket.CodeOf(err) != picket.CodeLeaseExpired {
			t.Fatalf("a late write: %v", err)
		}
		o.RecordRefusedWrite(ctx, held, "report", refusal) // as the tool proxy does
		text := s.mustGet("/console/").text()
		for _, part := range []string{"queued 1 running 0 in review 1 hand-offs 1", "1 to answer, 1 to review",
			"Which database?", "three times as fast", "Results handed in 1", "Handed to people 1",
			"Spent so far", "$0.0420", "lease_expired 1"} {
			if !strings.Contains(text, part) {
				t.Errorf("no %q: %s", part, text)
			}
		}
		for i := range 8 {
			o.addHandoff(fmt.Sprint("more ", i), twoOptions)
		}
		if n := strings.Count(s.mustGet("/console/").body, "data-row"); n != 7 {
			t.Errorf("%d rows", n)
		}
	})
}
