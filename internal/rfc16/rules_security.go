package rfc16

import (
	"slices"
	"strings"
)

// The security considerations.
var securityChecks = checks{
	"Security/spoofed-heartbeat": func(t *Trial) {
		a := t.register(nil)
		t.ExpectStatus(a.heartbeat(stranger, "active", fields{"current_load": 9}), 401, 403)
		t.ExpectStatus(a.heartbeat(stranger, "draining", nil), 401, 403)
		t.ExpectMember(a.expect("active"), "capacity.current_load", 0)
	},
	"Security/spoofed-heartbeat-resets-nothing": func(t *Trial) {
		a := t.register(t.unhealthyOnlyThresholds())
		heard := a.record().Str("last_heartbeat_at")
		a.silentOnPurpose = true
		c := t.cfg
		for range c.Unhealthy / c.Interval {
			t.Sleep(seconds(c.Interval))
			for _, by := range []keyName{stranger, unknownKey, nobody} {
				sent := a.sent
				t.ExpectRefused(a.heartbeat(by, "active", nil))
				a.sent, a.silentOnPurpose = sent, true
			}
		}
		t.ExpectEqual("last_heartbeat_at", a.awaitStatus("unhealthy", c.Slack).Str("last_heartbeat_at"), heard)
	},
	"Security/operator-may": func(t *Trial) {
		a := t.register(nil)
		t.ExpectStatus(a.heartbeat(operator, "active", nil), 200)
		t.ExpectStatus(a.changeIf(operator, `"1"`, fields{"status": "draining"}), 200)
		t.ExpectStatus(t.Call(operator, "DELETE", a.path(""), nil), 200)
		a.expect("deregistered")
	},
	"Security/registry-restricted": func(t *Trial) {
		a := t.register(nil)
		t.ExpectStatus(t.Call(reviewer, "GET", agentsPath, nil), 403)
		t.ExpectStatus(t.Call(reviewer, "GET", a.path(""), nil), 403)
	},
	"Security/own-pool": func(t *Trial) {
		tag, mine, theirs := t.tag(), t.ID("mine"), t.ID("theirs")
		a := t.register(fields{"role_id": mine, "capabilities": []string{tag}})
		b := t.tryRegister(stranger, fields{"role_id": theirs, "capabilities": []string{tag}})
		c := t.tryRegister(stranger, fields{"role_id": mine, "capabilities": []string{tag}})
		t.ExpectStatus(b.reg, 201)
		t.ExpectStatus(c.reg, 201)
		see := func(by keyName) []string {
			return t.ids(t.ExpectStatus(t.Call(by, "GET", agentsPath+"?capabilities="+tag, nil), 200))
		}
		t.ExpectEqual("listed for the agent", see(owner), []string{a.id, c.id})
		t.ExpectEqual("listed for the operator", see(operator), []string{a.id, b.id, c.id})
		t.ExpectStatus(t.Call(owner, "GET", c.path(""), nil), 200)
		t.ExpectStatus(t.Call(owner, "GET", b.path(""), nil), 403, 404)
		t.ExpectCode(t.Call(owner, "GET", agentsPath+"?role_id="+theirs, nil), 403, "forbidden")
	},
	"Security/own-agents-without-role": func(t *Trial) {
		tag := t.tag()
		a := t.register(fields{"capabilities": []string{tag}})
		t.ExpectEqual("listed for a stranger",
			t.ids(t.ExpectStatus(t.Call(stranger, "GET", agentsPath+"?capabilities="+tag, nil), 200, 403)),
			[]string{})
		t.ExpectEqual("listed for its own key",
			t.ids(t.ExpectStatus(t.Call(owner, "GET", agentsPath+"?capabilities="+tag, nil), 200)),
			[]string{a.id})
		t.ExpectStatus(t.Call(stranger, "GET", a.path(""), nil), 403, 404)
	},
	"Security/stranger-drains": func(t *Trial) {
		a := t.register(nil)
		for _, to := range []string{"draining", "deregistered"} {
			t.ExpectStatus(a.changeIf(stranger, `"1"`, fields{"status": to}), 401, 403)
		}
		t.ExpectMember(a.expect("active"), "version", 1)
	},
	"Security/stranger-deregisters": func(t *Trial) {
		a := t.register(nil)
		t.ExpectStatus(t.Call(stranger, "DELETE", a.path(""), nil), 401, 403)
		t.ExpectMember(a.expect("active"), "version", 1)
	},
	"Security/refused-writes-nothing": func(t *Trial) {
		a := t.register(nil)
		t.ExpectCode(a.heartbeat(stranger, "draining", nil), 403, "forbidden")
		t.ExpectCode(a.changeIf(stranger, `"1"`, fields{"status": "draining"}), 403, "forbidden")
		t.ExpectCode(t.Call(stranger, "DELETE", a.path(""), nil), 403, "forbidden")
		a.expectLifecycle(moveRegistered)
	},
	"Security/stranger-takes-over-dead": func(t *Trial) {
		a := t.newDeadAgent(nil)
		t.ExpectCode(a.reregister(stranger), 403, "forbidden")
		t.ExpectCode(a.reregister(operator), 403, "forbidden")
		a.expect("dead")
		a.body = fields{"agent_id": a.id}
		t.ExpectStatus(a.reregister(owner), 201)
	},
	"Security/stranger-takes-over-deregistered": func(t *Trial) {
		a := t.newDeregisteredAgent(nil)
		t.ExpectCode(a.reregister(stranger), 403, "forbidden")
		a.expect("deregistered")
	},
	"Security/stranger-acquires": func(t *Trial) {
		a := t.register(nil)
		task := t.submit(nil)
		t.ExpectCode(a.acquire(stranger, nil), 403, "forbidden")
		t.ExpectEqual("task", a.mustAcquire().task, task)
	},
	"Security/no-key-material": func(t *Trial) {
		a := t.register(fields{"name": "n", "metadata": fields{"m": 1}})
		shown := []*answer{a.reg, a.record(), a.mustHeartbeat(), a.heartbeat(stranger, "active", nil),
			a.reregister(owner),
			a.changeIf(owner, t.s.Keys[owner], fields{"status": "draining"}),
			t.Call(operator, "GET", agentsPath+"?role_id="+t.s.Keys[owner], nil),
			t.Call(unknownKey, "GET", a.path(""), nil)}
		a.remove()
		t.ExpectStatus(t.Call(owner, "GET", a.path(""), nil), 200)
		shown = append(shown, t.Call(operator, "GET", "/api/v1/events?after="+t.cursor+"&limit=1000", nil))
		for _, r := range shown {
			t.Assert(!slices.ContainsFunc([]keyName{owner, stranger, operator, unknownKey},
				func(w keyName) bool { return strings.Contains(string(r.Raw), t.s.Keys[w]) }), r,
				"an answer without a key in it")
		}
	},
}
