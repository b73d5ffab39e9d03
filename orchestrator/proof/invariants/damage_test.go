package invariants

import (
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A lease that outlived its agent ends by the repair, for the reason for which
// the agent is gone; a silence that was lost comes back, and is judged.
func TestRepairsOfAgentsTakeEffect(t *testing.T) {
	rig.SkipShort(t)
	kit.OnBothStores(t, func(t *testing.T, f *kit.Fixture) {
		s := NewInspectFixture(t, f)
		s.rawCommand("HSET", "agent:m1", "status", "dead", "reason", "drain_timeout")
		s.InspectPass(true)
		_, err := f.RunChores(f.Ctx, 100)
		kit.OK(t, err)
		task := f.WantState(t, s.agentTask.TaskID, picket.TaskQueued)
		if exit := task.Runs[0].Exit; exit == nil || exit.Class != picket.ExitReleased || task.Failures != 0 {
			t.Errorf("it ended as %+v with %d failures", exit, task.Failures)
		}
		f.MustRegister(t, picket.Registration{AgentID: "m3"})
		s.rawCommand("DEL", "silence")
		f.RunReaperFor(t, 400*time.Second)
		_, err = f.JudgeAgents(f.Ctx, 100)
		kit.OK(t, err)
		s.InspectPass(true)
		_, err = f.JudgeAgents(f.Ctx, 100)
		kit.OK(t, err)
		if a, _, err := f.Agent(f.Ctx, "m3"); err != nil || a.Status != picket.AgentDead {
			t.Errorf("%+v, %v", a, err)
		}
		kit.CheckInvariants(t, f.Engine)
	})
}

// The scanner looks at every lease of a key, in steps, also behind many that are
// as they should be.
func TestTheScannerSeesEveryLeaseOfAKey(t *testing.T) {
	rig.SkipShort(t)
	kit.OnBothStores(t, func(t *testing.T, f *kit.Fixture) {
		first := f.AcquireWithNewKey(t, 1)
		many := f.AcquireWithNewKey(t, 150)
		last := f.AcquireWithNewKey(t, 2)
		for _, key := range []string{first, many, last} {
			f.AddOrphanLeases(t, key, 3)
		}
		found, err := kit.InspectAll(f.Ctx, f.Engine, true)
		kit.OK(t, err)
		if len(found) != 9 {
			t.Errorf("a pass found %d of 9 strays: %+v", len(found), found)
		}
		for key, want := range map[string]int64{first: 1, many: 150, last: 2} {
			if n := f.Raw.ZCard(f.Ctx, "pk:{default}:leases-of:"+key).Val(); n != want {
				t.Errorf("%d leases are listed with %s, want %d", n, key, want)
			}
		}
		f.AddOrphanLeases(t, many, 3)
		for range 60 { // the reaper's small steps
			kit.OK(t, f.InspectNext(f.Ctx, 20))
		}
		if n := f.Raw.ZCard(f.Ctx, "pk:{default}:leases-of:"+many).Val(); n != 150 {
			t.Errorf("%d leases are listed after the steps of the reaper", n)
		}
		kit.CheckInvariants(t, f.Engine)
	})
}

// Every kind of damage is found, told once, and repaired where that is safe;
// then the next pass finds nothing. A half of the damages is tried each day.
func TestDamageIsFoundAndRepaired(t *testing.T) {
	rig.SkipShort(t)
	for i, d := range AllDamages() {
		if !rig.OfToday(i, 2) {
			continue
		}
		t.Run(d.name(), func(t *testing.T) {
			kit.OnBothStores(t, func(t *testing.T, f *kit.Fixture) { d.check(t, NewInspectFixture(t, f)) })
		})
	}
	covered := map[string]bool{}
	for _, d := range AllDamages() {
		covered[d.Kind] = true
	}
	for kind := range picket.InvariantKinds {
		if !covered[kind] {
			t.Errorf("no damage of kind %s was planted", kind)
		}
	}
}

// A lost deadline comes back short: the holder who lives renews it, the lease
// of one who does not ends.
func TestALostDeadlineComesBackShort(t *testing.T) {
	rig.SkipShort(t)
	kit.OnBothStores(t, func(t *testing.T, f *kit.Fixture) {
		_, lives := f.SubmitAndLease(t, picket.TaskSpec{})
		dead, died := f.SubmitAndLease(t, picket.TaskSpec{})
		for _, h := range []picket.LeaseCredential{lives, died} {
			_, err := f.Renew(f.Ctx, h)
			kit.OK(t, err)
			kit.OK(t, f.Raw.ZRem(f.Ctx, "pk:{default}:deadlines", h.TaskID).Err())
		}
		f.RunReaperFor(t, 6*time.Minute)
		f.WantState(t, dead.TaskID, picket.TaskLeased) // for ever except for the repair
		kit.OK(t, f.InspectNext(f.Ctx, 100))
		r, err := f.Renew(f.Ctx, lives)
		kit.OK(t, err)
		if r.LeaseTTLMs != 300_000 {
			t.Fatalf("renewed for %d ms", r.LeaseTTLMs)
		}
		f.RunReaperFor(t, 31*time.Second)
		f.WantState(t, dead.TaskID, picket.TaskQueued)
		f.WantState(t, lives.TaskID, picket.TaskLeased)
		_, err = f.Renew(f.Ctx, died)
		kit.Refused(t, err, picket.CodeLeaseExpired)
		kit.CheckInvariants(t, f.Engine)
	})
}

// Inspectors side by side repair each thing once.
func TestInspectorsSideBySideRepairOnce(t *testing.T) {
	s := rig.Real(t)
	f := kit.OpenFixture(t, s)
	defer f.Close()
	const tasks = 300
	for range tasks {
		f.MustSubmit(t, picket.TaskSpec{})
	}
	for range 3 {
		_, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1", Max: kit.Ptr(100)})
		kit.OK(t, err)
	}
	kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:deadlines").Err())
	type answer struct {
		found []picket.Violation
		err   error
	}
	answers := make(chan answer)
	for range 4 {
		other := kit.OpenFixture(t, s)
		defer other.Close()
		go func() {
			found, err := kit.InspectAll(f.Ctx, other.Engine, true)
			answers <- answer{found, err}
		}()
	}
	repaired := 0
	for range 4 {
		a := <-answers
		kit.OK(t, a.err)
		repaired += len(a.found)
	}
	page, err := f.Events(f.Ctx, picket.EventQuery{Types: []string{picket.EventInvariantRepaired}, Limit: 1000})
	kit.OK(t, err)
	if repaired != tasks || len(page.Events) != tasks {
		t.Errorf("%d repairs and %d events for %d lost deadlines", repaired, len(page.Events), tasks)
	}
	kit.CheckInvariants(t, f.Engine)
}
