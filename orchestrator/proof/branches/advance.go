package branches

import (
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverAdvance takes the ways from one task to the next.
func coverAdvance(t *testing.T, f *fixture) {
	_, h := f.SubmitAndLease(t, picket.TaskSpec{})
	f.MustSubmit(t, picket.TaskSpec{})
	next := func(h picket.LeaseCredential, by picket.Caller) func() error {
		return func() error {
			_, err := f.Advance(f.Ctx, h, by, picket.AdvanceRequest{Acquire: picket.AcquireRequest{AgentID: "a1"}})
			return err
		}
	}
	f.CallTwice(t, next(h, kit.Idempotent("g")))
	f.JumpStoreTime(t, time.Hour)
	kit.OK(t, next(h, kit.Idempotent("g"))()) // the next lease has ended meanwhile
	conflicting := kit.Idempotent("g")
	conflicting.Idempotency.Body = strings.Repeat("c", 64)
	kit.Refused(t, next(h, conflicting)(), picket.CodeIdempotencyConflict)
	forged := h
	forged.Secret = strings.Repeat("0", 64)
	kit.Refused(t, next(forged, kit.Operator)(), picket.CodeLeaseExpired)
	f.CancelAll(t)
	// The tokens above the floor are used up.
	_, h = f.SubmitAndLease(t, picket.TaskSpec{})
	f.ExhaustTokens(t, f.MustSubmit(t, picket.TaskSpec{}).TaskID)
	kit.OK(t, next(h, kit.Operator)())
	f.CancelAll(t)
}
