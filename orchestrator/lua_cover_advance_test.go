package orchestrator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// coverAdvance takes the ways from one task to the next.
func coverAdvance(t *testing.T, f *fixture) {
	_, h := f.submitAndLease(t, picket.TaskSpec{})
	f.mustSubmit(t, picket.TaskSpec{})
	next := func(h picket.LeaseCredential, by picket.Caller) func() error {
		return func() error {
			_, err := f.Advance(f.ctx, h, by, picket.AdvanceRequest{Acquire: picket.AcquireRequest{AgentID: "a1"}})
			return err
		}
	}
	f.callTwice(t, next(h, idempotent("g")))
	f.jumpStoreTime(t, time.Hour)
	ok(t, next(h, idempotent("g"))()) // the next lease has ended meanwhile
	conflicting := idempotent("g")
	conflicting.Idempotency.Body = strings.Repeat("c", 64)
	refused(t, next(h, conflicting)(), picket.CodeIdempotencyConflict)
	forged := h
	forged.Secret = strings.Repeat("0", 64)
	refused(t, next(forged, operator)(), picket.CodeLeaseExpired)
	f.cancelAll(t)
	// The tokens above the floor are used up.
	_, h = f.submitAndLease(t, picket.TaskSpec{})
	f.exhaustTokens(t, f.mustSubmit(t, picket.TaskSpec{}).TaskID)
	ok(t, next(h, operator)())
	f.cancelAll(t)
}

// exhaustTokens gives a task the last token that the floor is good for.
func (f *fixture) exhaustTokens(t *testing.T, task string) {
	t.Helper()
	stats, err := f.Stats(f.ctx)
	ok(t, err)
	ok(t, f.raw.HSet(f.ctx, "pk:{default}:task:"+task, "token", stats.Floor+1<<21).Err())
}
