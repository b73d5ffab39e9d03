package orchestrator_test

import (
	"errors"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// agentOwner is the key that registers agents in these tests.
var agentOwner = picket.Caller{Actor: "key_owner"}

func (f *fixture) mustRegister(t *testing.T, reg picket.Registration) picket.Agent {
	t.Helper()
	a, err := f.Register(f.ctx, agentOwner, reg)
	ok(t, err)
	return a
}

// acquireAsOwner leases one task to a registered agent, by its own key.
func (f *fixture) acquireAsOwner(t *testing.T, id string) picket.Lease {
	t.Helper()
	leases, err := f.Acquire(f.ctx, agentOwner, picket.AcquireRequest{AgentID: id})
	ok(t, err)
	if len(leases) != 1 {
		t.Fatalf("acquired %d leases, want 1", len(leases))
	}
	return leases[0]
}

func (f *fixture) mustHeartbeat(t *testing.T, id string) picket.HeartbeatAnswer {
	t.Helper()
	got, err := f.Heartbeat(f.ctx, agentOwner, id, activeHeartbeat())
	ok(t, err)
	return got
}

// activeHeartbeat is the heartbeat of an agent that is well.
func activeHeartbeat() picket.Heartbeat {
	return picket.Heartbeat{Status: picket.AgentActive, ClientTimestamp: picket.InstantOf(time.Now())}
}

func TestRegisterAndHeartbeat(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		a := f.mustRegister(t, picket.Registration{
			AgentID:      "a1",
			RoleID:       "billing",
			Capabilities: []string{"z", "a"},
			Metadata:     picket.RawJSON(`{"n":12345678901234567890}`),
			Capacity:     &picket.DeclaredCapacity{MaxConcurrentTasks: ptr(5)},
		})
		if a.Version != 1 || a.Status != picket.AgentActive || a.Incarnation != 1 ||
			string(a.Metadata) != `{"n":12345678901234567890}` || a.Capabilities[0] != "z" {
			t.Fatalf("registered %+v", a)
		}
		f.tickFor(t, time.Second)
		got := f.mustHeartbeat(t, "a1")
		after := f.wantAgent(t, "a1", picket.AgentActive)
		if !got.Acknowledged || got.AgentStatus != picket.AgentActive || got.PendingCommands == nil ||
			len(got.PendingCommands) > 0 ||
			after.LastHeartbeatAt != got.ServerTimestamp || after.RegisteredAt != a.RegisteredAt || after.Version != 1 {
			t.Fatalf("heartbeat %+v, then %+v", got, after)
		}
		page, err := f.Agents(f.ctx, picket.AgentQuery{})
		ok(t, err)
		if page.Total != 1 || page.Agents[0].AgentID != "a1" {
			t.Fatalf("%+v", page)
		}
		_, err = f.Register(f.ctx, agentOwner, picket.Registration{AgentID: "a1"})
		refused(t, err, picket.CodeStateConflict)
	})
}

func refusalOf(err error) *picket.Error {
	var e *picket.Error
	errors.As(err, &e)
	return e
}
