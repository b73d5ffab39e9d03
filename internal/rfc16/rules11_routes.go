package rfc16

// Sections 10 to 12.
var otherChecks = checks{
	"10.1/capabilities-self-declared": func(t *Trial) {
		t.ExpectMember(t.register(fields{"capabilities": []string{"coordinator", "admin", "go-1.26", "c++"}}).
			record(), "capabilities", []string{"coordinator", "admin", "go-1.26", "c++"})
	},
	"10.1/capabilities-give-no-right": func(t *Trial) {
		a := t.register(nil)
		t.ExpectStatus(t.tryRegister(stranger,
			fields{"agent_id": t.ID("boss"), "capabilities": []string{"coordinator", "admin", "operator"}}).reg,
			201)
		t.ExpectCode(a.changeIf(stranger, `"1"`, fields{"status": "draining"}), 403, "forbidden")
		t.ExpectCode(t.Call(stranger, "DELETE", a.path(""), nil), 403, "forbidden")
		a.expect("active")
	},
	"10.2/coordinators": func(t *Trial) {
		a := t.register(merge(t.shortThresholds(), fields{"capabilities": []string{"coordinator"}}))
		a.mustHeartbeat()
		a.fallSilent("dead")
		t.ExpectStatus(a.heartbeat(owner, "active", nil), 410)
	},
	"10.2/failover": func(t *Trial) {
		t.newDeadAgent(fields{"capabilities": []string{"coordinator"}}).
			expectLifecycle(moveRegistered, moveUnhealthy, moveDead)
	},
	"10.3/grants-preserved": func(t *Trial) {
		a := t.newDeadAgent(nil)
		a.body = fields{"agent_id": a.id}
		t.ExpectStatus(a.reregister(owner), 201)
		a.mustHeartbeat()
		t.newLease(a).expectHeld()
	},
	"10.3/grants-dormant": func(t *Trial) {
		a := t.newDeregisteredAgent(nil)
		t.submit(nil)
		t.ExpectStatus(a.acquire(owner, nil), 410)
		t.ExpectStatus(a.reregister(owner), 201)
		a.mustAcquire().expectHeld()
	},
	"11/401": func(t *Trial) {
		a := t.register(nil)
		for _, r := range routes {
			t.ExpectCode(r.call(t, a, nobody), 401, "unauthenticated")
			t.ExpectCode(r.call(t, a, unknownKey), 401, "unauthenticated")
		}
		t.ExpectMember(a.expect("active"), "version", 1)
	},
	"11/if-match": func(t *Trial) {
		a := t.register(nil)
		t.ExpectStatus(a.changeIf(owner, `"1"`, fields{"status": "draining", "drain_timeout_seconds": 600}), 200)
		t.ExpectStatus(a.changeIf(owner, `"1"`, fields{"status": "deregistered"}), 409, 412)
	},
	"11/delete-immediate": func(t *Trial) {
		a, l := t.newHolder(nil)
		a.remove()
		a.expect("deregistered")
		t.ExpectStatus(l.write(), 412)
	},
	"11/delete-reason": func(t *Trial) {
		a, l := t.newHolder(nil)
		a.remove()
		t.ExpectEqual("reason", l.awaitExpired(t.cfg.Slack).str("reason"), "agent_deregistered")
		t.ExpectMember(t.state(l.task), "failures", 0)
		a.expectLifecycle(moveRegistered, moveDeregistered)
		t.ExpectEqual("task", t.register(nil).mustAcquire().task, l.task)
	},
	"11/delete-again": func(t *Trial) {
		a := t.newDeregisteredAgent(nil)
		t.ExpectMember(t.ExpectStatus(a.remove(), 200), "version", 2)
		a.expectLifecycle(moveRegistered, moveDeregistered)
		b := t.newDeadAgent(nil)
		t.ExpectCode(t.Call(owner, "DELETE", b.path(""), nil), 409, "state_conflict")
		b.expect("dead")
		t.ExpectCode(t.Call(owner, "DELETE", agentsPath+"/"+t.ID("never"), nil), 404, "not_found")
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
		t.ExpectEqual("reason", l.awaitExpired(t.cfg.Slack).str("reason"), "agent_deregistered")
	},
	"11/delete-if-match": func(t *Trial) {
		a := t.register(nil)
		t.ExpectCode(t.Call(owner, "DELETE", a.path(""), nil, "If-Match", `"2"`), 409, "version_conflict")
		a.expect("active")
		t.ExpectStatus(t.Call(owner, "DELETE", a.path(""), nil, "If-Match", `"1"`), 200)
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
	return t.Call(by, r.method, path, r.body, r.headers...)
}

func (r routeRow) exists(t *Trial) {
	a := t.register(nil)
	got := t.ExpectStatus(r.call(t, a, owner), r.want, 204)
	switch r.id {
	case "register":
		made := &agent{t: t, id: got.Str("agent_id"), key: owner}
		t.agents = append(t.agents, made)
		t.ExpectMember(made.expect("active"), "name", "guarded")
	case "list":
		t.Assert(got.Num("total") > 0 && len(got.List("agents")) > 0, got, "agents, of which one is active for sure")
	case "status", "delete":
		a.expect("deregistered")
	}
}

func (r routeRow) guarded(t *Trial) {
	a := t.register(nil)
	t.ExpectStatus(r.call(t, a, nobody), 401, 403)
	t.ExpectStatus(r.call(t, a, unknownKey), 401, 403)
	t.ExpectMember(a.expect("active"), "version", 1)
}
