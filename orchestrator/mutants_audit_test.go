package orchestrator_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// auditMutants are planted bugs of what the audit log has a copy of.
var auditMutants = []mutant{
	{"an operator with the key of an agent counts as the agent",
		[]edit{{"_agent", "a.owner == by and operator ~= '1'", "a.owner == by"}}},
	{"a heartbeat counts as an operator's act",
		[]edit{{"heartbeat", "actor_name(id, a, by, '0')", "actor_name(id, a, by, ARGV[3])"}}},
	{"an agent that is named like a key is audited",
		[]edit{{"_prelude", "'person' and not actor_is_agent and", "'person' and"}}},
	{"an operator's act on an agent with the name of its key is not audited",
		[]edit{{"_prelude", "not actor_is_agent and", "e.actor ~= e.agent and"}}},
	{"the scanner skips the leases of keys",
		[]edit{{"inspect", "if score ~= from or id > at or id == at and pos ~= '0' then", "if false then"}}},
	{"a repair that an operator made is not audited",
		[]edit{{"_prelude", ", ['invariant.repaired'] = 'person',", ","}}},
}

// The story holds without a planted bug.
func TestAuditLogAttacks(t *testing.T) {
	if v := attackPhase(attackAudit)(t, &noPatch); v.found {
		t.Error(v.said)
	}
}

// attackAudit has an agent act with a person's key, the person act on the agent,
// and then repair a lost deadline and a stray lease of a key. The agent has the
// name of that person's key.
func attackAudit(h *attacker) {
	const id = "key_a"
	agent, person := picket.Caller{Actor: id}, picket.Caller{Actor: id, Operator: true}

	_, err := h.Register(h.ctx, agent, picket.Registration{AgentID: id})
	h.ok(err)
	command, err := h.CommandAgent(h.ctx, agent, id, picket.AgentCommand{Command: picket.CommandPing})
	h.ok(err)
	_, err = h.Heartbeat(h.ctx, person, id,
		picket.Heartbeat{
			Status:          picket.AgentDraining,
			ClientTimestamp: picket.InstantOf(time.Now()),
			HandledCommands: []string{command},
		})
	h.ok(err)
	_, err = h.Deregister(h.ctx, agent, id, nil)
	h.ok(err)
	_, err = h.Register(h.ctx, agent, picket.Registration{AgentID: id})
	h.ok(err)
	_, err = h.ChangeAgent(h.ctx, agent, id, nil, drainChange)
	h.ok(err)
	_, err = h.CommandAgent(h.ctx, person, id, picket.AgentCommand{Command: picket.CommandPing})
	h.ok(err)
	_, err = h.Deregister(h.ctx, person, id, nil)
	h.ok(err)
	task, err := h.Submit(h.ctx, operator, picket.TaskSpec{Title: "x"})
	h.ok(err)
	_, err = h.Acquire(h.ctx, agent, picket.AcquireRequest{AgentID: "a1"})
	h.ok(err)
	h.ok(h.raw.ZRem(h.ctx, h.prefix+"deadlines", task.TaskID).Err())
	k, err := h.CreateKey(h.ctx, operator, picket.KeyRequest{Name: "k", Scopes: []picket.Scope{picket.ScopeAgent}})
	h.ok(err)
	h.ok(h.raw.ZAdd(h.ctx, h.prefix+"leases-of:"+k.KeyID, redis.Z{Score: 1, Member: "task_gone"}).Err())
	_, err = h.Inspect(h.ctx, person, picket.InspectRequest{Repair: true})
	h.ok(err)

	page, err := h.Events(h.ctx, picket.EventQuery{Audit: true})
	h.ok(err)
	var got []string
	for _, ev := range page.Events {
		got = append(got, ev.Type+" by "+ev.Actor)
	}
	want := []string{"agent.command by key_a", "agent.lifecycle by key_a", "task.submitted by " + operator.Actor,
		"key.created by " + operator.Actor, "invariant.repaired by key_a", "invariant.repaired by key_a"}
	if !slices.Equal(got, want) {
		h.Fatalf("the audit log has %q, want %q", got, want)
	}
}
