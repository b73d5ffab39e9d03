package rfc16

// Sections 10 to 12.
var otherChecks = checks{
	"10.1/capabilities-self-declared": func(t *Trial) {
		t.expectMember(t.register(fields{"capabilities": []string{"coordinator", "admin", "go-1.26", "c++"}}).
			record(), "capabilities", []string{"coordinator", "admin", "go-1.26", "c++"})
	},
	"10.1/capabilities-give-no-right": func(t *Trial) {
		a := t.register(nil)
		t.expectStatus(t.tryRegister(stranger,
			fields{"agent_id": t.id("boss"), "capabilities": []string{"coordinator", "admin", "operator"}}).reg,
			201)
		t.expectCode(a.changeIf(stranger, `"1"`, fields{"status": "draining"}), 403, "forbidden")
		t.expectCode(t.call(stranger, "DELETE", a.path(""), nil), 403, "forbidden")
		a.expect("active")
	},
	"10.2/coordinators": func(t *Trial) {
		a := t.register(merge(t.shortThresholds(), fields{"capabilities": []string{"coordinator"}}))
		a.mustHeartbeat()
		a.fallSilent("dead")
		t.expectStatus(a.heartbeat(owner, "active", nil), 410)
	},
	"10.2/failover": func(t *Trial) {
		t.newDeadAgent(fields{"capabilities": []string{"coordinator"}}).
			expectLifecycle(moveRegistered, moveUnhealthy, moveDead)
	},
	"10.3/grants-preserved": func(t *Trial) {
		a := t.newDeadAgent(nil)
		a.body = fields{"agent_id": a.id}
		t.expectStatus(a.reregister(owner), 201)
		a.mustHeartbeat()
		t.newLease(a).expectHeld()
	},
	"10.3/grants-dormant": func(t *Trial) {
		a := t.newDeregisteredAgent(nil)
		t.submit(nil)
		t.expectStatus(a.acquire(owner, nil), 410)
		t.expectStatus(a.reregister(owner), 201)
		a.mustAcquire().expectHeld()
	},
	"11/401": func(t *Trial) {
		a := t.register(nil)
		for _, r := range routes {
			t.expectCode(r.call(t, a, nobody), 401, "unauthenticated")
			t.expectCode(r.call(t, a, unknownKey), 401, "unauthenticated")
		}
		t.expectMember(a.expect("active"), "version", 1)
	},
	"11/if-match": func(t *Trial) {
		a := t.register(nil)
		t.expectStatus(a.changeIf(owner, `"1"`, fields{"status": "draining", "drain_timeout_seconds": 600}), 200)
		t.expectStatus(a.changeIf(owner, `"1"`, fields{"status": "deregistered"}), 409, 412)
	},
	"11/delete-immediate": func(t *Trial) {
		a, l := t.newHolder(nil)
		a.remove()
		a.expect("deregistered")
		t.expectStatus(l.write(), 412)
	},
	"11/delete-reason": func(t *Trial) {
		a, l := t.newHolder(nil)
		a.remove()
		t.expectEqual("reason", l.awaitExpired(t.cfg.Slack).str("reason"), "agent_deregistered")
		t.expectMember(t.state(l.task), "failures", 0)
		a.expectLifecycle(moveRegistered, moveDeregistered)
		t.expectEqual("task", t.register(nil).mustAcquire().task, l.task)
	},
	"11/delete-again": func(t *Trial) {
		a := t.newDeregisteredAgent(nil)
		t.expectMember(t.expectStatus(a.remove(), 200), "version", 2)
		a.expectLifecycle(moveRegistered, moveDeregistered)
		b := t.newDeadAgent(nil)
		t.expectCode(t.call(owner, "DELETE", b.path(""), nil), 409, "state_conflict")
		b.expect("dead")
		t.expectCode(t.call(owner, "DELETE", agentsPath+"/"+t.id("never"), nil), 404, "not_found")
	},
	"11/delete-while-unhealthy": func(t *Trial) {
		a := t.newUnhealthyAgent(nil)
		a.remove()
		a.expectLifecycle(moveRegistered, moveUnhealthy, "unhealthy deregistered deregistered")
	},
	"11/delete-while-draining": func(t *Trial) {
		a, l := t.newDrainingHolder(nil)
		a.remove()
		a.expectLifecycle(moveRegistered, moveDrain, "draining deregistered deregistered")
		t.expectEqual("reason", l.awaitExpired(t.cfg.Slack).str("reason"), "agent_deregistered")
	},
	"11/delete-if-match": func(t *Trial) {
		a := t.register(nil)
		t.expectCode(t.call(owner, "DELETE", a.path(""), nil, "If-Match", `"2"`), 409, "version_conflict")
		a.expect("active")
		t.expectStatus(t.call(owner, "DELETE", a.path(""), nil, "If-Match", `"1"`), 200)
	},
}

// routeChecks try every route, with a key and without one.
func routeChecks() checks {
	all := checks{}
	for _, r := range routes {
		all["11/"+r.id] = r.exists
		all["11/"+r.id+"-key"] = r.guarded
	}
	return all
}

// routeRow is a row of section 11.
type routeRow struct {
	id      string
	method  string
	path    string
	body    any
	headers []string
	want    int
}

var routes = []routeRow{
	{"register", "POST", "", fields{"name": "guarded"}, nil, 201},
	{"list", "GET", "", nil, nil, 200},
	{"get", "GET", "/{agent_id}", nil, nil, 200},
	{"status", "PATCH", "/{agent_id}/status", fields{"status": "deregistered"}, []string{"If-Match", `"1"`}, 200},
	{"heartbeat", "POST", "/{agent_id}/heartbeat",
		fields{"status": "active", "client_timestamp": "2026-02-08T10:30:00Z"}, nil, 200},
	{"delete", "DELETE", "/{agent_id}", nil, nil, 200},
}

func (r routeRow) call(t *Trial, a *agent, by keyName) *answer {
	path := agentsPath
	if r.path != "" {
		path = a.path(r.path[len("/{agent_id}"):])
	}
	if r.id == "list" && by == owner {
		by = operator // who may list, where that is restricted
	}
	return t.call(by, r.method, path, r.body, r.headers...)
}

func (r routeRow) exists(t *Trial) {
	a := t.register(nil)
	got := t.expectStatus(r.call(t, a, owner), r.want, 204)
	switch r.id {
	case "register":
		made := &agent{t: t, id: got.str("agent_id"), key: owner}
		t.agents = append(t.agents, made)
		t.expectMember(made.expect("active"), "name", "guarded")
	case "list":
		t.assert(got.num("total") > 0 && len(got.list("agents")) > 0, got, "agents, of which one is active for sure")
	case "status", "delete":
		a.expect("deregistered")
	}
}

func (r routeRow) guarded(t *Trial) {
	a := t.register(nil)
	t.expectStatus(r.call(t, a, nobody), 401, 403)
	t.expectStatus(r.call(t, a, unknownKey), 401, 403)
	t.expectMember(a.expect("active"), "version", 1)
}
