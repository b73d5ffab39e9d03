package rfc16

import (
	"slices"

	"github.com/picket-dev/picket/internal/conformance"
)

// Section 2.2: the valid transitions, and every other one refused.
var transitionChecks = checks{
	"2.2/registering-active": func(t *Trial) {
		a := t.register(nil)
		t.ExpectMember(a.reg, "status", "active")
		a.expect("active")
	},
	"2.2/active-draining": func(t *Trial) {
		a := t.register(nil)
		r := a.drain(600)
		t.Assert(r.Str("status") == "draining" || r.Str("status") == "deregistered", r, "status draining")
	},
	"2.2/active-unhealthy": func(t *Trial) {
		a := t.register(t.unhealthyOnlyThresholds())
		a.expect("active")
		a.fallSilent("unhealthy")
	},
	"2.2/unhealthy-active": func(t *Trial) {
		a := t.newUnhealthyAgent(nil)
		a.mustHeartbeat()
		a.expect("active")
	},
	"2.2/unhealthy-dead": dies,
	"2.2/unhealthy-draining": func(t *Trial) {
		a := t.newUnhealthyAgent(nil)
		r := a.drain(600)
		t.Assert(r.Str("status") == "draining" || r.Str("status") == "deregistered", r, "status draining")
	},
	"2.2/draining-deregistered": completesDrain,
	"2.2/draining-deregistered-by-time": func(t *Trial) {
		a := t.register(nil)
		a.drain(t.cfg.DrainTimeout)
		t.Sleep(seconds(t.cfg.DrainTimeout))
		a.awaitStatus("deregistered", t.cfg.Slack)
	},
	"2.2/draining-dead": func(t *Trial) {
		a, _ := t.newHolder(nil)
		a.drain(t.cfg.DrainTimeout)
		t.Sleep(seconds(t.cfg.DrainTimeout))
		a.awaitStatus("dead", t.cfg.Slack)
	},
	"2.2/draining-dead-in-silence": func(t *Trial) {
		a, _ := t.newHolder(t.shortThresholds())
		a.drain(100_000)
		a.fallSilent("dead")
		a.expectLifecycle(moveRegistered, moveDrain, moveSilent)
	},
	"2.2/dead-active": func(t *Trial) {
		a := t.newDeadAgent(nil)
		t.ExpectStatus(a.reregister(owner), 201)
		a.expect("active")
		a.mustHeartbeat()
	},
	"2.2/dead-active-starts-fresh": func(t *Trial) {
		a := t.register(t.shortThresholds())
		t.ExpectStatus(a.heartbeat(owner, "active", fields{"current_load": 4}), 200)
		l := t.newLease(a)
		a.fallSilent("dead")
		a.body = merge(a.body, fields{"heartbeat_config": fields{}})
		r := t.ExpectStatus(a.reregister(owner), 201)
		t.ExpectMember(r, "capacity.current_load", 0)
		t.ExpectCode(l.write(), 412, "lease_expired")
		t.ExpectCode(l.renew(), 412, "lease_expired")
		t.ExpectEqual("task", a.mustAcquire().task, l.task)
		t.ExpectCode(l.write(), 412, "stale_fence")
	},
	"2.2/deregistered-active": func(t *Trial) {
		a := t.newDeregisteredAgent(nil)
		t.ExpectStatus(a.reregister(owner), 201)
		a.expect("active")
		a.mustHeartbeat()
	},
}

// patchChecks try every status that a PATCH can ask for in every state.
func patchChecks() checks {
	all := checks{}
	for _, from := range []struct {
		status string
		legal  []string
		make   func(*Trial, fields) *agent
	}{
		{"active", []string{"draining", "deregistered"}, (*Trial).register},
		{"unhealthy", []string{"draining", "deregistered"}, func(t *Trial, _ fields) *agent {
			a, _ := t.newSilentHolder("unhealthy")
			return a
		}},
		{"draining", []string{"deregistered"}, (*Trial).newDrainingAgent},
		{"dead", nil, (*Trial).newDeadAgent},
		{"deregistered", nil, (*Trial).newDeregisteredAgent},
	} {
		for _, to := range []string{"registering", "active", "unhealthy", "draining", "dead", "deregistered"} {
			name, check := "no-"+from.status+"-to-"+to, illegalPatch
			switch {
			case from.status == to:
				name, check = to+"-again", samePatch
			case slices.Contains(from.legal, to):
				name, check = from.status+"-to-"+to+"-by-patch", legalPatch
			}
			all["2.2/"+name] = func(t *Trial) { check(t, from.make(t, nil), from.status, to) }
		}
	}
	return all
}

func illegalPatch(t *Trial, a *agent, from, to string) {
	before, moves := a.expect(from), len(a.lifecycleEvents())
	t.ExpectCode(a.changeIf(owner, before.Header.Get("ETag"), fields{"status": to}), 409, "state_conflict")
	t.ExpectMember(a.expect(from), "version", before.Num("version"))
	t.ExpectEqual("number of lifecycle events", len(a.lifecycleEvents()), moves)
}

func legalPatch(t *Trial, a *agent, from, to string) {
	before, moves := a.expect(from), len(a.lifecycleEvents())
	r := t.ExpectStatus(a.changeIf(owner, before.Header.Get("ETag"), fields{"status": to}), 200)
	t.ExpectMember(r, "status", to)
	t.ExpectMember(r, "version", before.Num("version")+1)
	t.ExpectEqual("ETag", r.Header.Get("ETag"), `"`+conformance.JSON(before.Num("version")+1)+`"`)
	life := a.lifecycleEvents()
	reason := map[string]string{"draining": "drain_initiated", "deregistered": "deregistered"}[to]
	t.ExpectEqual("number of lifecycle events", len(life), moves+1)
	t.ExpectEqual("the last one", life[len(life)-1].move(), from+" "+to+" "+reason)
}

func samePatch(t *Trial, a *agent, from, to string) {
	before, moves := a.expect(from), len(a.lifecycleEvents())
	r := t.ExpectStatus(a.changeIf(owner, before.Header.Get("ETag"), fields{"status": to}), 200)
	t.ExpectMember(r, "version", before.Num("version"))
	t.ExpectEqual("drain_deadline_at", r.Str("drain_deadline_at"), before.Str("drain_deadline_at"))
	t.ExpectEqual("number of lifecycle events", len(a.lifecycleEvents()), moves)
}
