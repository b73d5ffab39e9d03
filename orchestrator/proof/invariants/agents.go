package invariants

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// addAgents registers m1, who holds a lease, and m2, who is gone by now.
func (s *inspectFixture) addAgents() picket.Task {
	s.t.Helper()
	for _, id := range []string{"m1", "m2"} {
		if a, _, err := s.Agent(s.Ctx, id); err != nil || a.Status.Gone() { // another scene may have been here
			s.MustRegister(s.t, picket.Registration{AgentID: id, RoleID: "mender",
				Metadata: picket.RawJSON(`{"agent_name":"ann"}`)})
		}
	}
	task := s.MustSubmit(s.t, picket.TaskSpec{Role: "mender"})
	with := kit.AgentOwner
	with.Key = s.MustCreateKey(s.t, picket.ScopeAgent)
	s.key = with.Key
	leases, err := s.Acquire(s.Ctx, with, picket.AcquireRequest{AgentID: "m1", Role: "mender"})
	kit.OK(s.t, err)
	_, err = s.Renew(s.Ctx, s.OpenLease(s.t, leases[0]))
	kit.OK(s.t, err)
	_, err = s.CommandAgent(s.Ctx, kit.AgentOwner, "m1", picket.AgentCommand{Command: picket.CommandPing})
	kit.OK(s.t, err)
	_, err = s.Deregister(s.Ctx, kit.AgentOwner, "m2", nil)
	kit.OK(s.t, err)
	return task
}

// addOrphanAgent is a damage of one entry of an agent that has no record.
func addOrphanAgent(key string) func(s *inspectFixture) {
	return func(s *inspectFixture) { s.rawCommand("ZADD", key, 0, "m9") }
}

// agentLeasesKey is the key of what m1 holds.
func (s *inspectFixture) agentLeasesKey() string {
	a, _, err := s.Agent(s.Ctx, "m1")
	kit.OK(s.t, err)
	return fmt.Sprint("holder:m1:", a.Incarnation)
}

// rawDamage is a damage by one command.
func rawDamage(command, key string, args ...any) func(s *inspectFixture) {
	return func(s *inspectFixture) { s.rawCommand(command, key, args...) }
}

// AgentDamages are those of agents and of the leases that they hold.
var AgentDamages = []damage{
	{Kind: "agent_damaged", what: "no such status", Plant: rawDamage("HSET", "agent:m1", "status", "lost")},
	{Kind: "agent_damaged", what: "a field is gone", Plant: rawDamage("HDEL", "agent:m1", "beat_at")},
	{Kind: "entry_orphaned", what: "silence", Plant: addOrphanAgent("silence")},
	{Kind: "entry_orphaned", what: "roster", Plant: addOrphanAgent("roster:unhealthy")},
	{Kind: "entry_orphaned", what: "roster of the gone", Plant: addOrphanAgent("roster:dead")},
	{Kind: "silence_missing", what: "never judged", Plant: rawDamage("ZREM", "silence", "m1")},
	{Kind: "silence_extra", what: "gone but judged", Plant: rawDamage("ZADD", "silence", farScore, "m2")},
	{Kind: "silence_late", what: "judged next year", Plant: rawDamage("ZADD", "silence", farScore, "m1")},
	{Kind: "roster_missing", what: "not listed", Plant: rawDamage("ZREM", "roster:active", "m1")},
	{
		Kind:  "roster_missing",
		what:  "not listed by role",
		also:  []string{"pool_count"},
		Plant: rawDamage("ZREM", "roster:active|mender", "m1"),
	},
	{Kind: "roster_extra", what: "active and dead", Plant: rawDamage("ZADD", "roster:dead", 0, "m1")},
	{
		Kind: "roster_extra",
		what: "in another pool",
		also: []string{"pool_count", "pool_missing"},
		Plant: func(s *inspectFixture) {
			s.rawCommand("ZADD", "roster:active|coder", 0, "m1")
			s.rawCommand("HSET", "pools", "coder", 0)
		},
	},
	{Kind: "roster_score", what: "out of order", Plant: rawDamage("ZADD", "roster:active", 7, "m1")},
	{Kind: "pool_count", what: "one too many", Plant: rawDamage("HSET", "pools", "mender", 3)},
	{Kind: "pool_count", what: "none", Plant: rawDamage("HDEL", "pools", "mender")},
	{Kind: "pool_missing", what: "not listed", Plant: rawDamage("ZREM", "pools:names", "mender")},
	{Kind: "pool_extra", what: "of no agent", Plant: rawDamage("ZADD", "pools:names", 0, "nobody")},
	{Kind: "pool_score", what: "out of order", Plant: rawDamage("ZADD", "pools:names", 7, "mender")},
	{Kind: "role_missing", what: "not counted", Plant: rawDamage("HDEL", "roles-of:"+kit.AgentOwner.Actor, "mender")},
	{
		Kind:  "role_missing",
		what:  "not listed",
		Plant: rawDamage("ZREM", "roles-of:"+kit.AgentOwner.Actor+":names", "mender"),
	},
	{
		Kind:  "role_score",
		what:  "out of order",
		Plant: rawDamage("ZADD", "roles-of:"+kit.AgentOwner.Actor+":names", 7, "mender"),
	},
	{Kind: "gone_missing", what: "never deleted", Plant: rawDamage("ZREM", "gone", "m2")},
	{Kind: "gone_extra", what: "deleted while active", Plant: rawDamage("ZADD", "gone", 1, "m1")},
	{Kind: "commands_differ", what: "never sent", Plant: rawDamage("HSET", "agent:m1", "commands", 0)},
	{
		Kind:  "holder_missing",
		what:  "its death would not end it",
		Plant: func(s *inspectFixture) { s.rawCommand("DEL", s.agentLeasesKey()) },
	},
	{
		Kind:  "holder_extra",
		what:  "of nobody",
		Plant: func(s *inspectFixture) { s.rawCommand("ZADD", s.agentLeasesKey(), 9, s.head.TaskID) },
	},
	{
		Kind:  "lease_of_gone",
		what:  "deregistered",
		also:  []string{"roster_extra", "roster_missing", "silence_extra", "gone_missing"},
		Plant: rawDamage("HSET", "agent:m1", "status", "deregistered"),
	},
	{
		Kind:  "key_lease_missing",
		what:  "its revocation would not end it",
		Plant: func(s *inspectFixture) { s.rawCommand("DEL", "leases-of:"+s.key) },
	},
	{
		Kind:  "key_lease_extra",
		what:  "of nobody",
		Plant: func(s *inspectFixture) { s.rawCommand("ZADD", "leases-of:"+s.key, 9, s.head.TaskID) },
	},
	{
		Kind:  "lease_of_revoked",
		what:  "nothing ends it",
		Plant: func(s *inspectFixture) { s.rawCommand("HSET", "key:"+s.key, "leases", "ended") },
	},
	{Kind: "lease_of_gone", what: "of an earlier registration", Plant: rawDamage("HSET", "agent:m1", "incarnation", 7)},
}

func AllDamages() []damage {
	return slices.Concat(TaskDamages, SessionDamages, SessionMoneyDamages, AgentDamages, MoneyDamages, MessageDamages)
}

func randomDamage(rnd *rand.Rand) damage {
	all := AllDamages()
	return all[rnd.IntN(len(all))]
}
