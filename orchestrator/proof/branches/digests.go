package branches

import (
	"fmt"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverDigests takes the ways of decisions about evidence.
func coverDigests(t *testing.T, f *fixture) {
	f.ParentDecides(t)
	task, h := f.SubmitAndLease(t, picket.TaskSpec{})
	f.CompleteWithDiff(t, h, "")
	for i := range 51 {
		kit.OK(t, f.RunEvidence(f.Ctx, h, kit.EvidenceWithDiff(fmt.Sprint("+", i))))
	}
	kit.Refused(t, f.RunEvidence(f.Ctx, h, kit.EvidenceWithDiff("+more")), picket.CodeStateConflict)
	_, err := f.Approve(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Digest: "none-none-0"})
	kit.Refused(t, err, picket.CodeVersion)
	kit.OK(t, f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitSuccess}, ""))
	_, err = f.Approve(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Digest: f.ReviewDigest(t, task.TaskID)})
	kit.OK(t, err)
	kit.Refused(t, f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitCrash, Code: kit.Ptr(1)}, ""),
		picket.CodeTaskClosed)
}
