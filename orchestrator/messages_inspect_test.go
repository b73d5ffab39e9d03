package orchestrator_test

import (
	"fmt"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The scanner sees the inboxes of all tasks and agents, also in steps that end between them.
func TestTheScannerSeesEveryInbox(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		var inboxes []string
		for range 45 {
			inboxes = append(inboxes, "pk:{default}:inbox:"+f.MustSubmit(t, picket.TaskSpec{}).TaskID)
		}
		for n := range 25 {
			a := f.MustRegister(t, picket.Registration{AgentID: fmt.Sprint("inbox", n)})
			inboxes = append(inboxes, "pk:{default}:inbox:"+a.AgentID)
		}
		for _, inbox := range inboxes {
			kit.OK(t, f.Raw.HSet(f.Ctx, inbox, "bytes", 7).Err())
		}
		for range 60 {
			kit.OK(t, f.InspectNext(f.Ctx, 20))
		}
		for _, inbox := range inboxes {
			if f.Raw.HGet(f.Ctx, inbox, "bytes").Val() != "0" {
				t.Errorf("%s still counts bytes of no message", inbox)
			}
		}
		kit.CheckInvariants(t, f.Engine)
	})
}
