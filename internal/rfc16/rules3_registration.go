package rfc16

import (
	"regexp"
	"strings"
)

var ulidID = regexp.MustCompile(`^agent_[0-7][0-9A-HJKMNP-TV-Z]{25}$`)

// fullRequest is the request of section 3.1 except for the id.
func fullRequest() fields {
	return fields{
		"role_id":          "billing-processor",
		"name":             "Billing Processor",
		"capabilities":     []string{"billing", "invoicing", "stripe-integration"},
		"capacity":         fields{"max_concurrent_tasks": 5},
		"endpoint":         "https://billing-agent.example.com/webhook",
		"heartbeat_config": fields{"interval_seconds": 30, "unhealthy_after_seconds": 90, "dead_after_seconds": 300},
		"metadata":         fields{"version": "1.2.0", "runtime": "python-3.11"},
	}
}

// Sections 3.1, 3.2 and 3.4, and what a registration may hold.
func registrationRules() []Rule {
	return []Rule{
		{"3.1", "request",
			"POST /api/v1/agents takes agent_id, role_id, name, capabilities, capacity, endpoint, heartbeat_config and metadata.", 0, func(t *Trial) {
				t.register(fullRequest())
			}, ""},
		{"3.1", "all-optional", "Every member of the request is optional.", Settled, func(t *Trial) {
			a := t.register(fields{"agent_id": nil})
			t.expectMember(a.reg, "status", "active")
			t.expectMember(a.expect("active"), "agent_id", a.id)
		}, ""},
		{"3.2", "201", "A registration answers 201 Created.", 0, func(t *Trial) {
			t.expectStatus(t.tryRegister(owner, fullRequest()).reg, 201)
		}, ""},
		{"3.2", "content-type", "The answer is application/json.", 0, func(t *Trial) {
			r := t.register(fullRequest()).reg
			t.assert(strings.HasPrefix(r.header.Get("Content-Type"), "application/json"), r,
				"Content-Type application/json, not %q", r.header.Get("Content-Type"))
		}, ""},
		{"3.2", "etag", `The answer carries ETag: "1".`, 0, func(t *Trial) {
			r := t.register(fullRequest()).reg
			t.assert(r.header.Get("ETag") == `"1"`, r, `ETag "1", not %q`, r.header.Get("ETag"))
		}, ""},
		{"3.2", "location", "The answer carries Location with the path of the record.", Settled, func(t *Trial) {
			a := t.register(nil)
			t.expectEqual("Location", a.reg.header.Get("Location"), a.path(""))
		}, ""},
		{"3.2", "body",
			"The answer is the whole record: what was sent, current_load 0, status active, registered_at, last_heartbeat_at, version 1.", 0, func(t *Trial) {
				r := t.register(fullRequest()).reg
				for path, want := range merge(fullRequest(),
					fields{
						"agent_id": t.id("a1"),
						"capacity": fields{"max_concurrent_tasks": 5, "current_load": 0},
						"status":   "active",
						"version":  1,
					}) {
					t.expectMember(r, path, want)
				}
				t.expectTime(r, "registered_at")
				t.expectEqual("last_heartbeat_at", r.str("last_heartbeat_at"), r.str("registered_at"))
			}, ""},
		{"3.4", "event", "An agent.lifecycle event with new_status active is recorded.", Events, func(t *Trial) {
			all := t.register(nil).lifecycleEvents()
			t.assert(len(all) == 1 && all[0].str("new_status") == "active", t.last,
				"one lifecycle event with new_status active")
		}, ""},
		{"3.4", "appears", "The agent appears in registry queries.", 0, func(t *Trial) {
			tag := t.tag()
			a := t.register(fields{"capabilities": []string{tag}, "role_id": tag})
			t.expectEqual("listed", t.listed("capabilities="+tag+"&role_id="+tag), []string{a.id})
		}, ""},
		{"3.4", "monitoring-begins",
			"Heartbeat monitoring begins: an agent that registers and sends nothing afterwards becomes unhealthy.", 0,
			func(t *Trial) {
				t.register(t.unhealthyOnlyThresholds()).fallSilent("unhealthy")
			}, ""},
		{"3.4", "uniform", "The declarative and the imperative path produce identical protocol-level effects.", Settled,
			nil,
			"it is about client libraries; Picket's own tests compare the event logs of library, command line and raw HTTP"},

		{"3.3", "unhealthy-twice-interval", "unhealthy_after_seconds MUST be at least twice interval_seconds.", 0,
			func(t *Trial) {
				t.register(thresholds(30, 60, 300))
				for _, under := range []int{59, 31, 30, 1} {
					t.expectRefused(t.tryRegister(owner,
						merge(thresholds(30, under, 300), fields{"agent_id": t.id("under")})).reg)
				}
			}, ""},
		{"3.3", "dead-twice-unhealthy", "dead_after_seconds MUST be at least twice unhealthy_after_seconds.", 0,
			func(t *Trial) {
				t.register(thresholds(30, 90, 180))
				for _, under := range []int{179, 91, 90, 1} {
					t.expectRefused(t.tryRegister(owner,
						merge(thresholds(30, 90, under), fields{"agent_id": t.id("under")})).reg)
				}
			}, ""},
		{"3.3", "after-defaulting",
			"The proportions hold after the defaults were filled in; a refusal is 400 validation_failed.", Settled,
			func(t *Trial) {
				for _, config := range []fields{{"interval_seconds": 46}, {"unhealthy_after_seconds": 59},
					{"unhealthy_after_seconds": 151}, {"dead_after_seconds": 179},
					{"interval_seconds": 100, "unhealthy_after_seconds": 200}} {
					t.expectCode(t.tryRegister(owner,
						fields{"agent_id": t.id("under"), "heartbeat_config": config}).reg, 400,
						"validation_failed")
				}
				for _, config := range []fields{{"interval_seconds": 45}, {"unhealthy_after_seconds": 60},
					{"unhealthy_after_seconds": 150}, {"dead_after_seconds": 180}} {
					t.register(fields{"heartbeat_config": config})
				}
			}, ""},
		{"3.3", "refused-leaves-nothing", "A refused registration leaves no record.", 0, func(t *Trial) {
			a := t.tryRegister(owner, merge(thresholds(30, 31, 300)))
			t.expectRefused(a.reg)
			t.expectStatus(t.call(owner, "GET", a.path(""), nil), 404)
		}, ""},
		{"3.3", "server-generated-id", "If agent_id is omitted, the server generates one.", 0, func(t *Trial) {
			a, b := t.register(fields{"agent_id": nil}), t.register(fields{"agent_id": nil})
			t.assert(a.id != "" && b.id != "" && a.id != b.id, b.reg, "two different ids")
			a.expect("active")
			b.expect("active")
		}, ""},
		{"3.3", "server-generated-ulid", "The recommended format agent_{ulid} is used.", Settled, func(t *Trial) {
			r := t.register(fields{"agent_id": nil}).reg
			t.assert(ulidID.MatchString(r.str("agent_id")), r, "agent_ and 26 characters of a ULID")
		}, ""},
		{"3.3", "optional",
			"Registration is optional: an agent that is not registered is not required to register, and works.", Tasks,
			func(t *Trial) {
				t.submit(nil)
				l := (&agent{t: t, id: t.id("standalone"), key: owner}).mustAcquire()
				l.expectHeld()
				t.expectStatus(l.complete(), 200)
				t.expectStatus(t.call(owner, "GET", agentsPath+"/"+t.id("standalone"), nil), 404)
			}, ""},
		{"3.3", "server-owned-ignored",
			"status, version, registered_at, last_heartbeat_at and capacity.current_load are the server's: ignored in a request.", Settled, func(t *Trial) {
				r := t.register(fields{
					"status":            "dead",
					"version":           14,
					"registered_at":     "2001-01-01T00:00:00Z",
					"last_heartbeat_at": "2001-01-01T00:00:00Z",
					"capacity":          fields{"max_concurrent_tasks": 5, "current_load": 4},
				}).record()
				t.expectMember(r, "status", "active")
				t.expectMember(r, "version", 1)
				t.expectMember(r, "capacity.current_load", 0)
				t.assert(r.time("registered_at").Year() > 1999 && r.str("registered_at") != "2001-01-01T00:00:00.000Z",
					r, "registered_at by the server's clock")
			}, ""},
		{"3.3", "unknown-member", "An unknown or repeated member is refused with 400 validation_failed.", Settled,
			func(t *Trial) {
				t.expectCode(t.tryRegister(owner, fields{"agent_id": t.id("odd"), "capabilites": []string{"x"}}).reg,
					400, "validation_failed")
				t.expectCode(t.call(owner, "POST", agentsPath, `{"agent_id":"`+t.id("odd")+`","name":"a","name":"b"}`),
					400, "validation_failed")
			}, ""},
		{"3.3", "id-form",
			"Ids of agents and roles are letters, digits, _ . and -, at most 128, beginning with a letter or digit.",
			Settled, func(t *Trial) {
				for _, bad := range []string{"a b", "-a", "a{b}", "a/b", "é", strings.Repeat("a", 129)} {
					t.expectCode(t.tryRegister(owner, fields{"agent_id": bad}).reg, 400, "validation_failed")
					t.expectCode(t.tryRegister(owner, fields{"agent_id": t.id("role"), "role_id": bad}).reg, 400,
						"validation_failed")
				}
				t.register(fields{"role_id": strings.Repeat("r", 128)})
			}, ""},
		{"3.3", "drain-timeout", "A registration may give drain_timeout_seconds for drains that name none.", Settled,
			func(t *Trial) {
				t.expectMember(t.register(fields{"drain_timeout_seconds": 7}).record(), "drain_timeout_seconds", 7)
				t.expectCode(t.tryRegister(owner, fields{"agent_id": t.id("never"), "drain_timeout_seconds": -1}).reg,
					400, "validation_failed")
			}, ""},
		{"3.3", "idempotency-key",
			"Repeated with the same Idempotency-Key a registration answers the same again; with another body it is 422.", Settled | Events, func(t *Trial) {
				first := t.call(owner, "POST", agentsPath, fields{"name": "once"}, "Idempotency-Key", t.id("key"))
				a := &agent{t: t, id: t.expectStatus(first, 201).str("agent_id"), key: owner}
				t.agents = append(t.agents, a)
				again := t.expectStatus(t.call(owner, "POST", agentsPath, fields{"name": "once"}, "Idempotency-Key",
					t.id("key")), 201)
				t.expectEqual("agent_id", again.str("agent_id"), a.id)
				a.expectLifecycle(moveRegistered)
				t.expectCode(t.call(owner, "POST", agentsPath, fields{"name": "twice"}, "Idempotency-Key", t.id("key")),
					422, "idempotency_conflict")
			}, ""},
	}
}
