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

var member = picket.Registration{AgentID: "m1", RoleID: "mender", Capabilities: []string{"go"}}

// keyed is asked by the key that owns m1.
func keyed(key string) picket.Caller {
	by := asked(key)
	by.Actor = owner.Actor
	return by
}

// enlisted is a set-up with a registered agent.
func enlisted(w *lostWorld) {
	w.t.Helper()
	_, err := w.direct.Register(w.ctx, owner, member)
	ok(w.t, err)
}

// manned is enlisted with a lease of that agent.
func manned(w *lostWorld) {
	w.t.Helper()
	enlisted(w)
	w.submitted(picket.TaskSpec{Role: "mender"})
	leases, err := w.direct.Acquire(w.ctx, owner, picket.AcquireRequest{AgentID: "m1", Role: "mender"})
	ok(w.t, err)
	w.held, err = rig.Sealer().Open(leases[0].LeaseToken.Reveal())
	ok(w.t, err)
	_, err = w.direct.Renew(w.ctx, w.held)
	ok(w.t, err)
}

func drained(status picket.AgentStatus, by picket.Caller,
	match ...int64) func(w *lostWorld, e *orchestrator.Engine) (any, error) {
	return func(w *lostWorld, e *orchestrator.Engine) (any, error) {
		return e.ChangeAgent(w.ctx, by, "m1", match, picket.AgentStatusChange{Status: status})
	}
}

// beatsWith sends a heartbeat with the time of the test's own clock.
func beatsWith(hb picket.Heartbeat) func(w *lostWorld, e *orchestrator.Engine) (any, error) {
	return func(w *lostWorld, e *orchestrator.Engine) (any, error) {
		hb.ClientTimestamp = picket.Instant(w.now.Milliseconds())
		return e.Heartbeat(w.ctx, owner, "m1", hb)
	}
}

const sign = "each heartbeat is a sign of life"

var crewCases = []lostCase{
	{name: "register", setup: func(*lostWorld) {},
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) { return e.Register(w.ctx, keyed("1"), member) }},
	{name: "register/unnamed", setup: func(*lostWorld) {},
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			return e.Register(w.ctx, keyed("1"), picket.Registration{RoleID: "mender"})
		}},
	{name: "register/again", setup: func(w *lostWorld) {
		manned(w)
		_, err := w.direct.Deregister(w.ctx, owner, "m1", nil)
		ok(w.t, err)
	}, call: func(w *lostWorld, e *orchestrator.Engine) (any, error) { return e.Register(w.ctx, keyed("1"), member) }},
	{
		name:  "heartbeat",
		again: sign,
		setup: manned,
		call: beatsWith(picket.Heartbeat{
			Status:          picket.AgentActive,
			CurrentLoad:     ptr(1),
			TasksInProgress: []string{noTask},
		}),
	},
	{name: "heartbeat/resumed", again: sign, setup: func(w *lostWorld) {
		manned(w)
		w.skip(100 * time.Second)
		_, err := w.direct.Judge(w.ctx, 100)
		ok(w.t, err)
	}, call: beatsWith(picket.Heartbeat{Status: picket.AgentActive})},
	{
		name:  "heartbeat/drains",
		again: sign,
		setup: manned,
		call:  beatsWith(picket.Heartbeat{Status: picket.AgentDraining}),
	},
	{name: "drain", setup: manned, call: drained(picket.AgentDraining, keyed("1"), 1)},
	{name: "drain/any", setup: manned, call: drained(picket.AgentDraining, owner)},
	{name: "deregister", setup: manned, call: drained(picket.AgentDeregistered, keyed("1"), 1)},
	{name: "deregister/any", setup: manned,
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) { return e.Deregister(w.ctx, owner, "m1", nil) }},
	{
		name:  "command",
		setup: enlisted,
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			return e.CommandAgent(w.ctx, keyed("1"), "m1",
				picket.AgentCommand{Command: picket.CommandDrain, Reason: "upgrade"})
		},
	},
	{name: "judge", counts: foundLess, setup: func(w *lostWorld) {
		manned(w)
		w.skip(400 * time.Second)
	}, call: func(w *lostWorld, e *orchestrator.Engine) (any, error) { return e.Judge(w.ctx, 100) }},
	{name: "chore/dead", counts: foundLess, setup: func(w *lostWorld) { // as if a step had not ended all its leases
		manned(w)
		const holds, aside = "pk:{default}:holder:m1:1", "pk:{default}:aside"
		ok(w.t, w.raw.Rename(w.ctx, holds, aside).Err())
		_, err := w.direct.Deregister(w.ctx, owner, "m1", nil)
		ok(w.t, err)
		ok(w.t, w.raw.Rename(w.ctx, aside, holds).Err())
		ok(w.t, w.raw.ZAdd(w.ctx, "pk:{default}:chores", redis.Z{Member: "dead:m1:1:agent_deregistered"}).Err())
	}, call: func(w *lostWorld, e *orchestrator.Engine) (any, error) { return e.Chore(w.ctx, 100) }},
	{
		name: "grant/registered",
		setup: func(w *lostWorld) {
			enlisted(w)
			w.submitted(picket.TaskSpec{Role: "mender"})
		},
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			leases, err := e.Acquire(w.ctx, keyed("1"),
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
	for _, m := range mishaps[:3] {
		t.Run(m.name, func(t *testing.T) {
			w := lostPlace{t: t, store: s}.world()
			defer w.close()
			hit := w.strike(m.kind, "register")
			done := make(chan struct{})
			go func() { defer close(done); w.giveUp(m, hit) }()
			_, err := w.via.Register(w.ctx, owner, member)
			<-done
			refused(t, err, picket.CodeUnavailable)
			hit.Release()
			w.await(hit.Over(), "the end of the fault")
			a, err := w.via.Register(w.ctx, owner, member)
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
