package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A lease that its agent's end has made void is void before anybody has ended
// it: it cannot be reclaimed after an adoption, and a repeated request does not
// show it again.
func TestVoidLeasesStayVoid(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		was := f.agentWithStatus(t, "a1", picket.AgentActive)
		for range 130 {
			f.MustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(3600)})
		}
		all := f.acquireAll(t, "a1", 130)
		f.MustSubmit(t, picket.TaskSpec{})
		once := picket.Caller{
			Actor:       "key_owner",
			Idempotency: picket.Idempotency{Key: "k", Body: fmt.Sprintf("%064d", 1)},
		}
		next := picket.AdvanceRequest{Output: picket.RawJSON(`1`), Acquire: picket.AcquireRequest{AgentID: "a1"}}
		done, err := f.Advance(f.Ctx, f.OpenLease(t, was.lease), once, next)
		kit.OK(t, err)
		if len(done.Leases) != 1 {
			t.Fatalf("advanced to %+v", done)
		}
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:meta", "identity", "another server").Err())
		_, err = f.Renew(f.Ctx, f.OpenLease(t, all[0])) // reclaims
		kit.OK(t, err)
		_, err = f.Deregister(f.Ctx, kit.AgentOwner, "a1", nil)
		kit.OK(t, err)
		for _, l := range []picket.Lease{all[0], all[len(all)-1], done.Leases[0]} {
			_, err = f.Reclaim(f.Ctx, f.OpenLease(t, l))
			kit.Refused(t, err, picket.CodeLeaseExpired)
		}
		again, err := f.Advance(f.Ctx, f.OpenLease(t, was.lease), once, next)
		kit.OK(t, err)
		if again.State != done.State || len(again.Leases) != 0 {
			t.Fatalf("advanced again to %+v", again)
		}
		f.runAllChores(t)
		left, err := f.Leases(f.Ctx)
		kit.OK(t, err)
		if left.Total != 0 {
			t.Fatalf("%d leases are left", left.Total)
		}
	})
}

// A heartbeat moves the agent in the silence index, so that a sweep never
// looks at one that is well.
func TestSweepsDoNotLookAtTheHealthy(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustRegister(t, shortThresholds("a1"))
		for range 4 {
			f.tickFor(t, 1200*time.Millisecond)
			f.MustHeartbeat(t, "a1")
		}
		f.tickFor(t, 500*time.Millisecond)
		n, err := f.JudgeAgents(f.Ctx, 100)
		kit.OK(t, err)
		if n != 0 {
			t.Fatalf("a sweep looked at %d agents", n)
		}
		_, err = f.Deregister(f.Ctx, kit.AgentOwner, "a1", nil)
		kit.OK(t, err)
		f.tickFor(t, 10*time.Second)
		if n, err = f.JudgeAgents(f.Ctx, 100); n != 0 || err != nil {
			t.Fatalf("a sweep looked at %d agents that are gone: %v", n, err)
		}
	})
}

// The end of old leases does not complete a drain that the next registration of their agent has
// begun. However many leases have to end, nothing else that is due waits for them.
func TestOldLeasesEndBesideADrain(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustRegister(t, shortThresholds("a1"))
		for range 101 {
			f.MustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(3600)})
		}
		f.acquireAll(t, "a1", 101)
		_, err := f.Deregister(f.Ctx, kit.AgentOwner, "a1", nil)
		kit.OK(t, err)
		f.MustRegister(t, shortThresholds("a1"))
		f.mustDrain(t, "a1", kit.DrainChange)
		f.runAllChores(t)
		if left, err := f.Leases(f.Ctx); err != nil || left.Total > 0 {
			t.Fatalf("%d leases are left: %v", left.Total, err)
		}
		f.wantAgent(t, "a1", picket.AgentDraining)
		if got := f.MustHeartbeat(t, "a1"); got.AgentStatus != picket.AgentDeregistered {
			t.Fatalf("heartbeat %+v", got)
		}

		task := f.MustSubmit(t, picket.TaskSpec{Priority: kit.Ptr(9)})
		_, err = f.RequestHelp(f.Ctx, f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a2"})),
			picket.HelpRequest{Question: "?", DeadlineSeconds: kit.Ptr(1), OnDeadline: picket.OnDeadlineDeny})
		kit.OK(t, err)
		for i := range 150 {
			kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:chores",
				redis.Z{Member: fmt.Sprintf("dead:b%d:1:agent_dead", i)}).
				Err())
		}
		f.tickFor(t, 2*time.Second)
		f.WantState(t, task.TaskID, picket.TaskQueued)
		f.runAllChores(t)
		if left, err := f.Raw.ZCard(f.Ctx, "pk:{default}:chores").Result(); err != nil || left > 0 {
			t.Errorf("%d chores are left: %v", left, err)
		}
	})
}
