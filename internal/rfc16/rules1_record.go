package rfc16

import (
	"strings"

	"github.com/picket-dev/picket/internal/conformance"
)

// Section 1: the record and its fields.
var recordChecks = checks{
	"1/created-and-updated": func(t *Trial) {
		id := t.ID("a1")
		t.ExpectStatus(t.Call(owner, "GET", agentsPath+"/"+id, nil), 404)
		a := t.register(nil)
		t.ExpectMember(a.record(), "capacity.current_load", 0)
		t.ExpectStatus(a.heartbeat(owner, "active", fields{"current_load": 2}), 200)
		r := a.record()
		t.ExpectMember(r, "capacity.current_load", 2)
		t.ExpectMember(r, "status", "active")
		a.drain(60)
		t.Assert(a.status() != "active", t.Last, "a status that is not active after a drain request")
	},
	"1.1/agent_id": func(t *Trial) {
		a := t.register(nil)
		t.ExpectMember(a.reg, "agent_id", t.ID("a1"))
		made := t.register(fields{"agent_id": nil})
		t.Assert(made.id != "" && made.id != a.id, made.reg, "a new agent_id made by the server")
		t.ExpectMember(made.record(), "agent_id", made.id)
	},
	"1.1/role_id": storedField("role_id", "rfc16-role"),
	"1.1/name":    storedField("name", "Billing Processor (Instance 2) – é"),
	"1.1/capabilities": func(t *Trial) {
		a := t.register(fields{"capabilities": []string{"billing", "invoicing", "stripe-integration"}})
		t.ExpectMember(a.reg, "capabilities", []string{"billing", "invoicing", "stripe-integration"})
		t.ExpectMember(a.record(), "capabilities", []string{"billing", "invoicing", "stripe-integration"})
		t.Assert(len(t.register(nil).reg.List("capabilities")) == 0, t.Last, "no capabilities when none are given")
	},
	"1.1/max_concurrent_tasks": func(t *Trial) {
		t.ExpectMember(t.register(fields{"capacity": fields{"max_concurrent_tasks": 5}}).record(),
			"capacity.max_concurrent_tasks", 5)
		t.ExpectRefused(t.tryRegister(owner, fields{"capacity": fields{"max_concurrent_tasks": "five"}}).reg)
		t.register(nil)
	},
	"1.1/current_load": func(t *Trial) {
		a := t.register(fields{"capacity": fields{"max_concurrent_tasks": 5}})
		t.ExpectMember(a.reg, "capacity.current_load", 0)
		for _, load := range []int{3, 0, 7} {
			t.ExpectStatus(a.heartbeat(owner, "active", fields{"current_load": load}), 200)
			t.ExpectMember(a.record(), "capacity.current_load", load)
		}
	},
	"1.1/status": func(t *Trial) {
		a := t.register(nil)
		t.ExpectMember(a.record(), "status", "active")
		a.remove()
		t.ExpectMember(a.record(), "status", "deregistered")
	},
	"1.1/endpoint": storedField("endpoint", "https://billing-agent.example.com/webhook"),
	"1.1/endpoint-not-needed": func(t *Trial) {
		a := t.register(fields{"endpoint": "http://192.0.2.1:9/webhook"})
		t.heartbeatTwice(a)
		a.expect("active")
	},
	"1.1/endpoint-checked": func(t *Trial) {
		for _, bad := range []string{"billing-agent", "ftp://example.com/x", "http://",
			"https://user:secret@example.com/"} {
			t.ExpectCode(t.tryRegister(owner, fields{"agent_id": t.ID("odd"), "endpoint": bad}).reg, 400,
				"validation_failed")
		}
	},
	"1.1/metadata-bounded": func(t *Trial) {
		t.register(fields{"metadata": fields{"text": strings.Repeat("x", 60<<10)}})
		t.ExpectCode(t.tryRegister(owner, fields{
			"agent_id": t.ID("large"),
			"metadata": fields{"text": strings.Repeat("x", 65<<10)},
		}).reg, 413, "too_large")
	},
	"1.1/interval_seconds":        thresholdField("interval_seconds", 30),
	"1.1/unhealthy_after_seconds": thresholdField("unhealthy_after_seconds", 90),
	"1.1/dead_after_seconds":      thresholdField("dead_after_seconds", 300),
	"1.1/metadata": func(t *Trial) {
		odd := fields{
			"version": "1.2.0",
			"status":  "dead",
			"nested":  fields{"list": []any{1, "two", nil, true, fields{}}},
			"":        "",
		}
		a := t.register(fields{"metadata": odd})
		t.ExpectMember(a.reg, "metadata", odd)
		t.ExpectMember(a.record(), "metadata", odd)
		t.ExpectMember(t.register(nil).record(), "metadata", fields{})
		t.ExpectRefused(t.tryRegister(owner, fields{"agent_id": t.ID("list"), "metadata": []int{1}}).reg)
	},
	"1.1/metadata-byte-for-byte": func(t *Trial) {
		odd := `{"z":1,"a":12345678901234567890.123456789,"m":{"y":0.10,"b":1e400}}`
		a := t.register(fields{"metadata": conformance.RawJSON(odd)})
		t.Assert(strings.Contains(string(a.reg.Raw), odd), a.reg, "metadata %s", odd)
		r := a.record()
		t.Assert(strings.Contains(string(r.Raw), odd), r, "metadata %s", odd)
	},
	"1.1/registered_at": func(t *Trial) {
		a := t.register(nil)
		at := t.ExpectTime(a.reg, "registered_at")
		off := at.Sub(t.Now()).Abs()
		t.Assert(off < t.cfg.Slack+2e9, a.reg, "registered_at now, by the server's clock")
		t.heartbeatTwice(a)
		t.ExpectEqual("registered_at", a.record().Str("registered_at"), a.reg.Str("registered_at"))
	},
	"1.1/last_heartbeat_at": func(t *Trial) {
		a := t.register(nil)
		before := t.ExpectTime(a.reg, "last_heartbeat_at")
		t.Sleep(t.cfg.Poll)
		beat := a.mustHeartbeat()
		after := t.ExpectTime(a.record(), "last_heartbeat_at")
		t.Assert(after.After(before), t.Last, "last_heartbeat_at after %s", a.reg.Str("last_heartbeat_at"))
		t.Assert(!after.After(t.ExpectTime(beat, "server_timestamp")), t.Last, "last_heartbeat_at not after %s",
			beat.Str("server_timestamp"))
	},
	"1.1/version": func(t *Trial) {
		a := t.newDrainingAgent(nil)
		r := a.record()
		t.Assert(r.Num("version") > 1, r, "a version above 1 after a change of status")
		was := r.Num("version")
		a.remove()
		r = a.record()
		t.Assert(r.Num("version") > was, r, "a version above %d after another change", was)
	},
	"1.1/version-by-one": func(t *Trial) {
		a := t.newDrainingAgent(nil)
		t.ExpectMember(a.record(), "version", 2)
		a.remove()
		t.ExpectMember(a.record(), "version", 3)
	},
	"1.1/version-keeps-through-heartbeats": func(t *Trial) {
		a := t.register(nil)
		for range 3 {
			t.ExpectStatus(a.heartbeat(owner, "active", fields{"current_load": 1}), 200)
		}
		t.ExpectMember(a.record(), "version", 1)
	},
}

// heartbeatTwice is two heartbeats, for what must survive them.
func (t *Trial) heartbeatTwice(a *agent) {
	a.mustHeartbeat()
	a.mustHeartbeat()
}

// storedField is a field that is stored and shown, and may be left out.
func storedField(field, value string) func(*Trial) {
	return func(t *Trial) {
		a := t.register(fields{field: value})
		t.ExpectMember(a.reg, field, value)
		t.ExpectMember(a.record(), field, value)
		t.ExpectRefused(t.tryRegister(owner, fields{"agent_id": t.ID("number"), field: 7}).reg)
		t.register(nil)
	}
}

// thresholdField is a threshold with its default.
func thresholdField(field string, value int) func(*Trial) {
	return func(t *Trial) {
		t.ExpectMember(t.register(nil).reg, "heartbeat_config."+field, value)
		t.ExpectMember(t.register(fields{"heartbeat_config": fields{}}).record(), "heartbeat_config."+field, value)
		given := t.register(thresholds(10, 40, 160))
		want := map[string]int{"interval_seconds": 10, "unhealthy_after_seconds": 40, "dead_after_seconds": 160}[field]
		t.ExpectMember(given.record(), "heartbeat_config."+field, want)
		for _, bad := range []any{"30", 1.5, 0, -1} {
			t.ExpectRefused(t.tryRegister(owner,
				fields{"agent_id": t.ID("bad"), "heartbeat_config": fields{field: bad}}).reg)
		}
	}
}
