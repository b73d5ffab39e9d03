package branches

import (
	"testing"

	"github.com/picket-dev/picket"
)

func coverQueues(t *testing.T, f *fixture) {
	for _, hid := range f.OpenHandoffs(t, 6) {
		f.SetScore(t, "handoffs:open", hid, 1)
	}
	f.HandoffPages(t, 1, nil)
	f.CancelAll(t)
	f.CompleteTasks(t, 3, picket.TaskSpec{Role: "coder", Labels: map[string]string{"team": "a"}})
	f.CompleteTasks(t, 1, picket.TaskSpec{Role: "coder"})
	f.ReviewPages(t, picket.ReviewQuery{Limit: 1, Role: "coder", Labels: map[string]string{"team": "a"}})
	f.ReviewPages(t, picket.ReviewQuery{Role: "coder"})
	f.ReviewPages(t, picket.ReviewQuery{Labels: map[string]string{"team": "none"}})
	f.CancelAll(t)
}
