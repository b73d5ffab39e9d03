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
var registrationChecks = checks{
	"3.1/request": func(t *Trial) {
		t.register(fullRequest())
	},
	"3.1/all-optional": func(t *Trial) {
		a := t.register(fields{"agent_id": nil})
		t.ExpectMember(a.reg, "status", "active")
		t.ExpectMember(a.expect("active"), "agent_id", a.id)
	},
	"3.2/201": func(t *Trial) {
		t.ExpectStatus(t.tryRegister(owner, fullRequest()).reg, 201)
	},
	"3.2/content-type": func(t *Trial) {
		r := t.register(fullRequest()).reg
		t.Assert(strings.HasPrefix(r.Header.Get("Content-Type"), "application/json"), r,
			"Content-Type application/json, not %q", r.Header.Get("Content-Type"))
	},
	"3.2/etag": func(t *Trial) {
		r := t.register(fullRequest()).reg
		t.Assert(r.Header.Get("ETag") == `"1"`, r, `ETag "1", not %q`, r.Header.Get("ETag"))
	},
	"3.2/location": func(t *Trial) {
		a := t.register(nil)
		t.ExpectEqual("Location", a.reg.Header.Get("Location"), a.path(""))
	},
	"3.2/body": func(t *Trial) {
		r := t.register(fullRequest()).reg
		for path, want := range merge(fullRequest(),
			fields{
				"agent_id": t.ID("a1"),
				"capacity": fields{"max_concurrent_tasks": 5, "current_load": 0},
				"status":   "active",
				"version":  1,
			}) {
			t.ExpectMember(r, path, want)
		}
		t.ExpectTime(r, "registered_at")
		t.ExpectEqual("last_heartbeat_at", r.Str("last_heartbeat_at"), r.Str("registered_at"))
	},
	"3.4/event": func(t *Trial) {
		all := t.register(nil).lifecycleEvents()
		t.Assert(len(all) == 1 && all[0].str("new_status") == "active", t.Last,
			"one lifecycle event with new_status active")
	},
	"3.4/appears": func(t *Trial) {
		tag := t.tag()
		a := t.register(fields{"capabilities": []string{tag}, "role_id": tag})
		t.ExpectEqual("listed", t.listed("capabilities="+tag+"&role_id="+tag), []string{a.id})
	},
	"3.4/monitoring-begins": func(t *Trial) {
		t.register(t.unhealthyOnlyThresholds()).fallSilent("unhealthy")
	},

	"3.3/unhealthy-twice-interval": func(t *Trial) {
		t.register(thresholds(30, 60, 300))
		for _, under := range []int{59, 31, 30, 1} {
			t.ExpectRefused(t.tryRegister(owner,
				merge(thresholds(30, under, 300), fields{"agent_id": t.ID("under")})).reg)
		}
	},
	"3.3/dead-twice-unhealthy": func(t *Trial) {
		t.register(thresholds(30, 90, 180))
		for _, under := range []int{179, 91, 90, 1} {
			t.ExpectRefused(t.tryRegister(owner,
				merge(thresholds(30, 90, under), fields{"agent_id": t.ID("under")})).reg)
		}
	},
	"3.3/after-defaulting": func(t *Trial) {
		for _, config := range []fields{{"interval_seconds": 46}, {"unhealthy_after_seconds": 59},
			{"unhealthy_after_seconds": 151}, {"dead_after_seconds": 179},
			{"interval_seconds": 100, "unhealthy_after_seconds": 200}} {
			t.ExpectCode(t.tryRegister(owner,
				fields{"agent_id": t.ID("under"), "heartbeat_config": config}).reg, 400,
				"validation_failed")
		}
		for _, config := range []fields{{"interval_seconds": 45}, {"unhealthy_after_seconds": 60},
			{"unhealthy_after_seconds": 150}, {"dead_after_seconds": 180}} {
			t.register(fields{"heartbeat_config": config})
		}
	},
	"3.3/refused-leaves-nothing": func(t *Trial) {
		a := t.tryRegister(owner, merge(thresholds(30, 31, 300)))
		t.ExpectRefused(a.reg)
		t.ExpectStatus(t.Call(owner, "GET", a.path(""), nil), 404)
	},
	"3.3/server-generated-id": func(t *Trial) {
		a, b := t.register(fields{"agent_id": nil}), t.register(fields{"agent_id": nil})
		t.Assert(a.id != "" && b.id != "" && a.id != b.id, b.reg, "two different ids")
		a.expect("active")
		b.expect("active")
	},
	"3.3/server-generated-ulid": func(t *Trial) {
		r := t.register(fields{"agent_id": nil}).reg
		t.Assert(ulidID.MatchString(r.Str("agent_id")), r, "agent_ and 26 characters of a ULID")
	},
	"3.3/optional": func(t *Trial) {
		t.submit(nil)
		l := (&agent{t: t, id: t.ID("standalone"), key: owner}).mustAcquire()
		l.expectHeld()
		t.ExpectStatus(l.complete(), 200)
		t.ExpectStatus(t.Call(owner, "GET", agentsPath+"/"+t.ID("standalone"), nil), 404)
	},
	"3.3/server-owned-ignored": func(t *Trial) {
		r := t.register(fields{
			"status":            "dead",
			"version":           14,
			"registered_at":     "2001-01-01T00:00:00Z",
			"last_heartbeat_at": "2001-01-01T00:00:00Z",
			"capacity":          fields{"max_concurrent_tasks": 5, "current_load": 4},
		}).record()
		t.ExpectMember(r, "status", "active")
		t.ExpectMember(r, "version", 1)
		t.ExpectMember(r, "capacity.current_load", 0)
		t.Assert(r.Time("registered_at").Year() > 1999 && r.Str("registered_at") != "2001-01-01T00:00:00.000Z",
			r, "registered_at by the server's clock")
	},
	"3.3/unknown-member": func(t *Trial) {
		t.ExpectCode(t.tryRegister(owner, fields{"agent_id": t.ID("odd"), "capabilites": []string{"x"}}).reg,
			400, "validation_failed")
		t.ExpectCode(t.Call(owner, "POST", agentsPath, `{"agent_id":"`+t.ID("odd")+`","name":"a","name":"b"}`),
			400, "validation_failed")
	},
	"3.3/id-form": func(t *Trial) {
		for _, bad := range []string{"a b", "-a", "a{b}", "a/b", "é", strings.Repeat("a", 129)} {
			t.ExpectCode(t.tryRegister(owner, fields{"agent_id": bad}).reg, 400, "validation_failed")
			t.ExpectCode(t.tryRegister(owner, fields{"agent_id": t.ID("role"), "role_id": bad}).reg, 400,
				"validation_failed")
		}
		t.register(fields{"role_id": strings.Repeat("r", 128)})
	},
	"3.3/drain-timeout": func(t *Trial) {
		t.ExpectMember(t.register(fields{"drain_timeout_seconds": 7}).record(), "drain_timeout_seconds", 7)
		t.ExpectCode(t.tryRegister(owner, fields{"agent_id": t.ID("never"), "drain_timeout_seconds": -1}).reg,
			400, "validation_failed")
	},
	"3.3/idempotency-key": func(t *Trial) {
		first := t.Call(owner, "POST", agentsPath, fields{"name": "once"}, "Idempotency-Key", t.ID("key"))
		a := &agent{t: t, id: t.ExpectStatus(first, 201).Str("agent_id"), key: owner}
		t.agents = append(t.agents, a)
		again := t.ExpectStatus(t.Call(owner, "POST", agentsPath, fields{"name": "once"}, "Idempotency-Key",
			t.ID("key")), 201)
		t.ExpectEqual("agent_id", again.Str("agent_id"), a.id)
		a.expectLifecycle(moveRegistered)
		t.ExpectCode(t.Call(owner, "POST", agentsPath, fields{"name": "twice"}, "Idempotency-Key", t.ID("key")),
			422, "idempotency_conflict")
	},
}
