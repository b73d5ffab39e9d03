package rfc16

// Sections 10 to 12.
func otherRules() []Rule {
	rules := []Rule{
		{"10.1", "capabilities-self-declared", "Capabilities are self-declared at registration; any tag is taken.", 0,
			func(t *Trial) {
				t.expectMember(t.register(fields{"capabilities": []string{"coordinator", "admin", "go-1.26", "c++"}}).
					record(), "capabilities", []string{"coordinator", "admin", "go-1.26", "c++"})
			}, ""},
		{"10.1", "capabilities-give-no-right",
			"A self-declared capability gives no right: what an agent is authorized to do is decided elsewhere.",
			Stranger | Operator | Settled, func(t *Trial) {
				a := t.register(nil)
				t.expectStatus(t.tryRegister(stranger,
					fields{"agent_id": t.id("boss"), "capabilities": []string{"coordinator", "admin", "operator"}}).reg,
					201)
				t.expectCode(a.changeIf(stranger, `"1"`, fields{"status": "draining"}), 403, "forbidden")
				t.expectCode(t.call(stranger, "DELETE", a.path(""), nil), 403, "forbidden")
				a.expect("active")
			}, ""},
		{"10.2", "coordinators",
			"Coordinators are agents with the coordinator capability: they register, send heartbeats and follow the same lifecycle.", 0, func(t *Trial) {
				a := t.register(merge(t.shortThresholds(), fields{"capabilities": []string{"coordinator"}}))
				a.mustHeartbeat()
				a.fallSilent("dead")
				t.expectStatus(a.heartbeat(owner, "active", nil), 410)
			}, ""},
		{"10.2", "failover",
			"A coordinator transitioning to dead triggers failover: the event that does is in the log.", Events,
			func(t *Trial) {
				t.newDeadAgent(fields{"capabilities": []string{"coordinator"}}).
					expectLifecycle(moveRegistered, moveUnhealthy, moveDead)
			}, ""},
		{"10.3", "grants-preserved",
			"When an agent re-registers after death, existing grants are preserved: its key works as before.", Tasks,
			func(t *Trial) {
				a := t.newDeadAgent(nil)
				a.body = fields{"agent_id": a.id}
				t.expectStatus(a.reregister(owner), 201)
				a.mustHeartbeat()
				t.newLease(a).expectHeld()
			}, ""},
		{"10.3", "grants-dormant",
			"Grants of a deregistered agent are retained but dormant; they activate when the agent re-registers.",
			Tasks, func(t *Trial) {
				a := t.newDeregisteredAgent(nil)
				t.submit(nil)
				t.expectStatus(a.acquire(owner, nil), 410)
				t.expectStatus(a.reregister(owner), 201)
				a.mustAcquire().expectHeld()
			}, ""},
		{"10.4", "memory", "RFC-0015 (Agent Memory): see section 8.2.", 0, nil,
			"it is a reference; section 8.2 has rows of its own"},
		{"11", "401", "Without a key and with an unknown one the answer is 401 unauthenticated, on every endpoint.",
			Settled, func(t *Trial) {
				a := t.register(nil)
				for _, r := range routes {
					t.expectCode(r.call(t, a, nobody), 401, "unauthenticated")
					t.expectCode(r.call(t, a, unknownKey), 401, "unauthenticated")
				}
				t.expectMember(a.expect("active"), "version", 1)
			}, ""},
		{"11", "if-match",
			"Status updates use If-Match for optimistic concurrency: of two updates of the same version one wins.", 0,
			func(t *Trial) {
				a := t.register(nil)
				t.expectStatus(a.changeIf(owner, `"1"`, fields{"status": "draining", "drain_timeout_seconds": 600}),
					200)
				t.expectStatus(a.changeIf(owner, `"1"`, fields{"status": "deregistered"}), 409, 412)
			}, ""},
		{"11", "delete-immediate", "DELETE deregisters an agent: immediate, no drain, also while it holds leases.",
			Tasks, func(t *Trial) {
				a, l := t.newHolder(nil)
				a.remove()
				a.expect("deregistered")
				t.expectStatus(l.write(), 412)
			}, ""},
		{"11", "delete-reason",
			"Leases ended by deregistration: lease.expired with reason agent_deregistered, no failure.",
			Tasks | Events | Settled, func(t *Trial) {
				a, l := t.newHolder(nil)
				a.remove()
				t.expectEqual("reason", l.awaitExpired(t.cfg.Slack).str("reason"), "agent_deregistered")
				t.expectMember(t.state(l.task), "failures", 0)
				a.expectLifecycle(moveRegistered, moveDeregistered)
				t.expectEqual("task", t.register(nil).mustAcquire().task, l.task)
			}, ""},
		{"11", "delete-again",
			"DELETE of a deregistered agent is 200 without an event, of a dead one 409, of an unknown one 404.",
			Events | Settled, func(t *Trial) {
				a := t.newDeregisteredAgent(nil)
				t.expectMember(t.expectStatus(a.remove(), 200), "version", 2)
				a.expectLifecycle(moveRegistered, moveDeregistered)
				b := t.newDeadAgent(nil)
				t.expectCode(t.call(owner, "DELETE", b.path(""), nil), 409, "state_conflict")
				b.expect("dead")
				t.expectCode(t.call(owner, "DELETE", agentsPath+"/"+t.id("never"), nil), 404, "not_found")
			}, ""},
		{"11", "delete-while-unhealthy", "DELETE of an unhealthy agent deregisters it, one event.", Events | Settled,
			func(t *Trial) {
				a := t.newUnhealthyAgent(nil)
				a.remove()
				a.expectLifecycle(moveRegistered, moveUnhealthy, "unhealthy deregistered deregistered")
			}, ""},
		{"11", "delete-while-draining", "DELETE of a draining agent deregisters it, one event, and ends its leases.",
			Events | Tasks | Settled, func(t *Trial) {
				a, l := t.newDrainingHolder(nil)
				a.remove()
				a.expectLifecycle(moveRegistered, moveDrain, "draining deregistered deregistered")
				t.expectEqual("reason", l.awaitExpired(t.cfg.Slack).str("reason"), "agent_deregistered")
			}, ""},
		{"11", "delete-if-match", "If-Match of a DELETE is optional; one that is not the current version is 409.",
			Settled, func(t *Trial) {
				a := t.register(nil)
				t.expectCode(t.call(owner, "DELETE", a.path(""), nil, "If-Match", `"2"`), 409, "version_conflict")
				a.expect("active")
				t.expectStatus(t.call(owner, "DELETE", a.path(""), nil, "If-Match", `"1"`), 200)
			}, ""},
		{"12", "workflow-file",
			"Agent lifecycle configuration can be specified in YAML workflows: role_id, capabilities, capacity, heartbeat, drain_timeout_seconds, pool.", 0, nil, "the file is read by the server's process, not over HTTP; Picket's own tests load the document's example"},
		{"12", "advisory", "pool.min_instances and pool.max_instances are advisory and can be read.", Pools, nil,
			"only a server that was started with such a file has them; GET /api/v1/pools shows them as advisory"},
	}
	for _, r := range routes {
		rules = append(rules, r.exists(), r.guarded())
	}
	return rules
}

// routeRow is a row of section 11.
type routeRow struct {
	id      string
	method  string
	path    string
	text    string
	body    any
	headers []string
	want    int
}

var routes = []routeRow{
	{"register", "POST", "", "Register a new agent.", fields{"name": "guarded"}, nil, 201},
	{"list", "GET", "", "List/query agents (with filters).", nil, nil, 200},
	{"get", "GET", "/{agent_id}", "Get a single agent record.", nil, nil, 200},
	{"status", "PATCH", "/{agent_id}/status", "Update agent status (drain, deregister).",
		fields{"status": "deregistered"}, []string{"If-Match", `"1"`}, 200},
	{"heartbeat", "POST", "/{agent_id}/heartbeat", "Send a heartbeat.",
		fields{"status": "active", "client_timestamp": "2026-02-08T10:30:00Z"}, nil, 200},
	{"delete", "DELETE", "/{agent_id}", "Deregister an agent (immediate, no drain).", nil, nil, 200},
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

func (r routeRow) exists() Rule {
	return Rule{"11", r.id, r.method + " " + agentsPath + r.path + ": " + r.text, 0, func(t *Trial) {
		a := t.register(nil)
		got := t.expectStatus(r.call(t, a, owner), r.want, 204)
		switch r.id {
		case "register":
			made := &agent{t: t, id: got.str("agent_id"), key: owner}
			t.agents = append(t.agents, made)
			t.expectMember(made.expect("active"), "name", "guarded")
		case "list":
			t.assert(got.num("total") > 0 && len(got.list("agents")) > 0, got,
				"agents, of which one is active for sure")
		}
		if want := map[string]string{"status": "deregistered", "delete": "deregistered"}[r.id]; want != "" {
			a.expect(want)
		}
	}, ""}
}

func (r routeRow) guarded() Rule {
	return Rule{"11", r.id + "-key",
		r.method + " " + agentsPath + r.path +
			" requires X-API-Key: it is refused without one and with an unknown one.", 0, func(t *Trial) {
			a := t.register(nil)
			t.expectStatus(r.call(t, a, nobody), 401, 403)
			t.expectStatus(r.call(t, a, unknownKey), 401, 403)
			t.expectMember(a.expect("active"), "version", 1)
		}, ""}
}
