package branches

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func coverApproveAll(t *testing.T, f *fixture) {
	ids := f.CompleteTasks(t, 2, picket.TaskSpec{Role: "coder"})
	f.CompleteTasks(t, 1, picket.TaskSpec{})
	f.WantCountMismatch(t, picket.BulkApproval{Filter: picket.ReviewFilter{TaskIDs: append(ids, kit.NoTask)}, Count: 3},
		2,
		3)
	f.WantCountMismatch(t, picket.BulkApproval{Filter: picket.ReviewFilter{Role: "coder"}, Count: 3}, 2, 3)
	req := picket.BulkApproval{Filter: picket.ReviewFilter{Role: "coder"}, Count: 2}
	by := kit.Idempotent("1")
	by.Idempotency.Key = strings.Repeat("f", 60) + "bulk"
	f.CallTwice(t, func() error { _, err := f.ApproveAll(f.Ctx, by, req); return err })
	by.Idempotency.Body = strings.Repeat("c", 64)
	_, err := f.ApproveAll(f.Ctx, by, req)
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	f.CancelAll(t)
}
