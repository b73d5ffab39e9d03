package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
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
		first, err := f.Register(f.ctx, keyed("first"), picket.Registration{AgentID: "a1"})
		ok(t, err)
		again, err := f.Register(f.ctx, keyed("first"), picket.Registration{AgentID: "a1"})
		ok(t, err)
		_, err = f.Deregister(f.ctx, agentOwner, "a1", nil)
		ok(t, err)
		second, err := f.Register(f.ctx, keyed("second"), picket.Registration{AgentID: "a1"})
		ok(t, err)
		if again.Incarnation != first.Incarnation || second.Incarnation <= first.Incarnation {
			t.Fatalf("incarnations %d, %d, %d", first.Incarnation, again.Incarnation, second.Incarnation)
		}
		_, err = f.Register(f.ctx, keyed("first"), picket.Registration{AgentID: "a1"})
		refused(t, err, picket.CodeAgentGone)
		again, err = f.Register(f.ctx, keyed("second"), picket.Registration{AgentID: "a1"})
		ok(t, err)
		if again.Incarnation != second.Incarnation {
			t.Errorf("the repeat of %d answers %d", second.Incarnation, again.Incarnation)
		}
	})
}

// An order to drain is honoured by draining; an agent that only calls it handled
// hears of it again.
func TestADrainCommandEndsOnlyByDraining(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustRegister(t, picket.Registration{AgentID: "a1"})
		id, err := f.CommandAgent(f.ctx, picket.Caller{Actor: "key_test", Operator: true}, "a1",
			picket.AgentCommand{Command: picket.CommandDrain})
		ok(t, err)
		for range 2 {
			hb := activeHeartbeat()
			hb.HandledCommands = []string{id}
			got, err := f.Heartbeat(f.ctx, agentOwner, "a1", hb)
			ok(t, err)
			if len(got.PendingCommands) != 1 || got.PendingCommands[0].CommandID != id ||
				got.AgentStatus != picket.AgentActive {
				t.Fatalf("%+v", got)
			}
		}
		hb := activeHeartbeat()
		hb.Status, hb.HandledCommands = picket.AgentDraining, []string{id}
		got, err := f.Heartbeat(f.ctx, agentOwner, "a1", hb)
		ok(t, err)
		if len(got.PendingCommands) != 0 || got.AgentStatus != picket.AgentDraining {
			t.Errorf("%+v", got)
		}
	})
}

// Anyone who may not register an id is not sent to get a key that may not either.
func TestAForeignRegistrationIsRefusedTruthfully(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustRegister(t, picket.Registration{AgentID: "a1"})
		_, err := f.Deregister(f.ctx, agentOwner, "a1", nil)
		ok(t, err)
		_, err = f.Register(f.ctx, operator, picket.Registration{AgentID: "a1"})
		refused(t, err, picket.CodeForbidden)
		if remedy := refusalOf(err).Remedy; strings.Contains(remedy, "operator") {
			t.Errorf("an operator is told: %s", remedy)
		}
		_, err = f.Heartbeat(f.ctx, agentOwner, "nobody", activeHeartbeat())
		refused(t, err, picket.CodeNotFound)
		if remedy := refusalOf(err).Remedy; !strings.Contains(remedy, "register") {
			t.Errorf("an agent that is unknown is told: %s", remedy)
		}
		_, err = f.CommandAgent(f.ctx, agentOwner, "a1", picket.AgentCommand{Command: picket.CommandPing})
		refused(t, err, picket.CodeAgentGone)
		if remedy := refusalOf(err).Remedy; strings.Contains(remedy, "Stop all work") {
			t.Errorf("an operator is told: %s", remedy)
		}
	})
}
