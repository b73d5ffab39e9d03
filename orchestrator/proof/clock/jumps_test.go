package clock

import (
	"fmt"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A jump of the server's clock moves store time by one second at most, and
// never back by more than the tenth of a second it is kept to: nobody is expired early, no second holder starts.
func TestClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, -3 * time.Second, 3 * time.Second, time.Hour,
		10 * 365 * 24 * time.Hour} {
		t.Run(fmt.Sprint(jump), func(t *testing.T) {
			kit.OnBothStores(t, func(t *testing.T, f *kit.Fixture) {
				task := f.MustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(60)})
				h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
				_, err := f.Renew(f.Ctx, h)
				kit.OK(t, err)
				kit.OK(t, f.Tick(f.Ctx))
				before, err := f.Stats(f.Ctx)
				kit.OK(t, err)
				// The clock read last is set back: the next reading is a jump.
				kit.OK(t, f.Raw.HIncrBy(f.Ctx, "pk:{default}:meta", "raw", -jump.Milliseconds()).Err())
				kit.OK(t, f.Tick(f.Ctx))
				_, err = f.ExpireDue(f.Ctx, 100)
				kit.OK(t, err)
				after, err := f.Stats(f.Ctx)
				kit.OK(t, err)
				moved := int64(after.StoreTime - before.StoreTime)
				// Up to 100 ms had been read but not written when the clock stepped
				// back; 1 s is for the jump, the rest for a slow machine.
				if moved < -100 || moved > 2000 {
					t.Fatalf("store time moved %d ms", moved)
				}
				f.WantState(t, task.TaskID, picket.TaskLeased)
			})
		})
	}
}
