package branches

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func coverDecided(t *testing.T, f *fixture) {
	hid := f.OpenHandoffs(t, 1)[0]
	_, err := f.Answer(f.Ctx, kit.Operator, hid,
		picket.AnswerRequest{Answer: picket.RawJSON(`"in words"`), Input: picket.RawJSON(`1`)})
	kit.OK(t, err)
	_, err = f.Finish(f.Ctx, kit.Operator, hid, picket.RawJSON(`1`))
	kit.Refused(t, err, picket.CodeStateConflict)
	f.CancelAll(t)
	id := f.CompleteTasks(t, 1, picket.TaskSpec{Review: picket.ReviewByNone})[0]
	_, err = f.Approve(f.Ctx, kit.Operator, id, picket.Decision{})
	kit.Refused(t, err, picket.CodeTaskClosed)
	id = f.CompleteTasks(t, 1, picket.TaskSpec{})[0]
	_, err = f.Approve(f.Ctx, kit.Operator, id, picket.Decision{Note: "well done"})
	kit.OK(t, err)
	_, err = f.Approve(f.Ctx, kit.Operator, id, picket.Decision{})
	kit.Refused(t, err, picket.CodeTaskClosed)
}
