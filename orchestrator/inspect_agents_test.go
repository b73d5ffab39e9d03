package orchestrator_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// crew registers m1, who holds a lease, and m2, who is gone by now.
func (s *scene) crew() picket.Task {
	s.t.Helper()
	for _, id := range []string{"m1", "m2"} {
		if a, _, err := s.Agent(s.ctx, id); err != nil || a.Status.Gone() { // another scene may have been here
			s.register(s.t, picket.Registration{AgentID: id, RoleID: "mender"})
		}
	}
	task := s.submit(s.t, picket.TaskSpec{Role: "mender"})
	with := owner
	with.Key = s.apiKey(s.t, picket.ScopeAgent)
	s.key = with.Key
	leases, err := s.Acquire(s.ctx, with, picket.AcquireRequest{AgentID: "m1", Role: "mender"})
	ok(s.t, err)
	_, err = s.Renew(s.ctx, s.held(s.t, leases[0]))
	ok(s.t, err)
	_, err = s.CommandAgent(s.ctx, owner, "m1", picket.AgentCommand{Command: picket.CommandPing})
	ok(s.t, err)
	_, err = s.Deregister(s.ctx, owner, "m2", nil)
	ok(s.t, err)
	return task
}

// orphanAgent is a damage of one entry of an agent that has no record.
func orphanAgent(key string) func(s *scene) {
	return func(s *scene) { s.do("ZADD", key, 0, "m9") }
}

// holders is the key of what m1 holds.
func (s *scene) holders() string {
	a, _, err := s.Agent(s.ctx, "m1")
	ok(s.t, err)
	return fmt.Sprint("holder:m1:", a.Incarnation)
}

// raw is a damage by one command.
func raw(command, key string, args ...any) func(s *scene) {
	return func(s *scene) { s.do(command, key, args...) }
}

// crewDamages are those of agents and of who holds what.
var crewDamages = []damage{
	{kind: "agent_damaged", what: "no such status", plant: raw("HSET", "agent:m1", "status", "lost")},
	{kind: "agent_damaged", what: "a field is gone", plant: raw("HDEL", "agent:m1", "beat_at")},
	{kind: "entry_orphaned", what: "silence", plant: orphanAgent("silence")},
	{kind: "entry_orphaned", what: "roster", plant: orphanAgent("roster:unhealthy")},
	{kind: "entry_orphaned", what: "roster of the gone", plant: orphanAgent("roster:dead")},
	{kind: "silence_missing", what: "never judged", plant: raw("ZREM", "silence", "m1")},
	{kind: "silence_extra", what: "gone but judged", plant: raw("ZADD", "silence", never, "m2")},
	{kind: "silence_late", what: "judged next year", plant: raw("ZADD", "silence", never, "m1")},
	{kind: "roster_missing", what: "not listed", plant: raw("ZREM", "roster:active", "m1")},
	{
		kind:  "roster_missing",
		what:  "not listed by role",
		also:  []string{"pool_count"},
		plant: raw("ZREM", "roster:active|mender", "m1"),
	},
	{kind: "roster_extra", what: "active and dead", plant: raw("ZADD", "roster:dead", 0, "m1")},
	{
		kind: "roster_extra",
		what: "in another pool",
		also: []string{"pool_count", "pool_missing"},
		plant: func(s *scene) {
			s.do("ZADD", "roster:active|coder", 0, "m1")
			s.do("HSET", "pools", "coder", 0)
		},
	},
	{kind: "roster_score", what: "out of order", plant: raw("ZADD", "roster:active", 7, "m1")},
	{kind: "pool_count", what: "one too many", plant: raw("HSET", "pools", "mender", 3)},
	{kind: "pool_count", what: "none", plant: raw("HDEL", "pools", "mender")},
	{kind: "pool_missing", what: "not listed", plant: raw("ZREM", "pools:names", "mender")},
	{kind: "pool_extra", what: "of no agent", plant: raw("ZADD", "pools:names", 0, "nobody")},
	{kind: "pool_score", what: "out of order", plant: raw("ZADD", "pools:names", 7, "mender")},
	{kind: "role_missing", what: "not counted", plant: raw("HDEL", "roles-of:"+owner.Actor, "mender")},
	{kind: "role_missing", what: "not listed", plant: raw("ZREM", "roles-of:"+owner.Actor+":names", "mender")},
	{kind: "role_score", what: "out of order", plant: raw("ZADD", "roles-of:"+owner.Actor+":names", 7, "mender")},
	{kind: "gone_missing", what: "never deleted", plant: raw("ZREM", "gone", "m2")},
	{kind: "gone_extra", what: "deleted while active", plant: raw("ZADD", "gone", 1, "m1")},
	{kind: "commands_differ", what: "never sent", plant: raw("HSET", "agent:m1", "commands", 0)},
	{kind: "holder_missing", what: "its death would not end it", plant: func(s *scene) { s.do("DEL", s.holders()) }},
	{kind: "holder_extra", what: "of nobody", plant: func(s *scene) { s.do("ZADD", s.holders(), 9, s.head.TaskID) }},
	{
		kind:  "lease_of_gone",
		what:  "deregistered",
		also:  []string{"roster_extra", "roster_missing", "silence_extra", "gone_missing"},
		plant: raw("HSET", "agent:m1", "status", "deregistered"),
	},
	{
		kind:  "key_lease_missing",
		what:  "its revocation would not end it",
		plant: func(s *scene) { s.do("DEL", "leases-of:"+s.key) },
	},
	{
		kind:  "key_lease_extra",
		what:  "of nobody",
		plant: func(s *scene) { s.do("ZADD", "leases-of:"+s.key, 9, s.head.TaskID) },
	},
	{
		kind:  "lease_of_revoked",
		what:  "nothing ends it",
		plant: func(s *scene) { s.do("HSET", "key:"+s.key, "leases", "ended") },
	},
	{kind: "lease_of_gone", what: "of an earlier registration", plant: raw("HSET", "agent:m1", "incarnation", 7)},
}

func allDamages() []damage { return slices.Concat(damages, crewDamages, tillDamages) }

func oneDamage(rnd *rand.Rand) damage {
	all := allDamages()
	return all[rnd.IntN(len(all))]
}

// A lease that outlived its agent ends by the repair, for the reason for which
// the agent is gone; a silence that was lost comes back, and is judged.
func TestRepairsOfAgentsTakeEffect(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		s := newScene(t, f)
		s.do("HSET", "agent:m1", "status", "dead", "reason", "drain_timeout")
		s.pass(true)
		_, err := f.Chore(f.ctx, 100)
		ok(t, err)
		task := f.state(t, s.manned.TaskID, picket.TaskQueued)
		if exit := task.Runs[0].Exit; exit == nil || exit.Class != picket.ExitReleased || task.Failures != 0 {
			t.Errorf("it ended as %+v with %d failures", exit, task.Failures)
		}
		f.register(t, picket.Registration{AgentID: "m3"})
		s.do("DEL", "silence")
		f.pass(t, 400*time.Second)
		_, err = f.Judge(f.ctx, 100)
		ok(t, err)
		s.pass(true)
		_, err = f.Judge(f.ctx, 100)
		ok(t, err)
		if a, _, err := f.Agent(f.ctx, "m3"); err != nil || a.Status != picket.AgentDead {
			t.Errorf("%+v, %v", a, err)
		}
		mustHold(t, f.Engine)
	})
}
