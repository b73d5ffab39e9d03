package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Evidence that is replaced after a reviewer has looked at it is not what the
// reviewer decides about.
func TestADecisionIsAboutWhatWasShown(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		f.CompleteWithDiff(t, h, "+good")
		shown := f.ReviewDigest(t, task.TaskID)
		kit.OK(t, f.RunEvidence(f.Ctx, h, kit.EvidenceWithDiff("+bad")))
		before := f.allEvents(t)
		for name, decide := range map[string]func(digest string) error{
			"approve": func(d string) error {
				_, err := f.Approve(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Digest: d})
				return err
			},
			"reject": func(d string) error {
				_, _, err := f.Reject(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Digest: d}, nil)
				return err
			},
			"reject and fix": func(d string) error {
				_, _, err := f.Reject(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Digest: d},
					&picket.TaskSpec{Title: "fix"})
				return err
			},
		} {
			f.WantDigestRefusal(t, decide(shown), picket.CodeVersion, task.TaskID)
			f.WantDigestRefusal(t, decide(""), picket.CodePreconditionRequired, task.TaskID)
			f.WantDigestRefusal(t, decide("none-none-0"), picket.CodeVersion, task.TaskID)
			kit.Refused(t, decide("no digest"), picket.CodeValidation)
			if got, err := f.Task(f.Ctx, task.TaskID); err != nil || got.State != picket.TaskReview ||
				len(f.allEvents(t)) != len(before) {
				t.Errorf("%s changed something: %s %v", name, got.State, err)
			}
		}
		_, err := f.Approve(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Digest: shown})
		if !strings.Contains(fmt.Sprint(err), "the evidence changed") {
			t.Errorf("the refusal does not say what has changed: %v", err)
		}
		now := f.ReviewDigest(t, task.TaskID)
		got, err := f.Approve(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Digest: now})
		kit.OK(t, err)
		if last := f.allEvents(t); got.Review.Digest != now ||
			!strings.Contains(string(last[len(last)-1].Data), `"digest":"`+now+`"`) {
			t.Errorf("decided on %q, not %q: %s", got.Review.Digest, now, last[len(last)-1].Data)
		}
	})
}

// What the process reported of its end is shown to the reviewer, so it counts.
func TestADecisionIsAboutTheExitThatWasShown(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		f.CompleteWithDiff(t, h, "+good")
		shown, code := f.ReviewDigest(t, task.TaskID), 1
		kit.OK(t, f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitSuccess}, ""))
		ended := f.ReviewDigest(t, task.TaskID)
		_, err := f.Approve(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Digest: shown})
		f.WantDigestRefusal(t, err, picket.CodeVersion, task.TaskID)
		kit.OK(t, f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitSuccess}, "")) // the same again
		if again := f.ReviewDigest(t, task.TaskID); ended == shown || again != ended {
			t.Errorf("%s, %s after the exit, %s after its repeat", shown, ended, again)
		}
		kit.OK(t, f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitCrash, Code: &code}, ""))
		_, err = f.Approve(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Digest: ended})
		f.WantDigestRefusal(t, err, picket.CodeVersion, task.TaskID)
	})
}

// Evidence that arrives for the first time is not in a decision that was made
// without it. Without evidence no digest is needed.
func TestEvidenceMayArriveBeforeTheDecision(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		f.CompleteWithDiff(t, h, "")
		empty := f.ReviewDigest(t, task.TaskID)
		f.JumpStoreTime(t, 14*time.Minute)
		kit.OK(t, f.RunEvidence(f.Ctx, h, kit.EvidenceWithDiff("+late")))
		for digest, code := range map[string]picket.Code{
			empty: picket.CodeVersion,
			"":    picket.CodePreconditionRequired,
		} {
			_, err := f.Approve(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Digest: digest})
			f.WantDigestRefusal(t, err, code, task.TaskID)
		}
		_, err := f.Approve(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Digest: f.ReviewDigest(t, task.TaskID)})
		kit.OK(t, err)

		bare, h := f.SubmitAndLease(t, picket.TaskSpec{})
		f.CompleteWithDiff(t, h, "")
		_, err = f.Approve(f.Ctx, kit.Operator, bare.TaskID, picket.Decision{})
		kit.OK(t, err)
	})
}

// A run that lost the task can hand in what it likes: the review is about the
// run that completed the task.
func TestASupersededRunsEvidenceIsNotTheReviews(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, old := f.SubmitAndLease(t, picket.TaskSpec{Retry: &picket.Retry{BackoffSeconds: new(int)}})
		_, err := f.Release(f.Ctx, old, picket.Exit{Class: picket.ExitReleased})
		kit.OK(t, err)
		last := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		f.CompleteWithDiff(t, last, "")
		shown := f.ReviewDigest(t, task.TaskID)
		kit.OK(t, f.RunEvidence(f.Ctx, old, kit.EvidenceWithDiff("+of another run")))
		if now := f.ReviewDigest(t, task.TaskID); now != shown {
			t.Errorf("a superseded run changed the digest from %s to %s", shown, now)
		}
		list, err := f.Evidence(f.Ctx, task.TaskID, last.RunID)
		kit.OK(t, err)
		all, err := f.Evidence(f.Ctx, task.TaskID, "")
		kit.OK(t, err)
		if len(list) != 0 || len(all) != 1 || all[0].RunID != old.RunID || len(all[0].Digest) != 64 {
			t.Errorf("of the completing run %+v, of all %+v", list, all)
		}
		_, err = f.Approve(f.Ctx, kit.Operator, task.TaskID, picket.Decision{})
		kit.OK(t, err)
		kit.Refused(t, f.RunEvidence(f.Ctx, old, kit.EvidenceWithDiff("+after the decision")), picket.CodeTaskClosed)
	})
}

// A replacement is an event with both digests; after the decision there is none.
func TestEvidenceIsFrozenByTheDecision(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for name, decide := range map[string]func(task, digest string) error{
			"approve": func(task, d string) error {
				_, err := f.Approve(f.Ctx, kit.Operator, task, picket.Decision{Digest: d})
				return err
			},
			"reject": func(task, d string) error {
				_, _, err := f.Reject(f.Ctx, kit.Operator, task, picket.Decision{Digest: d},
					&picket.TaskSpec{Title: "fix", Role: "later"})
				return err
			},
		} {
			task, h := f.SubmitAndLease(t, picket.TaskSpec{})
			f.CompleteWithDiff(t, h, "+one")
			one := f.onlyEvidence(t, task.TaskID)
			kit.OK(t, f.RunEvidence(f.Ctx, h, kit.EvidenceWithDiff("+two")))
			two := f.onlyEvidence(t, task.TaskID)
			all := f.allEvents(t)
			event := all[len(all)-1]
			if event.Type != picket.EventEvidenceReplaced || event.RunID != h.RunID || event.Actor != h.RunID ||
				string(event.Data) != `{"before":{"digest":"`+one.Digest+`"},"after":{"digest":"`+two.Digest+`"}}` {
				t.Errorf("%s: the replacement is told as %s %s", name, event.Type, event.Data)
			}
			kit.OK(t, decide(task.TaskID, f.ReviewDigest(t, task.TaskID)))
			before := len(f.allEvents(t))
			kit.Refused(t, f.RunEvidence(f.Ctx, h, kit.EvidenceWithDiff("+three")), picket.CodeTaskClosed)
			kit.OK(t, f.RunEvidence(f.Ctx, h, kit.EvidenceWithDiff("+two"))) // a repeat whose answer was lost
			if kept := f.onlyEvidence(t, task.TaskID); kept.Diff != "+two" || len(f.allEvents(t)) != before {
				t.Errorf("%s: the evidence was changed after the decision: %+v", name, kept)
			}
		}
	})
}

// Anyone who finishes a hand-off has decided: what the parked run changed stays.
func TestEvidenceIsFrozenByFinishing(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.SubmitAndLease(t, picket.TaskSpec{})
		asked, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "?"})
		kit.OK(t, err)
		kit.OK(t, f.RunEvidence(f.Ctx, h, kit.EvidenceWithDiff("+so far")))
		_, err = f.Finish(f.Ctx, kit.Operator, asked.HandoffID, picket.RawJSON(`"by hand"`))
		kit.OK(t, err)
		kit.Refused(t, f.RunEvidence(f.Ctx, h, kit.EvidenceWithDiff("+other")), picket.CodeTaskClosed)

		// Nobody decides about these: the adapter hands in what it has.
		task, h := f.SubmitAndLease(t, picket.TaskSpec{Review: picket.ReviewByNone})
		f.CompleteWithDiff(t, h, "+unreviewed")
		_, h2 := f.SubmitAndLease(t, picket.TaskSpec{})
		_, err = f.Cancel(f.Ctx, kit.Operator, h2.TaskID, "")
		kit.OK(t, err)
		kit.OK(t, f.RunEvidence(f.Ctx, h2, kit.EvidenceWithDiff("+cancelled")))
		if kept := f.onlyEvidence(t, task.TaskID); kept.Diff != "+unreviewed" {
			t.Errorf("%+v", kept)
		}
	})
}

// The log cannot be filled with replacements.
func TestEvidenceIsNotReplacedForEver(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.SubmitAndLease(t, picket.TaskSpec{})
		for i := range 51 {
			kit.OK(t, f.RunEvidence(f.Ctx, h, kit.EvidenceWithDiff(fmt.Sprint("+", i))))
		}
		before := len(f.allEvents(t))
		kit.Refused(t, f.RunEvidence(f.Ctx, h, kit.EvidenceWithDiff("+once more")), picket.CodeStateConflict)
		if len(f.allEvents(t)) != before {
			t.Error("the refused replacement is an event")
		}
	})
}

// The same request gets its answer again, whatever has come in between; another
// one, and another reviewer, come too late.
func TestARepeatedDecisionIsNotCheckedAgain(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		f.CompleteWithDiff(t, h, "+good")
		by := kit.Operator
		by.Idempotency = picket.Idempotency{Key: strings.Repeat("a", 64), Body: strings.Repeat("b", 64)}
		d := picket.Decision{Digest: f.ReviewDigest(t, task.TaskID)}
		for range 2 {
			got, err := f.Approve(f.Ctx, by, task.TaskID, d)
			kit.OK(t, err)
			if got.State != picket.TaskCompleted || got.Review.Digest != d.Digest {
				t.Errorf("%s on %s", got.State, got.Review.Digest)
			}
		}
		_, _, err := f.Reject(f.Ctx, kit.Operator, task.TaskID, d, nil)
		kit.Refused(t, err, picket.CodeTaskClosed)
	})
}

// Of many, those that have changed since the person looked are left alone.
func TestApprovingManyIsAboutWhatWasShown(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		var ids []string
		digests := map[string]string{}
		var held []picket.LeaseCredential
		for i := range 4 {
			task, h := f.SubmitAndLease(t, picket.TaskSpec{})
			f.CompleteWithDiff(t, h, fmt.Sprint("+", i))
			ids, held = append(ids, task.TaskID), append(held, h)
			digests[task.TaskID] = f.ReviewDigest(t, task.TaskID)
		}
		kit.OK(t, f.RunEvidence(f.Ctx, held[1], kit.EvidenceWithDiff("+swapped")))
		delete(digests, ids[2])
		by := kit.Operator
		by.Idempotency = picket.Idempotency{Key: strings.Repeat("c", 64), Body: strings.Repeat("d", 64)}
		got, err := f.ApproveAll(f.Ctx, by,
			picket.BulkApproval{Filter: picket.ReviewFilter{TaskIDs: ids}, Count: 4, Digests: digests})
		kit.OK(t, err)
		if len(got.Approved) != 2 || len(got.Lost) != 2 {
			t.Fatalf("%+v", got)
		}
		for i, code := range map[int]picket.Code{1: picket.CodeVersion, 2: picket.CodePreconditionRequired} {
			lost := got.Lost[i-1]
			if lost.TaskID != ids[i] || lost.Code != code || lost.Digest != f.ReviewDigest(t, ids[i]) {
				t.Errorf("%+v, want %s for %s", lost, code, ids[i])
			}
		}
		for _, bad := range []map[string]string{{"x": ""}, {ids[0]: "no digest"}} {
			_, err := f.ApproveAll(f.Ctx, by,
				picket.BulkApproval{Filter: picket.ReviewFilter{TaskIDs: ids}, Count: 4, Digests: bad})
			kit.Refused(t, err, picket.CodeValidation)
		}
	})
}

// onlyEvidence is that of the only run that has handed something in.
func (f *fixture) onlyEvidence(t *testing.T, task string) picket.Evidence {
	t.Helper()
	list, err := f.Evidence(f.Ctx, task, "")
	kit.OK(t, err)
	if len(list) != 1 {
		t.Fatalf("%d runs have handed in something", len(list))
	}
	return list[0]
}

// allEvents are the events so far.
func (f *fixture) allEvents(t *testing.T) []picket.Event {
	t.Helper()
	page, err := f.Events(f.Ctx, picket.EventQuery{Limit: 1000})
	kit.OK(t, err)
	return page.Events
}
