package orchestrator_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// addAgents registers m1, who holds a lease, and m2, who is gone by now.
func (s *inspectFixture) addAgents() picket.Task {
	s.t.Helper()
	for _, id := range []string{"m1", "m2"} {
		if a, _, err := s.Agent(s.ctx, id); err != nil || a.Status.Gone() { // another scene may have been here
			s.mustRegister(s.t, picket.Registration{AgentID: id, RoleID: "mender"})
		}
	}
	task := s.mustSubmit(s.t, picket.TaskSpec{Role: "mender"})
	with := agentOwner
	with.Key = s.mustCreateKey(s.t, picket.ScopeAgent)
	s.key = with.Key
	leases, err := s.Acquire(s.ctx, with, picket.AcquireRequest{AgentID: "m1", Role: "mender"})
	ok(s.t, err)
	_, err = s.Renew(s.ctx, s.openLease(s.t, leases[0]))
	ok(s.t, err)
	_, err = s.CommandAgent(s.ctx, agentOwner, "m1", picket.AgentCommand{Command: picket.CommandPing})
	ok(s.t, err)
	_, err = s.Deregister(s.ctx, agentOwner, "m2", nil)
	ok(s.t, err)
	return task
}

// addOrphanAgent is a damage of one entry of an agent that has no record.
func addOrphanAgent(key string) func(s *inspectFixture) {
	return func(s *inspectFixture) { s.rawCommand("ZADD", key, 0, "m9") }
}

// agentLeasesKey is the key of what m1 holds.
func (s *inspectFixture) agentLeasesKey() string {
	a, _, err := s.Agent(s.ctx, "m1")
	ok(s.t, err)
	return fmt.Sprint("holder:m1:", a.Incarnation)
}

// rawDamage is a damage by one command.
func rawDamage(command, key string, args ...any) func(s *inspectFixture) {
	return func(s *inspectFixture) { s.rawCommand(command, key, args...) }
}

// agentDamages are those of agents and of who holds what.
var agentDamages = []damage{
	{kind: "agent_damaged", what: "no such status", plant: rawDamage("HSET", "agent:m1", "status", "lost")},
	{kind: "agent_damaged", what: "a field is gone", plant: rawDamage("HDEL", "agent:m1", "beat_at")},
	{kind: "entry_orphaned", what: "silence", plant: addOrphanAgent("silence")},
	{kind: "entry_orphaned", what: "roster", plant: addOrphanAgent("roster:unhealthy")},
	{kind: "entry_orphaned", what: "roster of the gone", plant: addOrphanAgent("roster:dead")},
	{kind: "silence_missing", what: "never judged", plant: rawDamage("ZREM", "silence", "m1")},
	{kind: "silence_extra", what: "gone but judged", plant: rawDamage("ZADD", "silence", farScore, "m2")},
	{kind: "silence_late", what: "judged next year", plant: rawDamage("ZADD", "silence", farScore, "m1")},
	{kind: "roster_missing", what: "not listed", plant: rawDamage("ZREM", "roster:active", "m1")},
	{
		kind:  "roster_missing",
		what:  "not listed by role",
		also:  []string{"pool_count"},
		plant: rawDamage("ZREM", "roster:active|mender", "m1"),
	},
	{kind: "roster_extra", what: "active and dead", plant: rawDamage("ZADD", "roster:dead", 0, "m1")},
	{
		kind: "roster_extra",
		what: "in another pool",
		also: []string{"pool_count", "pool_missing"},
		plant: func(s *inspectFixture) {
			s.rawCommand("ZADD", "roster:active|coder", 0, "m1")
			s.rawCommand("HSET", "pools", "coder", 0)
		},
	},
	{kind: "roster_score", what: "out of order", plant: rawDamage("ZADD", "roster:active", 7, "m1")},
	{kind: "pool_count", what: "one too many", plant: rawDamage("HSET", "pools", "mender", 3)},
	{kind: "pool_count", what: "none", plant: rawDamage("HDEL", "pools", "mender")},
	{kind: "pool_missing", what: "not listed", plant: rawDamage("ZREM", "pools:names", "mender")},
	{kind: "pool_extra", what: "of no agent", plant: rawDamage("ZADD", "pools:names", 0, "nobody")},
	{kind: "pool_score", what: "out of order", plant: rawDamage("ZADD", "pools:names", 7, "mender")},
	{kind: "role_missing", what: "not counted", plant: rawDamage("HDEL", "roles-of:"+agentOwner.Actor, "mender")},
	{
		kind:  "role_missing",
		what:  "not listed",
		plant: rawDamage("ZREM", "roles-of:"+agentOwner.Actor+":names", "mender"),
	},
	{
		kind:  "role_score",
		what:  "out of order",
		plant: rawDamage("ZADD", "roles-of:"+agentOwner.Actor+":names", 7, "mender"),
	},
	{kind: "gone_missing", what: "never deleted", plant: rawDamage("ZREM", "gone", "m2")},
	{kind: "gone_extra", what: "deleted while active", plant: rawDamage("ZADD", "gone", 1, "m1")},
	{kind: "commands_differ", what: "never sent", plant: rawDamage("HSET", "agent:m1", "commands", 0)},
	{
		kind:  "holder_missing",
		what:  "its death would not end it",
		plant: func(s *inspectFixture) { s.rawCommand("DEL", s.agentLeasesKey()) },
	},
	{
		kind:  "holder_extra",
		what:  "of nobody",
		plant: func(s *inspectFixture) { s.rawCommand("ZADD", s.agentLeasesKey(), 9, s.head.TaskID) },
	},
	{
		kind:  "lease_of_gone",
		what:  "deregistered",
		also:  []string{"roster_extra", "roster_missing", "silence_extra", "gone_missing"},
		plant: rawDamage("HSET", "agent:m1", "status", "deregistered"),
	},
	{
		kind:  "key_lease_missing",
		what:  "its revocation would not end it",
		plant: func(s *inspectFixture) { s.rawCommand("DEL", "leases-of:"+s.key) },
	},
	{
		kind:  "key_lease_extra",
		what:  "of nobody",
		plant: func(s *inspectFixture) { s.rawCommand("ZADD", "leases-of:"+s.key, 9, s.head.TaskID) },
	},
	{
		kind:  "lease_of_revoked",
		what:  "nothing ends it",
		plant: func(s *inspectFixture) { s.rawCommand("HSET", "key:"+s.key, "leases", "ended") },
	},
	{kind: "lease_of_gone", what: "of an earlier registration", plant: rawDamage("HSET", "agent:m1", "incarnation", 7)},
}

func allDamages() []damage { return slices.Concat(taskDamages, agentDamages, moneyDamages) }

func randomDamage(rnd *rand.Rand) damage {
	all := allDamages()
	return all[rnd.IntN(len(all))]
}

// A lease that outlived its agent ends by the repair, for the reason for which
// the agent is gone; a silence that was lost comes back, and is judged.
func TestRepairsOfAgentsTakeEffect(t *testing.T) {
	rig.SkipShort(t)
	onBothStores(t, func(t *testing.T, f *fixture) {
		s := newInspectFixture(t, f)
		s.rawCommand("HSET", "agent:m1", "status", "dead", "reason", "drain_timeout")
		s.inspectPass(true)
		_, err := f.RunChores(f.ctx, 100)
		ok(t, err)
		task := f.wantState(t, s.agentTask.TaskID, picket.TaskQueued)
		if exit := task.Runs[0].Exit; exit == nil || exit.Class != picket.ExitReleased || task.Failures != 0 {
			t.Errorf("it ended as %+v with %d failures", exit, task.Failures)
		}
		f.mustRegister(t, picket.Registration{AgentID: "m3"})
		s.rawCommand("DEL", "silence")
		f.runReaperFor(t, 400*time.Second)
		_, err = f.JudgeAgents(f.ctx, 100)
		ok(t, err)
		s.inspectPass(true)
		_, err = f.JudgeAgents(f.ctx, 100)
		ok(t, err)
		if a, _, err := f.Agent(f.ctx, "m3"); err != nil || a.Status != picket.AgentDead {
			t.Errorf("%+v, %v", a, err)
		}
		checkInvariants(t, f.Engine)
	})
}
