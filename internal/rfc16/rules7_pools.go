package rfc16

import "github.com/picket-dev/picket/internal/conformance"

// Sections 7 and 8: pools, instance and role.
var poolChecks = checks{
	"7.1/set-of-instances": func(t *Trial) {
		role := t.ID("role")
		a, b := t.register(fields{"role_id": role}), t.register(fields{"role_id": role})
		t.ExpectEqual("listed", t.listed("role_id="+role), []string{a.id, b.id})
	},
	"7.2/membership": func(t *Trial) {
		role, want := t.ID("role"), []string{}
		for range 4 {
			want = append(want, t.register(fields{"role_id": role}).id)
		}
		t.ExpectEqual("listed", t.listed("role_id="+role), want)
	},
	"7.2/capacity": func(t *Trial) {
		role := t.ID("role")
		for _, m := range [][2]int{{5, 2}, {3, 1}} {
			a := t.register(fields{"role_id": role, "capacity": fields{"max_concurrent_tasks": m[0]}})
			t.ExpectStatus(a.heartbeat(owner, "active", fields{"current_load": m[1]}), 200)
		}
		p := t.poolOf(role)
		t.ExpectEqual("max_concurrent_tasks", p["max_concurrent_tasks"], 8)
		t.ExpectEqual("current_load", p["current_load"], 3)
		t.ExpectEqual("available_capacity", p["available_capacity"], 5)
	},
	"7.2/capacity-active-only": func(t *Trial) {
		role := t.ID("role")
		size := merge(t.longThresholds(), fields{"role_id": role, "capacity": fields{"max_concurrent_tasks": 4}})
		t.register(size)
		t.ExpectStatus(t.register(merge(t.longThresholds(), fields{"role_id": role})).
			heartbeat(owner, "active", fields{"current_load": 3}), 200)
		t.register(size).remove()
		t.register(merge(size, t.unhealthyOnlyThresholds())).fallSilent("unhealthy")
		p := t.poolOf(role)
		t.ExpectEqual("max_concurrent_tasks", p["max_concurrent_tasks"], 4)
		t.ExpectEqual("current_load", p["current_load"], 0)
		t.ExpectEqual("available_capacity", p["available_capacity"], 4)
		for status, want := range map[string]int{"active": 2, "unhealthy": 1, "deregistered": 1} {
			t.ExpectEqual("members."+status, conformance.Number(p, "members."+status), want)
		}
	},
	"7.2/one-pool": func(t *Trial) {
		role := t.ID("role")
		t.register(fields{"role_id": role, "capacity": fields{"max_concurrent_tasks": 4}})
		r := t.ExpectStatus(t.Call(operator, "GET", "/api/v1/pools/"+role, nil), 200)
		t.ExpectEqual("pool", r.Body, t.poolOf(role))
		t.ExpectStatus(t.Call(owner, "GET", "/api/v1/pools/"+role, nil), 200)
		t.ExpectCode(t.Call(stranger, "GET", "/api/v1/pools/"+role, nil), 403, "forbidden")
		t.ExpectCode(t.Call(operator, "GET", "/api/v1/pools/"+role+"none", nil), 404, "not_found")
	},
	"7.2/independent-lifecycles": func(t *Trial) {
		role := t.ID("role")
		a := t.register(merge(t.longThresholds(), fields{"role_id": role}))
		b := t.register(merge(t.shortThresholds(), fields{"role_id": role}))
		b.fallSilent("dead")
		t.ExpectMember(a.expect("active"), "version", 1)
		a.mustHeartbeat()
		t.ExpectEqual("listed", t.listed("role_id="+role), []string{a.id})
	},
	"7.3/assignment": func(t *Trial) {
		tag, _ := t.registerPool(fields{"capacity": fields{"max_concurrent_tasks": 2}})
		all := t.ExpectStatus(t.Call(operator, "GET", agentsPath+"?capabilities="+tag, nil), 200).List("agents")
		t.Assert(len(all) == 1, t.Last, "one agent")
		for _, path := range []string{"capabilities", "capacity.max_concurrent_tasks", "capacity.current_load",
			"status"} {
			_, there := conformance.Member(all[0], path)
			t.Assert(there, t.Last, "the member %s", path)
		}
	},
	"8.1/agent_id-unique": func(t *Trial) {
		a := t.register(nil)
		a.mustHeartbeat()
		t.ExpectStatus(a.reregister(owner), 409)
	},
	"8.1/restart-same-id": registersAgain,
	"8.1/restart-new-id": func(t *Trial) {
		role := t.ID("role")
		a := t.newDeregisteredAgent(fields{"role_id": role})
		b := t.register(fields{"role_id": role})
		t.ExpectMember(a.expect("deregistered"), "role_id", role)
		t.ExpectEqual("listed", t.listed("role_id="+role), []string{b.id})
	},
	"8.1/role_id-shared": func(t *Trial) {
		role := t.ID("role")
		a, b := t.register(fields{"role_id": role, "name": "one"}), t.register(fields{"role_id": role, "name": "two"})
		a.expect("active")
		b.expect("active")
	},
	"8.2/working-memory": func(t *Trial) {
		a, l := t.newHolder(t.shortThresholds())
		t.ExpectStatus(l.call("/v1/tools/report_progress", fields{"summary": "half of it is done"}), 200)
		a.fallSilent("dead")
		again := t.register(nil).mustAcquire()
		t.ExpectEqual("task", again.task, l.task)
		all := again.previous.List("leases")
		t.ExpectEqual("lastReport.summary", text(all[0], "lastReport.summary"), "half of it is done")
	},
	"8.3/instance-in-events": func(t *Trial) {
		role := t.ID("role")
		a, b := t.register(fields{"role_id": role}), t.register(fields{"role_id": role})
		a.remove()
		for _, m := range []*agent{a, b} {
			for _, e := range m.lifecycleEvents() {
				t.ExpectEqual("agent_id", e.str("agent_id"), m.id)
				t.Assert(e.str("actor") != role && e.str("agentId") != role, e.a, "no role in the place of an agent")
			}
		}
		t.ExpectEqual("number of events of the role", len(t.events(role, "")), 0)
	},
	"8.3/instance-in-lease-events": func(t *Trial) {
		role := t.ID("role")
		a, b := t.register(fields{"role_id": role}), t.register(fields{"role_id": role})
		for _, m := range []*agent{a, b} {
			l := t.newLease(m)
			t.ExpectStatus(l.release(), 200)
			for _, e := range t.events("", l.task, "task.leased", "lease.released") {
				t.ExpectEqual("agentId of "+e.str("type"), e.str("agentId"), m.id)
			}
			t.ExpectStatus(t.Call(operator, "POST", "/api/v1/tasks/"+l.task+"/cancel", fields{"reason": "done"}), 200)
		}
	},
}

// poolOf finds a pool in the list of all.
func (t *Trial) poolOf(role string) fields {
	r := t.ExpectStatus(t.Call(operator, "GET", "/api/v1/pools", nil), 200)
	for _, p := range r.List("pools") {
		if text(p, "role_id") == role {
			return p
		}
	}
	t.Assert(false, r, "a pool %s", role)
	return nil
}
