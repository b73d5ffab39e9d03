package agentheartbeat

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/picket-dev/picket/internal/conformance"
)

// path is the file of the policy of a name.
func (t *Trial) path(name string) string { return filepath.Join(t.s.cfg.Files, name, "HEARTBEAT.md") }

// mirrored writes a policy, and waits until the server has written its file.
func (t *Trial) mirrored(text string) (name string) {
	t.files = true
	name = t.name()
	t.write(name, text)
	t.awaitFile(name, text)
	return name
}

func (t *Trial) awaitFile(name, want string) {
	t.await("the text in the file "+name+"/HEARTBEAT.md", func() *answer { return t.fileOf(name) },
		func(a *answer) bool { return string(a.Raw) == want })
}

// fileOf is the file of a name in the form of an answer: 404 without a file.
func (t *Trial) fileOf(name string) *answer {
	raw, err := os.ReadFile(t.path(name))
	if err != nil {
		return &answer{Status: 404}
	}
	return &answer{Status: 200, Raw: raw}
}

// edit changes the file of a name as a person does.
func (t *Trial) edit(name, text string) {
	path := t.path(name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.NotRun("the file of the policy cannot be written: %v", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.NotRun("the file of the policy cannot be written: %v", err)
	}
}

func (t *Trial) removeFile(name string) {
	if err := os.Remove(t.path(name)); err != nil {
		t.NotRun("the file of the policy cannot be removed: %v", err)
	}
}

// edited is an agent with an idle session. The file of its policy was edited after the policy was written.
func (t *Trial) edited(text string) *keeper {
	name := t.mirrored(plain)
	t.edit(name, text)
	return t.keep(name, 1)
}

// invalidText is not a valid policy.
const invalidText = "---\nmodel: x\n---\n"

// Section 1 and others: the files in the directory of the server.
var fileChecks = checks{
	"1/beside-agent": func(t *Trial) {
		list, err := os.ReadDir(filepath.Dir(t.path(t.mirrored(plain))))
		t.holds(t.Last, "one file in the folder of the agent", err == nil && len(list) == 1)
	},
	"1/store-is-truth": func(t *Trial) {
		name := t.mirrored("First.\r\n\r\n")
		t.replace(name, "Second.\n")
		t.awaitFile(name, "Second.\n")
		t.ExpectStatus(t.change("DELETE", name, "", fields{"expected_digest": t.read(name).Str("digest")}), 200)
		t.await("no file after the deletion", func() *answer { return t.fileOf(name) },
			func(a *answer) bool { return a.Status == 404 })
	},
	"1/file-edited": func(t *Trial) {
		k := t.edited("Edited words.\n")
		command, decision := k.sent()
		t.ExpectMember(decision, "policy_snapshot_id", t.digest("Edited words.\n"))
		t.contains(command, "> Edited words.")
		t.ExpectMember(t.read(k.name), "file.state", "edited")
	},
	"1/file-invalid": func(t *Trial) {
		k := t.edited(invalidText)
		a := k.refuses("heartbeat_invalid")
		t.holds(a, "the diagnostic", diagnostic(a.List("diagnostics"), "heartbeat_forbidden_field") != nil)
	},
	"1/file-removed": func(t *Trial) {
		name := t.mirrored(plain)
		t.removeFile(name)
		t.keep(name, 1).refuses("heartbeat_no_policy")
	},
	"1/file-conflict": func(t *Trial) {
		name := t.conflicting()
		a := t.expectInactive(name, "", "heartbeat_conflict")
		t.ExpectMember(a, "file.state", "conflict")
		t.keep(name, 1).refuses("heartbeat_invalid")
		t.awaitFile(name, "Mine.\n")
		a = t.ExpectCode(t.Call(operator, "GET", policyPath(name, ""), nil), 409, "heartbeat_conflict")
		stored := conformance.Text(a.Body, "policy.digest")
		t.ExpectStatus(t.change("PUT", name, "", fields{"body": "Third.\n", "expected_digest": stored}), 200)
		t.awaitFile(name, "Third.\n")
	},
	"1/file-escape": func(t *Trial) {
		name := t.mirrored(plain)
		t.removeFile(name)
		if err := os.Symlink("/etc/hostname", t.path(name)); err != nil {
			t.NotRun("no link can be made: %v", err)
		}
		a := t.keep(name, 1).refuses("heartbeat_invalid")
		t.holds(a, "the diagnostic", diagnostic(a.List("diagnostics"), "heartbeat_path_escape") != nil)
	},
	"2/body-truncated": func(t *Trial) {
		k := t.edited(strings.Repeat("x", 300<<10))
		a := t.expectDecision(k.dryRun(""), "sent", "wake_sent")
		t.holds(a, "a snapshot", a.Str("policy_snapshot_id") != "")
		d := diagnostic(t.read(k.name).List("diagnostics"), "heartbeat_body_truncated")
		t.holds(t.Last, "a warning heartbeat_body_truncated", d != nil && text(d, "severity") == "warning")
	},
	"4/at-wake": func(t *Trial) {
		k := t.edited(front("enabled: false"))
		k.refuses("heartbeat_disabled")
		t.edit(k.name, plain)
		k.sent()
	},
	"4/invalid": func(t *Trial) {
		k := t.edited(invalidText)
		k.refuses("heartbeat_invalid")
		a := t.expectInactive(k.name, "", "heartbeat_invalid")
		t.holds(a, "diagnostics", len(a.List("diagnostics")) > 0)
	},
	"4/invalid-others": func(t *Trial) {
		k := t.edited(invalidText)
		k.refuses("heartbeat_invalid")
		k.expectHealth("idle", "healthy", "", "")
		k.answers(k.prompted())
		t.ExpectMember(t.Call(operator, "GET", "/api/v1/tasks/"+k.waiting(), nil), "state", "queued")
	},
	"4/inspect-invalid": func(t *Trial) {
		name := t.edited(invalidText).name
		a := t.ExpectCode(t.Call(operator, "GET", policyPath(name, ""), nil), 422, "heartbeat_invalid")
		t.holds(a, "the diagnostic", diagnostic(a.List("policy.diagnostics"), "heartbeat_forbidden_field") != nil)
		t.expectInactive(name, "", "heartbeat_invalid")
	},
	"6/heartbeat_invalid": func(t *Trial) {
		k := t.edited(invalidText)
		k.refuses("heartbeat_invalid")
		t.ExpectEqual("number of prompts", len(k.prompts()), 0)
	},
	"7/cas-repair": func(t *Trial) {
		name := t.edited(invalidText).name
		a := t.ExpectStatus(t.Call(operator, "GET", policyPath(name, ""), nil), 422)
		raw := a.Str("policy.digest")
		t.ExpectCode(t.change("PUT", name, "", fields{"body": plain, "expected_digest": wrongDigest}), 409,
			"heartbeat_conflict")
		t.ExpectStatus(t.change("PUT", name, "", fields{"body": plain, "expected_digest": raw}), 200)
		t.awaitFile(name, plain)
	},
	"12/dir": func(t *Trial) {
		name := t.mirrored("In the directory.\n")
		t.ExpectMember(t.read(name), "file", nil)
	},
}

// maxConflictTries bounds how often a file is edited before the server has written it.
const maxConflictTries = 10

// conflicting is a name of which the file was edited after the policy was written, and before the server has written
// the file.
func (t *Trial) conflicting() (name string) {
	name = t.mirrored("First.\n")
	for range maxConflictTries {
		t.replace(name, "Second.\n")
		t.edit(name, "Mine.\n")
		if t.status(name, "").Str("file.state") == "conflict" {
			return name
		}
		again := fields{"body": "First.\n", "expected_digest": t.digest("Mine.\n")}
		t.ExpectStatus(t.change("PUT", name, "", again), 200)
		t.awaitFile(name, "First.\n")
	}
	t.TooSlow("the server writes each file before it can be edited")
	return name
}
