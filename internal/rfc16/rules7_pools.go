package rfc16

// Sections 7 and 8: pools, instance and role.
var poolChecks = checks{
	"7.1/set-of-instances": func(t *Trial) {
		role := t.id("role")
		a, b := t.register(fields{"role_id": role}), t.register(fields{"role_id": role})
		t.expectEqual("listed", t.listed("role_id="+role), []string{a.id, b.id})
	},
	"7.2/membership": func(t *Trial) {
		role, want := t.id("role"), []string{}
		for range 4 {
			want = append(want, t.register(fields{"role_id": role}).id)
		}
		t.expectEqual("listed", t.listed("role_id="+role), want)
	},
	"7.2/capacity": func(t *Trial) {
		role := t.id("role")
		for _, m := range [][2]int{{5, 2}, {3, 1}} {
			a := t.register(fields{"role_id": role, "capacity": fields{"max_concurrent_tasks": m[0]}})
			t.expectStatus(a.heartbeat(owner, "active", fields{"current_load": m[1]}), 200)
		}
		p := t.poolOf(role)
		t.expectEqual("max_concurrent_tasks", p["max_concurrent_tasks"], 8)
		t.expectEqual("current_load", p["current_load"], 3)
		t.expectEqual("available_capacity", p["available_capacity"], 5)
	},
	"7.2/capacity-active-only": func(t *Trial) {
		role := t.id("role")
		size := merge(t.longThresholds(), fields{"role_id": role, "capacity": fields{"max_concurrent_tasks": 4}})
		t.register(size)
		t.expectStatus(t.register(merge(t.longThresholds(), fields{"role_id": role})).
			heartbeat(owner, "active", fields{"current_load": 3}), 200)
		t.register(size).remove()
		t.register(merge(size, t.unhealthyOnlyThresholds())).fallSilent("unhealthy")
		p := t.poolOf(role)
		t.expectEqual("max_concurrent_tasks", p["max_concurrent_tasks"], 4)
		t.expectEqual("current_load", p["current_load"], 0)
		t.expectEqual("available_capacity", p["available_capacity"], 4)
		for status, want := range map[string]int{"active": 2, "unhealthy": 1, "deregistered": 1} {
			t.expectEqual("members."+status, number(p, "members."+status), want)
		}
	},
	"7.2/one-pool": func(t *Trial) {
		role := t.id("role")
		t.register(fields{"role_id": role, "capacity": fields{"max_concurrent_tasks": 4}})
		r := t.expectStatus(t.call(operator, "GET", "/api/v1/pools/"+role, nil), 200)
		t.expectEqual("pool", r.body, t.poolOf(role))
		t.expectStatus(t.call(owner, "GET", "/api/v1/pools/"+role, nil), 200)
		t.expectCode(t.call(stranger, "GET", "/api/v1/pools/"+role, nil), 403, "forbidden")
		t.expectCode(t.call(operator, "GET", "/api/v1/pools/"+role+"none", nil), 404, "not_found")
	},
	"7.2/independent-lifecycles": func(t *Trial) {
		role := t.id("role")
		a := t.register(merge(t.longThresholds(), fields{"role_id": role}))
		b := t.register(merge(t.shortThresholds(), fields{"role_id": role}))
		b.fallSilent("dead")
		t.expectMember(a.expect("active"), "version", 1)
		a.mustHeartbeat()
		t.expectEqual("listed", t.listed("role_id="+role), []string{a.id})
	},
	"7.3/assignment": func(t *Trial) {
		tag, _ := t.registerPool(fields{"capacity": fields{"max_concurrent_tasks": 2}})
		all := t.expectStatus(t.call(operator, "GET", agentsPath+"?capabilities="+tag, nil), 200).list("agents")
		t.assert(len(all) == 1, t.last, "one agent")
		for _, path := range []string{"capabilities", "capacity.max_concurrent_tasks", "capacity.current_load",
			"status"} {
			_, there := member(all[0], path)
			t.assert(there, t.last, "the member %s", path)
		}
	},
	"8.1/agent_id-unique": func(t *Trial) {
		a := t.register(nil)
		a.mustHeartbeat()
		t.expectStatus(a.reregister(owner), 409)
	},
	"8.1/restart-same-id": registersAgain,
	"8.1/restart-new-id": func(t *Trial) {
		role := t.id("role")
		a := t.newDeregisteredAgent(fields{"role_id": role})
		b := t.register(fields{"role_id": role})
		t.expectMember(a.expect("deregistered"), "role_id", role)
		t.expectEqual("listed", t.listed("role_id="+role), []string{b.id})
	},
	"8.1/role_id-shared": func(t *Trial) {
		role := t.id("role")
		a, b := t.register(fields{"role_id": role, "name": "one"}), t.register(fields{"role_id": role, "name": "two"})
		a.expect("active")
		b.expect("active")
	},
	"8.2/working-memory": func(t *Trial) {
		a, l := t.newHolder(t.shortThresholds())
		t.expectStatus(l.call("/v1/tools/report_progress", fields{"summary": "half of it is done"}), 200)
		a.fallSilent("dead")
		again := t.register(nil).mustAcquire()
		t.expectEqual("task", again.task, l.task)
		all := again.previous.list("leases")
		t.expectEqual("lastReport.summary", text(all[0], "lastReport.summary"), "half of it is done")
	},
	"8.3/instance-in-events": func(t *Trial) {
		role := t.id("role")
		a, b := t.register(fields{"role_id": role}), t.register(fields{"role_id": role})
		a.remove()
		for _, m := range []*agent{a, b} {
			for _, e := range m.lifecycleEvents() {
				t.expectEqual("agent_id", e.str("agent_id"), m.id)
				t.assert(e.str("actor") != role && e.str("agentId") != role, e.a, "no role in the place of an agent")
			}
		}
		t.expectEqual("number of events of the role", len(t.events(role, "")), 0)
	},
	"8.3/instance-in-lease-events": func(t *Trial) {
		role := t.id("role")
		a, b := t.register(fields{"role_id": role}), t.register(fields{"role_id": role})
		for _, m := range []*agent{a, b} {
			l := t.newLease(m)
			t.expectStatus(l.release(), 200)
			for _, e := range t.events("", l.task, "task.leased", "lease.released") {
				t.expectEqual("agentId of "+e.str("type"), e.str("agentId"), m.id)
			}
			t.expectStatus(t.call(operator, "POST", "/api/v1/tasks/"+l.task+"/cancel", fields{"reason": "done"}), 200)
		}
	},
}

// poolOf finds a pool in the list of all.
func (t *Trial) poolOf(role string) fields {
	r := t.expectStatus(t.call(operator, "GET", "/api/v1/pools", nil), 200)
	for _, p := range r.list("pools") {
		if text(p, "role_id") == role {
			return p
		}
	}
	t.assert(false, r, "a pool %s", role)
	return nil
}
