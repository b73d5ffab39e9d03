package attacks

import (
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// AttackAudit has an agent act with a person's key, the person act on the agent,
// and then repair a lost deadline and a stray lease of a key. The agent has the
// name of that person's key.
func AttackAudit(h *Attacker) {
	const id = "key_a"
	agent, person := picket.Caller{Actor: id}, picket.Caller{Actor: id, Operator: true}

	_, err := h.Register(h.Ctx, agent, picket.Registration{AgentID: id})
	h.OK(err)
	command, err := h.CommandAgent(h.Ctx, agent, id, picket.AgentCommand{Command: picket.CommandPing})
	h.OK(err)
	_, err = h.Heartbeat(h.Ctx, person, id,
		picket.Heartbeat{
			Status:          picket.AgentDraining,
			ClientTimestamp: picket.InstantOf(time.Now()),
			HandledCommands: []string{command},
		})
	h.OK(err)
	_, err = h.Deregister(h.Ctx, agent, id, nil)
	h.OK(err)
	_, err = h.Register(h.Ctx, agent, picket.Registration{AgentID: id})
	h.OK(err)
	_, err = h.ChangeAgent(h.Ctx, agent, id, nil, kit.DrainChange)
	h.OK(err)
	_, err = h.CommandAgent(h.Ctx, person, id, picket.AgentCommand{Command: picket.CommandPing})
	h.OK(err)
	_, err = h.Deregister(h.Ctx, person, id, nil)
	h.OK(err)
	task, err := h.Submit(h.Ctx, kit.Operator, picket.TaskSpec{Title: "x"})
	h.OK(err)
	_, err = h.Acquire(h.Ctx, agent, picket.AcquireRequest{AgentID: "a1"})
	h.OK(err)
	h.OK(h.Raw.ZRem(h.Ctx, h.Prefix+"deadlines", task.TaskID).Err())
	k, err := h.CreateKey(h.Ctx, kit.Operator, picket.KeyRequest{Name: "k", Scopes: []picket.Scope{picket.ScopeAgent}})
	h.OK(err)
	h.OK(h.Raw.ZAdd(h.Ctx, h.Prefix+"leases-of:"+k.KeyID, redis.Z{Score: 1, Member: "task_gone"}).Err())
	_, err = h.Inspect(h.Ctx, person, picket.InspectRequest{Repair: true})
	h.OK(err)

	page, err := h.Events(h.Ctx, picket.EventQuery{Audit: true})
	h.OK(err)
	var got []string
	for _, ev := range page.Events {
		got = append(got, ev.Type+" by "+ev.Actor)
	}
	want := []string{"agent.command by key_a", "agent.lifecycle by key_a", "task.submitted by " + kit.Operator.Actor,
		"key.created by " + kit.Operator.Actor, "invariant.repaired by key_a", "invariant.repaired by key_a"}
	if !slices.Equal(got, want) {
		h.Fatalf("the audit log has %q, want %q", got, want)
	}
}
