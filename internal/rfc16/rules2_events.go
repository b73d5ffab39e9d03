package rfc16

import (
	"slices"
	"strings"
)

// Section 2.3: status events.
var eventChecks = checks{
	"2.3/fields": func(t *Trial) {
		a := t.newUnhealthyAgent(nil)
		all := a.lifecycleEvents()
		t.Assert(len(all) == 2, t.Last, "two lifecycle events")
		e := all[1]
		t.ExpectEqual("type", e.str("type"), "agent.lifecycle")
		t.ExpectEqual("agent_id", e.str("agent_id"), a.id)
		t.ExpectEqual("previous_status", e.str("previous_status"), "active")
		t.ExpectEqual("new_status", e.str("new_status"), "unhealthy")
		t.ExpectEqual("reason", e.str("reason"), "heartbeat_timeout")
		t.Assert(!e.at().IsZero(), e.a, "an ISO 8601 timestamp")
	},
	"2.3/one-per-transition": func(t *Trial) {
		a, l := t.newSilentHolder("unhealthy")
		a.mustHeartbeat()
		a.drain(600)
		t.ExpectStatus(l.release(), 200)
		a.awaitStatus("deregistered", t.cfg.Slack)
		a.body = fields{"agent_id": a.id}
		t.ExpectStatus(a.reregister(owner), 201)
		all := a.expectLifecycle(moveRegistered, moveUnhealthy, moveResumed, moveDrain, moveDrained,
			moveReregisteredGone)
		for i := range all[1:] {
			t.Assert(!all[i+1].at().Before(all[i].at()), all[i+1].a, "timestamps that never go back")
		}
	},
	"2.3/event-registered": func(t *Trial) {
		t.register(nil).expectLifecycle(moveRegistered)
	},
	"2.3/event-re_registered": func(t *Trial) {
		a := t.newDeregisteredAgent(nil)
		t.ExpectStatus(a.reregister(owner), 201)
		a.expectLifecycle(moveRegistered, moveDeregistered, moveReregisteredGone)
	},
	"2.3/event-re_registered-after-death": func(t *Trial) {
		a := t.newDeadAgent(nil)
		a.body = merge(a.body, fields{"heartbeat_config": fields{}})
		t.ExpectStatus(a.reregister(owner), 201)
		a.expectLifecycle(moveRegistered, moveUnhealthy, moveDead, moveReregisteredDead)
	},
	"2.3/event-heartbeat_timeout": dies,
	"2.3/event-heartbeat_resumed": func(t *Trial) {
		a := t.newUnhealthyAgent(nil)
		a.mustHeartbeat()
		a.expectLifecycle(moveRegistered, moveUnhealthy, moveResumed)
	},
	"2.3/event-drain_initiated": func(t *Trial) {
		t.newDrainingAgent(nil).expectLifecycle(moveRegistered, moveDrain)
	},
	"2.3/event-drain_initiated-while-unhealthy": func(t *Trial) {
		a, _ := t.newSilentHolder("unhealthy")
		a.drain(600)
		a.expectLifecycle(moveRegistered, moveUnhealthy, moveDrainUnhealthy)
	},
	"2.3/event-drain_completed": completesDrain,
	"2.3/event-drain_timeout": func(t *Trial) {
		a, _ := t.newHolder(nil)
		a.drain(t.cfg.DrainTimeout)
		t.Sleep(seconds(t.cfg.DrainTimeout))
		a.awaitStatus("dead", t.cfg.Slack)
		a.expectLifecycle(moveRegistered, moveDrain, moveOverdue)
	},
	"2.3/event-deregistered": func(t *Trial) {
		t.newDeregisteredAgent(nil).expectLifecycle(moveRegistered, moveDeregistered)
	},
	"2.3/closed-list": func(t *Trial) {
		t.newUnhealthyAgent(nil).mustHeartbeat()
		t.register(nil).remove()
		known := []string{"registered", "re_registered", "heartbeat_timeout", "heartbeat_resumed",
			"drain_initiated", "drain_completed", "drain_timeout", "deregistered"}
		// What the other rules made of these agents stands in the log too.
		for _, e := range t.events("", "", "agent.lifecycle") {
			t.Assert(slices.Contains(known, e.str("reason")), e.a, "a reason of the closed list, not %q",
				e.str("reason"))
		}
	},
	"2.3/in-the-same-step": func(t *Trial) {
		for range 5 {
			a := t.register(nil)
			a.expectLifecycle(moveRegistered)
			a.remove()
			a.expectLifecycle(moveRegistered, moveDeregistered)
		}
	},
	"2.3/none-without-transition": func(t *Trial) {
		a := t.register(nil)
		for range 3 {
			t.heartbeatTwice(a)
			a.record()
		}
		a.expectLifecycle(moveRegistered)
	},
	"2.3/reason-in-data": func(t *Trial) {
		a := t.newDeregisteredAgent(nil)
		for _, e := range a.lifecycleEvents() {
			t.ExpectEqual("data.reason", e.str("data.reason"), e.str("reason"))
		}
	},
	"2.3/actor": func(t *Trial) {
		a := t.newUnhealthyAgent(nil)
		t.ExpectStatus(t.Call(operator, "DELETE", a.path(""), nil), 200)
		all := a.expectLifecycle(moveRegistered, moveUnhealthy, "unhealthy deregistered deregistered")
		t.ExpectEqual("actor of the registration", all[0].str("actor"), a.id)
		t.ExpectEqual("actor of the timeout", all[1].str("actor"), "server")
		t.Assert(strings.HasPrefix(all[2].str("actor"), "key_"), all[2].a,
			"the operator's key id as actor, not %q", all[2].str("actor"))
	},
}

// dies checks what the log says of an agent that falls silent.
func dies(t *Trial) { t.newDeadAgent(nil).expectLifecycle(moveRegistered, moveUnhealthy, moveDead) }

// completesDrain checks what the log says of a drain that ends with the last lease.
func completesDrain(t *Trial) {
	a, l := t.newDrainingHolder(nil)
	t.ExpectStatus(l.release(), 200)
	a.awaitStatus("deregistered", t.cfg.Slack)
	a.expectLifecycle(moveRegistered, moveDrain, moveDrained)
}
