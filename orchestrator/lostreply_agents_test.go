package orchestrator_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// The verbs of agents in the matrix of lost replies.

var testAgent = picket.Registration{AgentID: "m1", RoleID: "mender", Capabilities: []string{"go"}}

// asAgentOwner is asked by the key that owns m1.
func asAgentOwner(key string) picket.Caller {
	by := asked(key)
	by.Actor = agentOwner.Actor
	return by
}

// withAgent is a set-up with a registered agent.
func withAgent(w *replyEnv) {
	w.t.Helper()
	_, err := w.direct.Register(w.ctx, agentOwner, testAgent)
	ok(w.t, err)
}

// withAgentLease is enlisted with a lease of that agent.
func withAgentLease(w *replyEnv) {
	w.t.Helper()
	withAgent(w)
	w.submitted(picket.TaskSpec{Role: "mender"})
	leases, err := w.direct.Acquire(w.ctx, agentOwner, picket.AcquireRequest{AgentID: "m1", Role: "mender"})
	ok(w.t, err)
	w.held, err = rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	ok(w.t, err)
	_, err = w.direct.Renew(w.ctx, w.held)
	ok(w.t, err)
}

func changeStatus(status picket.AgentStatus, by picket.Caller,
	match ...int64) func(w *replyEnv, e *orchestrator.Engine) (any, error) {
	return func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		return e.ChangeAgent(w.ctx, by, "m1", match, picket.AgentStatusChange{Status: status})
	}
}

// sendHeartbeat sends a heartbeat with the time of the test's own clock.
func sendHeartbeat(hb picket.Heartbeat) func(w *replyEnv, e *orchestrator.Engine) (any, error) {
	return func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		hb.ClientTimestamp = picket.Instant(w.now.Milliseconds())
		return e.Heartbeat(w.ctx, agentOwner, "m1", hb)
	}
}

const whyHeartbeatRepeats = "each heartbeat is a sign of life"

var agentCases = []replyCase{
	{name: "register", setup: func(*replyEnv) {},
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Register(w.ctx, asAgentOwner("1"), testAgent)
		}},
	{name: "register/unnamed", setup: func(*replyEnv) {},
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Register(w.ctx, asAgentOwner("1"), picket.Registration{RoleID: "mender"})
		}},
	{name: "register/again", setup: func(w *replyEnv) {
		withAgentLease(w)
		_, err := w.direct.Deregister(w.ctx, agentOwner, "m1", nil)
		ok(w.t, err)
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		return e.Register(w.ctx, asAgentOwner("1"), testAgent)
	}},
	{
		name:         "heartbeat",
		repeatCounts: whyHeartbeatRepeats,
		setup:        withAgentLease,
		call: sendHeartbeat(picket.Heartbeat{
			Status:          picket.AgentActive,
			CurrentLoad:     ptr(1),
			TasksInProgress: []string{noTask},
		}),
	},
	{name: "heartbeat/resumed", repeatCounts: whyHeartbeatRepeats, setup: func(w *replyEnv) {
		withAgentLease(w)
		w.jumpStoreTime(100 * time.Second)
		_, err := w.direct.JudgeAgents(w.ctx, 100)
		ok(w.t, err)
	}, call: sendHeartbeat(picket.Heartbeat{Status: picket.AgentActive})},
	{
		name:         "heartbeat/drains",
		repeatCounts: whyHeartbeatRepeats,
		setup:        withAgentLease,
		call:         sendHeartbeat(picket.Heartbeat{Status: picket.AgentDraining}),
	},
	{name: "drain", setup: withAgentLease, call: changeStatus(picket.AgentDraining, asAgentOwner("1"), 1)},
	{name: "drain/any", setup: withAgentLease, call: changeStatus(picket.AgentDraining, agentOwner)},
	{name: "deregister", setup: withAgentLease, call: changeStatus(picket.AgentDeregistered, asAgentOwner("1"), 1)},
	{name: "deregister/any", setup: withAgentLease,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Deregister(w.ctx, agentOwner, "m1", nil)
		}},
	{
		name:  "command",
		setup: withAgent,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.CommandAgent(w.ctx, asAgentOwner("1"), "m1",
				picket.AgentCommand{Command: picket.CommandDrain, Reason: "upgrade"})
		},
	},
	{name: "judge", answerVaries: whyFewer, setup: func(w *replyEnv) {
		withAgentLease(w)
		w.jumpStoreTime(400 * time.Second)
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) { return e.JudgeAgents(w.ctx, 100) }},
	{name: "chore/dead", answerVaries: whyFewer, setup: func(w *replyEnv) { // as if a step had not ended all its leases
		withAgentLease(w)
		const holds, aside = "pk:{default}:holder:m1:1", "pk:{default}:aside"
		ok(w.t, w.raw.Rename(w.ctx, holds, aside).Err())
		_, err := w.direct.Deregister(w.ctx, agentOwner, "m1", nil)
		ok(w.t, err)
		ok(w.t, w.raw.Rename(w.ctx, aside, holds).Err())
		ok(w.t, w.raw.ZAdd(w.ctx, "pk:{default}:chores", redis.Z{Member: "dead:m1:1:agent_deregistered"}).Err())
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) { return e.RunChores(w.ctx, 100) }},
	{
		name: "grant/registered",
		setup: func(w *replyEnv) {
			withAgent(w)
			w.submitted(picket.TaskSpec{Role: "mender"})
		},
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			leases, err := e.Acquire(w.ctx, asAgentOwner("1"),
				picket.AcquireRequest{AgentID: "m1", Role: "mender", Incarnation: 1})
			for i := range leases {
				leases[i].LeaseTTLMs = 0 // computed now; leaseExpiresAt says the same
			}
			return leases, err
		},
	},
}

// A registration that was not sent under a key and whose reply was lost is made
// once: its repeat finds the id live, and learns so.
func TestALostRegistrationWithoutAKeyReal(t *testing.T) {
	s := rig.Real(t)
	for _, m := range callFaults[:3] {
		t.Run(m.name, func(t *testing.T) {
			w := replySetup{t: t, store: s}.newEnv()
			defer w.close()
			hit := w.faultNext(m.kind, "register")
			done := make(chan struct{})
			go func() { defer close(done); w.timeOutCall(m, hit) }()
			_, err := w.via.Register(w.ctx, agentOwner, testAgent)
			<-done
			refused(t, err, picket.CodeUnavailable)
			hit.Release()
			w.await(hit.Over(), "the end of the fault")
			a, err := w.via.Register(w.ctx, agentOwner, testAgent)
			if m.kind == rig.Drop {
				ok(t, err)
			} else {
				refused(t, err, picket.CodeStateConflict)
				a, _, err = w.direct.Agent(w.ctx, "m1")
				ok(t, err)
			}
			if a.Incarnation != 1 || a.Version != 1 {
				t.Errorf("registered as %+v", a)
			}
			page, err := w.direct.Events(w.ctx, picket.EventQuery{Types: []string{picket.EventAgentLifecycle}})
			ok(t, err)
			if len(page.Events) != 1 {
				t.Errorf("%d events of one registration", len(page.Events))
			}
		})
	}
}
