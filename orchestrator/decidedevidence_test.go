package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

func evidenceWithDiff(text string) picket.Evidence {
	return picket.Evidence{Branch: "picket/t", Base: "abc", Diff: text, Files: []picket.ChangedFile{{Path: "a"}}}
}

// completeWithDiff hands in a result, and with it what has been changed.
func (f *fixture) completeWithDiff(t *testing.T, h picket.LeaseCredential, diff string) {
	t.Helper()
	_, err := f.Complete(f.ctx, h, picket.Completion{Output: picket.RawJSON(`"done"`)})
	ok(t, err)
	if diff != "" {
		ok(t, f.RunEvidence(f.ctx, h, evidenceWithDiff(diff)))
	}
}

// reviewDigest is that of the review as it is now.
func (f *fixture) reviewDigest(t *testing.T, task string) string {
	t.Helper()
	got, err := f.Task(f.ctx, task)
	ok(t, err)
	page, err := f.Reviews(f.ctx, picket.ReviewQuery{})
	ok(t, err)
	for _, row := range page.Reviews {
		if row.TaskID == task && row.Digest != got.Review.Digest {
			t.Errorf("the list says %q, the task %q", row.Digest, got.Review.Digest)
		}
	}
	return got.Review.Digest
}

// wantDigestRefusal wants a decision refused, with the digest that there is now.
func (f *fixture) wantDigestRefusal(t *testing.T, err error, code picket.Code, task string) {
	t.Helper()
	refused(t, err, code)
	no, _ := picket.RefusalOf(err)
	if now := f.reviewDigest(t, task); no == nil || no.Facts["current"] != now {
		t.Errorf("%v does not name the current digest %s", err, now)
	}
}

// Evidence that is replaced after a reviewer has looked at it is not what the
// reviewer decides about.
func TestADecisionIsAboutWhatWasShown(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{})
		f.completeWithDiff(t, h, "+good")
		shown := f.reviewDigest(t, task.TaskID)
		ok(t, f.RunEvidence(f.ctx, h, evidenceWithDiff("+bad")))
		before := f.allEvents(t)
		for name, decide := range map[string]func(digest string) error{
			"approve": func(d string) error {
				_, err := f.Approve(f.ctx, operator, task.TaskID, picket.Decision{Digest: d})
				return err
			},
			"reject": func(d string) error {
				_, _, err := f.Reject(f.ctx, operator, task.TaskID, picket.Decision{Digest: d}, nil)
				return err
			},
			"reject and fix": func(d string) error {
				_, _, err := f.Reject(f.ctx, operator, task.TaskID, picket.Decision{Digest: d},
					&picket.TaskSpec{Title: "fix"})
				return err
			},
		} {
			f.wantDigestRefusal(t, decide(shown), picket.CodeVersion, task.TaskID)
			f.wantDigestRefusal(t, decide(""), picket.CodePreconditionRequired, task.TaskID)
			f.wantDigestRefusal(t, decide("none-none-0"), picket.CodeVersion, task.TaskID)
			refused(t, decide("no digest"), picket.CodeValidation)
			if got, err := f.Task(f.ctx, task.TaskID); err != nil || got.State != picket.TaskReview ||
				len(f.allEvents(t)) != len(before) {
				t.Errorf("%s changed something: %s %v", name, got.State, err)
			}
		}
		_, err := f.Approve(f.ctx, operator, task.TaskID, picket.Decision{Digest: shown})
		if !strings.Contains(fmt.Sprint(err), "the evidence changed") {
			t.Errorf("the refusal does not say what has changed: %v", err)
		}
		now := f.reviewDigest(t, task.TaskID)
		got, err := f.Approve(f.ctx, operator, task.TaskID, picket.Decision{Digest: now})
		ok(t, err)
		if last := f.allEvents(t); got.Review.Digest != now ||
			!strings.Contains(string(last[len(last)-1].Data), `"digest":"`+now+`"`) {
			t.Errorf("decided on %q, not %q: %s", got.Review.Digest, now, last[len(last)-1].Data)
		}
	})
}

// What the process reported of its end is shown to the reviewer, so it counts.
func TestADecisionIsAboutTheExitThatWasShown(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{})
		f.completeWithDiff(t, h, "+good")
		shown, code := f.reviewDigest(t, task.TaskID), 1
		ok(t, f.RunExit(f.ctx, h, picket.Exit{Class: picket.ExitSuccess}, ""))
		ended := f.reviewDigest(t, task.TaskID)
		_, err := f.Approve(f.ctx, operator, task.TaskID, picket.Decision{Digest: shown})
		f.wantDigestRefusal(t, err, picket.CodeVersion, task.TaskID)
		ok(t, f.RunExit(f.ctx, h, picket.Exit{Class: picket.ExitSuccess}, "")) // the same again
		if again := f.reviewDigest(t, task.TaskID); ended == shown || again != ended {
			t.Errorf("%s, %s after the exit, %s after its repeat", shown, ended, again)
		}
		ok(t, f.RunExit(f.ctx, h, picket.Exit{Class: picket.ExitCrash, Code: &code}, ""))
		_, err = f.Approve(f.ctx, operator, task.TaskID, picket.Decision{Digest: ended})
		f.wantDigestRefusal(t, err, picket.CodeVersion, task.TaskID)
	})
}

// Evidence that arrives for the first time is not in a decision that was made
// without it. Without evidence no digest is needed.
func TestEvidenceMayArriveBeforeTheDecision(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{})
		f.completeWithDiff(t, h, "")
		empty := f.reviewDigest(t, task.TaskID)
		f.jumpStoreTime(t, 14*time.Minute)
		ok(t, f.RunEvidence(f.ctx, h, evidenceWithDiff("+late")))
		for digest, code := range map[string]picket.Code{
			empty: picket.CodeVersion,
			"":    picket.CodePreconditionRequired,
		} {
			_, err := f.Approve(f.ctx, operator, task.TaskID, picket.Decision{Digest: digest})
			f.wantDigestRefusal(t, err, code, task.TaskID)
		}
		_, err := f.Approve(f.ctx, operator, task.TaskID, picket.Decision{Digest: f.reviewDigest(t, task.TaskID)})
		ok(t, err)

		bare, h := f.submitAndLease(t, picket.TaskSpec{})
		f.completeWithDiff(t, h, "")
		_, err = f.Approve(f.ctx, operator, bare.TaskID, picket.Decision{})
		ok(t, err)
	})
}

// A run that lost the task can hand in what it likes: the review is about the
// run that completed the task.
func TestASupersededRunsEvidenceIsNotTheReviews(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, old := f.submitAndLease(t, picket.TaskSpec{Retry: &picket.Retry{BackoffSeconds: new(int)}})
		_, err := f.Release(f.ctx, old, picket.Exit{Class: picket.ExitReleased})
		ok(t, err)
		last := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
		f.completeWithDiff(t, last, "")
		shown := f.reviewDigest(t, task.TaskID)
		ok(t, f.RunEvidence(f.ctx, old, evidenceWithDiff("+of another run")))
		if now := f.reviewDigest(t, task.TaskID); now != shown {
			t.Errorf("a superseded run changed the digest from %s to %s", shown, now)
		}
		list, err := f.Evidence(f.ctx, task.TaskID, last.RunID)
		ok(t, err)
		all, err := f.Evidence(f.ctx, task.TaskID, "")
		ok(t, err)
		if len(list) != 0 || len(all) != 1 || all[0].RunID != old.RunID || len(all[0].Digest) != 64 {
			t.Errorf("of the completing run %+v, of all %+v", list, all)
		}
		_, err = f.Approve(f.ctx, operator, task.TaskID, picket.Decision{})
		ok(t, err)
		refused(t, f.RunEvidence(f.ctx, old, evidenceWithDiff("+after the decision")), picket.CodeTaskClosed)
	})
}

// A replacement is an event with both digests; after the decision there is none.
func TestEvidenceIsFrozenByTheDecision(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for name, decide := range map[string]func(task, digest string) error{
			"approve": func(task, d string) error {
				_, err := f.Approve(f.ctx, operator, task, picket.Decision{Digest: d})
				return err
			},
			"reject": func(task, d string) error {
				_, _, err := f.Reject(f.ctx, operator, task, picket.Decision{Digest: d},
					&picket.TaskSpec{Title: "fix", Role: "later"})
				return err
			},
		} {
			task, h := f.submitAndLease(t, picket.TaskSpec{})
			f.completeWithDiff(t, h, "+one")
			one := f.onlyEvidence(t, task.TaskID)
			ok(t, f.RunEvidence(f.ctx, h, evidenceWithDiff("+two")))
			two := f.onlyEvidence(t, task.TaskID)
			all := f.allEvents(t)
			event := all[len(all)-1]
			if event.Type != picket.EventEvidenceReplaced || event.RunID != h.RunID || event.Actor != h.RunID ||
				string(event.Data) != `{"before":{"digest":"`+one.Digest+`"},"after":{"digest":"`+two.Digest+`"}}` {
				t.Errorf("%s: the replacement is told as %s %s", name, event.Type, event.Data)
			}
			ok(t, decide(task.TaskID, f.reviewDigest(t, task.TaskID)))
			before := len(f.allEvents(t))
			refused(t, f.RunEvidence(f.ctx, h, evidenceWithDiff("+three")), picket.CodeTaskClosed)
			ok(t, f.RunEvidence(f.ctx, h, evidenceWithDiff("+two"))) // a repeat whose answer was lost
			if kept := f.onlyEvidence(t, task.TaskID); kept.Diff != "+two" || len(f.allEvents(t)) != before {
				t.Errorf("%s: the evidence was changed after the decision: %+v", name, kept)
			}
		}
	})
}

// Anyone who finishes a hand-off has decided: what the parked run changed stays.
func TestEvidenceIsFrozenByFinishing(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.submitAndLease(t, picket.TaskSpec{})
		asked, err := f.RequestHelp(f.ctx, h, picket.HelpRequest{Question: "?"})
		ok(t, err)
		ok(t, f.RunEvidence(f.ctx, h, evidenceWithDiff("+so far")))
		_, err = f.Finish(f.ctx, operator, asked.HandoffID, picket.RawJSON(`"by hand"`))
		ok(t, err)
		refused(t, f.RunEvidence(f.ctx, h, evidenceWithDiff("+other")), picket.CodeTaskClosed)

		// Nobody decides about these: the adapter hands in what it has.
		task, h := f.submitAndLease(t, picket.TaskSpec{Review: picket.ReviewByNone})
		f.completeWithDiff(t, h, "+unreviewed")
		_, h2 := f.submitAndLease(t, picket.TaskSpec{})
		_, err = f.Cancel(f.ctx, operator, h2.TaskID, "")
		ok(t, err)
		ok(t, f.RunEvidence(f.ctx, h2, evidenceWithDiff("+cancelled")))
		if kept := f.onlyEvidence(t, task.TaskID); kept.Diff != "+unreviewed" {
			t.Errorf("%+v", kept)
		}
	})
}

// The log cannot be filled with replacements.
func TestEvidenceIsNotReplacedForEver(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.submitAndLease(t, picket.TaskSpec{})
		for i := range 51 {
			ok(t, f.RunEvidence(f.ctx, h, evidenceWithDiff(fmt.Sprint("+", i))))
		}
		before := len(f.allEvents(t))
		refused(t, f.RunEvidence(f.ctx, h, evidenceWithDiff("+once more")), picket.CodeStateConflict)
		if len(f.allEvents(t)) != before {
			t.Error("the refused replacement is an event")
		}
	})
}

// The same request gets its answer again, whatever has come in between; another
// one, and another reviewer, come too late.
func TestARepeatedDecisionIsNotCheckedAgain(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{})
		f.completeWithDiff(t, h, "+good")
		by := operator
		by.Idempotency = picket.Idempotency{Key: strings.Repeat("a", 64), Body: strings.Repeat("b", 64)}
		d := picket.Decision{Digest: f.reviewDigest(t, task.TaskID)}
		for range 2 {
			got, err := f.Approve(f.ctx, by, task.TaskID, d)
			ok(t, err)
			if got.State != picket.TaskCompleted || got.Review.Digest != d.Digest {
				t.Errorf("%s on %s", got.State, got.Review.Digest)
			}
		}
		_, _, err := f.Reject(f.ctx, operator, task.TaskID, d, nil)
		refused(t, err, picket.CodeTaskClosed)
	})
}

// Of many, those that have changed since the person looked are left alone.
func TestApprovingManyIsAboutWhatWasShown(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		var ids []string
		digests := map[string]string{}
		var held []picket.LeaseCredential
		for i := range 4 {
			task, h := f.submitAndLease(t, picket.TaskSpec{})
			f.completeWithDiff(t, h, fmt.Sprint("+", i))
			ids, held = append(ids, task.TaskID), append(held, h)
			digests[task.TaskID] = f.reviewDigest(t, task.TaskID)
		}
		ok(t, f.RunEvidence(f.ctx, held[1], evidenceWithDiff("+swapped")))
		delete(digests, ids[2])
		by := operator
		by.Idempotency = picket.Idempotency{Key: strings.Repeat("c", 64), Body: strings.Repeat("d", 64)}
		got, err := f.ApproveAll(f.ctx, by,
			picket.BulkApproval{Filter: picket.ReviewFilter{TaskIDs: ids}, Count: 4, Digests: digests})
		ok(t, err)
		if len(got.Approved) != 2 || len(got.Lost) != 2 {
			t.Fatalf("%+v", got)
		}
		for i, code := range map[int]picket.Code{1: picket.CodeVersion, 2: picket.CodePreconditionRequired} {
			lost := got.Lost[i-1]
			if lost.TaskID != ids[i] || lost.Code != code || lost.Digest != f.reviewDigest(t, ids[i]) {
				t.Errorf("%+v, want %s for %s", lost, code, ids[i])
			}
		}
		for _, bad := range []map[string]string{{"x": ""}, {ids[0]: "no digest"}} {
			_, err := f.ApproveAll(f.ctx, by,
				picket.BulkApproval{Filter: picket.ReviewFilter{TaskIDs: ids}, Count: 4, Digests: bad})
			refused(t, err, picket.CodeValidation)
		}
	})
}

// onlyEvidence is that of the only run that has handed something in.
func (f *fixture) onlyEvidence(t *testing.T, task string) picket.Evidence {
	t.Helper()
	list, err := f.Evidence(f.ctx, task, "")
	ok(t, err)
	if len(list) != 1 {
		t.Fatalf("%d runs have handed in something", len(list))
	}
	return list[0]
}

// allEvents are the events so far.
func (f *fixture) allEvents(t *testing.T) []picket.Event {
	t.Helper()
	page, err := f.Events(f.ctx, picket.EventQuery{Limit: 1000})
	ok(t, err)
	return page.Events
}
