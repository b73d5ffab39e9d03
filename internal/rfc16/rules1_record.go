package rfc16

import "strings"

// Section 1: the record and its fields.
func recordRules() []Rule {
	return []Rule{
		{"1", "created-and-updated",
			"An agent record is created at registration and updated through heartbeats and status transitions.", 0,
			func(t *Trial) {
				id := t.id("a1")
				t.expectStatus(t.call(owner, "GET", agentsPath+"/"+id, nil), 404)
				a := t.register(nil)
				t.expectMember(a.record(), "capacity.current_load", 0)
				t.expectStatus(a.heartbeat(owner, "active", fields{"current_load": 2}), 200)
				r := a.record()
				t.expectMember(r, "capacity.current_load", 2)
				t.expectMember(r, "status", "active")
				a.drain(60)
				t.assert(a.status() != "active", t.last, "a status that is not active after a drain request")
			}, ""},
		{"1.1", "agent_id",
			"agent_id: string, required. Unique identifier for this agent instance (server-generated or client-provided).", 0, func(t *Trial) {
				a := t.register(nil)
				t.expectMember(a.reg, "agent_id", t.id("a1"))
				made := t.register(fields{"agent_id": nil})
				t.assert(made.id != "" && made.id != a.id, made.reg, "a new agent_id made by the server")
				t.expectMember(made.record(), "agent_id", made.id)
			}, ""},
		storedField("role_id", "string, optional. Stable identifier for the agent's role.", "rfc16-role"),
		storedField("name", "string, optional. Human-readable name for display and logging.",
			"Billing Processor (Instance 2) – é"),
		{"1.1", "capabilities",
			"capabilities: string[], optional. Capability tags describing what work this agent can perform.", 0,
			func(t *Trial) {
				a := t.register(fields{"capabilities": []string{"billing", "invoicing", "stripe-integration"}})
				t.expectMember(a.reg, "capabilities", []string{"billing", "invoicing", "stripe-integration"})
				t.expectMember(a.record(), "capabilities", []string{"billing", "invoicing", "stripe-integration"})
				t.assert(len(t.register(nil).reg.list("capabilities")) == 0, t.last,
					"no capabilities when none are given")
			}, ""},
		{"1.1", "max_concurrent_tasks",
			"capacity.max_concurrent_tasks: integer, optional. Maximum number of tasks this agent can execute concurrently.", 0, func(t *Trial) {
				t.expectMember(t.register(fields{"capacity": fields{"max_concurrent_tasks": 5}}).record(),
					"capacity.max_concurrent_tasks", 5)
				t.expectRefused(t.tryRegister(owner, fields{"capacity": fields{"max_concurrent_tasks": "five"}}).reg)
				t.register(nil)
			}, ""},
		{"1.1", "current_load",
			"capacity.current_load: integer. Number of tasks currently in progress, updated via heartbeats.", 0,
			func(t *Trial) {
				a := t.register(fields{"capacity": fields{"max_concurrent_tasks": 5}})
				t.expectMember(a.reg, "capacity.current_load", 0)
				for _, load := range []int{3, 0, 7} {
					t.expectStatus(a.heartbeat(owner, "active", fields{"current_load": load}), 200)
					t.expectMember(a.record(), "capacity.current_load", load)
				}
			}, ""},
		{"1.1", "status", "status: string, required. Current lifecycle status.", 0, func(t *Trial) {
			a := t.register(nil)
			t.expectMember(a.record(), "status", "active")
			a.remove()
			t.expectMember(a.record(), "status", "deregistered")
		}, ""},
		storedField("endpoint", "string, optional. URL for push notifications.",
			"https://billing-agent.example.com/webhook"),
		{"1.1", "endpoint-not-needed",
			"endpoint is not used by the heartbeat protocol: an agent whose endpoint does not answer is as healthy as any other.", 0, func(t *Trial) {
				a := t.register(fields{"endpoint": "http://192.0.2.1:9/webhook"})
				t.heartbeatTwice(a)
				a.expect("active")
			}, ""},
		{"1.1", "endpoint-checked", "An endpoint is an absolute http or https URL without credentials.", Settled,
			func(t *Trial) {
				for _, bad := range []string{"billing-agent", "ftp://example.com/x", "http://",
					"https://user:secret@example.com/"} {
					t.expectCode(t.tryRegister(owner, fields{"agent_id": t.id("odd"), "endpoint": bad}).reg, 400,
						"validation_failed")
				}
			}, ""},
		{"1.1", "metadata-bounded", "Metadata of more than 64 KiB is refused with 413.", Settled, func(t *Trial) {
			t.register(fields{"metadata": fields{"text": strings.Repeat("x", 60<<10)}})
			t.expectCode(t.tryRegister(owner, fields{
				"agent_id": t.id("large"),
				"metadata": fields{"text": strings.Repeat("x", 65<<10)},
			}).reg, 413, "too_large")
		}, ""},
		thresholdField("interval_seconds", "How often the agent sends heartbeats. Default: 30.", 30),
		thresholdField("unhealthy_after_seconds",
			"Seconds of silence before the server marks the agent unhealthy. Default: 90.", 90),
		thresholdField("dead_after_seconds", "Seconds of silence before the server marks the agent dead. Default: 300.",
			300),
		{"1.1", "metadata",
			"metadata: object, optional. Implementation-specific data. The protocol does not inspect this field.", 0,
			func(t *Trial) {
				odd := fields{
					"version": "1.2.0",
					"status":  "dead",
					"nested":  fields{"list": []any{1, "two", nil, true, fields{}}},
					"":        "",
				}
				a := t.register(fields{"metadata": odd})
				t.expectMember(a.reg, "metadata", odd)
				t.expectMember(a.record(), "metadata", odd)
				t.expectMember(t.register(nil).record(), "metadata", fields{})
				t.expectRefused(t.tryRegister(owner, fields{"agent_id": t.id("list"), "metadata": []int{1}}).reg)
			}, ""},
		{"1.1", "metadata-byte-for-byte", "Metadata keeps its digits, the order of its members and its nesting.",
			Settled, func(t *Trial) {
				odd := `{"z":1,"a":12345678901234567890.123456789,"m":{"y":0.10,"b":1e400}}`
				a := t.register(fields{"metadata": raw(odd)})
				t.assert(strings.Contains(string(a.reg.raw), odd), a.reg, "metadata %s", odd)
				r := a.record()
				t.assert(strings.Contains(string(r.raw), odd), r, "metadata %s", odd)
			}, ""},
		{"1.1", "registered_at",
			"registered_at: string (ISO 8601), required. Timestamp of initial registration (server-generated).", 0,
			func(t *Trial) {
				a := t.register(nil)
				at := t.expectTime(a.reg, "registered_at")
				off := at.Sub(t.now()).Abs()
				t.assert(off < t.cfg.Slack+2e9, a.reg, "registered_at now, by the server's clock")
				t.heartbeatTwice(a)
				t.expectEqual("registered_at", a.record().str("registered_at"), a.reg.str("registered_at"))
			}, ""},
		{"1.1", "last_heartbeat_at",
			"last_heartbeat_at: string (ISO 8601), required. Timestamp of the most recently received heartbeat (server-generated).", 0, func(t *Trial) {
				a := t.register(nil)
				before := t.expectTime(a.reg, "last_heartbeat_at")
				t.sleep(t.cfg.Poll)
				beat := a.mustHeartbeat()
				after := t.expectTime(a.record(), "last_heartbeat_at")
				t.assert(after.After(before), t.last, "last_heartbeat_at after %s", a.reg.str("last_heartbeat_at"))
				t.assert(!after.After(t.expectTime(beat, "server_timestamp")), t.last, "last_heartbeat_at not after %s",
					beat.str("server_timestamp"))
			}, ""},
		{"1.1", "version",
			"version: integer, required. Optimistic concurrency version, incremented on every state change.", 0,
			func(t *Trial) {
				a := t.newDrainingAgent(nil)
				r := a.record()
				t.assert(r.num("version") > 1, r, "a version above 1 after a change of status")
				was := r.num("version")
				a.remove()
				r = a.record()
				t.assert(r.num("version") > was, r, "a version above %d after another change", was)
			}, ""},
		{"1.1", "version-by-one", "The version moves by one for each change of status.", Settled | Tasks,
			func(t *Trial) {
				a := t.newDrainingAgent(nil)
				t.expectMember(a.record(), "version", 2)
				a.remove()
				t.expectMember(a.record(), "version", 3)
			}, ""},
		{"1.1", "version-keeps-through-heartbeats", "Heartbeats do not move the version.", Settled, func(t *Trial) {
			a := t.register(nil)
			for range 3 {
				t.expectStatus(a.heartbeat(owner, "active", fields{"current_load": 1}), 200)
			}
			t.expectMember(a.record(), "version", 1)
		}, ""},
	}
}

// heartbeatTwice is two heartbeats, for what must survive them.
func (t *Trial) heartbeatTwice(a *agent) {
	a.mustHeartbeat()
	a.mustHeartbeat()
}

// storedField is a field that is stored and shown, and may be left out.
func storedField(field, text, value string) Rule {
	return Rule{"1.1", field, field + ": " + text, 0, func(t *Trial) {
		a := t.register(fields{field: value})
		t.expectMember(a.reg, field, value)
		t.expectMember(a.record(), field, value)
		t.expectRefused(t.tryRegister(owner, fields{"agent_id": t.id("number"), field: 7}).reg)
		t.register(nil)
	}, ""}
}

// thresholdField is a threshold with its default.
func thresholdField(field, text string, value int) Rule {
	return Rule{"1.1", field, "heartbeat_config." + field + ": integer, optional. " + text, 0, func(t *Trial) {
		t.expectMember(t.register(nil).reg, "heartbeat_config."+field, value)
		t.expectMember(t.register(fields{"heartbeat_config": fields{}}).record(), "heartbeat_config."+field, value)
		given := t.register(thresholds(10, 40, 160))
		want := map[string]int{"interval_seconds": 10, "unhealthy_after_seconds": 40, "dead_after_seconds": 160}[field]
		t.expectMember(given.record(), "heartbeat_config."+field, want)
		for _, bad := range []any{"30", 1.5, 0, -1} {
			t.expectRefused(t.tryRegister(owner,
				fields{"agent_id": t.id("bad"), "heartbeat_config": fields{field: bad}}).reg)
		}
	}, ""}
}
