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
				a := t.unwell(nil)
				all := a.life()
				t.that(len(all) == 2, t.last, "two lifecycle events")
				e := all[1]
				t.equal("type", e.str("type"), "agent.lifecycle")
				t.equal("agent_id", e.str("agent_id"), a.id)
				t.equal("previous_status", e.str("previous_status"), "active")
				t.equal("new_status", e.str("new_status"), "unhealthy")
				t.equal("reason", e.str("reason"), "heartbeat_timeout")
				t.that(!e.at().IsZero(), e.a, "an ISO 8601 timestamp")
			}, ""},
		{"2.3", "one-per-transition",
			"Every status transition produces exactly one event, in the order of the transitions.", Events | Tasks,
			func(t *Trial) {
				a := t.register(t.lingering())
				l := t.leased(a)
				a.falls("unhealthy")
				a.alive()
				a.drain(600)
				t.status(l.release(), 200)
				a.becomes("deregistered", t.cfg.Slack)
				a.body = fields{"agent_id": a.id}
				t.status(a.again(owner), 201)
				all := a.moved(moveIn, moveUnwell, moveBack, moveDrain, moveDone, moveBackIn)
				for i := range all[1:] {
					t.that(!all[i+1].at().Before(all[i].at()), all[i+1].a, "timestamps that never go back")
				}
			}, ""},
		moved("registered", []string{moveIn}, func(t *Trial) *agent { return t.register(nil) }, 0),
		moved("re_registered", []string{moveIn, moveOut, moveBackIn}, func(t *Trial) *agent {
			a := t.register(nil)
			a.remove()
			t.status(a.again(owner), 201)
			return a
		}, 0),
		moved("re_registered-after-death", []string{moveIn, moveUnwell, moveDead, moveReborn}, func(t *Trial) *agent {
			a := t.dying(nil)
			a.body = also(a.body, fields{"heartbeat_config": fields{}})
			t.status(a.again(owner), 201)
			return a
		}, 0),
		moved("heartbeat_timeout", []string{moveIn, moveUnwell, moveDead},
			func(t *Trial) *agent { return t.dying(nil) }, 0),
		moved("heartbeat_resumed", []string{moveIn, moveUnwell, moveBack},
			func(t *Trial) *agent { a := t.unwell(nil); a.alive(); return a }, 0),
		moved("drain_initiated", []string{moveIn, moveDrain}, func(t *Trial) *agent { return t.draining(nil) }, Tasks),
		moved("drain_initiated-while-unhealthy", []string{moveIn, moveUnwell, moveDrainSick}, func(t *Trial) *agent {
			a := t.register(t.lingering())
			t.leased(a)
			a.falls("unhealthy")
			a.drain(600)
			return a
		}, Tasks),
		moved("drain_completed", []string{moveIn, moveDrain, moveDone}, func(t *Trial) *agent {
			a := t.register(nil)
			l := t.leased(a)
			a.drain(600)
			t.status(l.release(), 200)
			a.becomes("deregistered", t.cfg.Slack)
			return a
		}, Tasks),
		moved("drain_timeout", []string{moveIn, moveDrain, moveOverdue}, func(t *Trial) *agent {
			a := t.register(nil)
			t.leased(a)
			a.drain(t.cfg.DrainTimeout)
			t.sleep(seconds(t.cfg.DrainTimeout))
			a.becomes("dead", t.cfg.Slack)
			return a
		}, Tasks),
		moved("deregistered", []string{moveIn, moveOut},
			func(t *Trial) *agent { a := t.register(nil); a.remove(); return a }, 0),
		{"2.3", "closed-list",
			"The reasons are a closed list: registered, re_registered, heartbeat_timeout, heartbeat_resumed, drain_initiated, drain_completed, drain_timeout, deregistered.", Events | Settled, func(t *Trial) {
				t.unwell(nil).alive()
				t.register(nil).remove()
				known := []string{"registered", "re_registered", "heartbeat_timeout", "heartbeat_resumed",
					"drain_initiated", "drain_completed", "drain_timeout", "deregistered"}
				// What the other rules made of these agents stands in the log too.
				for _, e := range t.events("", "", "agent.lifecycle") {
					t.that(slices.Contains(known, e.str("reason")), e.a, "a reason of the closed list, not %q",
						e.str("reason"))
				}
			}, ""},
		{"2.3", "in-the-same-step", "The event stands in the log as soon as the transition was answered.",
			Events | Settled, func(t *Trial) {
				for range 5 {
					a := t.register(nil)
					a.moved(moveIn)
					a.remove()
					a.moved(moveIn, moveOut)
				}
			}, ""},
		{"2.3", "none-without-transition", "Heartbeats and reads write no lifecycle event.", Events | Settled,
			func(t *Trial) {
				a := t.register(nil)
				for range 3 {
					t.alive2(a)
					a.record()
				}
				a.moved(moveIn)
			}, ""},
		{"2.3", "reason-in-data", "The reason stands at the top level and in data.reason.", Events | Settled,
			func(t *Trial) {
				a := t.register(nil)
				a.remove()
				for _, e := range a.life() {
					t.equal("data.reason", e.str("data.reason"), e.str("reason"))
				}
			}, ""},
		{"2.3", "actor",
			"The actor is the instance id when the agent's own key acts, the operator's key id when an operator does, and server when time decides.", Events | Operator | Settled, func(t *Trial) {
				a := t.unwell(nil)
				t.status(t.call(operator, "DELETE", a.path(""), nil), 200)
				all := a.moved(moveIn, moveUnwell, "unhealthy deregistered deregistered")
				t.equal("actor of the registration", all[0].str("actor"), a.id)
				t.equal("actor of the timeout", all[1].str("actor"), "server")
				t.that(strings.HasPrefix(all[2].str("actor"), "key_"), all[2].a,
					"the operator's key id as actor, not %q", all[2].str("actor"))
			}, ""},
	}
}

// moved is one reason with all that happened to the agent until then.
func moved(id string, moves []string, happen func(*Trial) *agent, needs Needs) Rule {
	return Rule{"2.3", "event-" + id, "Lifecycle events, one each: " + strings.Join(arrows(moves), ", ") + ".",
		needs | Events, func(t *Trial) {
			happen(t).moved(moves...)
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
