package orchestrator_test

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A store that was stopped under a mark serves nobody. It is put into service by the same
// mark only, once, and its leases go on under their tokens.
func TestAStoreGoesOnUnderTheMarkOfItsStop(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		kit.OK(t, kit.CheckStopMark(t, f.Fixture))
		if n := kit.CountEventsOf(t, f.Fixture, picket.EventStoreAdopted); n != 0 {
			t.Errorf("it was adopted %d times", n)
		}
	})
}

// A client that writes on while the store is stopped is refused. One that may adopt makes
// the mark worthless.
func TestAnAdoptionEndsTheMark(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		first := f.AcquireOne(t, picket.AcquireRequest{})
		kit.OK(t, kit.MarkStop(f.Ctx, f.Engine, 0, 0, "m1"))
		f.MustSubmit(t, picket.TaskSpec{}) // by a process with a witness
		second := f.AcquireOne(t, picket.AcquireRequest{})
		stats, err := f.Stats(f.Ctx)
		kit.OK(t, err)
		if stats.Floor == 0 || second.FencingToken <= stats.Floor || first.FencingToken > stats.Floor {
			t.Fatalf("granted %d, then %d at floor %d", first.FencingToken, second.FencingToken, stats.Floor)
		}
		for _, floor := range []int64{0, stats.Floor} {
			kit.Refused(t, kit.TakeMark(f.Ctx, f.Engine, floor, "m1"), picket.CodeUnavailable)
		}
	})
}
