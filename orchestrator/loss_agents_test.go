package orchestrator_test

import (
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// A store that was emptied, or that came back with an older state, gives no
// incarnation twice: anyone who held one before is not taken for a later one.
func TestIncarnationsRiseWhenTheStoreForgetsReal(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.close()
	f.mustRegister(t, picket.Registration{AgentID: "a1"})
	older, err := f.raw.HGetAll(f.ctx, meta).Result()
	ok(t, err)
	last := f.mustRegister(t, picket.Registration{AgentID: "a2"}).Incarnation
	for _, lose := range []func(){
		func() {
			ok(t, f.raw.HSet(f.ctx, meta, older).Err())
			ok(t, f.raw.HSet(f.ctx, meta, "identity", "another server").Err())
		},
		func() { ok(t, f.raw.FlushDB(f.ctx).Err()) },
	} {
		lose()
		ok(t, orchestrator.EnsureAdopted(f.ctx, f.Engine))
		a := f.mustRegister(t, picket.Registration{AgentID: "later"})
		if a.Incarnation <= last {
			t.Errorf("incarnation %d was given after %d", a.Incarnation, last)
		}
		last = a.Incarnation
		_, err := f.Deregister(f.ctx, agentOwner, "later", nil)
		ok(t, err)
	}
	checkInvariants(t, f.Engine)
}

// A file of before a second registration really comes back: the later one's
// heartbeats go on, its lease is refused, and no incarnation is given twice.
func TestAnAgentOfAnOlderFileReal(t *testing.T) {
	server := rig.StartDurableServer(t)
	f := openFixture(t, server.Store())
	defer f.close()
	f.mustRegister(t, picket.Registration{AgentID: "a1", RoleID: "mender"})
	f.mustSubmit(t, picket.TaskSpec{Role: "mender"})
	mark := server.Size()
	_, err := f.Deregister(f.ctx, agentOwner, "a1", nil)
	ok(t, err)
	second := f.mustRegister(t, picket.Registration{AgentID: "a1", RoleID: "mender"})
	leases, err := f.Acquire(f.ctx, agentOwner,
		picket.AcquireRequest{AgentID: "a1", Role: "mender", Incarnation: second.Incarnation})
	ok(t, err)
	held := f.openLease(t, leases[0])
	server.Kill()
	server.CutTail(func(int64) int64 { return mark })
	server.Start()
	ok(t, orchestrator.EnsureAdopted(f.ctx, f.Engine))
	if a, _, err := f.Agent(f.ctx, "a1"); err != nil || a.Incarnation >= second.Incarnation {
		t.Fatalf("nothing was forgotten: %+v, %v", a, err)
	}
	_, err = f.Heartbeat(f.ctx, agentOwner, "a1",
		picket.Heartbeat{Status: picket.AgentActive, Incarnation: second.Incarnation,
			ClientTimestamp: picket.Instant(time.Now().UnixMilli())})
	ok(t, err)
	_, err = f.Renew(f.ctx, held)
	refused(t, err, picket.CodeLeaseExpired)
	again, err := f.Acquire(f.ctx, agentOwner,
		picket.AcquireRequest{AgentID: "a1", Role: "mender", Incarnation: second.Incarnation})
	ok(t, err)
	if len(again) != 1 || again[0].FencingToken <= leases[0].FencingToken {
		t.Fatalf("granted %+v after token %d", again, leases[0].FencingToken)
	}
	_, err = f.Deregister(f.ctx, agentOwner, "a1", nil)
	ok(t, err)
	_, err = f.Renew(f.ctx, f.openLease(t, again[0]))
	refused(t, err, picket.CodeLeaseExpired)
	third := f.mustRegister(t, picket.Registration{AgentID: "a1", RoleID: "mender"})
	if third.Incarnation <= second.Incarnation {
		t.Errorf("incarnation %d was given after %d", third.Incarnation, second.Incarnation)
	}
	checkInvariants(t, f.Engine)
}
