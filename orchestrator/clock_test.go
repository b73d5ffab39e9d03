package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// A jump of the server's clock moves store time by one second at most, and
// never back by more than the tenth of a second it is kept to: nobody is expired early, no second holder starts.
func TestClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, -3 * time.Second, 3 * time.Second, time.Hour,
		10 * 365 * 24 * time.Hour} {
		t.Run(fmt.Sprint(jump), func(t *testing.T) {
			onBothStores(t, func(t *testing.T, f *fixture) {
				task := f.mustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: ptr(60)})
				h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
				_, err := f.Renew(f.ctx, h)
				ok(t, err)
				ok(t, f.Tick(f.ctx))
				before, err := f.Stats(f.ctx)
				ok(t, err)
				// The clock read last is set back: the next reading is a jump.
				ok(t, f.raw.HIncrBy(f.ctx, "pk:{default}:meta", "raw", -jump.Milliseconds()).Err())
				ok(t, f.Tick(f.ctx))
				_, err = f.ExpireDue(f.ctx, 100)
				ok(t, err)
				after, err := f.Stats(f.ctx)
				ok(t, err)
				moved := int64(after.StoreTime - before.StoreTime)
				// Up to 100 ms had been read but not written when the clock stepped
				// back; 1 s is for the jump, the rest for a slow machine.
				if moved < -100 || moved > 2000 {
					t.Fatalf("store time moved %d ms", moved)
				}
				f.wantState(t, task.TaskID, picket.TaskLeased)
			})
		})
	}
}
