package orchestrator_test

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// auditMutants are planted bugs of what the audit log has a copy of.
var auditMutants = []mutant{
	{"an operator with the key of an agent counts as the agent", []edit{{"_agent", "a.owner == by and operator ~= '1'", "a.owner == by"}}},
	{"a heartbeat counts as an operator's act", []edit{{"heartbeat", "acting(id, a, by, '0')", "acting(id, a, by, ARGV[3])"}}},
	{"an agent that is named like a key is audited", []edit{{"_prelude", "'person' and not agent_acts and", "'person' and"}}},
	{"an operator's act on an agent with the name of its key is not audited", []edit{{"_prelude", "not agent_acts and", "e.actor ~= e.agent and"}}},
	{"a repair that an operator made is not audited", []edit{{"_prelude", ", ['invariant.repaired'] = 'person',", ","}}},
}

// The story holds without a planted bug.
func TestTheAuditLogHolds(t *testing.T) {
	if v := auditHunt(t, &unpatched); v.found {
		t.Error(v.said)
	}
}

// auditHunt shows a planted bug to a short story of an agent and an operator.
func auditHunt(t *testing.T, bug *patch) (v verdict) {
	synctest.Test(t, func(t *testing.T) {
		v = judge(t, func(rt *rapid.T, n int) {
			if n > 1 {
				return // it is the same every time
			}
			s, stop := rig.Memory()
			defer stop()
			holdAudit(t, rt, s, bug)
		})
	})
	return v
}

// holdAudit has an agent act with a person's key, the person act on the agent,
// and then repair a lost deadline. The agent has the name of that key.
func holdAudit(t *testing.T, rt *rapid.T, s rig.Store, bug *patch) {
	must := func(err error) {
		if err != nil {
			rt.Fatalf("%v", err)
		}
	}
	ctx := t.Context()
	store, err := orchestrator.Open(ctx, orchestrator.Config{Redis: s.Redis, Memory: s.Memory, Namespaces: []string{"default"}, Sealer: rig.Sealer(),
		Witness: t.TempDir(), Found: true, Log: slog.New(slog.DiscardHandler)})
	must(err)
	defer store.Close()
	bug.to(store, usual)
	raw := redis.NewUniversalClient(&s.Redis)
	defer raw.Close()
	e := store.Engine("default")
	const id = "key_a"
	agent, person := picket.Caller{Actor: id}, picket.Caller{Actor: id, Operator: true}

	_, err = e.Register(ctx, agent, picket.Registration{AgentID: id})
	must(err)
	command, err := e.CommandAgent(ctx, agent, id, picket.AgentCommand{Command: picket.CommandPing})
	must(err)
	_, err = e.Heartbeat(ctx, person, id, picket.Heartbeat{Status: picket.AgentDraining, ClientTimestamp: picket.InstantOf(time.Now()), HandledCommands: []string{command}})
	must(err)
	_, err = e.Deregister(ctx, agent, id, nil)
	must(err)
	_, err = e.Register(ctx, agent, picket.Registration{AgentID: id})
	must(err)
	_, err = e.ChangeAgent(ctx, agent, id, nil, draining)
	must(err)
	_, err = e.CommandAgent(ctx, person, id, picket.AgentCommand{Command: picket.CommandPing})
	must(err)
	_, err = e.Deregister(ctx, person, id, nil)
	must(err)
	task, err := e.Submit(ctx, operator, picket.TaskSpec{Title: "x"})
	must(err)
	_, err = e.Acquire(ctx, agent, picket.AcquireRequest{AgentID: "a1"})
	must(err)
	must(raw.ZRem(ctx, "pk:{default}:deadlines", task.TaskID).Err())
	_, err = e.Inspect(ctx, person, picket.InspectRequest{Repair: true})
	must(err)

	page, err := e.Events(ctx, picket.EventQuery{Audit: true})
	must(err)
	var got []string
	for _, ev := range page.Events {
		got = append(got, ev.Type+" by "+ev.Actor)
	}
	want := []string{"agent.command by key_a", "agent.lifecycle by key_a", "task.submitted by " + operator.Actor, "invariant.repaired by key_a"}
	if !slices.Equal(got, want) {
		rt.Fatalf("the audit log has %q, want %q", got, want)
	}
}
