package branches

import (
	"slices"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/invariants"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverInspect plants every damage and has it looked at and repaired. What is
// only told stays, so each of those has a scene of its own.
func coverInspect(t *testing.T, f *fixture) {
	f.JumpStoreTime(t, 100*24*time.Hour) // all that other stops left behind is deleted
	_, err := f.ApplyRetention(f.Ctx, picket.Retention{}, 1000)
	kit.OK(t, err)
	s := invariants.NewInspectFixture(t, f.Fixture)
	for _, d := range invariants.AllDamages() {
		if picket.InvariantKinds[d.Kind] {
			d.Plant(s)
			s.InspectPass(true)
		}
	}
	if left := s.InspectPass(false); len(left) > 0 {
		t.Fatalf("after the repairs: %+v", left)
	}
	for _, d := range slices.Concat(invariants.TaskDamages, invariants.MoneyDamages, invariants.MessageDamages,
		invariants.SessionDamages, invariants.SessionMoneyDamages) {
		if !picket.InvariantKinds[d.Kind] {
			f.CancelAll(t)
			scene := invariants.NewInspectFixture(t, f.Fixture)
			d.Plant(scene)
			s.InspectPass(true)
			scene.EndSessions()
		}
	}
	invariants.AgentDamages[0].Plant(s) // nobody registers a damaged one again
	s.InspectPass(true)
	f.CancelAll(t)
	// One in the lane of its agent permanently: the end of the pin changes nothing.
	f.MustSubmit(t, picket.TaskSpec{Agent: "a1"})
	help, err := f.RequestHelp(f.Ctx, f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})),
		picket.HelpRequest{Question: "?"})
	kit.OK(t, err)
	_, err = f.Answer(f.Ctx, kit.Operator, help.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(`1`)})
	kit.OK(t, err)
	f.JumpStoreTime(t, 2*time.Minute)
	kit.OK(t, f.Tick(f.Ctx))
	// More in one lane than one look takes.
	for range 150 {
		f.MustSubmit(t, picket.TaskSpec{Role: "many"})
	}
	// Keys with many leases, some of which are not theirs.
	for range 3 {
		f.AddOrphanLeases(t, f.AcquireWithNewKey(t, 1), 150)
	}
	for range 80 {
		kit.OK(t, f.InspectNext(f.Ctx, 20))
	}
	f.CancelAll(t)
}
