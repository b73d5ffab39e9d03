package agentheartbeat

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/picket-dev/picket/internal/conformance"
)

// policyEvents are the types of the events of policies.
const policyEvents = "heartbeat_policy.written,heartbeat_policy.deleted,heartbeat_policy.rolled_back"

// Section 7: managed authoring over HTTP.
var authoringChecks = checks{
	"7/inspect-http": func(t *Trial) {
		name := t.name()
		digest := t.write(name, plain).Str("digest")
		a := t.read(name)
		t.ExpectMember(a, "body", plain)
		t.ExpectMember(a, "digest", digest)
		t.ExpectMember(a, "agent_name", name)
	},
	"7/validate-http": func(t *Trial) {
		name := t.name()
		a := t.change("POST", name, "/validate", fields{"body": plain})
		t.ExpectMember(t.ExpectStatus(a, 200), "valid", true)
		t.ExpectMember(t.read(name), "present", false)
	},
	"7/write-http": func(t *Trial) {
		name := t.name()
		a := t.write(name, plain)
		t.ExpectMember(a, "present", true)
		t.ExpectMember(t.read(name), "revision_id", a.Str("revision_id"))
	},
	"7/delete-http": func(t *Trial) {
		name := t.name()
		digest := t.write(name, plain).Str("digest")
		t.ExpectStatus(t.change("DELETE", name, "", fields{"expected_digest": digest}), 200)
		t.ExpectMember(t.read(name), "present", false)
	},
	"7/history-http": func(t *Trial) {
		name := t.name()
		first := t.write(name, plain).Str("revision_id")
		second := t.replace(name, front("summary: x")).Str("revision_id")
		list := t.history(name, "?limit=2").List("revisions")
		t.ExpectEqual("number of revisions", len(list), 2)
		t.ExpectEqual("the newest revision", list[0]["revision_id"], second)
		t.ExpectEqual("the revision before", list[1]["revision_id"], first)
		t.ExpectEqual("current", list[0]["current"], true)
	},
	"7/rollback-http": func(t *Trial) {
		name := t.name()
		first := t.write(name, "First.\r\n")
		second := t.replace(name, "Second.\n")
		a := t.change("POST", name, "/rollback", fields{"revision_id": first.Str("revision_id"),
			"expected_digest": second.Str("digest")})
		t.ExpectStatus(a, 200)
		a = t.read(name)
		t.ExpectMember(a, "body", "First.\r\n")
		t.ExpectMember(a, "digest", first.Str("digest"))
	},
	"7/status-http": func(t *Trial) {
		name := t.name()
		digest := t.write(name, plain).Str("digest")
		t.ExpectMember(t.expectActive(name, ""), "digest", digest)
	},
	"7/wake-http": func(t *Trial) { t.wakeable(plain).sent() },
	"7/rollback-digest": func(t *Trial) {
		name := t.name()
		first := t.write(name, "First.\n")
		second := t.replace(name, "Second.\n").Str("digest")
		a := t.change("POST", name, "/rollback",
			fields{"target_digest": first.Str("digest"), "expected_digest": second})
		t.ExpectStatus(a, 200)
		t.ExpectMember(t.read(name), "body", "First.\n")
	},
	"7/rollback-one": func(t *Trial) {
		name := t.name()
		first := t.write(name, plain)
		both := fields{"revision_id": first.Str("revision_id"), "target_digest": first.Str("digest")}
		for _, body := range []fields{{}, both} {
			body["expected_digest"] = first.Str("digest")
			t.ExpectCode(t.change("POST", name, "/rollback", body), 400, "validation_failed")
		}
	},
	"7/rollback-unknown": func(t *Trial) {
		name := t.name()
		digest := t.write(name, plain).Str("digest")
		for _, body := range []fields{{"revision_id": "revision_01JZZZZZZZZZZZZZZZZZZZZZZZ"},
			{"target_digest": "sha256:" + strings.Repeat("0", 64)}} {
			body["expected_digest"] = digest
			t.ExpectCode(t.change("POST", name, "/rollback", body), 404, "revision_not_found")
		}
		t.ExpectMember(t.read(name), "digest", digest)
	},
	"7/rollback-undoes-delete": func(t *Trial) {
		name := t.name()
		first := t.write(name, plain)
		t.ExpectStatus(t.change("DELETE", name, "", fields{"expected_digest": first.Str("digest")}), 200)
		t.ExpectStatus(t.change("POST", name, "/rollback", fields{"revision_id": first.Str("revision_id")}), 200)
		t.ExpectMember(t.read(name), "body", plain)
	},
	"7/delete-absent": func(t *Trial) {
		t.ExpectCode(t.change("DELETE", t.name(), "", fields{}), 404, "heartbeat_no_policy")
	},
	"7/pages": func(t *Trial) {
		name := t.name()
		first := t.write(name, plain).Str("revision_id")
		second := t.replace(name, front("summary: x")).Str("revision_id")
		a := t.history(name, "?limit=1")
		t.ExpectEqual("the newest revision", a.List("revisions")[0]["revision_id"], second)
		a = t.history(name, "?limit=1&cursor="+number(a.Num("cursor")))
		t.ExpectEqual("the revision before", a.List("revisions")[0]["revision_id"], first)
		t.ExpectRefused(t.Call(operator, "GET", policyPath(name, "/history?limit=51"), nil))
	},
	"7/scope-reviewer": func(t *Trial) {
		name := t.name()
		t.write(name, plain)
		for _, rest := range []string{"", "/status", "/history"} {
			t.ExpectStatus(t.Call(reviewer, "GET", policyPath(name, rest), nil), 200)
		}
		t.ExpectStatus(t.Call(reviewer, "POST", policyPath(name, "/validate"), fields{"body": plain}), 200)
		for method, rest := range map[string]string{"PUT": "", "DELETE": "", "POST": "/rollback"} {
			t.ExpectCode(t.Call(reviewer, method, policyPath(name, rest), fields{"body": plain}), 403, "forbidden")
		}
	},
	"7/scope-agent-writes": func(t *Trial) {
		k := t.wakeable(plain)
		digest := t.read(k.name).Str("digest")
		for method, rest := range map[string]string{"PUT": "", "DELETE": "", "POST": "/rollback"} {
			body := fields{"body": plain, "expected_digest": digest}
			t.ExpectCode(t.Call(owner, method, policyPath(k.name, rest), body), 403, "forbidden")
		}
	},
	"7/scope-agent-reads": func(t *Trial) {
		k := t.wakeable(plain)
		for _, rest := range []string{"", "/status", "/history"} {
			t.ExpectStatus(t.Call(owner, "GET", policyPath(k.name, rest), nil), 200)
		}
	},
	"7/scope-stranger": func(t *Trial) {
		k := t.wakeable(plain)
		t.ExpectCode(t.Call(stranger, "GET", policyPath(k.name, ""), nil), 403, "forbidden")
		t.ExpectStatus(t.Call(nobody, "GET", policyPath(k.name, ""), nil), 401)
	},
	"7/audit": func(t *Trial) {
		name := t.name()
		after := t.mark()
		first := t.write(name, plain)
		t.ExpectStatus(t.change("DELETE", name, "", fields{"expected_digest": first.Str("digest")}), 200)
		t.ExpectStatus(t.change("POST", name, "/rollback", fields{"revision_id": first.Str("revision_id")}), 200)
		var types []string
		for _, e := range t.log(after, url.Values{"type": {policyEvents}}) {
			if !strings.Contains(conformance.JSON(e), `"`+name+`"`) {
				continue
			}
			types = append(types, text(e, "type"))
			t.holds(t.Last, "the actor of each event", text(e, "actor") != "" && text(e, "actor") != "server")
		}
		t.ExpectEqual("types of events", types, []string{"heartbeat_policy.written", "heartbeat_policy.deleted",
			"heartbeat_policy.rolled_back"})
	},
	"7/author": func(t *Trial) {
		name := t.name()
		a := t.write(name, plain)
		t.holds(a, "written_by and written_at", a.Str("written_by") != "" && !a.Time("written_at").IsZero())
		t.ExpectEqual("written_by", t.history(name, "?limit=1").List("revisions")[0]["written_by"], a.Str("written_by"))
	},
	"7/repeated": func(t *Trial) {
		name := t.name()
		body := fields{"body": plain, "idempotency_key": t.ID("k")}
		first := t.ExpectStatus(t.change("PUT", name, "", body), 200)
		again := t.ExpectStatus(t.change("PUT", name, "", body), 200)
		t.ExpectMember(again, "revision_id", first.Str("revision_id"))
		t.ExpectEqual("number of current revisions", len(t.current(name)), 1)
		other := fields{"body": "Other.\n", "idempotency_key": t.ID("k")}
		t.ExpectCode(t.change("PUT", name, "", other), 422, "idempotency_conflict")
	},
	"7/names": func(t *Trial) {
		for _, name := range []string{"-x", strings.Repeat("x", 129), "a%20b"} {
			t.ExpectStatus(t.Call(operator, http.MethodGet, "/api/agents/"+name+"/heartbeat", nil), 400, 404)
		}
	},
}

// Section 7: managed authoring by the command line.
var commandChecks = checks{
	"7/inspect-cli": func(t *Trial) {
		name := t.name()
		digest := t.write(name, plain).Str("digest")
		o := t.succeeds("", heartbeatCommand("inspect", name)...)
		t.ExpectMember(o.answer, "digest", digest)
		t.ExpectMember(o.answer, "body", plain)
	},
	"7/validate-cli": func(t *Trial) {
		name := t.name()
		o := t.succeeds("", heartbeatCommand("validate", name, "--file", t.file(plain))...)
		t.ExpectMember(o.answer, "valid", true)
		o = t.picket(front("model: x"), heartbeatCommand("validate", name, "--stdin", "-o", "json")...)
		t.expectExit(o, 2)
		d := diagnostic(o.List("diagnostics"), "heartbeat_forbidden_field")
		t.holds(o.answer, "the diagnostic heartbeat_forbidden_field", d != nil)
		t.ExpectMember(t.read(name), "present", false)
	},
	"7/write-cli": func(t *Trial) {
		name := t.name()
		o := t.succeeds("", heartbeatCommand("write", name, "--file", t.file(plain))...)
		t.ExpectMember(t.read(name), "digest", o.Str("digest"))
		t.ExpectMember(t.read(name), "body", plain)
	},
	"7/delete-cli": func(t *Trial) {
		name := t.name()
		digest := t.write(name, plain).Str("digest")
		t.succeeds("", heartbeatCommand("delete", name, "--if-match", digest)...)
		t.ExpectMember(t.read(name), "present", false)
	},
	"7/history-cli": func(t *Trial) {
		name := t.name()
		id := t.write(name, plain).Str("revision_id")
		t.replace(name, front("summary: x"))
		o := t.succeeds("", heartbeatCommand("history", name, "--limit", "1")...)
		list := o.List("revisions")
		t.holds(o.answer, "one revision and a cursor", len(list) == 1 && o.Num("cursor") > 0)
		o = t.succeeds("", heartbeatCommand("history", name, "--limit", "1", "--cursor", number(o.Num("cursor")))...)
		t.ExpectEqual("revision_id", o.List("revisions")[0]["revision_id"], id)
	},
	"7/rollback-cli": func(t *Trial) {
		name := t.name()
		first := t.write(name, plain)
		second := t.replace(name, "Second.\n").Str("digest")
		id, digest := first.Str("revision_id"), first.Str("digest")
		t.succeeds("", heartbeatCommand("rollback", name, "--revision-id", id, "--if-match", second)...)
		t.ExpectMember(t.read(name), "body", plain)
		t.succeeds("", heartbeatCommand("rollback", name, "--target-digest", second, "--if-match", digest)...)
		t.ExpectMember(t.read(name), "body", "Second.\n")
	},
	"7/status-cli": func(t *Trial) {
		name := t.name()
		t.write(name, active(window("UTC", "08:00", "09:00")))
		o := t.succeeds("", heartbeatCommand("status", name, "--at", "2026-05-01T07:00:00Z")...)
		t.ExpectMember(o.answer, "reason", "quiet_window")
		t.ExpectMember(o.answer, "next_allowed_at", "2026-05-01T08:00:00.000Z")
	},
	"7/wake-cli": func(t *Trial) {
		k := t.wakeable(plain)
		o := t.succeeds("", heartbeatCommand("wake", k.name, "--session", k.session(), "--dry-run")...)
		t.ExpectMember(o.answer, "result", "sent")
		t.s.noteWake(k.name)
		ended := t.startPicket("", heartbeatCommand("wake", k.name, "--session", k.session(), "--json")...)
		k.mustResult(text(k.next("wake"), "commandId"), "answered")
		o = t.expectExit(t.finish(ended), 0)
		t.ExpectMember(o.answer, "result", "sent")
		t.ExpectMember(o.answer, "reason", "wake_sent")
		o = t.succeeds("", heartbeatCommand("wake", k.name, "--session", k.session(), "--source", "manual")...)
		t.ExpectMember(o.answer, "reason", "cooldown_active")
	},
	"7/no-refresh": func(t *Trial) { t.expectExit(t.picket("", heartbeatCommand("refresh", "x")...), 2) },
	"7/if-match-cli": func(t *Trial) {
		name := t.name()
		digest := t.write(name, plain).Str("digest")
		file := t.file("Second.\n")
		for _, match := range []string{"", "sha256:" + strings.Repeat("0", 64)} {
			t.expectExit(t.picket("", heartbeatCommand("write", name, "--file", file, "--if-match", match)...), 4)
		}
		t.succeeds("", heartbeatCommand("write", name, "--file", file, "--if-match", digest)...)
		t.ExpectMember(t.read(name), "body", "Second.\n")
	},
	"7/json-cli": func(t *Trial) {
		name := t.name()
		digest := t.write(name, plain).Str("digest")
		o := t.expectExit(t.picket("", heartbeatCommand("inspect", name, "--json")...), 0)
		t.ExpectMember(o.answer, "digest", digest)
	},
	"7/stdin-cli": func(t *Trial) {
		name := t.name()
		t.succeeds(plain, heartbeatCommand("write", name, "--stdin")...)
		t.ExpectMember(t.read(name), "body", plain)
		t.expectExit(t.picket(plain, heartbeatCommand("write", name)...), 2)
	},
	"7/wakes-cli": func(t *Trial) {
		k := t.cooling()
		o := t.succeeds("", heartbeatCommand("wakes", k.name)...)
		list := o.List("wakes")
		t.holds(o.answer, "the wake of the session", len(list) > 0 && list[0]["session_id"] == k.session())
	},
	"5/cli-health": func(t *Trial) {
		k := t.keep(t.name(), 1)
		o := t.succeeds("", "session", "health", k.session())
		t.ExpectMember(o.answer, "state", "idle")
		t.ExpectMember(o.answer, "health", "healthy")
		t.ExpectMember(o.answer, "eligible_for_wake", true)
	},
	"5/cli-status":  func(t *Trial) { t.shows("status") },
	"5/cli-inspect": func(t *Trial) { t.shows("inspect") },
	"5/no-session-heartbeat": func(t *Trial) {
		t.expectExit(t.picket("", "session", "heartbeat", "x"), 2)
	},
}

// shows expects that a command about a session prints its health.
func (t *Trial) shows(verb string) {
	k := t.keep(t.name(), 1)
	o := t.expectExit(t.picket("", "session", verb, k.session(), "--json"), 0)
	t.holds(o.answer, "the health of the session", strings.Contains(string(o.Raw), `"eligible_for_wake": true`))
}

// file is the path of a file with a text.
func (t *Trial) file(content string) string {
	path, err := t.s.file(t.ID("HEARTBEAT.md"), content)
	if err != nil {
		t.NotRun("a file for a command cannot be written: %v", err)
	}
	return path
}

const wrongDigest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// Section 7: changes name the digest of what they change.
var conditionChecks = checks{
	"7/cas-write":    func(t *Trial) { t.conditional("PUT", "", fields{"body": "Second.\n"}) },
	"7/cas-delete":   func(t *Trial) { t.conditional("DELETE", "", fields{}) },
	"7/cas-rollback": func(t *Trial) { t.conditional("POST", "/rollback", fields{}) },
	"7/cas-create": func(t *Trial) {
		name := t.name()
		a := t.change("PUT", name, "", fields{"body": plain, "expected_digest": wrongDigest})
		t.ExpectCode(a, 409, "heartbeat_conflict")
		t.ExpectMember(a, "currentDigest", "")
		t.write(name, plain)
	},
	"7/if-match-write":    func(t *Trial) { t.refusesIfMatch("PUT", "") },
	"7/if-match-delete":   func(t *Trial) { t.refusesIfMatch("DELETE", "") },
	"7/if-match-rollback": func(t *Trial) { t.refusesIfMatch("POST", "/rollback") },
	"7/if-match-wake":     func(t *Trial) { t.refusesIfMatch("POST", "/wake") },
	"7/if-match-validate": func(t *Trial) { t.refusesIfMatch("POST", "/validate") },
}

// conditional expects that a change needs the digest of the policy, and is made with it.
func (t *Trial) conditional(method, rest string, body fields) {
	name := t.name()
	first := t.write(name, plain)
	if rest == "/rollback" {
		body["revision_id"] = first.Str("revision_id")
	}
	for _, wrong := range []any{nil, wrongDigest} {
		a := t.change(method, name, rest, merge(body, fields{"expected_digest": wrong}))
		t.ExpectCode(a, 409, "heartbeat_conflict")
		t.ExpectMember(a, "currentDigest", first.Str("digest"))
		t.ExpectMember(t.read(name), "revision_id", first.Str("revision_id"))
	}
	t.ExpectStatus(t.change(method, name, rest, merge(body, fields{"expected_digest": first.Str("digest")})), 200)
	t.holds(t.Last, "another revision", t.read(name).Str("revision_id") != first.Str("revision_id"))
}

// refusesIfMatch expects that a header If-Match is refused, and that nothing was changed.
func (t *Trial) refusesIfMatch(method, rest string) {
	k := t.wakeable(plain)
	a := t.read(k.name)
	body := fields{"body": "Second.\n", "expected_digest": a.Str("digest")}
	switch rest {
	case "/rollback":
		body = fields{"revision_id": a.Str("revision_id"), "expected_digest": a.Str("digest")}
	case "/wake":
		body = k.wakeBody(fields{"dry_run": true})
	case "/validate":
		body = fields{"body": plain}
	}
	if method == "DELETE" {
		delete(body, "body")
	}
	t.ExpectCode(t.change(method, k.name, rest, body, "If-Match", `"`+a.Str("digest")+`"`), 400,
		"heartbeat_if_match_header_unsupported")
	t.ExpectMember(t.read(k.name), "revision_id", a.Str("revision_id"))
	t.ExpectEqual("number of prompts", len(k.prompts()), 0)
}
