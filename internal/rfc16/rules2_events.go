package rfc16

import (
	"slices"
	"strings"
)

// Section 2.3: status events.
func eventRules() []Rule {
	return []Rule{
		{"2.3", "fields",
			"Every status transition produces an event of type agent.lifecycle with agent_id, previous_status, new_status, reason and timestamp.", Events, func(t *Trial) {
				a := t.newUnhealthyAgent(nil)
				all := a.lifecycleEvents()
				t.assert(len(all) == 2, t.last, "two lifecycle events")
				e := all[1]
				t.expectEqual("type", e.str("type"), "agent.lifecycle")
				t.expectEqual("agent_id", e.str("agent_id"), a.id)
				t.expectEqual("previous_status", e.str("previous_status"), "active")
				t.expectEqual("new_status", e.str("new_status"), "unhealthy")
				t.expectEqual("reason", e.str("reason"), "heartbeat_timeout")
				t.assert(!e.at().IsZero(), e.a, "an ISO 8601 timestamp")
			}, ""},
		{"2.3", "one-per-transition",
			"Every status transition produces exactly one event, in the order of the transitions.", Events | Tasks,
			func(t *Trial) {
				a, l := t.newSilentHolder("unhealthy")
				a.mustHeartbeat()
				a.drain(600)
				t.expectStatus(l.release(), 200)
				a.awaitStatus("deregistered", t.cfg.Slack)
				a.body = fields{"agent_id": a.id}
				t.expectStatus(a.reregister(owner), 201)
				all := a.expectLifecycle(moveRegistered, moveUnhealthy, moveResumed, moveDrain, moveDrained,
					moveReregisteredGone)
				for i := range all[1:] {
					t.assert(!all[i+1].at().Before(all[i].at()), all[i+1].a, "timestamps that never go back")
				}
			}, ""},
		lifecycleRule("registered", []string{moveRegistered}, func(t *Trial) *agent { return t.register(nil) }, 0),
		lifecycleRule("re_registered", []string{moveRegistered, moveDeregistered, moveReregisteredGone},
			func(t *Trial) *agent {
				a := t.newDeregisteredAgent(nil)
				t.expectStatus(a.reregister(owner), 201)
				return a
			}, 0),
		lifecycleRule("re_registered-after-death",
			[]string{moveRegistered, moveUnhealthy, moveDead, moveReregisteredDead}, func(t *Trial) *agent {
				a := t.newDeadAgent(nil)
				a.body = merge(a.body, fields{"heartbeat_config": fields{}})
				t.expectStatus(a.reregister(owner), 201)
				return a
			}, 0),
		lifecycleRule("heartbeat_timeout", []string{moveRegistered, moveUnhealthy, moveDead},
			func(t *Trial) *agent { return t.newDeadAgent(nil) }, 0),
		lifecycleRule("heartbeat_resumed", []string{moveRegistered, moveUnhealthy, moveResumed},
			func(t *Trial) *agent { a := t.newUnhealthyAgent(nil); a.mustHeartbeat(); return a }, 0),
		lifecycleRule("drain_initiated", []string{moveRegistered, moveDrain},
			func(t *Trial) *agent { return t.newDrainingAgent(nil) }, Tasks),
		lifecycleRule("drain_initiated-while-unhealthy", []string{moveRegistered, moveUnhealthy, moveDrainUnhealthy},
			func(t *Trial) *agent {
				a, _ := t.newSilentHolder("unhealthy")
				a.drain(600)
				return a
			}, Tasks),
		lifecycleRule("drain_completed", []string{moveRegistered, moveDrain, moveDrained}, func(t *Trial) *agent {
			a, l := t.newDrainingHolder(nil)
			t.expectStatus(l.release(), 200)
			a.awaitStatus("deregistered", t.cfg.Slack)
			return a
		}, Tasks),
		lifecycleRule("drain_timeout", []string{moveRegistered, moveDrain, moveOverdue}, func(t *Trial) *agent {
			a, _ := t.newHolder(nil)
			a.drain(t.cfg.DrainTimeout)
			t.sleep(seconds(t.cfg.DrainTimeout))
			a.awaitStatus("dead", t.cfg.Slack)
			return a
		}, Tasks),
		lifecycleRule("deregistered", []string{moveRegistered, moveDeregistered},
			func(t *Trial) *agent { return t.newDeregisteredAgent(nil) }, 0),
		{"2.3", "closed-list",
			"The reasons are a closed list: registered, re_registered, heartbeat_timeout, heartbeat_resumed, drain_initiated, drain_completed, drain_timeout, deregistered.", Events | Settled, func(t *Trial) {
				t.newUnhealthyAgent(nil).mustHeartbeat()
				t.register(nil).remove()
				known := []string{"registered", "re_registered", "heartbeat_timeout", "heartbeat_resumed",
					"drain_initiated", "drain_completed", "drain_timeout", "deregistered"}
				// What the other rules made of these agents stands in the log too.
				for _, e := range t.events("", "", "agent.lifecycle") {
					t.assert(slices.Contains(known, e.str("reason")), e.a, "a reason of the closed list, not %q",
						e.str("reason"))
				}
			}, ""},
		{"2.3", "in-the-same-step", "The event stands in the log as soon as the transition was answered.",
			Events | Settled, func(t *Trial) {
				for range 5 {
					a := t.register(nil)
					a.expectLifecycle(moveRegistered)
					a.remove()
					a.expectLifecycle(moveRegistered, moveDeregistered)
				}
			}, ""},
		{"2.3", "none-without-transition", "Heartbeats and reads write no lifecycle event.", Events | Settled,
			func(t *Trial) {
				a := t.register(nil)
				for range 3 {
					t.heartbeatTwice(a)
					a.record()
				}
				a.expectLifecycle(moveRegistered)
			}, ""},
		{"2.3", "reason-in-data", "The reason stands at the top level and in data.reason.", Events | Settled,
			func(t *Trial) {
				a := t.newDeregisteredAgent(nil)
				for _, e := range a.lifecycleEvents() {
					t.expectEqual("data.reason", e.str("data.reason"), e.str("reason"))
				}
			}, ""},
		{"2.3", "actor",
			"The actor is the instance id when the agent's own key acts, the operator's key id when an operator does, and server when time decides.", Events | Operator | Settled, func(t *Trial) {
				a := t.newUnhealthyAgent(nil)
				t.expectStatus(t.call(operator, "DELETE", a.path(""), nil), 200)
				all := a.expectLifecycle(moveRegistered, moveUnhealthy, "unhealthy deregistered deregistered")
				t.expectEqual("actor of the registration", all[0].str("actor"), a.id)
				t.expectEqual("actor of the timeout", all[1].str("actor"), "server")
				t.assert(strings.HasPrefix(all[2].str("actor"), "key_"), all[2].a,
					"the operator's key id as actor, not %q", all[2].str("actor"))
			}, ""},
	}
}

// lifecycleRule is one reason with all that happened to the agent until then.
func lifecycleRule(id string, moves []string, happen func(*Trial) *agent, needs Needs) Rule {
	return Rule{"2.3", "event-" + id, "Lifecycle events, one each: " + strings.Join(arrows(moves), ", ") + ".",
		needs | Events, func(t *Trial) {
			happen(t).expectLifecycle(moves...)
		}, ""}
}

func arrows(moves []string) []string {
	var out []string
	for _, m := range moves {
		p := strings.Fields(m)
		out = append(out, p[0]+" -> "+p[1]+" ("+p[2]+")")
	}
	return out
}
