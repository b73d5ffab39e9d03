package agentheartbeat

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket/internal/conformance"
)

// diagnosticMembers are those of the one shape of a diagnostic.
var diagnosticMembers = []string{
	"code", "column", "line", "message", "owner_surface", "path", "severity", "source_path",
}

func (t *Trial) expectShape(d fields) {
	var members []string
	for name := range d {
		members = append(members, name)
	}
	slices.Sort(members)
	t.ExpectEqual("members of a diagnostic", members, diagnosticMembers)
	t.holds(t.Last, "a message, and a relative path", text(d, "message") != "" &&
		!strings.HasPrefix(text(d, "source_path"), "/"))
}

// Section 8: diagnostics.
var diagnosticChecks = checks{
	"8/shape-http": func(t *Trial) {
		t.expectShape(t.invalid(front("model: x"), "heartbeat_forbidden_field"))
		_, d := t.warned(interval("1ms"), "heartbeat_preference_clamped")
		t.expectShape(d)
	},
	"8/shape-cli": func(t *Trial) {
		for _, verb := range []string{"validate", "write"} {
			o := t.picket(front("model: x"), heartbeatCommand(verb, t.name(), "--stdin", "-o", "json")...)
			t.expectExit(o, 2)
			d := diagnostic(o.List("diagnostics"), "heartbeat_forbidden_field")
			t.holds(o.answer, "the diagnostic heartbeat_forbidden_field", d != nil)
			t.expectShape(d)
		}
	},
	"8/heartbeat_disabled": func(t *Trial) {
		name := t.name()
		t.write(name, front("enabled: false"))
		t.expectInactive(name, "", "heartbeat_disabled")
	},
	"8/heartbeat_invalid": func(t *Trial) {
		a := t.change("PUT", t.name(), "", fields{"body": front("version: 2")})
		t.ExpectCode(a, 422, "heartbeat_invalid")
		t.holds(a, "diagnostics of the policy", len(a.List("policy.diagnostics")) > 0)
	},
	"8/heartbeat_conflict": func(t *Trial) {
		name := t.name()
		t.write(name, plain)
		a := t.change("PUT", name, "", fields{"body": plain, "expected_digest": wrongDigest})
		t.ExpectCode(a, 409, "heartbeat_conflict")
	},
	"8/heartbeat_if_match_header_unsupported": func(t *Trial) { t.refusesIfMatch("PUT", "") },
	"8/heartbeat_rate_limited": func(t *Trial) {
		a := conformance.Shared(t.Trial, "overwoken", func(c *conformance.Trial) *answer {
			story := &Trial{Trial: c, s: t.s}
			c.Clean = story.clean
			return story.overwoken()
		})
		t.ExpectMember(a, "reason", "heartbeat_rate_limited")
	},
	"8/heartbeat_no_policy": func(t *Trial) { t.expectInactive(t.name(), "", "heartbeat_no_policy") },
	"8/cooldown_active": func(t *Trial) {
		a := t.expectDecision(t.cooling().wake(), "rate_limited", "cooldown_active")
		t.holds(a, "next_allowed_at after now", t.ExpectTime(a, "next_allowed_at").After(t.ExpectTime(a, "at")))
	},
	"8/quiet_window": func(t *Trial) {
		k := t.wakeable(quiet(window("UTC", "22:00", "08:00")))
		a := t.expectDecision(k.dryRun("2026-05-01T23:00:00Z"), "skipped", "quiet_window")
		t.ExpectMember(a, "next_allowed_at", "2026-05-02T08:00:00.000Z")
	},
	"8/session_not_found": func(t *Trial) {
		k := t.wakeable(plain)
		t.expectDecision(k.wake(fields{"session_id": newSession()}), "skipped", "session_not_found")
	},
	"8/session_unhealthy": func(t *Trial) {
		name := t.name()
		t.write(name, plain)
		k := t.keepWith(name, 1, hasty)
		t.Sleep(2 * time.Second)
		t.await("health stale", k.look, func(a *answer) bool { return a.Str("health.health") == "stale" })
		t.ExpectMember(k.refuses("session_unhealthy"), "detail_code", "health_stale")
	},
	"8/session_not_attachable": func(t *Trial) {
		k := t.wakeable(plain)
		k.report(detached(k.session(), "conversation_lost"))
		k.refuses("session_not_attachable")
	},
	"8/session_prompt_active": func(t *Trial) {
		k := t.wakeable(plain)
		k.prompted()
		k.refuses("session_prompt_active")
	},
	"8/session_prompt_active_race": func(t *Trial) {
		_, decision := t.wakeable(plain).deliver("refused", "prompt_active")
		t.expectDecision(decision, "skipped", "session_prompt_active_race")
	},
	"8/synthetic_prompt_failed": func(t *Trial) {
		_, a := t.wakeable(plain).deliver("refused", "")
		t.ExpectCode(a, 502, "synthetic_prompt_failed")
	},
	"8/heartbeat_preference_clamped": func(t *Trial) {
		name := t.name()
		for _, a := range []*answer{t.write(name, interval("1ms")), t.status(name, "")} {
			t.holds(a, "the diagnostic", diagnostic(a.List("diagnostics"), "heartbeat_preference_clamped") != nil)
		}
	},
	"8/heartbeat_invalid_timezone": func(t *Trial) {
		t.invalid(front("preferences:", "  quiet_windows:", `  - {start: "22:00", end: "08:00"}`),
			"heartbeat_invalid_timezone")
		t.invalid(quiet(window("+02:00", "22:00", "08:00")), "heartbeat_invalid_timezone")
	},
	"8/redacted": func(t *Trial) {
		k := t.wakeable("Secret words of the policy.\n")
		k.lease()
		k.sent()
		k.wake()
		a := t.ExpectStatus(t.Call(operator, "GET", policyPath(k.name, "/wakes?limit=100"), nil), 200)
		for _, form := range []string{"pkl_", "pkk_", "key_", "Secret words", "written_by", "actor"} {
			t.holds(a, "no "+form+" in the rows", !strings.Contains(string(a.Raw), form))
		}
	},
	"8/relative-paths": func(t *Trial) {
		d := t.invalid(front("model: x"), "heartbeat_forbidden_field")
		path := text(d, "source_path")
		t.holds(t.Last, "a relative source_path", path != "" && !absolutePath.MatchString(path))
	},
}

var absolutePath = regexp.MustCompile(`^(/|[A-Za-z]:)`)

// Section 9: boundaries with other authorities.
var boundaryChecks = checks{
	"9/not-a-lease": func(t *Trial) {
		k := t.wakeable(front("enabled: false"))
		t.holds(t.Last, "a lease in spite of a disabled policy", k.lease()["agentId"] == k.id)
	},
	"9/not-supervision": func(t *Trial) {
		k := t.wakeable(allDay)
		k.answers(k.prompted())
		t.invalid(front("stall_after: 5m"), "heartbeat_unsupported_field")
	},
	"9/not-health": func(t *Trial) {
		k := t.wakeable(front("enabled: false"))
		k.expectHealth("idle", "healthy", "", "")
		t.invalid(front("health: healthy"), "heartbeat_forbidden_field")
		t.invalid(front("session_health: {stale_after: 1m}"), "heartbeat_forbidden_field")
	},
	"9/not-presence": func(t *Trial) {
		name := t.name()
		t.write(name, plain)
		k := t.registerKeeper(name, patient)
		t.ExpectMember(t.Call(owner, "GET", agentsPath+"/"+k.id, nil), "status", "active")
		a := t.Call(operator, "POST", policyPath(name, "/wake"), fields{"session_id": newSession()})
		t.expectDecision(a, "skipped", "session_not_found")
	},
	"9/not-a-scheduler": func(t *Trial) {
		for _, field := range []string{"schedule", "cron", "every", "default_interval"} {
			t.invalid(front(field+": 5m"), "heartbeat_forbidden_field")
		}
	},
	"9/no-work": func(t *Trial) {
		k := t.wakeable(plain)
		k.sent()
		a := t.ExpectStatus(t.Call(owner, "POST", "/api/v1/leases",
			fields{"agentId": k.id, "capabilities": []string{t.ID("t")}}), 200)
		t.holds(a, "no lease", len(a.List("leases")) == 0)
	},
}

// Section 10: common errors, and what fixes them.
var errorChecks = checks{
	"10/heartbeat_invalid_timezone": func(t *Trial) {
		t.invalid(active(window("-03:00", "08:00", "20:00")), "heartbeat_invalid_timezone")
		t.valid(active(window("America/Sao_Paulo", "08:00", "20:00")))
		t.valid(active(window("UTC", "08:00", "20:00")))
	},
	"10/heartbeat_preference_clamped": func(t *Trial) {
		bound := t.leastInterval()
		t.ExpectMember(t.valid(interval(bound.String())), "diagnostics", []any{})
		t.warned(interval((bound - time.Millisecond).String()), "heartbeat_preference_clamped")
	},
	"10/heartbeat_conflict": func(t *Trial) {
		name := t.name()
		t.write(name, plain)
		file := t.file("Second.\n")
		t.expectExit(t.picket("", heartbeatCommand("write", name, "--file", file)...), 4)
		digest := t.succeeds("", heartbeatCommand("inspect", name)...).Str("digest")
		t.succeeds("", heartbeatCommand("write", name, "--file", file, "--if-match", digest)...)
	},
	"10/heartbeat_rate_limited": func(t *Trial) {
		a := t.overwoken()
		t.ExpectMember(a, "reason", "heartbeat_rate_limited")
		wait := t.ExpectTime(a, "next_allowed_at").Sub(t.ExpectTime(a, "at"))
		t.holds(a, "the next cycle within 30 s", wait > 0 && wait <= 30*time.Second)
	},
	"10/quiet_window": func(t *Trial) {
		k := t.wakeable(active(window("UTC", "08:00", "09:00")))
		next := t.expectDecision(k.dryRun("2026-05-01T12:00:00Z"), "skipped", "quiet_window").Str("next_allowed_at")
		t.ExpectEqual("next_allowed_at", next, "2026-05-02T08:00:00.000Z")
		t.expectDecision(k.dryRun(next), "sent", "wake_sent")
		t.replace(k.name, plain)
		t.expectDecision(k.dryRun("2026-05-01T12:00:00Z"), "sent", "wake_sent")
	},
}

// camelMember is a member in camel case.
var camelMember = regexp.MustCompile(`"[a-z]+[A-Z][A-Za-z]*":`)
