package rfc16

import (
	"slices"
	"strings"
)

// The security considerations.
var securityChecks = checks{
	"Security/spoofed-heartbeat": func(t *Trial) {
		a := t.register(nil)
		t.expectStatus(a.heartbeat(stranger, "active", fields{"current_load": 9}), 401, 403)
		t.expectStatus(a.heartbeat(stranger, "draining", nil), 401, 403)
		t.expectMember(a.expect("active"), "capacity.current_load", 0)
	},
	"Security/spoofed-heartbeat-resets-nothing": func(t *Trial) {
		a := t.register(t.unhealthyOnlyThresholds())
		heard := a.record().str("last_heartbeat_at")
		a.silentOnPurpose = true
		c := t.cfg
		for range c.Unhealthy / c.Interval {
			t.sleep(seconds(c.Interval))
			for _, by := range []keyName{stranger, unknownKey, nobody} {
				sent := a.sent
				t.expectRefused(a.heartbeat(by, "active", nil))
				a.sent, a.silentOnPurpose = sent, true
			}
		}
		t.expectEqual("last_heartbeat_at", a.awaitStatus("unhealthy", c.Slack).str("last_heartbeat_at"), heard)
	},
	"Security/operator-may": func(t *Trial) {
		a := t.register(nil)
		t.expectStatus(a.heartbeat(operator, "active", nil), 200)
		t.expectStatus(a.changeIf(operator, `"1"`, fields{"status": "draining"}), 200)
		t.expectStatus(t.call(operator, "DELETE", a.path(""), nil), 200)
		a.expect("deregistered")
	},
	"Security/registry-restricted": func(t *Trial) {
		a := t.register(nil)
		t.expectStatus(t.call(reviewer, "GET", agentsPath, nil), 403)
		t.expectStatus(t.call(reviewer, "GET", a.path(""), nil), 403)
	},
	"Security/own-pool": func(t *Trial) {
		tag, mine, theirs := t.tag(), t.id("mine"), t.id("theirs")
		a := t.register(fields{"role_id": mine, "capabilities": []string{tag}})
		b := t.tryRegister(stranger, fields{"role_id": theirs, "capabilities": []string{tag}})
		c := t.tryRegister(stranger, fields{"role_id": mine, "capabilities": []string{tag}})
		t.expectStatus(b.reg, 201)
		t.expectStatus(c.reg, 201)
		see := func(by keyName) []string {
			return t.ids(t.expectStatus(t.call(by, "GET", agentsPath+"?capabilities="+tag, nil), 200))
		}
		t.expectEqual("listed for the agent", see(owner), []string{a.id, c.id})
		t.expectEqual("listed for the operator", see(operator), []string{a.id, b.id, c.id})
		t.expectStatus(t.call(owner, "GET", c.path(""), nil), 200)
		t.expectStatus(t.call(owner, "GET", b.path(""), nil), 403, 404)
		t.expectCode(t.call(owner, "GET", agentsPath+"?role_id="+theirs, nil), 403, "forbidden")
	},
	"Security/own-agents-without-role": func(t *Trial) {
		tag := t.tag()
		a := t.register(fields{"capabilities": []string{tag}})
		t.expectEqual("listed for a stranger",
			t.ids(t.expectStatus(t.call(stranger, "GET", agentsPath+"?capabilities="+tag, nil), 200, 403)),
			[]string{})
		t.expectEqual("listed for its own key",
			t.ids(t.expectStatus(t.call(owner, "GET", agentsPath+"?capabilities="+tag, nil), 200)),
			[]string{a.id})
		t.expectStatus(t.call(stranger, "GET", a.path(""), nil), 403, 404)
	},
	"Security/stranger-drains": func(t *Trial) {
		a := t.register(nil)
		for _, to := range []string{"draining", "deregistered"} {
			t.expectStatus(a.changeIf(stranger, `"1"`, fields{"status": to}), 401, 403)
		}
		t.expectMember(a.expect("active"), "version", 1)
	},
	"Security/stranger-deregisters": func(t *Trial) {
		a := t.register(nil)
		t.expectStatus(t.call(stranger, "DELETE", a.path(""), nil), 401, 403)
		t.expectMember(a.expect("active"), "version", 1)
	},
	"Security/refused-writes-nothing": func(t *Trial) {
		a := t.register(nil)
		t.expectCode(a.heartbeat(stranger, "draining", nil), 403, "forbidden")
		t.expectCode(a.changeIf(stranger, `"1"`, fields{"status": "draining"}), 403, "forbidden")
		t.expectCode(t.call(stranger, "DELETE", a.path(""), nil), 403, "forbidden")
		a.expectLifecycle(moveRegistered)
	},
	"Security/stranger-takes-over-dead": func(t *Trial) {
		a := t.newDeadAgent(nil)
		t.expectCode(a.reregister(stranger), 403, "forbidden")
		t.expectCode(a.reregister(operator), 403, "forbidden")
		a.expect("dead")
		a.body = fields{"agent_id": a.id}
		t.expectStatus(a.reregister(owner), 201)
	},
	"Security/stranger-takes-over-deregistered": func(t *Trial) {
		a := t.newDeregisteredAgent(nil)
		t.expectCode(a.reregister(stranger), 403, "forbidden")
		a.expect("deregistered")
	},
	"Security/stranger-acquires": func(t *Trial) {
		a := t.register(nil)
		task := t.submit(nil)
		t.expectCode(a.acquire(stranger, nil), 403, "forbidden")
		t.expectEqual("task", a.mustAcquire().task, task)
	},
	"Security/no-key-material": func(t *Trial) {
		a := t.register(fields{"name": "n", "metadata": fields{"m": 1}})
		shown := []*answer{a.reg, a.record(), a.mustHeartbeat(), a.heartbeat(stranger, "active", nil),
			a.reregister(owner),
			a.changeIf(owner, t.s.keys[owner], fields{"status": "draining"}),
			t.call(operator, "GET", agentsPath+"?role_id="+t.s.keys[owner], nil),
			t.call(unknownKey, "GET", a.path(""), nil)}
		a.remove()
		t.expectStatus(t.call(owner, "GET", a.path(""), nil), 200)
		shown = append(shown, t.call(operator, "GET", "/api/v1/events?after="+t.cursor+"&limit=1000", nil))
		for _, r := range shown {
			t.assert(!slices.ContainsFunc([]keyName{owner, stranger, operator, unknownKey},
				func(w keyName) bool { return strings.Contains(string(r.raw), t.s.keys[w]) }), r,
				"an answer without a key in it")
		}
	},
}
