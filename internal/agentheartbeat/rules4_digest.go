package agentheartbeat

import (
	"regexp"
	"strings"
)

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// digest is that of a valid text.
func (t *Trial) digest(text string) string { return t.valid(text).Str("digest") }

// Section 4: snapshot digest, resolution and the outcomes of validation.
var digestChecks = checks{
	"4/form": func(t *Trial) {
		t.holds(t.valid(plain), "a digest sha256:…", digestForm.MatchString(t.digest(plain)))
	},
	"4/body": func(t *Trial) {
		t.holds(t.Last, "another digest for another body", t.digest("One.\n") != t.digest("Two.\n"))
	},
	"4/body-normalized": func(t *Trial) {
		want := t.digest("One.\n\nTwo.\n")
		for _, same := range []string{"One.\r\n\r\nTwo.\r\n", "One.\n\nTwo.  \n\n", "One.\n\nTwo."} {
			t.ExpectEqual("digest of "+strings.ReplaceAll(same, "\r", "CR"), t.digest(same), want)
		}
	},
	"4/frontmatter": func(t *Trial) {
		seen := map[string]bool{}
		for _, line := range []string{"version: 1", "enabled: false", "summary: x", "context: {include: [self]}",
			"preferences: {min_interval: 8000h}"} {
			seen[t.digest(front(line))] = true
		}
		for _, text := range []string{active(window("UTC", "01:00", "02:00")), quiet(window("UTC", "01:00", "02:00"))} {
			seen[t.digest(text)] = true
		}
		t.ExpectEqual("number of digests", len(seen), 7)
	},
	"4/frontmatter-canonical": func(t *Trial) {
		t.ExpectEqual("digest", t.digest(front("version: 1", "summary: x", "enabled: true")),
			t.digest(front("# comment", "summary: 'x'")))
	},
	"4/metadata-only": func(t *Trial) {
		k := t.wakeable(plain)
		t.replace(k.name, front("summary: x"))
		t.validate(plain)
		t.read(k.name)
		t.status(k.name, "")
		k.dryRun("")
		t.ExpectEqual("number of prompts", len(k.prompts()), 0)
		t.ExpectEqual("number of commands", len(k.pending(0)), 0)
	},
	"4/missing": func(t *Trial) {
		k := t.keep(t.name(), 1)
		a := t.read(k.name)
		t.ExpectMember(a, "present", false)
		t.ExpectMember(a, "diagnostics", []any{})
		k.expectHealth("idle", "healthy", "", "")
	},
	"4/valid": func(t *Trial) {
		k := t.wakeable(plain)
		a := t.read(k.name)
		t.ExpectMember(a, "present", true)
		t.ExpectMember(a, "valid", true)
		_, decision := k.sent()
		t.ExpectMember(decision, "policy_snapshot_id", a.Str("digest"))
	},
	"4/latest": func(t *Trial) {
		k := t.wakeable(plain)
		first := t.read(k.name).Str("digest")
		t.ExpectMember(k.dryRun(""), "policy_snapshot_id", first)
		second := t.replace(k.name, "Another body.\n").Str("digest")
		t.holds(t.Last, "another digest", second != first)
		command, decision := k.sent()
		t.ExpectMember(decision, "policy_snapshot_id", second)
		t.contains(command, "> Another body.")
	},
	"4/invalid-not-stored": func(t *Trial) {
		name := t.name()
		before := t.write(name, plain).Str("digest")
		a := t.change("PUT", name, "", fields{"body": front("model: x"), "expected_digest": before})
		t.ExpectCode(a, 422, "heartbeat_invalid")
		t.ExpectMember(t.read(name), "digest", before)
		t.ExpectEqual("number of revisions", len(t.current(name)), 1)
	},
	"4/exact-bytes": func(t *Trial) {
		name, text := t.name(), "---\r\nsummary: x\r\n---\r\n\r\nA body  \n\n"
		t.write(name, text)
		t.ExpectMember(t.read(name), "body", text)
	},
}

// current are the revisions of a name that are the policy now.
func (t *Trial) current(name string) (list []fields) {
	for _, r := range t.history(name, "?limit=50").List("revisions") {
		if r["current"] == true {
			list = append(list, r)
		}
	}
	return list
}
