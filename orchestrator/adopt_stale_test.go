package orchestrator_test

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A new connection looks at the store; before it has thought about what it
// saw, grants go on over the others, again and again. What it saw is then old,
// but the store is not: nothing is adopted.
func TestAStaleIdentityAdoptsNothing(t *testing.T) {
	const grants = 5
	stores(t, func(t *testing.T, f *fixture, s rig.Store) {
		var e *orchestrator.Engine
		left := 0
		store := f.OpenProcess(t, s, orchestrator.Config{Witness: t.TempDir(), Fault: func(at string) error {
			if at == "redis.identify.after" && left > 0 {
				left--
				got, err := e.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{})
				kit.OK(t, err)
				if len(got) != 1 {
					t.Errorf("%d leases while the look was under way", len(got))
				}
			}
			return nil
		}})
		defer store.Close()
		e = store.Engine("default")
		for range grants + 1 {
			f.MustSubmit(t, picket.TaskSpec{})
		}
		_, err := e.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{})
		kit.OK(t, err)
		left = grants
		kit.OK(t, kit.EnsureAdopted(f.Ctx, e))
		if left == grants {
			t.Fatal("nothing was granted meanwhile")
		}
		if n := kit.CountEventsOf(t, f.Fixture, picket.EventStoreAdopted); n != 0 {
			t.Fatalf("the store was adopted %d times, though it was the same all along", n)
		}
	})
}
