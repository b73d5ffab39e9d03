package rfc16

import "time"

// Section 3.3: an id that is registered again.
var reregistrationChecks = checks{
	"3.3/again-while-active": func(t *Trial) {
		a := t.register(fields{"name": "first"})
		t.expectStatus(a.reregister(owner), 409)
		t.expectMember(a.expect("active"), "version", 1)
	},
	"3.3/again-while-draining": func(t *Trial) {
		a := t.newDrainingAgent(nil)
		t.expectStatus(a.reregister(owner), 409)
		a.expect("draining")
	},
	"3.3/again-while-unhealthy": func(t *Trial) {
		a := t.newUnhealthyAgent(nil)
		t.expectStatus(a.reregister(owner), 409)
		a.expect("unhealthy")
	},
	"3.3/again-when-dead": func(t *Trial) {
		a := t.newDeadAgent(fields{"name": "old", "capabilities": []string{"old"}})
		a.body = fields{"agent_id": a.id, "name": "new"}
		r := t.expectStatus(a.reregister(owner), 201)
		t.expectMember(r, "agent_id", a.id)
		t.expectMember(r, "status", "active")
		t.expectMember(a.record(), "name", "new")
		t.expectMember(a.record(), "capabilities", []string{})
		t.expectMember(a.record(), "heartbeat_config.dead_after_seconds", 300)
	},
	"3.3/again-when-deregistered": func(t *Trial) {
		a := t.newDeregisteredAgent(fields{"name": "old"})
		a.body = fields{"agent_id": a.id, "name": "new"}
		t.expectMember(t.expectStatus(a.reregister(owner), 201), "status", "active")
		t.expectMember(a.record(), "name", "new")
	},
	"3.3/version-reset": func(t *Trial) {
		a := t.newDrainingAgent(nil)
		a.remove()
		t.assert(a.record().num("version") > 1, t.last, "a version above 1")
		r := t.expectStatus(a.reregister(owner), 201)
		t.expectMember(r, "version", 1)
		t.assert(r.header.Get("ETag") == `"1"`, r, `ETag "1", not %q`, r.header.Get("ETag"))
		t.expectMember(a.record(), "version", 1)
	},
	"3.3/registered_at-stays": func(t *Trial) {
		a := t.newDeregisteredAgent(nil)
		t.sleep(t.cfg.Poll)
		r := t.expectStatus(a.reregister(owner), 201)
		t.expectEqual("registered_at", r.str("registered_at"), a.reg.str("registered_at"))
		t.assert(r.time("last_heartbeat_at").After(a.reg.time("last_heartbeat_at")), r, "a later last_heartbeat_at")
	},
	"3.3/incarnation-rises": func(t *Trial) {
		a := t.register(nil)
		was := a.reg.num("incarnation")
		t.assert(was > 0, a.reg, "an incarnation above 0")
		for range 3 {
			a.remove()
			r := t.expectStatus(a.reregister(owner), 201)
			t.assert(r.num("incarnation") > was, r, "an incarnation above %d", was)
			was = r.num("incarnation")
		}
	},
	"3.3/old-incarnation-gone": func(t *Trial) {
		a := t.register(nil)
		old := a.reg.num("incarnation")
		a.remove()
		now := t.expectStatus(a.reregister(owner), 201).num("incarnation")
		t.expectCode(a.heartbeat(owner, "active", fields{"incarnation": old}), 410, "agent_gone")
		t.submit(nil)
		t.expectCode(a.acquire(owner, fields{"incarnation": old}), 410, "agent_gone")
		t.expectStatus(a.heartbeat(owner, "active", fields{"incarnation": now}), 200)
	},
	"3.3/later-incarnation": func(t *Trial) {
		a := t.register(nil)
		t.expectStatus(a.heartbeat(owner, "active", fields{"incarnation": a.reg.num("incarnation") + 1000}), 200)
		a.expect("active")
	},
	"3.3/again-by-time": func(t *Trial) {
		a := t.register(t.shortThresholds())
		t.sleep(seconds(t.cfg.Dead) + time.Millisecond)
		t.expectStatus(a.reregister(owner), 201)
		a.expectLifecycle(moveRegistered, moveUnhealthy, moveDead, moveReregisteredDead)
	},
	"3.3/who-may-register": func(t *Trial) {
		t.expectStatus(t.tryRegister(operator, nil).reg, 201)
		t.expectCode(t.tryRegister(reviewer, fields{"agent_id": t.id("reader")}).reg, 403, "forbidden")
	},
	"3.3/live-id-facts": func(t *Trial) {
		a := t.register(nil)
		for _, by := range []keyName{owner, stranger, operator} {
			t.expectMember(t.expectCode(a.reregister(by), 409, "state_conflict"), "agent_status", "active")
		}
	},
}
