package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// A lease that its agent's end has made void is void before anybody has ended
// it: it cannot be reclaimed after an adoption, and a repeated request does not
// show it again.
func TestVoidLeasesStayVoid(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		was := f.agentWithStatus(t, "a1", picket.AgentActive)
		for range 130 {
			f.mustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: ptr(3600)})
		}
		all := f.acquireAll(t, "a1", 130)
		f.mustSubmit(t, picket.TaskSpec{})
		once := picket.Caller{
			Actor:       "key_owner",
			Idempotency: picket.Idempotency{Key: "k", Body: fmt.Sprintf("%064d", 1)},
		}
		next := picket.AdvanceRequest{Output: picket.RawJSON(`1`), Acquire: picket.AcquireRequest{AgentID: "a1"}}
		done, err := f.Advance(f.ctx, f.openLease(t, was.lease), once, next)
		ok(t, err)
		if len(done.Leases) != 1 {
			t.Fatalf("advanced to %+v", done)
		}
		ok(t, f.raw.HSet(f.ctx, "pk:{default}:meta", "identity", "another server").Err())
		_, err = f.Renew(f.ctx, f.openLease(t, all[0])) // reclaims
		ok(t, err)
		_, err = f.Deregister(f.ctx, agentOwner, "a1", nil)
		ok(t, err)
		for _, l := range []picket.Lease{all[0], all[len(all)-1], done.Leases[0]} {
			_, err = f.Reclaim(f.ctx, f.openLease(t, l))
			refused(t, err, picket.CodeLeaseExpired)
		}
		again, err := f.Advance(f.ctx, f.openLease(t, was.lease), once, next)
		ok(t, err)
		if again.State != done.State || len(again.Leases) != 0 {
			t.Fatalf("advanced again to %+v", again)
		}
		f.runAllChores(t)
		left, err := f.Leases(f.ctx)
		ok(t, err)
		if len(left) != 0 {
			t.Fatalf("%d leases are left", len(left))
		}
	})
}

// A heartbeat moves the agent in the silence index, so that a sweep never
// looks at one that is well.
func TestSweepsDoNotLookAtTheHealthy(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustRegister(t, shortThresholds("a1"))
		for range 4 {
			f.tickFor(t, 1200*time.Millisecond)
			f.mustHeartbeat(t, "a1")
		}
		f.tickFor(t, 500*time.Millisecond)
		n, err := f.JudgeAgents(f.ctx, 100)
		ok(t, err)
		if n != 0 {
			t.Fatalf("a sweep looked at %d agents", n)
		}
		_, err = f.Deregister(f.ctx, agentOwner, "a1", nil)
		ok(t, err)
		f.tickFor(t, 10*time.Second)
		if n, err = f.JudgeAgents(f.ctx, 100); n != 0 || err != nil {
			t.Fatalf("a sweep looked at %d agents that are gone: %v", n, err)
		}
	})
}

// The end of old leases is not that of a drain which the next registration of
// their agent has begun; and however much of it is to be done, it keeps nothing
// else that is due waiting.
func TestOldLeasesEndBesideADrain(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustRegister(t, shortThresholds("a1"))
		for range 101 {
			f.mustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: ptr(3600)})
		}
		f.acquireAll(t, "a1", 101)
		_, err := f.Deregister(f.ctx, agentOwner, "a1", nil)
		ok(t, err)
		f.mustRegister(t, shortThresholds("a1"))
		f.mustDrain(t, "a1", drainChange)
		f.runAllChores(t)
		if left, err := f.Leases(f.ctx); err != nil || len(left) > 0 {
			t.Fatalf("%d leases are left: %v", len(left), err)
		}
		f.wantAgent(t, "a1", picket.AgentDraining)
		if got := f.mustHeartbeat(t, "a1"); got.AgentStatus != picket.AgentDeregistered {
			t.Fatalf("heartbeat %+v", got)
		}

		task := f.mustSubmit(t, picket.TaskSpec{Priority: ptr(9)})
		_, err = f.RequestHelp(f.ctx, f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a2"})),
			picket.HelpRequest{Question: "?", DeadlineSeconds: ptr(1), OnDeadline: picket.OnDeadlineDeny})
		ok(t, err)
		for i := range 150 {
			ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:chores", redis.Z{Member: fmt.Sprintf("dead:b%d:1:agent_dead", i)}).
				Err())
		}
		f.tickFor(t, 2*time.Second)
		f.wantState(t, task.TaskID, picket.TaskQueued)
		f.runAllChores(t)
		if left, err := f.raw.ZCard(f.ctx, "pk:{default}:chores").Result(); err != nil || left > 0 {
			t.Errorf("%d chores are left: %v", left, err)
		}
	})
}
