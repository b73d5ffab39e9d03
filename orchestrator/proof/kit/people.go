package kit

import (
	"errors"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// WantCountMismatch checks that nothing was decided because another number is meant.
func (f *Fixture) WantCountMismatch(t *testing.T, req picket.BulkApproval, count int64, waiting int64) {
	t.Helper()
	_, err := f.ApproveAll(f.Ctx, Idempotent("e"), req)
	var no *picket.Error
	if !errors.As(err, &no) || no.Code != picket.CodeVersion || no.Facts["count"] != count || no.Remedy == "" {
		t.Fatalf("approve all of %+v: %v", req, err)
	}
	page, err := f.Reviews(f.Ctx, picket.ReviewQuery{Limit: 1})
	OK(t, err)
	if page.Total != waiting {
		t.Errorf("%d wait for review, want %d", page.Total, waiting)
	}
}

// CompleteWithDiff hands in a result, and with it what has been changed.
func (f *Fixture) CompleteWithDiff(t *testing.T, h picket.LeaseCredential, diff string) {
	t.Helper()
	_, err := f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`"done"`)})
	OK(t, err)
	if diff != "" {
		OK(t, f.RunEvidence(f.Ctx, h, EvidenceWithDiff(diff)))
	}
}

// ReviewDigest is that of the review as it is now.
func (f *Fixture) ReviewDigest(t *testing.T, task string) string {
	t.Helper()
	got, err := f.Task(f.Ctx, task)
	OK(t, err)
	page, err := f.Reviews(f.Ctx, picket.ReviewQuery{})
	OK(t, err)
	for _, row := range page.Reviews {
		if row.TaskID == task && row.Digest != got.Review.Digest {
			t.Errorf("the list says %q, the task %q", row.Digest, got.Review.Digest)
		}
	}
	return got.Review.Digest
}

// WantDigestRefusal wants a decision refused, with the digest that there is now.
func (f *Fixture) WantDigestRefusal(t *testing.T, err error, code picket.Code, task string) {
	t.Helper()
	Refused(t, err, code)
	no, _ := picket.RefusalOf(err)
	if now := f.ReviewDigest(t, task); no == nil || no.Facts["current"] != now {
		t.Errorf("%v does not name the current digest %s", err, now)
	}
}

// OpenHandoffs parks n tasks, and returns the ids of their hand-offs.
func (f *Fixture) OpenHandoffs(t *testing.T, n int) (ids []string) {
	t.Helper()
	for range n {
		_, h := f.SubmitAndLease(t, picket.TaskSpec{})
		got, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "which?"})
		OK(t, err)
		ids = append(ids, got.HandoffID)
	}
	return ids
}

// CompleteTasks hands in n tasks that people review.
func (f *Fixture) CompleteTasks(t *testing.T, n int, spec picket.TaskSpec) (ids []string) {
	t.Helper()
	for range n {
		task := f.MustSubmit(t, spec)
		_, err := f.Complete(f.Ctx,
			f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: spec.Role})),
			picket.Completion{Output: picket.RawJSON(`1`)})
		OK(t, err)
		ids = append(ids, task.TaskID)
	}
	return ids
}

// HandoffPages reads all pages; between is called after each one.
func (f *Fixture) HandoffPages(t *testing.T, limit int, between func(seen []string)) (seen []string) {
	t.Helper()
	q := picket.HandoffQuery{Limit: limit}
	for {
		page, err := f.Handoffs(f.Ctx, q)
		OK(t, err)
		if len(page.Handoffs) > limit {
			t.Fatalf("%d rows, asked for %d", len(page.Handoffs), limit)
		}
		for _, h := range page.Handoffs {
			seen = append(seen, h.HandoffID)
		}
		if page.NextCursor == nil {
			return seen
		}
		if between != nil {
			between(seen)
		}
		q.Cursor = *page.NextCursor
	}
}

func (f *Fixture) ReviewPages(t *testing.T, q picket.ReviewQuery) (seen []string) {
	t.Helper()
	for {
		page, err := f.Reviews(f.Ctx, q)
		OK(t, err)
		for _, r := range page.Reviews {
			seen = append(seen, r.TaskID)
		}
		if page.NextCursor == nil {
			return seen
		}
		q.Cursor = *page.NextCursor
	}
}

func (f *Fixture) ParentDecides(t *testing.T) {
	t.Helper()
	parent, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: Worth(1000, "1")})
	sub, err := f.Delegate(f.Ctx, h, "", picket.Subtask{Title: "a part", BudgetEnvelope: Worth(10, "0.1")})
	OK(t, err)
	child := f.LeaseSubtask(t, parent.TaskID)
	f.CompleteWithDiff(t, child, "+good")
	seen, err := f.AwaitSubtask(f.Ctx, h, sub.TaskID, time.Minute)
	OK(t, err)
	OK(t, f.RunEvidence(f.Ctx, child, EvidenceWithDiff("+bad")))
	for _, decision := range []string{"approve", "reject"} {
		for digest, code := range map[string]picket.Code{
			seen.Review.Digest: picket.CodeVersion,
			"":                 picket.CodePreconditionRequired,
		} {
			_, err := f.ReviewSubtask(f.Ctx, h, "",
				picket.SubtaskReview{TaskID: sub.TaskID, Decision: decision, Digest: digest})
			f.WantDigestRefusal(t, err, code, sub.TaskID)
		}
	}
	again, err := f.AwaitSubtask(f.Ctx, h, sub.TaskID, time.Minute)
	OK(t, err)
	for range 2 {
		got, err := f.ReviewSubtask(f.Ctx, h, "",
			picket.SubtaskReview{TaskID: sub.TaskID, Decision: "approve", Digest: again.Review.Digest})
		OK(t, err)
		if got.State != picket.TaskCompleted || got.Review.Digest != again.Review.Digest {
			t.Errorf("%s on %s", got.State, got.Review.Digest)
		}
	}
	Refused(t, f.RunEvidence(f.Ctx, child, EvidenceWithDiff("+after")), picket.CodeTaskClosed)
}
