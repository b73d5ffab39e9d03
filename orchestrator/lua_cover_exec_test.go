package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// coverExec takes the ways of processes that a run's adapter is asked to start.
func coverExec(t *testing.T, f *fixture) {
	_, h := f.submitAndLease(t, picket.TaskSpec{})
	refused(t, f.OrderExec(f.ctx, h, execOrder("c0")), picket.CodeNotAvailable) // its adapter starts none
	foreign := h
	foreign.Secret = strings.Repeat("0", 64)
	refused(t, f.OrderExec(f.ctx, foreign, execOrder("c0")), picket.CodeLeaseExpired)
	refused(t, f.ExecResult(f.ctx, foreign, "c0", picket.ExecResult{}), picket.CodeLeaseExpired)
	_, _, err := f.AwaitExec(f.ctx, foreign, "c0", 0)
	refused(t, err, picket.CodeLeaseExpired)
	for _, may := range []bool{false, true} {
		ok(t, f.RunEvents(f.ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched, Exec: may}}))
		_, err = f.CanExec(f.ctx, h)
		ok(t, err)
	}
	_, err = f.CanExec(f.ctx, foreign)
	refused(t, err, picket.CodeLeaseExpired)
	f.cancelAll(t)

	_, h = f.leaseWithExec(t)
	f.callTwice(t, func() error { return f.OrderExec(f.ctx, h, execOrder("c1")) })
	for _, known := range []string{"", "c1"} {
		_, _, err = f.Watch(f.ctx, h, time.Millisecond, known)
		ok(t, err)
	}
	_, _, err = f.AwaitExec(f.ctx, h, "c1", 0)
	ok(t, err)
	_, _, err = f.AwaitExec(f.ctx, h, "c9", 0)
	ok(t, err)
	_, err = f.AwaitEnd(f.ctx, h, time.Millisecond)
	ok(t, err)
	refused(t, f.ExecResult(f.ctx, h, "c9", picket.ExecResult{}), picket.CodeStateConflict)
	f.callTwice(t, func() error { return f.ExecResult(f.ctx, h, "c1", picket.ExecResult{Stdout: "x"}) })
	_, _, err = f.AwaitExec(f.ctx, h, "c1", 0)
	ok(t, err)
	ok(t, f.OrderExec(f.ctx, h, execOrder("c1"))) // it is over, and not asked for again
	for i := range 16 {
		ok(t, f.OrderExec(f.ctx, h, execOrder(fmt.Sprint("m", i))))
	}
	refused(t, f.OrderExec(f.ctx, h, execOrder("m16")), picket.CodeRateLimited)
	f.jumpStoreTime(t, time.Minute)
	_, err = f.Renew(f.ctx, h)
	ok(t, err)
	refused(t, f.ExecResult(f.ctx, h, "m1", picket.ExecResult{}), picket.CodeStateConflict)
	ok(t, f.OrderExec(f.ctx, h, execOrder("m17")))
	f.cancelAll(t)
}
