package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// digest is that of a review as it is now.
func (o *fixture) digest(task string) string {
	o.t.Helper()
	t, err := o.Task(o.t.Context(), task)
	must(o.t, err)
	return t.Review.Digest
}

// addReviewWithDiff makes a task in review, and answers the credential of its run.
func (o *fixture) addReviewWithDiff(title, diff string) (string, picket.LeaseCredential) {
	o.t.Helper()
	id, held := o.startRun(picket.TaskSpec{Title: title})
	_, err := o.Complete(o.t.Context(), held, picket.Completion{Output: picket.RawJSON(`1`)})
	must(o.t, err)
	o.handInDiff(held, diff)
	return id, held
}

func (o *fixture) handInDiff(held picket.LeaseCredential, diff string) {
	o.t.Helper()
	must(o.t, o.RunEvidence(o.t.Context(), held,
		picket.Evidence{Branch: "picket/x", Diff: diff + "\n", Files: []picket.ChangedFile{{Path: "a.go"}}}))
}

// Anyone who presses a button of an old page decides nothing: the page comes again
// with what has changed, and with the note.
func TestEvidenceIsSwappedBehindAnOpenPage(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		id, held := o.addReviewWithDiff("x", "+good")
		page := "/console/reviews/" + id
		form := s.mustGet(page)
		o.handInDiff(held, "+bad")
		for _, action := range []string{"/approve", "/reject"} {
			fields := append([]string{"note", "words of mine"}, form.hidden(page+"/approve")...)
			p := s.post(page+action, fields...)
			for _, part := range []string{"the evidence changed", "+bad", "words of mine"} {
				if p.status != http.StatusConflict || !strings.Contains(p.text(), part) {
					t.Errorf("%s: %d, no %q: %s", action, p.status, part, p.text())
				}
			}
		}
		p := s.post(page+"/reject", "fix", "1", "title", "mend", "input", "i", "inputAs", "text", "digest",
			"none-none-0", "once", form.nonce(t))
		if p.status != http.StatusConflict || !strings.Contains(p.body, `value="mend"`) {
			t.Errorf("the fix: %d %s", p.status, p.text())
		}
		if task, err := o.Task(t.Context(), id); err != nil || task.State != picket.TaskReview {
			t.Fatalf("decided all the same: %s %v", task.State, err)
		}
		now := o.digest(id)
		p = s.post(page+"/approve",
			append([]string{"note", strings.Repeat("x", 5000)}, form.hidden(page+"/approve")...)...)
		if strings.Contains(p.body, now) {
			t.Error("a refusal for another reason has moved the decision to the new evidence")
		}
		s.follow(s.submit(page, page+"/approve"))
		if task, err := o.Task(t.Context(), id); err != nil || task.State != picket.TaskCompleted ||
			task.Review.Digest != now {
			t.Errorf("%s on %s, %v", task.State, task.Review.Digest, err)
		}
	})
}

// The review shows the changes of the run that completed the task. Those of a
// run that lost it are named, with a page of their own.
func TestASupersededRunsDiffIsNotShown(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		id, old := o.startRun(picket.TaskSpec{Title: "x"})
		_, err := o.Release(t.Context(), old, picket.Exit{Class: picket.ExitReleased})
		must(t, err)
		leases, err := o.Acquire(t.Context(), picket.Caller{Actor: "test"}, picket.AcquireRequest{AgentID: "a1"})
		must(t, err)
		if len(leases) != 1 || leases[0].TaskID != id {
			t.Fatalf("leased %v", leases)
		}
		last, err := o.sealer.OpenLeaseToken(leases[0].LeaseToken.Reveal())
		must(t, err)
		_, err = o.Complete(t.Context(), last, picket.Completion{Output: picket.RawJSON(`1`)})
		must(t, err)
		o.handInDiff(old, "+of another run")
		page := "/console/reviews/" + id
		p := s.mustGet(page)
		if strings.Contains(p.body, "of another run") || strings.Contains(p.body, "merge") ||
			!strings.Contains(p.text(), "No changes were handed in") {
			t.Errorf("the diff of a superseded run is shown: %s", p.text())
		}
		if full := s.get(page + "/full/diff"); strings.Contains(full.body, "of another run") {
			t.Errorf("its whole diff is shown: %s", full.text())
		}
		if diff := s.mustGet("/console/tasks/" + id + "/diff?run=" + old.RunID); !strings.Contains(p.body,
			"/diff?run="+old.RunID) || !strings.Contains(diff.body, "of another run") {
			t.Errorf("the changes of the other run are not listed under it: %s", diff.text())
		}
	})
}

// The confirmation of many carries what it showed of each.
func TestManyAreApprovedAsTheyWereShown(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		kept, _ := o.addReviewWithDiff("kept", "+one")
		swapped, held := o.addReviewWithDiff("swapped", "+two")
		choose := "/console/reviews/approve"
		form := s.mustGet(choose + "?task=" + kept + "&task=" + swapped)
		o.handInDiff(held, "+three")
		p := s.post(choose, append([]string{"count", "2"}, form.hidden(choose)...)...)
		if p.status != http.StatusOK || !strings.Contains(p.text(), "changed since you looked") {
			t.Errorf("%d %s", p.status, p.text())
		}
		for id, want := range map[string]picket.TaskState{kept: picket.TaskCompleted, swapped: picket.TaskReview} {
			if task, err := o.Task(t.Context(), id); err != nil || task.State != want {
				t.Errorf("%s is %s, want %s: %v", task.Title, task.State, want, err)
			}
		}
	})
}
