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
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func TestApproveAllThatAFilterMeans(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		team := map[string]string{"team": "a"}
		coders := f.CompleteTasks(t, 3, picket.TaskSpec{Role: "coder", Labels: team})
		others := f.CompleteTasks(t, 2, picket.TaskSpec{Labels: team})
		f.CompleteTasks(t, 1, picket.TaskSpec{})
		f.WantCountMismatch(t, picket.BulkApproval{Filter: picket.ReviewFilter{Labels: team}, Count: 4}, 5, 6)
		f.WantCountMismatch(t, picket.BulkApproval{Filter: picket.ReviewFilter{Role: "nobody"}, Count: 1}, 0, 6)
		f.WantCountMismatch(t, picket.BulkApproval{
			Filter: picket.ReviewFilter{TaskIDs: append(others, others[0], kit.NoTask)},
			Count:  3,
		}, 2, 6)
		f.WantCountMismatch(t, picket.BulkApproval{
			Filter: picket.ReviewFilter{Role: "coder", TaskIDs: others},
			Count:  2,
		}, 0, 6)

		all := picket.BulkApproval{Filter: picket.ReviewFilter{Role: "coder", Labels: team}, Count: 3, Note: "seen all"}
		got, err := f.ApproveAll(f.Ctx, kit.Idempotent("1"), all)
		kit.OK(t, err)
		if !slices.Equal(got.Approved, coders) || len(got.Lost) != 0 {
			t.Fatalf("approved %+v, want %v", got, coders)
		}
		if r := f.WantState(t, coders[1], picket.TaskCompleted).Review; r.By != "key_test" || r.Note != "seen all" {
			t.Errorf("review %+v", r)
		}
		f.CompleteTasks(t, 1, picket.TaskSpec{Role: "coder", Labels: team}) // is not meant by the repeat
		again, err := f.ApproveAll(f.Ctx, kit.Idempotent("1"), all)
		kit.OK(t, err)
		if !slices.Equal(again.Approved, coders) || len(again.Lost) != 0 {
			t.Errorf("the repeat approved %+v", again)
		}
		if n := f.countEvents(t, picket.EventTaskApproved); n != 3 {
			t.Errorf("%d were approved", n)
		}
		changed := kit.Idempotent("1")
		changed.Idempotency.Body = strings.Repeat("c", 64)
		_, err = f.ApproveAll(f.Ctx, changed, all)
		kit.Refused(t, err, picket.CodeIdempotencyConflict)
	})
}

// What somebody else decides between the look and the decision is lost, the
// rest is approved.
func TestApproveAllLosesWhatOthersDecide(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		ids := f.CompleteTasks(t, 4, picket.TaskSpec{})
		ben := picket.Caller{Actor: "key_ben"}
		req := picket.BulkApproval{Filter: picket.ReviewFilter{TaskIDs: ids}, Count: 4}
		by := kit.Idempotent("1")
		// it has looked
		kit.OK(t, f.Raw.Set(f.Ctx, "pk:{default}:req:"+by.Idempotency.Key,
			by.Idempotency.Body+" "+strings.Join(append(ids, kit.NoTask), " "),
			0).Err())
		_, _, err := f.Reject(f.Ctx, ben, ids[1], picket.Decision{Note: "no"}, nil)
		kit.OK(t, err)
		_, err = f.Approve(f.Ctx, ben, ids[3], picket.Decision{Note: "yes"})
		kit.OK(t, err)
		got, err := f.ApproveAll(f.Ctx, by, req)
		kit.OK(t, err)
		want := []picket.LostRace{{TaskID: ids[1], Code: picket.CodeTaskClosed, By: "key_ben"},
			{TaskID: ids[3], Code: picket.CodeTaskClosed, By: "key_ben"},
			{TaskID: kit.NoTask, Code: picket.CodeNotFound}}
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
			{kit.Operator, picket.BulkApproval{Filter: role, Count: 1}, picket.CodePreconditionRequired},
			{kit.Idempotent("1"), picket.BulkApproval{Filter: role}, picket.CodeValidation},
			{kit.Idempotent("1"), picket.BulkApproval{Filter: role, Count: 501}, picket.CodeValidation},
			{kit.Idempotent("1"), picket.BulkApproval{Count: 1}, picket.CodeValidation},
			{kit.Idempotent("1"), picket.BulkApproval{Filter: picket.ReviewFilter{TaskIDs: make([]string, 501)},
				Count: 1},
				picket.CodeValidation},
			{kit.Idempotent("1"), picket.BulkApproval{Filter: picket.ReviewFilter{TaskIDs: []string{"task_x"}},
				Count: 1},
				picket.CodeValidation},
			{kit.Idempotent("1"), picket.BulkApproval{Filter: picket.ReviewFilter{Role: "a b"}, Count: 1},
				picket.CodeValidation},
			{kit.Idempotent("1"), picket.BulkApproval{Filter: role, Count: 1, Note: strings.Repeat("a", 20<<10)},
				picket.CodeTooLarge},
		} {
			_, err := f.ApproveAll(f.Ctx, c.by, c.req)
			kit.Refused(t, err, c.code)
		}
	})
}

// Of more than one request can approve no number is said that would be refused,
// too.
func TestApproveAllOfTooMany(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for n := range orchestrator.MaxBulk + 1 {
			z := redis.Z{Score: float64(n + 1), Member: fmt.Sprintf("task_%026d", n)}
			kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:by-state:review", z).Err())
			kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:by-role:coder", z).Err())
		}
		all := picket.BulkApproval{Filter: picket.ReviewFilter{Role: "coder"}, Count: 500}
		_, err := f.ApproveAll(f.Ctx, kit.Idempotent("1"), all)
		var no *picket.Error
		if !errors.As(err, &no) || no.Code != picket.CodeVersion || no.Facts["limit"] != orchestrator.MaxBulk ||
			no.Facts["count"] != nil ||
			!strings.Contains(no.Message, "more than 500 tasks") || !strings.Contains(no.Remedy, "arrow the filter") ||
			strings.Contains(no.Message+no.Remedy, "501") {
			t.Fatalf("approve all of 501: %v, facts %v", err, no)
		}
		kit.OK(t, f.Raw.ZRem(f.Ctx, "pk:{default}:by-role:coder", fmt.Sprintf("task_%026d", 7)).Err())
		f.WantCountMismatch(t, picket.BulkApproval{Filter: all.Filter, Count: 499}, 500, 501)
		by := kit.Idempotent("1")
		kit.OK(t, f.Raw.Set(f.Ctx, "pk:{default}:req:"+by.Idempotency.Key, by.Idempotency.Body+" "+kit.NoTask, 0).Err())
		kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:by-role:coder",
			redis.Z{Score: 8, Member: fmt.Sprintf("task_%026d", 7)}).
			Err())
		got, err := f.ApproveAll(f.Ctx, by, all) // decided while they were fewer
		kit.OK(t, err)
		if len(got.Lost) != 1 || got.Lost[0].TaskID != kit.NoTask {
			t.Errorf("the repeat decided %+v", got)
		}
	})
}
