package orchestrator_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// wantCountMismatch checks that nothing was decided because another number is meant.
func (f *fixture) wantCountMismatch(t *testing.T, req picket.BulkApproval, count int64, waiting int64) {
	t.Helper()
	_, err := f.ApproveAll(f.ctx, idempotent("e"), req)
	var no *picket.Error
	if !errors.As(err, &no) || no.Code != picket.CodeVersion || no.Facts["count"] != count || no.Remedy == "" {
		t.Fatalf("approve all of %+v: %v", req, err)
	}
	page, err := f.Reviews(f.ctx, picket.ReviewQuery{Limit: 1})
	ok(t, err)
	if page.Total != waiting {
		t.Errorf("%d wait for review, want %d", page.Total, waiting)
	}
}

func TestApproveAllThatAFilterMeans(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		team := map[string]string{"team": "a"}
		coders := f.completeTasks(t, 3, picket.TaskSpec{Role: "coder", Labels: team})
		others := f.completeTasks(t, 2, picket.TaskSpec{Labels: team})
		f.completeTasks(t, 1, picket.TaskSpec{})
		f.wantCountMismatch(t, picket.BulkApproval{Filter: picket.ReviewFilter{Labels: team}, Count: 4}, 5, 6)
		f.wantCountMismatch(t, picket.BulkApproval{Filter: picket.ReviewFilter{Role: "nobody"}, Count: 1}, 0, 6)
		f.wantCountMismatch(t, picket.BulkApproval{
			Filter: picket.ReviewFilter{TaskIDs: append(others, others[0], noTask)},
			Count:  3,
		}, 2, 6)
		f.wantCountMismatch(t, picket.BulkApproval{
			Filter: picket.ReviewFilter{Role: "coder", TaskIDs: others},
			Count:  2,
		}, 0, 6)

		all := picket.BulkApproval{Filter: picket.ReviewFilter{Role: "coder", Labels: team}, Count: 3, Note: "seen all"}
		got, err := f.ApproveAll(f.ctx, idempotent("1"), all)
		ok(t, err)
		if !slices.Equal(got.Approved, coders) || len(got.Lost) != 0 {
			t.Fatalf("approved %+v, want %v", got, coders)
		}
		if r := f.wantState(t, coders[1], picket.TaskCompleted).Review; r.By != "key_test" || r.Note != "seen all" {
			t.Errorf("review %+v", r)
		}
		f.completeTasks(t, 1, picket.TaskSpec{Role: "coder", Labels: team}) // is not meant by the repeat
		again, err := f.ApproveAll(f.ctx, idempotent("1"), all)
		ok(t, err)
		if !slices.Equal(again.Approved, coders) || len(again.Lost) != 0 {
			t.Errorf("the repeat approved %+v", again)
		}
		if n := f.countEvents(t, picket.EventTaskApproved); n != 3 {
			t.Errorf("%d were approved", n)
		}
		changed := idempotent("1")
		changed.Idempotency.Body = strings.Repeat("c", 64)
		_, err = f.ApproveAll(f.ctx, changed, all)
		refused(t, err, picket.CodeIdempotencyConflict)
	})
}

// What somebody else decides between the look and the decision is lost, the
// rest is approved.
func TestApproveAllLosesWhatOthersDecide(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		ids := f.completeTasks(t, 4, picket.TaskSpec{})
		ben := picket.Caller{Actor: "key_ben"}
		req := picket.BulkApproval{Filter: picket.ReviewFilter{TaskIDs: ids}, Count: 4}
		by := idempotent("1")
		// it has looked
		ok(t, f.raw.Set(f.ctx, "pk:{default}:req:"+by.Idempotency.Key,
			by.Idempotency.Body+" "+strings.Join(append(ids, noTask), " "),
			0).Err())
		_, _, err := f.Reject(f.ctx, ben, ids[1], picket.Decision{Note: "no"}, nil)
		ok(t, err)
		_, err = f.Approve(f.ctx, ben, ids[3], picket.Decision{Note: "yes"})
		ok(t, err)
		got, err := f.ApproveAll(f.ctx, by, req)
		ok(t, err)
		want := []picket.LostRace{{TaskID: ids[1], Code: picket.CodeTaskClosed, By: "key_ben"},
			{TaskID: ids[3], Code: picket.CodeTaskClosed, By: "key_ben"},
			{TaskID: noTask, Code: picket.CodeNotFound}}
		if !slices.Equal(got.Approved, []string{ids[0], ids[2]}) || !slices.Equal(got.Lost, want) {
			t.Fatalf("got %+v", got)
		}
	})
}

func TestApproveAllChecksWhatItIsAsked(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		role := picket.ReviewFilter{Role: "coder"}
		for _, c := range []struct {
			by   picket.Caller
			req  picket.BulkApproval
			code picket.Code
		}{
			{operator, picket.BulkApproval{Filter: role, Count: 1}, picket.CodePreconditionRequired},
			{idempotent("1"), picket.BulkApproval{Filter: role}, picket.CodeValidation},
			{idempotent("1"), picket.BulkApproval{Filter: role, Count: 501}, picket.CodeValidation},
			{idempotent("1"), picket.BulkApproval{Count: 1}, picket.CodeValidation},
			{idempotent("1"), picket.BulkApproval{Filter: picket.ReviewFilter{TaskIDs: make([]string, 501)}, Count: 1},
				picket.CodeValidation},
			{idempotent("1"), picket.BulkApproval{Filter: picket.ReviewFilter{TaskIDs: []string{"task_x"}}, Count: 1},
				picket.CodeValidation},
			{idempotent("1"), picket.BulkApproval{Filter: picket.ReviewFilter{Role: "a b"}, Count: 1},
				picket.CodeValidation},
			{idempotent("1"), picket.BulkApproval{Filter: role, Count: 1, Note: strings.Repeat("a", 20<<10)},
				picket.CodeTooLarge},
		} {
			_, err := f.ApproveAll(f.ctx, c.by, c.req)
			refused(t, err, c.code)
		}
	})
}

// Of more than one request can approve no number is said that would be refused,
// too.
func TestApproveAllOfTooMany(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for n := range orchestrator.MaxBulk + 1 {
			z := redis.Z{Score: float64(n + 1), Member: fmt.Sprintf("task_%026d", n)}
			ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:by-state:review", z).Err())
			ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:by-role:coder", z).Err())
		}
		all := picket.BulkApproval{Filter: picket.ReviewFilter{Role: "coder"}, Count: 500}
		_, err := f.ApproveAll(f.ctx, idempotent("1"), all)
		var no *picket.Error
		if !errors.As(err, &no) || no.Code != picket.CodeVersion || no.Facts["limit"] != orchestrator.MaxBulk ||
			no.Facts["count"] != nil ||
			!strings.Contains(no.Message, "more than 500 tasks") || !strings.Contains(no.Remedy, "arrow the filter") ||
			strings.Contains(no.Message+no.Remedy, "501") {
			t.Fatalf("approve all of 501: %v, facts %v", err, no)
		}
		ok(t, f.raw.ZRem(f.ctx, "pk:{default}:by-role:coder", fmt.Sprintf("task_%026d", 7)).Err())
		f.wantCountMismatch(t, picket.BulkApproval{Filter: all.Filter, Count: 499}, 500, 501)
		by := idempotent("1")
		ok(t, f.raw.Set(f.ctx, "pk:{default}:req:"+by.Idempotency.Key, by.Idempotency.Body+" "+noTask, 0).Err())
		ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:by-role:coder", redis.Z{Score: 8, Member: fmt.Sprintf("task_%026d", 7)}).
			Err())
		got, err := f.ApproveAll(f.ctx, by, all) // decided while they were fewer
		ok(t, err)
		if len(got.Lost) != 1 || got.Lost[0].TaskID != noTask {
			t.Errorf("the repeat decided %+v", got)
		}
	})
}

func coverApproveAll(t *testing.T, f *fixture) {
	ids := f.completeTasks(t, 2, picket.TaskSpec{Role: "coder"})
	f.completeTasks(t, 1, picket.TaskSpec{})
	f.wantCountMismatch(t, picket.BulkApproval{Filter: picket.ReviewFilter{TaskIDs: append(ids, noTask)}, Count: 3}, 2,
		3)
	f.wantCountMismatch(t, picket.BulkApproval{Filter: picket.ReviewFilter{Role: "coder"}, Count: 3}, 2, 3)
	req := picket.BulkApproval{Filter: picket.ReviewFilter{Role: "coder"}, Count: 2}
	by := idempotent("1")
	by.Idempotency.Key = strings.Repeat("f", 60) + "bulk"
	f.callTwice(t, func() error { _, err := f.ApproveAll(f.ctx, by, req); return err })
	by.Idempotency.Body = strings.Repeat("c", 64)
	_, err := f.ApproveAll(f.ctx, by, req)
	refused(t, err, picket.CodeIdempotencyConflict)
	f.cancelAll(t)
}

const whySeveralCalls = "each task is decided by a call of its own"

// withThreeReviews is a set-up with three tasks that wait for their review.
func withThreeReviews(w *replyEnv) {
	for range 3 {
		confirmed(picket.TaskSpec{Labels: map[string]string{"team": "a"}})(w)
		_, err := w.direct.Complete(w.ctx, w.held, picket.Completion{Output: picket.RawJSON(`"done"`)})
		ok(w.t, err)
	}
}

func approveThree(w *replyEnv, e *orchestrator.Engine) (any, error) {
	return e.ApproveAll(w.ctx, asked("1"),
		picket.BulkApproval{
			Filter: picket.ReviewFilter{Labels: map[string]string{"team": "a"}},
			Count:  3,
			Note:   "good",
		})
}
