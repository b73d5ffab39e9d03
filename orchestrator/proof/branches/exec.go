package branches

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverExec takes the ways of processes that a run's adapter is asked to start.
func coverExec(t *testing.T, f *fixture) {
	_, h := f.SubmitAndLease(t, picket.TaskSpec{})
	kit.Refused(t, f.OrderExec(f.Ctx, h, kit.ExecOrder("c0")), picket.CodeNotAvailable) // its adapter starts none
	foreign := h
	foreign.Secret = strings.Repeat("0", 64)
	kit.Refused(t, f.OrderExec(f.Ctx, foreign, kit.ExecOrder("c0")), picket.CodeLeaseExpired)
	kit.Refused(t, f.ExecResult(f.Ctx, foreign, "c0", picket.ExecResult{}), picket.CodeLeaseExpired)
	_, _, err := f.AwaitExec(f.Ctx, foreign, "c0", 0)
	kit.Refused(t, err, picket.CodeLeaseExpired)
	for _, may := range []bool{false, true} {
		kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched, Exec: may}}))
		_, err = f.CanExec(f.Ctx, h)
		kit.OK(t, err)
	}
	_, err = f.CanExec(f.Ctx, foreign)
	kit.Refused(t, err, picket.CodeLeaseExpired)
	f.CancelAll(t)

	_, h = f.LeaseWithExec(t)
	f.CallTwice(t, func() error { return f.OrderExec(f.Ctx, h, kit.ExecOrder("c1")) })
	for _, known := range []string{"", "c1"} {
		_, _, err = f.Watch(f.Ctx, h, time.Millisecond, known)
		kit.OK(t, err)
	}
	_, _, err = f.AwaitExec(f.Ctx, h, "c1", 0)
	kit.OK(t, err)
	_, _, err = f.AwaitExec(f.Ctx, h, "c9", 0)
	kit.OK(t, err)
	_, err = f.AwaitEnd(f.Ctx, h, time.Millisecond)
	kit.OK(t, err)
	kit.Refused(t, f.ExecResult(f.Ctx, h, "c9", picket.ExecResult{}), picket.CodeStateConflict)
	f.CallTwice(t, func() error { return f.ExecResult(f.Ctx, h, "c1", picket.ExecResult{Stdout: "x"}) })
	_, _, err = f.AwaitExec(f.Ctx, h, "c1", 0)
	kit.OK(t, err)
	kit.OK(t, f.OrderExec(f.Ctx, h, kit.ExecOrder("c1"))) // it is over, and not asked for again
	for i := range 16 {
		kit.OK(t, f.OrderExec(f.Ctx, h, kit.ExecOrder(fmt.Sprint("m", i))))
	}
	kit.Refused(t, f.OrderExec(f.Ctx, h, kit.ExecOrder("m16")), picket.CodeRateLimited)
	f.JumpStoreTime(t, time.Minute)
	_, err = f.Renew(f.Ctx, h)
	kit.OK(t, err)
	kit.Refused(t, f.ExecResult(f.Ctx, h, "m1", picket.ExecResult{}), picket.CodeStateConflict)
	kit.OK(t, f.OrderExec(f.Ctx, h, kit.ExecOrder("m17")))
	f.CancelAll(t)
}
