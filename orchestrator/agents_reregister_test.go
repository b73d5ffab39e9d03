package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A registration that is repeated after the next one of the same id is told
// that it was followed: with the other's incarnation two processes would be one.
func TestARepeatedRegistrationIsNotTheNext(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		keyed := func(key string) picket.Caller {
			return picket.Caller{
				Actor:       "key_owner",
				Idempotency: picket.Idempotency{Key: key, Body: fmt.Sprintf("%064d", 1)},
			}
		}
		first, err := f.Register(f.Ctx, keyed("first"), picket.Registration{AgentID: "a1"})
		kit.OK(t, err)
		again, err := f.Register(f.Ctx, keyed("first"), picket.Registration{AgentID: "a1"})
		kit.OK(t, err)
		_, err = f.Deregister(f.Ctx, kit.AgentOwner, "a1", nil)
		kit.OK(t, err)
		second, err := f.Register(f.Ctx, keyed("second"), picket.Registration{AgentID: "a1"})
		kit.OK(t, err)
		if again.Incarnation != first.Incarnation || second.Incarnation <= first.Incarnation {
			t.Fatalf("incarnations %d, %d, %d", first.Incarnation, again.Incarnation, second.Incarnation)
		}
		_, err = f.Register(f.Ctx, keyed("first"), picket.Registration{AgentID: "a1"})
		kit.Refused(t, err, picket.CodeAgentGone)
		again, err = f.Register(f.Ctx, keyed("second"), picket.Registration{AgentID: "a1"})
		kit.OK(t, err)
		if again.Incarnation != second.Incarnation {
			t.Errorf("the repeat of %d answers %d", second.Incarnation, again.Incarnation)
		}
	})
}

// A drain command is acknowledged by draining. An agent that only lists it as handled gets it
// again.
func TestADrainCommandEndsOnlyByDraining(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustRegister(t, picket.Registration{AgentID: "a1"})
		id, err := f.CommandAgent(f.Ctx, picket.Caller{Actor: "key_test", Operator: true}, "a1",
			picket.AgentCommand{Command: picket.CommandDrain})
		kit.OK(t, err)
		for range 2 {
			hb := kit.ActiveHeartbeat()
			hb.HandledCommands = []string{id}
			got, err := f.Heartbeat(f.Ctx, kit.AgentOwner, "a1", hb)
			kit.OK(t, err)
			if len(got.PendingCommands) != 1 || got.PendingCommands[0].CommandID != id ||
				got.AgentStatus != picket.AgentActive {
				t.Fatalf("%+v", got)
			}
		}
		hb := kit.ActiveHeartbeat()
		hb.Status, hb.HandledCommands = picket.AgentDraining, []string{id}
		got, err := f.Heartbeat(f.Ctx, kit.AgentOwner, "a1", hb)
		kit.OK(t, err)
		if len(got.PendingCommands) != 0 || got.AgentStatus != picket.AgentDraining {
			t.Errorf("%+v", got)
		}
	})
}

// Anyone who may not register an id is not sent to get a key that may not either.
func TestAForeignRegistrationIsRefusedTruthfully(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustRegister(t, picket.Registration{AgentID: "a1"})
		_, err := f.Deregister(f.Ctx, kit.AgentOwner, "a1", nil)
		kit.OK(t, err)
		_, err = f.Register(f.Ctx, kit.Operator, picket.Registration{AgentID: "a1"})
		kit.Refused(t, err, picket.CodeForbidden)
		if remedy := refusalOf(err).Remedy; strings.Contains(remedy, "operator") {
			t.Errorf("an operator is told: %s", remedy)
		}
		_, err = f.Heartbeat(f.Ctx, kit.AgentOwner, "nobody", kit.ActiveHeartbeat())
		kit.Refused(t, err, picket.CodeNotFound)
		if remedy := refusalOf(err).Remedy; !strings.Contains(remedy, "register") {
			t.Errorf("an agent that is unknown is told: %s", remedy)
		}
		_, err = f.CommandAgent(f.Ctx, kit.AgentOwner, "a1", picket.AgentCommand{Command: picket.CommandPing})
		kit.Refused(t, err, picket.CodeAgentGone)
		if remedy := refusalOf(err).Remedy; strings.Contains(remedy, "Stop all work") {
			t.Errorf("an operator is told: %s", remedy)
		}
	})
}
