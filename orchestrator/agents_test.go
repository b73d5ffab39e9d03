package orchestrator_test

import (
	"errors"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func TestRegisterAndHeartbeat(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		a := f.MustRegister(t, picket.Registration{
			AgentID:      "a1",
			RoleID:       "billing",
			Capabilities: []string{"z", "a"},
			Metadata:     picket.RawJSON(`{"n":12345678901234567890}`),
			Capacity:     &picket.DeclaredCapacity{MaxConcurrentTasks: kit.Ptr(5)},
		})
		if a.Version != 1 || a.Status != picket.AgentActive || a.Incarnation != 1 ||
			string(a.Metadata) != `{"n":12345678901234567890}` || a.Capabilities[0] != "z" {
			t.Fatalf("registered %+v", a)
		}
		f.tickFor(t, time.Second)
		got := f.MustHeartbeat(t, "a1")
		after := f.wantAgent(t, "a1", picket.AgentActive)
		if !got.Acknowledged || got.AgentStatus != picket.AgentActive || got.PendingCommands == nil ||
			len(got.PendingCommands) > 0 ||
			after.LastHeartbeatAt != got.ServerTimestamp || after.RegisteredAt != a.RegisteredAt || after.Version != 1 {
			t.Fatalf("heartbeat %+v, then %+v", got, after)
		}
		page, err := f.Agents(f.Ctx, picket.AgentQuery{})
		kit.OK(t, err)
		if page.Total != 1 || page.Agents[0].AgentID != "a1" {
			t.Fatalf("%+v", page)
		}
		_, err = f.Register(f.Ctx, kit.AgentOwner, picket.Registration{AgentID: "a1"})
		kit.Refused(t, err, picket.CodeStateConflict)
	})
}

func refusalOf(err error) *picket.Error {
	var e *picket.Error
	errors.As(err, &e)
	return e
}
