package orchestrator_test

import (
	"slices"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// coverInspect plants every damage and has it looked at and repaired. What is
// only told stays, so each of those has a scene of its own.
func coverInspect(t *testing.T, f *fixture) {
	f.jumpStoreTime(t, 100*24*time.Hour) // all that other stops left behind is deleted
	_, err := f.ApplyRetention(f.ctx, picket.Retention{}, 1000)
	ok(t, err)
	s := newInspectFixture(t, f)
	for _, d := range allDamages() {
		if picket.InvariantKinds[d.kind] {
			d.plant(s)
			s.inspectPass(true)
		}
	}
	if left := s.inspectPass(false); len(left) > 0 {
		t.Fatalf("after the repairs: %+v", left)
	}
	for _, d := range slices.Concat(taskDamages, moneyDamages) {
		if !picket.InvariantKinds[d.kind] {
			f.cancelAll(t)
			d.plant(newInspectFixture(t, f))
			s.inspectPass(true)
		}
	}
	agentDamages[0].plant(s) // nobody registers a damaged one again
	s.inspectPass(true)
	f.cancelAll(t)
	// One in the lane of its agent permanently: the end of the pin changes nothing.
	f.mustSubmit(t, picket.TaskSpec{Agent: "a1"})
	help, err := f.RequestHelp(f.ctx, f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"})),
		picket.HelpRequest{Question: "?"})
	ok(t, err)
	_, err = f.Answer(f.ctx, operator, help.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(`1`)})
	ok(t, err)
	f.jumpStoreTime(t, 2*time.Minute)
	ok(t, f.Tick(f.ctx))
	// More in one lane than one look takes.
	for range 150 {
		f.mustSubmit(t, picket.TaskSpec{Role: "many"})
	}
	// Keys with many leases, some of which are not theirs.
	for range 3 {
		f.addOrphanLeases(t, f.acquireWithNewKey(t, 1), 150)
	}
	for range 80 {
		ok(t, f.InspectNext(f.ctx, 20))
	}
	f.cancelAll(t)
}
