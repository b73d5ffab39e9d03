package rfc16

import "time"

// Section 3.3: an id that is registered again.
func reregistrationRules() []Rule {
	return []Rule{
		{"3.3", "again-while-active", "agent_id exists with status active: 409 Conflict.", 0, func(t *Trial) {
			a := t.register(fields{"name": "first"})
			t.status(a.again(owner), 409)
			t.member(a.expect("active"), "version", 1)
		}, ""},
		{"3.3", "again-while-draining", "agent_id exists with status draining: 409 Conflict.", 0, func(t *Trial) {
			a := t.draining(nil)
			t.status(a.again(owner), 409)
			a.expect("draining")
		}, ""},
		{"3.3", "again-while-unhealthy", "agent_id exists with status unhealthy: 409 Conflict.", 0, func(t *Trial) {
			a := t.unwell(nil)
			t.status(a.again(owner), 409)
			a.expect("unhealthy")
		}, ""},
		{"3.3", "again-when-dead",
			"agent_id exists with status dead: the record is re-activated (new registration, same id).", 0,
			func(t *Trial) {
				a := t.dying(fields{"name": "old", "capabilities": []string{"old"}})
				a.body = fields{"agent_id": a.id, "name": "new"}
				r := t.status(a.again(owner), 201)
				t.member(r, "agent_id", a.id)
				t.member(r, "status", "active")
				t.member(a.record(), "name", "new")
				t.member(a.record(), "capabilities", []string{})
				t.member(a.record(), "heartbeat_config.dead_after_seconds", 300)
			}, ""},
		{"3.3", "again-when-deregistered",
			"agent_id exists with status deregistered: the record is re-activated (new registration, same id).", 0,
			func(t *Trial) {
				a := t.register(fields{"name": "old"})
				a.remove()
				a.body = fields{"agent_id": a.id, "name": "new"}
				t.member(t.status(a.again(owner), 201), "status", "active")
				t.member(a.record(), "name", "new")
			}, ""},
		{"3.3", "version-reset", "On re-activation the version is reset.", 0, func(t *Trial) {
			a := t.draining(nil)
			a.remove()
			t.that(a.record().num("version") > 1, t.last, "a version above 1")
			r := t.status(a.again(owner), 201)
			t.member(r, "version", 1)
			t.that(r.header.Get("ETag") == `"1"`, r, `ETag "1", not %q`, r.header.Get("ETag"))
			t.member(a.record(), "version", 1)
		}, ""},
		{"3.3", "registered_at-stays", "registered_at is that of the first registration, also after a new one.",
			Settled, func(t *Trial) {
				a := t.register(nil)
				a.remove()
				t.sleep(t.cfg.Poll)
				r := t.status(a.again(owner), 201)
				t.equal("registered_at", r.str("registered_at"), a.reg.str("registered_at"))
				t.that(r.time("last_heartbeat_at").After(a.reg.time("last_heartbeat_at")), r,
					"a later last_heartbeat_at")
			}, ""},
		{"3.3", "incarnation-rises", "An incarnation, which never falls, tells the new registration from the old one.",
			Settled, func(t *Trial) {
				a := t.register(nil)
				was := a.reg.num("incarnation")
				t.that(was > 0, a.reg, "an incarnation above 0")
				for range 3 {
					a.remove()
					r := t.status(a.again(owner), 201)
					t.that(r.num("incarnation") > was, r, "an incarnation above %d", was)
					was = r.num("incarnation")
				}
			}, ""},
		{"3.3", "old-incarnation-gone",
			"A heartbeat or acquire that names an incarnation before the current one is refused with 410.",
			Settled | Tasks, func(t *Trial) {
				a := t.register(nil)
				old := a.reg.num("incarnation")
				a.remove()
				now := t.status(a.again(owner), 201).num("incarnation")
				t.code(a.beat(owner, "active", fields{"incarnation": old}), 410, "agent_gone")
				t.submit(nil)
				t.code(a.acquire(owner, fields{"incarnation": old}), 410, "agent_gone")
				t.status(a.beat(owner, "active", fields{"incarnation": now}), 200)
			}, ""},
		{"3.3", "later-incarnation", "One above the current one, of a store that was lost since, is accepted.", Settled,
			func(t *Trial) {
				a := t.register(nil)
				t.status(a.beat(owner, "active", fields{"incarnation": a.reg.num("incarnation") + 1000}), 200)
				a.expect("active")
			}, ""},
		{"3.3", "again-by-time",
			"An agent that has just been silent for too long is registered again, whether a sweep has seen its death or not.", Settled | Exact | Events, func(t *Trial) {
				a := t.register(t.mortal())
				t.sleep(seconds(t.cfg.Dead) + time.Millisecond)
				t.status(a.again(owner), 201)
				a.moved(moveIn, moveUnwell, moveDead, moveReborn)
			}, ""},
		{"3.3", "who-may-register", "Agents' and operators' keys may register, a reader's may not.",
			Settled | Operator | Reviewer, func(t *Trial) {
				t.status(t.try(operator, nil).reg, 201)
				t.code(t.try(reviewer, fields{"agent_id": t.id("reader")}).reg, 403, "forbidden")
			}, ""},
		{"3.3", "live-id-facts", "A live id registered again is 409 state_conflict with its status, for everybody.",
			Settled | Stranger | Operator, func(t *Trial) {
				a := t.register(nil)
				for _, by := range []who{owner, stranger, operator} {
					t.member(t.code(a.again(by), 409, "state_conflict"), "agent_status", "active")
				}
			}, ""},
	}
}
