package storeloss

import (
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A store that was emptied, or that came back with an older state, gives no
// incarnation twice: anyone who held one before is not taken for a later one.
func TestIncarnationsRiseWhenTheStoreForgetsReal(t *testing.T) {
	f := kit.OpenFixture(t, rig.Real(t))
	defer f.Close()
	f.MustRegister(t, picket.Registration{AgentID: "a1"})
	older, err := f.Raw.HGetAll(f.Ctx, kit.Meta).Result()
	kit.OK(t, err)
	last := f.MustRegister(t, picket.Registration{AgentID: "a2"}).Incarnation
	for _, lose := range []func(){
		func() {
			kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, older).Err())
			kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "identity", "another server").Err())
		},
		func() { kit.OK(t, f.Raw.FlushDB(f.Ctx).Err()) },
	} {
		lose()
		kit.OK(t, kit.EnsureAdopted(f.Ctx, f.Engine))
		a := f.MustRegister(t, picket.Registration{AgentID: "later"})
		if a.Incarnation <= last {
			t.Errorf("incarnation %d was given after %d", a.Incarnation, last)
		}
		last = a.Incarnation
		_, err := f.Deregister(f.Ctx, kit.AgentOwner, "later", nil)
		kit.OK(t, err)
	}
	kit.CheckInvariants(t, f.Engine)
}

// A file of before a second registration really comes back: the later one's
// heartbeats go on, its lease is refused, and no incarnation is given twice.
func TestAnAgentOfAnOlderFileReal(t *testing.T) {
	server := rig.StartDurableServer(t)
	f := kit.OpenFixture(t, server.Store())
	defer f.Close()
	f.MustRegister(t, picket.Registration{AgentID: "a1", RoleID: "mender"})
	f.MustSubmit(t, picket.TaskSpec{Role: "mender"})
	mark := server.Size()
	_, err := f.Deregister(f.Ctx, kit.AgentOwner, "a1", nil)
	kit.OK(t, err)
	second := f.MustRegister(t, picket.Registration{AgentID: "a1", RoleID: "mender"})
	leases, err := f.Acquire(f.Ctx, kit.AgentOwner,
		picket.AcquireRequest{AgentID: "a1", Role: "mender", Incarnation: second.Incarnation})
	kit.OK(t, err)
	held := f.OpenLease(t, leases[0])
	server.Kill()
	server.CutTail(func(int64) int64 { return mark })
	server.Start()
	kit.OK(t, kit.EnsureAdopted(f.Ctx, f.Engine))
	if a, _, err := f.Agent(f.Ctx, "a1"); err != nil || a.Incarnation >= second.Incarnation {
		t.Fatalf("nothing was forgotten: %+v, %v", a, err)
	}
	_, err = f.Heartbeat(f.Ctx, kit.AgentOwner, "a1",
		picket.Heartbeat{Status: picket.AgentActive, Incarnation: second.Incarnation,
			ClientTimestamp: picket.Instant(time.Now().UnixMilli())})
	kit.OK(t, err)
	_, err = f.Renew(f.Ctx, held)
	kit.Refused(t, err, picket.CodeLeaseExpired)
	again, err := f.Acquire(f.Ctx, kit.AgentOwner,
		picket.AcquireRequest{AgentID: "a1", Role: "mender", Incarnation: second.Incarnation})
	kit.OK(t, err)
	if len(again) != 1 || again[0].FencingToken <= leases[0].FencingToken {
		t.Fatalf("granted %+v after token %d", again, leases[0].FencingToken)
	}
	_, err = f.Deregister(f.Ctx, kit.AgentOwner, "a1", nil)
	kit.OK(t, err)
	_, err = f.Renew(f.Ctx, f.OpenLease(t, again[0]))
	kit.Refused(t, err, picket.CodeLeaseExpired)
	third := f.MustRegister(t, picket.Registration{AgentID: "a1", RoleID: "mender"})
	if third.Incarnation <= second.Incarnation {
		t.Errorf("incarnation %d was given after %d", third.Incarnation, second.Incarnation)
	}
	kit.CheckInvariants(t, f.Engine)
}
