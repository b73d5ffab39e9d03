package rfc16

import "time"

// Section 3.3: an id that is registered again.
var reregistrationChecks = checks{
	"3.3/again-while-active": func(t *Trial) {
		a := t.register(fields{"name": "first"})
		t.ExpectStatus(a.reregister(owner), 409)
		t.ExpectMember(a.expect("active"), "version", 1)
	},
	"3.3/again-while-draining": func(t *Trial) {
		a := t.newDrainingAgent(nil)
		t.ExpectStatus(a.reregister(owner), 409)
		a.expect("draining")
	},
	"3.3/again-while-unhealthy": func(t *Trial) {
		a := t.newUnhealthyAgent(nil)
		t.ExpectStatus(a.reregister(owner), 409)
		a.expect("unhealthy")
	},
	"3.3/again-when-dead": func(t *Trial) {
		a := t.newDeadAgent(fields{"name": "old", "capabilities": []string{"old"}})
		a.body = fields{"agent_id": a.id, "name": "new"}
		r := t.ExpectStatus(a.reregister(owner), 201)
		t.ExpectMember(r, "agent_id", a.id)
		t.ExpectMember(r, "status", "active")
		t.ExpectMember(a.record(), "name", "new")
		t.ExpectMember(a.record(), "capabilities", []string{})
		t.ExpectMember(a.record(), "heartbeat_config.dead_after_seconds", 300)
	},
	"3.3/again-when-deregistered": func(t *Trial) {
		a := t.newDeregisteredAgent(fields{"name": "old"})
		a.body = fields{"agent_id": a.id, "name": "new"}
		t.ExpectMember(t.ExpectStatus(a.reregister(owner), 201), "status", "active")
		t.ExpectMember(a.record(), "name", "new")
	},
	"3.3/version-reset": func(t *Trial) {
		a := t.newDrainingAgent(nil)
		a.remove()
		t.Assert(a.record().Num("version") > 1, t.Last, "a version above 1")
		r := t.ExpectStatus(a.reregister(owner), 201)
		t.ExpectMember(r, "version", 1)
		t.Assert(r.Header.Get("ETag") == `"1"`, r, `ETag "1", not %q`, r.Header.Get("ETag"))
		t.ExpectMember(a.record(), "version", 1)
	},
	"3.3/registered_at-stays": func(t *Trial) {
		a := t.newDeregisteredAgent(nil)
		t.Sleep(t.cfg.Poll)
		r := t.ExpectStatus(a.reregister(owner), 201)
		t.ExpectEqual("registered_at", r.Str("registered_at"), a.reg.Str("registered_at"))
		t.Assert(r.Time("last_heartbeat_at").After(a.reg.Time("last_heartbeat_at")), r, "a later last_heartbeat_at")
	},
	"3.3/incarnation-rises": func(t *Trial) {
		a := t.register(nil)
		was := a.reg.Num("incarnation")
		t.Assert(was > 0, a.reg, "an incarnation above 0")
		for range 3 {
			a.remove()
			r := t.ExpectStatus(a.reregister(owner), 201)
			t.Assert(r.Num("incarnation") > was, r, "an incarnation above %d", was)
			was = r.Num("incarnation")
		}
	},
	"3.3/old-incarnation-gone": func(t *Trial) {
		a := t.register(nil)
		old := a.reg.Num("incarnation")
		a.remove()
		now := t.ExpectStatus(a.reregister(owner), 201).Num("incarnation")
		t.ExpectCode(a.heartbeat(owner, "active", fields{"incarnation": old}), 410, "agent_gone")
		t.submit(nil)
		t.ExpectCode(a.acquire(owner, fields{"incarnation": old}), 410, "agent_gone")
		t.ExpectStatus(a.heartbeat(owner, "active", fields{"incarnation": now}), 200)
	},
	"3.3/later-incarnation": func(t *Trial) {
		a := t.register(nil)
		t.ExpectStatus(a.heartbeat(owner, "active", fields{"incarnation": a.reg.Num("incarnation") + 1000}), 200)
		a.expect("active")
	},
	"3.3/again-by-time": func(t *Trial) {
		a := t.register(t.shortThresholds())
		t.Sleep(seconds(t.cfg.Dead) + time.Millisecond)
		t.ExpectStatus(a.reregister(owner), 201)
		a.expectLifecycle(moveRegistered, moveUnhealthy, moveDead, moveReregisteredDead)
	},
	"3.3/who-may-register": func(t *Trial) {
		t.ExpectStatus(t.tryRegister(operator, nil).reg, 201)
		t.ExpectCode(t.tryRegister(reviewer, fields{"agent_id": t.ID("reader")}).reg, 403, "forbidden")
	},
	"3.3/live-id-facts": func(t *Trial) {
		a := t.register(nil)
		for _, by := range []keyName{owner, stranger, operator} {
			t.ExpectMember(t.ExpectCode(a.reregister(by), 409, "state_conflict"), "agent_status", "active")
		}
	},
}
