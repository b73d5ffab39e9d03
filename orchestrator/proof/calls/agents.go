package calls

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The verbs of agents in the matrix of lost replies.

var TestAgent = picket.Registration{AgentID: "m1", RoleID: "mender", Capabilities: []string{"go"}}

// asAgentOwner is asked by the key that owns m1.
func asAgentOwner(key string) picket.Caller {
	by := Asked(key)
	by.Actor = kit.AgentOwner.Actor
	return by
}

// WithAgent is a set-up with a registered agent.
func WithAgent(w *Env) {
	w.T.Helper()
	_, err := w.Direct.Register(w.Ctx, kit.AgentOwner, TestAgent)
	kit.OK(w.T, err)
}

// withAgentLease is enlisted with a lease of that agent.
func withAgentLease(w *Env) {
	w.T.Helper()
	WithAgent(w)
	w.Submitted(picket.TaskSpec{Role: "mender"})
	leases, err := w.Direct.Acquire(w.Ctx, kit.AgentOwner, picket.AcquireRequest{AgentID: "m1", Role: "mender"})
	kit.OK(w.T, err)
	w.Held, err = rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	kit.OK(w.T, err)
	_, err = w.Direct.Renew(w.Ctx, w.Held)
	kit.OK(w.T, err)
}

func changeStatus(status picket.AgentStatus, by picket.Caller,
	match ...int64) func(w *Env, e *orchestrator.Engine) (any, error) {
	return func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.ChangeAgent(w.Ctx, by, "m1", match, picket.AgentStatusChange{Status: status})
	}
}

// sendHeartbeat sends a heartbeat with the time of the test's own clock.
func sendHeartbeat(hb picket.Heartbeat) func(w *Env, e *orchestrator.Engine) (any, error) {
	return func(w *Env, e *orchestrator.Engine) (any, error) {
		hb.ClientTimestamp = picket.Instant(w.now.Milliseconds())
		return e.Heartbeat(w.Ctx, kit.AgentOwner, "m1", hb)
	}
}

const whyHeartbeatRepeats = "each heartbeat is a sign of life"

var agentCases = []Case{
	{Name: "register", Setup: func(*Env) {},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Register(w.Ctx, asAgentOwner("1"), TestAgent)
		}},
	{Name: "register/unnamed", Setup: func(*Env) {},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Register(w.Ctx, asAgentOwner("1"), picket.Registration{RoleID: "mender"})
		}},
	{Name: "register/again", Setup: func(w *Env) {
		withAgentLease(w)
		_, err := w.Direct.Deregister(w.Ctx, kit.AgentOwner, "m1", nil)
		kit.OK(w.T, err)
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.Register(w.Ctx, asAgentOwner("1"), TestAgent)
	}},
	{
		Name:         "heartbeat",
		RepeatCounts: whyHeartbeatRepeats,
		Setup:        withAgentLease,
		Call: sendHeartbeat(picket.Heartbeat{
			Status:          picket.AgentActive,
			CurrentLoad:     kit.Ptr(1),
			TasksInProgress: []string{kit.NoTask},
		}),
	},
	{Name: "heartbeat/resumed", RepeatCounts: whyHeartbeatRepeats, Setup: func(w *Env) {
		withAgentLease(w)
		w.JumpStoreTime(100 * time.Second)
		_, err := w.Direct.JudgeAgents(w.Ctx, 100)
		kit.OK(w.T, err)
	}, Call: sendHeartbeat(picket.Heartbeat{Status: picket.AgentActive})},
	{
		Name:         "heartbeat/drains",
		RepeatCounts: whyHeartbeatRepeats,
		Setup:        withAgentLease,
		Call:         sendHeartbeat(picket.Heartbeat{Status: picket.AgentDraining}),
	},
	{Name: "drain", Setup: withAgentLease, Call: changeStatus(picket.AgentDraining, asAgentOwner("1"), 1)},
	{Name: "drain/any", Setup: withAgentLease, Call: changeStatus(picket.AgentDraining, kit.AgentOwner)},
	{Name: "deregister", Setup: withAgentLease, Call: changeStatus(picket.AgentDeregistered, asAgentOwner("1"), 1)},
	{Name: "deregister/any", Setup: withAgentLease,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Deregister(w.Ctx, kit.AgentOwner, "m1", nil)
		}},
	{
		Name:  "command",
		Setup: WithAgent,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.CommandAgent(w.Ctx, asAgentOwner("1"), "m1",
				picket.AgentCommand{Command: picket.CommandDrain, Reason: "upgrade"})
		},
	},
	{Name: "judge", AnswerVaries: whyFewer, Setup: func(w *Env) {
		withAgentLease(w)
		w.JumpStoreTime(400 * time.Second)
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.JudgeAgents(w.Ctx, 100) }},
	{Name: "chore/dead", AnswerVaries: whyFewer, Setup: func(w *Env) { // as if a step had not ended all its leases
		withAgentLease(w)
		const holds, aside = "pk:{default}:holder:m1:1", "pk:{default}:aside"
		kit.OK(w.T, w.Raw.Rename(w.Ctx, holds, aside).Err())
		_, err := w.Direct.Deregister(w.Ctx, kit.AgentOwner, "m1", nil)
		kit.OK(w.T, err)
		kit.OK(w.T, w.Raw.Rename(w.Ctx, aside, holds).Err())
		kit.OK(w.T, w.Raw.ZAdd(w.Ctx, "pk:{default}:chores", redis.Z{Member: "dead:m1:1:agent_deregistered"}).Err())
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.RunChores(w.Ctx, 100) }},
	{
		Name: "grant/registered",
		Setup: func(w *Env) {
			WithAgent(w)
			w.Submitted(picket.TaskSpec{Role: "mender"})
		},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			leases, err := e.Acquire(w.Ctx, asAgentOwner("1"),
				picket.AcquireRequest{AgentID: "m1", Role: "mender", Incarnation: 1})
			for i := range leases {
				leases[i].LeaseTTLMs = 0 // computed now; leaseExpiresAt says the same
			}
			return leases, err
		},
	},
}
