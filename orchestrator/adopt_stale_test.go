package orchestrator_test

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// A new connection looks at the store; before it has thought about what it
// saw, grants go on over the others, again and again. What it saw is then old,
// but the store is not: nothing is adopted.
func TestAStaleIdentityAdoptsNothing(t *testing.T) {
	const grants = 5
	stores(t, func(t *testing.T, f *fixture, s rig.Store) {
		var e *orchestrator.Engine
		left := 0
		store := f.openProcess(t, s, orchestrator.Config{Witness: t.TempDir(), Fault: func(at string) error {
			if at == "redis.identify.after" && left > 0 {
				left--
				got, err := e.Acquire(f.ctx, operator, picket.AcquireRequest{})
				ok(t, err)
				if len(got) != 1 {
					t.Errorf("%d leases while the look was under way", len(got))
				}
			}
			return nil
		}})
		defer store.Close()
		e = store.Engine("default")
		for range grants + 1 {
			f.mustSubmit(t, picket.TaskSpec{})
		}
		_, err := e.Acquire(f.ctx, operator, picket.AcquireRequest{})
		ok(t, err)
		left = grants
		ok(t, orchestrator.EnsureAdopted(f.ctx, e))
		if left == grants {
			t.Fatal("nothing was granted meanwhile")
		}
		if n := countEventsOf(t, f, picket.EventStoreAdopted); n != 0 {
			t.Fatalf("the store was adopted %d times, though it was the same all along", n)
		}
	})
}
