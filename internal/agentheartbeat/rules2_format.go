package agentheartbeat

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/picket-dev/picket/internal/conformance"
)

// Sections 1 and 2: where the file lives, and its format.
var formatChecks = checks{
	"1/missing": func(t *Trial) {
		k := t.keep(t.name(), 1)
		a := t.expectInactive(k.name, "", "heartbeat_no_policy")
		t.ExpectMember(a, "present", false)
		k.expectHealth("idle", "healthy", "", "")
	},
	"2/front-matter-optional": func(t *Trial) {
		a := t.valid("Only a body.\n")
		t.ExpectMember(a, "enabled", true)
		t.ExpectMember(a, "body", "Only a body.\n")
	},
	"2/body-only-front-matter": func(t *Trial) { t.valid("---\nversion: 1\n---\n") },
	"2/version": func(t *Trial) {
		t.ExpectMember(t.valid(front("version: 1")), "version", 1)
		t.ExpectMember(t.valid(front("summary: x")), "version", 1)
	},
	"2/version-1": func(t *Trial) {
		for _, version := range []string{"2", "0", "'1'", "1.0", "one"} {
			t.ExpectEqual("path", t.invalid(front("version: "+version), "heartbeat_invalid")["path"], "version")
		}
	},
	"2/enabled": func(t *Trial) {
		t.ExpectMember(t.valid(front("enabled: true")), "enabled", true)
		name := t.name()
		t.ExpectMember(t.write(name, front("enabled: false")), "enabled", false)
		t.expectInactive(name, "", "heartbeat_disabled")
	},
	"2/enabled-default": func(t *Trial) { t.ExpectMember(t.valid(front("version: 1")), "enabled", true) },
	"2/enabled-boolean": func(t *Trial) {
		for _, enabled := range []string{"yes", "'true'", "1", "[true]"} {
			t.ExpectEqual("path", t.invalid(front("enabled: "+enabled), "heartbeat_invalid")["path"], "enabled")
		}
	},
	"2/summary": func(t *Trial) {
		name := t.name()
		t.write(name, front("summary: Look at the reviews."))
		t.ExpectMember(t.status(name, ""), "summary", "Look at the reviews.")
	},
	"2/summary-bounded": func(t *Trial) {
		t.valid(front("summary: " + strings.Repeat("é", 500)))
		t.invalid(front("summary: "+strings.Repeat("é", 501)), "heartbeat_invalid")
	},
	"2/min_interval": func(t *Trial) {
		t.ExpectMember(t.valid(interval("8000h")), "min_interval", "8000h0m0s")
	},
	"2/min_interval-clamped": func(t *Trial) {
		bound := t.leastInterval()
		k := t.wakeable(interval("1ms"))
		k.sent()
		a := t.expectDecision(k.wake(), "rate_limited", "cooldown_active")
		wait := t.ExpectTime(a, "next_allowed_at").Sub(t.ExpectTime(a, "at"))
		t.holds(a, "a wait of "+bound.String(), wait > bound-t.s.cfg.Slack)
	},
	"2/min_interval-duration": func(t *Trial) {
		for _, text := range []string{"soon", "30", "-5m", "[5m]"} {
			t.invalid(interval(text), "heartbeat_invalid_min_interval")
		}
	},
	"2/context.include": func(t *Trial) {
		a := t.valid(front("preferences:", "  context: {include: [self, session_health, task, inbox_summary]}"))
		t.ExpectMember(a, "include", []string{"self", "session_health", "task", "inbox_summary"})
	},
	"2/context.include-closed": func(t *Trial) {
		t.valid(front("preferences:", "  context: {include: [budget]}"))
		d := t.invalid(front("preferences:", "  context: {include: [self, moon]}"), "heartbeat_invalid")
		t.ExpectEqual("path", d["path"], "preferences.context.include[1]")
	},
	"2/context.include-top": func(t *Trial) {
		t.ExpectMember(t.valid(front("context: {include: [task]}")), "include", []string{"task"})
		both := front("context: {include: [self]}", "preferences:", "  context: {include: [task]}")
		t.invalid(both, "heartbeat_invalid")
	},
	"2/body": func(t *Trial) {
		k := t.wakeable(front("version: 1"))
		command, _ := k.sent()
		t.contains(command, "> Read your messages.")
	},
	"2/body-bounded": func(t *Trial) {
		d := t.invalid(strings.Repeat("x", 300<<10), "heartbeat_body_too_large")
		message := conformance.Text(d, "message")
		t.holds(t.Last, "both sizes in the message", strings.Contains(message, fmt.Sprint(300<<10)) &&
			len(numbers.FindAllString(message, -1)) >= 2)
	},
	"2/strict": func(t *Trial) {
		for path, line := range map[string]string{
			"color": "color: red", "preferences.color": "preferences: {color: red}", "min_interval": "min_interval: 5m",
		} {
			t.ExpectEqual("path", t.invalid(front(line), "heartbeat_unsupported_field")["path"], path)
		}
	},
	"2/strict-yaml": func(t *Trial) {
		for _, text := range []string{"---\nversion: 1\n", front("version: 1", "version: 1"), front("- version: 1"),
			front("summary: &a x"), front("just a text"), front(`summary: "open`)} {
			t.invalid(text, "heartbeat_malformed_frontmatter")
		}
	},
	"2/empty": func(t *Trial) {
		name := t.name()
		t.ExpectMember(t.write(name, ""), "valid", true)
		t.expectInactive(name, "", "heartbeat_disabled")
	},
	"2/secrets": func(t *Trial) {
		for _, secret := range []string{"pkl_abcdefgh", "pks_abcdefgh", "pkk_default_abcdefgh"} {
			for _, text := range []string{"Use " + secret + ".\n", front("summary: " + secret)} {
				t.invalid(text, "heartbeat_secret")
				t.holds(t.Last, "an answer without the secret", !strings.Contains(string(t.Last.Raw), secret))
			}
		}
	},
	"2/reserved-section": func(t *Trial) {
		for _, heading := range []string{"# Leases", "## Claim authority", "Permissions\n===", "> # Tools"} {
			d := t.invalid(heading+"\n", "heartbeat_reserved_section")
			t.holds(t.Last, "an owner_surface", conformance.Text(d, "owner_surface") != "")
		}
	},
	"2/reserved-section-prose": func(t *Trial) {
		t.valid("Use your tools with care, and renew no lease.\n\n```\n# Leases\n```\n")
	},
	"2/path": func(t *Trial) {
		for _, name := range []string{"..%2Fx", "a%2Fb", ".x"} {
			a := t.Call(operator, "PUT", "/api/agents/"+name+"/heartbeat", fields{"body": plain})
			t.ExpectRefused(a)
		}
	},
}

// durations finds the durations in a message.
var durations = regexp.MustCompile(`[0-9][0-9.hmsµn]*s`)

// leastInterval is the bound of the server to which a shorter min_interval is raised.
func (t *Trial) leastInterval() time.Duration {
	a, d := t.warned(interval("1ms"), "heartbeat_preference_clamped")
	var bound time.Duration
	if all := durations.FindAllString(text(d, "message"), -1); len(all) == 2 {
		bound, _ = time.ParseDuration(all[1])
	}
	t.holds(a, "both intervals in the message", bound > time.Millisecond)
	return bound
}

// interval is a policy with a min_interval.
func interval(text string) string { return front("preferences:", "  min_interval: "+text) }

// contains expects lines in the text of a command.
func (t *Trial) contains(command fields, lines ...string) {
	prompt := text(command, "text")
	for _, line := range lines {
		if !strings.Contains(prompt, line) {
			t.Fail("a prompt with "+line, prompt)
		}
	}
}

// window is a window of local time.
func window(zone, start, end string) string {
	return fmt.Sprintf("  - {timezone: %q, start: %q, end: %q}", zone, start, end)
}

func active(windows ...string) string { return windowsOf("active_hours", windows) }

func quiet(windows ...string) string { return windowsOf("quiet_windows", windows) }

func windowsOf(kind string, windows []string) string {
	return front(append([]string{"preferences:", "  " + kind + ":"}, windows...)...)
}

// allows expects in which of some instants a policy allows wakes. An instant in which it must not begins with !.
func (t *Trial) allows(text string, instants ...string) {
	name := t.name()
	t.write(name, text)
	for _, at := range instants {
		if at, no := strings.CutPrefix(at, "!"); no {
			t.expectInactive(name, at, "quiet_window")
		} else {
			t.expectActive(name, at)
		}
	}
}

// Section 2: time windows.
var windowChecks = checks{
	"2/active_hours": func(t *Trial) {
		a := t.valid(active(window("America/Sao_Paulo", "08:00", "20:00")))
		t.ExpectMember(a, "active_hours", []fields{{"timezone": "America/Sao_Paulo", "start": "08:00", "end": "20:00"}})
		t.allows(active(window("America/Sao_Paulo", "08:00", "20:00")), "!2026-05-01T10:59:00Z", "2026-05-01T11:00:00Z",
			"!2026-05-01T23:00:00Z")
	},
	"2/active_hours-union": func(t *Trial) {
		t.allows(active(window("UTC", "08:00", "09:00"), window("Europe/Berlin", "14:00", "15:00")),
			"2026-05-01T08:30:00Z", "!2026-05-01T10:00:00Z", "2026-05-01T12:30:00Z", "!2026-05-01T13:30:00Z")
	},
	"2/active_hours-midnight": func(t *Trial) {
		t.allows(active(window("UTC", "22:00", "02:00")), "2026-05-01T23:00:00Z", "2026-05-02T01:00:00Z",
			"!2026-05-02T02:00:00Z", "!2026-05-01T12:00:00Z")
	},
	"2/quiet_windows": func(t *Trial) {
		a := t.valid(quiet(window("UTC", "22:00", "08:00")))
		t.ExpectMember(a, "quiet_windows", []fields{{"timezone": "UTC", "start": "22:00", "end": "08:00"}})
		t.allows(quiet(window("UTC", "22:00", "08:00")), "!2026-05-01T23:00:00Z", "!2026-05-02T07:59:00Z",
			"2026-05-02T08:00:00Z")
	},
	"2/quiet_windows-subtracted": func(t *Trial) {
		t.allows(front("preferences:", "  active_hours:", window("UTC", "08:00", "20:00"), "  quiet_windows:",
			window("UTC", "12:00", "13:00")), "2026-05-01T11:59:00Z", "!2026-05-01T12:30:00Z", "2026-05-01T13:00:00Z",
			"!2026-05-01T21:00:00Z")
	},
	"2/half-open": func(t *Trial) {
		t.allows(active(window("UTC", "08:00", "08:01")), "!2026-05-01T07:59:59.999Z", "2026-05-01T08:00:00Z",
			"2026-05-01T08:00:59.999Z", "!2026-05-01T08:01:00Z")
	},
	"2/clock-changes": func(t *Trial) {
		t.allows(active(window("Europe/Berlin", "01:30", "03:30")), "2026-03-29T00:59:00Z", "2026-03-29T01:29:00Z",
			"!2026-03-29T01:30:00Z", "2026-10-25T00:15:00Z", "2026-10-25T02:29:00Z", "!2026-10-25T02:30:00Z")
	},
	"2/timezone-iana": func(t *Trial) {
		for _, zone := range []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "Asia/Kathmandu"} {
			t.valid(active(window(zone, "08:00", "20:00")))
		}
	},
	"2/timezone-fixed": func(t *Trial) {
		for _, zone := range []string{"+02:00", "-03:00", "UTC+1", "GMT-3", "Etc/GMT+3"} {
			t.invalid(quiet(window(zone, "22:00", "08:00")), "heartbeat_invalid_timezone")
		}
	},
	"2/timezone-unknown": func(t *Trial) {
		for _, zone := range []string{"Europe/Atlantis", "Local", "EST", "Etc/UTC", ""} {
			d := t.invalid(active(window(zone, "22:00", "08:00")), "heartbeat_invalid_timezone")
			t.ExpectEqual("path", d["path"], "preferences.active_hours[0].timezone")
		}
	},
	"2/time": func(t *Trial) {
		for _, end := range []string{"24:00", "8:00", "08:60", "08:00:00", "07:00"} {
			t.invalid(active(window("UTC", "07:00", end)), "heartbeat_invalid_time_window")
		}
	},
	"2/windows-bounded": func(t *Trial) {
		many := make([]string, 33)
		for i := range many {
			many[i] = window("UTC", "01:00", "02:00")
		}
		t.valid(active(many[:32]...))
		t.invalid(active(many...), "heartbeat_invalid_time_window")
	},
}
