package calls

import (
	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

const whySeveralCalls = "each task is decided by a call of its own"

// withThreeReviews is a set-up with three tasks that wait for their review.
func withThreeReviews(w *Env) {
	for range 3 {
		Confirmed(picket.TaskSpec{Labels: map[string]string{"team": "a"}})(w)
		_, err := w.Direct.Complete(w.Ctx, w.Held, picket.Completion{Output: picket.RawJSON(`"done"`)})
		kit.OK(w.T, err)
	}
}

func approveThree(w *Env, e *orchestrator.Engine) (any, error) {
	return e.ApproveAll(w.Ctx, Asked("1"),
		picket.BulkApproval{
			Filter: picket.ReviewFilter{Labels: map[string]string{"team": "a"}},
			Count:  3,
			Note:   "good",
		})
}
