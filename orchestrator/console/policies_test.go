package console_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

const annPolicy = "/console/policies/ann"

// writePolicy writes a policy in place of the one that is there.
func (o *fixture) writePolicy(name, body string) picket.WakePolicy {
	o.t.Helper()
	was, err := o.WakePolicy(o.t.Context(), name)
	must(o.t, err)
	p, err := o.Engine.WritePolicy(o.t.Context(), picket.Caller{Actor: "key_of_somebody"}, name, picket.PolicyWrite{
		Body: body, PolicyCondition: picket.PolicyCondition{ExpectedDigest: was.Digest}})
	must(o.t, err)
	return p
}

// noFile is the digest of a file that is not there, as the store has it.
const noFile = "-"

// publishFile makes the file of ann differ from the store, as the holder of the directory reports it. An
// invalid text has a finding.
func (o *fixture) publishFile(state, body, revision string, findings ...string) {
	o.t.Helper()
	digest := sha256.Sum256([]byte(body))
	f := map[string]any{"state": state, "revision": revision, "body": body,
		"digest": "sha256:" + hex.EncodeToString(digest[:])}
	if state == picket.PolicyFileRemoved {
		f["digest"] = noFile
	}
	var found []map[string]any
	for _, message := range findings {
		found = append(found, map[string]any{"code": "heartbeat_forbidden_field", "severity": "error",
			"message": message, "line": 2, "column": 1})
	}
	f["diagnostics"] = found
	record, err := json.Marshal(f)
	must(o.t, err)
	ctx := o.t.Context()
	must(o.t, o.redis.HSet(ctx, "pk:{default}:policy-lock", "holder", "h", "until", int64(1)<<50).Err())
	must(o.t, o.redis.HSet(ctx, "pk:{default}:policy-files", "ann", string(record)).Err())
}

// addManyPolicies makes 120 policies, and many revisions of one, each as long as it may be and other in
// every line.
func (o *fixture) addManyPolicies() {
	o.t.Helper()
	for n := range 120 {
		o.writePolicy(fmt.Sprintf("name-%03d", n), "---\nsummary: "+strings.Repeat("s", 400)+"\n---\nx\n")
	}
	for n := range 30 {
		line := fmt.Sprint(n) + expensiveText(60)[:60] + "\n"
		o.writePolicy("ann", strings.Repeat(strings.ReplaceAll(line, "\n\"", "\""), 450))
	}
}

// typed is what the editor of a page has.
func (p response) typed(t testing.TB) string {
	t.Helper()
	_, field, found := strings.Cut(p.body, `aria-describedby="check"`)
	if !found {
		t.Fatalf("no editor on this page: %s", p.text())
	}
	return between(field, ">\n", "</textarea>")
}

func TestPoliciesAreListed(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		operator, reviewer := o.signedIn(picket.ScopeOperator), o.signedIn(picket.ScopeReviewer)
		operator.mustGet("/console/policies").wantText(t, "No agent name has a wake policy.", "Open or write",
			`aria-current="page">Wake policies`)
		for n := range 60 {
			o.writePolicy(fmt.Sprintf("name-%02d", n), "---\nsummary: Looks at reviews.\n---\nx\n")
		}
		p := o.writePolicy("ann", "---\nenabled: false\n---\n")
		o.publishFile(picket.PolicyFileEdited, "---\nmodel: large\n---\n", p.RevisionID, "it belongs elsewhere")
		for _, s := range []*browser{operator, reviewer} {
			first := s.mustGet("/console/policies")
			first.wantText(t, "invalid", "edited", "enabled", "Looks at reviews.", "sha256:", annPolicy)
			second := s.mustGet(nextOf(first))
			if n := strings.Count(first.body+second.body, "<tr data-row"); n != 61 || nextOf(second) != "" {
				t.Errorf("%d policies on two pages", n)
			}
		}
		if p := operator.get("/console/policies?name=ben"); p.status != http.StatusSeeOther ||
			p.header.Get("Location") != "/console/policies/ben" {
			t.Errorf("a name that was typed: %d %v", p.status, p.header)
		}
		if p := operator.get("/console/policies?name=no+name!"); p.status != http.StatusBadRequest {
			t.Errorf("no name: %d", p.status)
		} else {
			p.wantText(t, `value="no name!"`, "starting with a letter or digit")
		}
	})
}

// An operator writes, changes, deletes and restores a policy. A reviewer reads all of it and changes nothing.
func TestAPolicyIsEdited(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s, reviewer := o.signedIn(picket.ScopeOperator), o.signedIn(picket.ScopeReviewer)
		s.mustGet(annPolicy).wantText(t, "Write a policy", "not active", "The name has no policy, so no wake is allowed.")
		form := append(s.mustGet(annPolicy).hidden(annPolicy), "body", "\r\none <b>\r\n")
		for range 2 { // the second press of the button writes nothing
			s.follow(s.post(annPolicy, form...)).wantText(t, "Saved. This is the wake policy now.", "active",
				"The policy allows wakes now.", "written by you", "The text is a valid policy.")
		}
		if got := s.mustGet(annPolicy).typed(t); got != "\none &lt;b&gt;\n" {
			t.Errorf("the editor has %q", got)
		}
		const second = "---\nsummary: second\npreferences: {min_interval: 30m}\n---\ntwo\n"
		s.follow(s.submit(annPolicy, annPolicy, "body", second)).
			wantText(t, "second", "30m between two wakes")
		p := reviewer.mustGet(annPolicy)
		p.wantText(t, "readonly", "summary: second", "between two wakes")
		p.wantNoText(t, "Save", "Delete", "<button>Check")
		history := annPolicy + "/history"
		p = reviewer.mustGet(history)
		p.wantText(t, `title="`+s.key.KeyID, "<ins>&#43;two</ins>",
			"<del>-one &lt;b&gt;</del>", "Its text", "current")
		p.wantNoText(t, "Restore")
		for _, path := range []string{"", "/delete", "/rollback", "/choose"} {
			if p := reviewer.post(annPolicy+path, "once", reviewer.newNonce()); p.status != http.StatusForbidden {
				t.Errorf("a reviewer may post to %s: %d", path, p.status)
			}
		}
		s.follow(s.submit(annPolicy, annPolicy+"/delete")).wantText(t, "Deleted.", "The name has no policy")
		s.mustGet("/console/policies").wantText(t, "its revisions are in the history")
		s.mustGet(history).wantText(t, "deleted by you", "<del>-two</del>")
		s.follow(s.submit(history, history[:len(annPolicy)]+"/rollback")).wantText(t, "Restored.", "second")
		s.mustGet(history).wantText(t, "restored by you", "the text of revision_…")
		now, err := o.WakePolicy(t.Context(), "ann")
		must(t, err)
		if !strings.HasSuffix(now.Body, "two\n") || now.WrittenBy != s.key.KeyID {
			t.Errorf("the policy is %+v", now)
		}
	})
}

// Two people change a policy. The second one sees both versions and the difference, and loses nothing.
func TestAPolicyThatTwoPeopleChange(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		ann, ben := o.signedIn(picket.ScopeOperator), o.signedIn(picket.ScopeOperator)
		o.writePolicy("ann", "same\nbefore\n")
		late := ben.mustGet(annPolicy).hidden(annPolicy)
		ann.follow(ann.submit(annPolicy, annPolicy, "body", "same\nof ann\n"))
		p := ben.post(annPolicy, append(late, "body", "same\nof ben\n")...)
		if p.status != http.StatusConflict {
			t.Errorf("a change of what was not seen: %d", p.status)
		}
		p.wantText(t, "somebody has changed the policy", "What is there now", `title="`+ann.key.KeyID,
			"<del>-of ann</del>", "<ins>&#43;of ben</ins>", "What you wrote", "Save over it", "Keep what is there now")
		if got := p.typed(t); got != "same\nof ben\n" {
			t.Errorf("what was typed has become %q", got)
		}
		if now, _ := o.WakePolicy(t.Context(), "ann"); now.Body != "same\nof ann\n" {
			t.Errorf("the policy is %q", now.Body)
		}
		// A third change is not overwritten either.
		again := p.hidden(annPolicy)
		ann.follow(ann.submit(annPolicy, annPolicy, "body", "third\n"))
		p = ben.post(annPolicy, append(again, "body", "same\nof ben\n")...)
		p.wantText(t, "<del>-third</del>")
		ben.follow(ben.post(annPolicy, append(p.hidden(annPolicy), "body", "same\nof ben\n")...)).wantText(t, "Saved.")
		ann.mustGet(annPolicy+"/history").wantText(t, "<ins>&#43;of ben</ins>", "<del>-third</del>")

		seen := ben.mustGet(annPolicy).hidden(annPolicy + "/delete")
		old := ben.mustGet(annPolicy + "/history").hidden(annPolicy + "/rollback")
		ann.follow(ann.submit(annPolicy, annPolicy, "body", "fourth\n"))
		for path, fields := range map[string][]string{"/delete": seen, "/rollback": old} {
			p := ben.post(annPolicy+path, fields...)
			if p.status != http.StatusConflict {
				t.Errorf("%s of what was not seen: %d", path, p.status)
			}
			p.wantText(t, "decide again")
		}
		ann.follow(ann.submit(annPolicy, annPolicy+"/delete"))
		p = ben.post(annPolicy, append(ben.mustGet(annPolicy).hidden(annPolicy), "expected", "x", "body", "mine\n")...)
		if got, _ := o.WakePolicy(t.Context(), "ann"); !got.Present {
			t.Errorf("a policy is made again: %d %s", p.status, p.text())
		}
	})
}

// A text is checked by a button, and by the script while somebody types. Each finding has its line, its field
// and where it belongs. A text that is refused is kept.
func TestAPolicyIsChecked(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		const bad = "---\nsummary: x\nmodel: large\npreferences: {min_interval: 1s}\n---\nx\n"
		found := []string{"line 3, column 1", `<pre class="source">model: large</pre>`, "heartbeat_forbidden_field",
			"agents.NAME.launch in picket.yaml", "<code>model</code>", `data-line="3" data-severity="error"`}
		p := s.submit(annPolicy, annPolicy, "body", bad)
		if p.status != http.StatusUnprocessableEntity {
			t.Errorf("an invalid policy: %d", p.status)
		}
		p.wantText(t, append(found, "the text is not a valid policy", "was not saved", `<b class="error">✕ 3</b>`)...)
		if got := p.typed(t); got != bad {
			t.Errorf("what was typed has become %q", got)
		}
		p = s.post(annPolicy+"/check", "body", bad, "expected", "sha256:seen")
		if p.status != http.StatusOK || p.typed(t) != bad {
			t.Errorf("the button: %d", p.status)
		}
		p.wantText(t, append(found, `name="expected" value="sha256:seen"`, "cannot be saved")...)
		p = s.post(annPolicy+"/check", "body", bad, "live", "1")
		p.wantText(t, found...)
		p.wantNoText(t, "<textarea")
		off := []string{"body", "---\nenabled: false\n---\n", "live", "1"}
		made := o.scriptCalls(func() { p = s.post(annPolicy+"/check", off...) })
		p.wantText(t, "The text is a valid policy that is turned off.")
		if made["policy"] != 0 {
			t.Errorf("the script asks %v", made)
		}
		s.post(annPolicy+"/check", "body", "---\npreferences: {min_interval: 1s}\n---\nx\n", "live", "1").
			wantText(t, "warning", "heartbeat_preference_clamped", "The text is a valid policy.",
				"At least 5m between two wakes, written as 1s.")
		if now, _ := o.WakePolicy(t.Context(), "ann"); now.Present {
			t.Error("a check has written the policy")
		}
		if p := s.post("/console/policies/no%20name!/check", "live", "1"); p.status != http.StatusBadRequest {
			t.Errorf("no name: %d", p.status)
		}
		huge := strings.Repeat("x\n", 100_000)
		p = s.submit(annPolicy, annPolicy, "body", huge)
		p.wantText(t, "heartbeat_body_too_large")
		if p.typed(t) != huge || strings.Count(p.body, "\n5000\n") != 1 || strings.Contains(p.body, "\n5001\n") {
			t.Error("a text that is too long is not kept, or has too many numbers")
		}
	})
}

// Why a policy allows no wakes is said in a sentence, and when it allows them again.
func TestTheStatusOfAPolicyIsExplained(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) { // it is midnight
		s := o.signedIn(picket.ScopeReviewer)
		for name, c := range map[string]struct{ body, words string }{
			"off":   {"---\nenabled: false\n---\n", "The policy is turned off, or has no text."},
			"empty": {"", "The policy is turned off, or has no text."},
			"quiet": {"---\npreferences:\n  active_hours: [{timezone: UTC, start: \"08:00\", end: \"20:00\"}]\n---\nx\n",
				"or in a quiet window. quiet_window Wakes are allowed again in 8 h 00 min : Sat 1 Jan 2000, 08:00 UTC."},
			"never": {"---\npreferences:\n  quiet_windows: [{timezone: UTC, start: \"00:00\", end: \"12:00\"}, {timezone: UTC, " +
				"start: \"12:00\", end: \"00:00\"}]\n---\nx\n", "Its windows never allow a wake."},
		} {
			o.writePolicy(name, c.body)
			s.mustGet("/console/policies/"+name).wantText(t, c.words, "not active")
		}
	})
}

// If the file and the store were both changed, the page shows both and either can be made the policy. A
// version that was not seen is not replaced.
func TestAPolicyWhoseFileIsInConflict(t *testing.T) {
	for _, choice := range []string{"store", "file"} {
		virtual(t, func(t *testing.T, o *fixture) {
			s, reviewer := o.signedIn(picket.ScopeOperator), o.signedIn(picket.ScopeReviewer)
			p := o.writePolicy("ann", "of the store\r\n")
			o.publishFile(picket.PolicyFileConflict, "of the file\r\n", p.RevisionID)
			shown := s.mustGet(annPolicy)
			for _, p := range []response{shown, reviewer.mustGet(annPolicy)} {
				p.wantText(t, "The file and the store were both changed.", "ann/HEARTBEAT.md", "conflict",
					"<del>-of the store</del>", "<ins>&#43;of the file</ins>", "Choose one of them")
			}
			reviewer.mustGet(annPolicy).wantNoText(t, "Use the version")
			shown.wantText(t, "Use the version of the store", "Use the version of the file")
			form := append(shown.hidden(annPolicy+"/choose"), "once", s.newNonce())
			for i := range form {
				if form[i] == "version" {
					form[i+1] = choice
				}
			}
			o.publishFile(picket.PolicyFileConflict, "of the file, again\n", p.RevisionID)
			p2 := s.post(annPolicy+"/choose", form...)
			if p2.status != http.StatusConflict {
				t.Errorf("a version that was not seen: %d", p2.status)
			}
			p2.wantText(t, "of the file, again", "decide again")
			o.publishFile(picket.PolicyFileConflict, "of the file\r\n", p.RevisionID)
			for range 2 { // the second press of the button is the same choice
				s.follow(s.post(annPolicy+"/choose", form...)).wantText(t, "Saved.")
			}
			if now, _ := o.WakePolicy(t.Context(), "ann"); now.Body != "of the "+choice+"\r\n" || now.File != nil {
				t.Errorf("the policy is %+v", now)
			}
			p2 = s.post(annPolicy+"/choose", "version", "other", "once", s.newNonce())
			if p2.status != http.StatusBadRequest {
				t.Errorf("no version: %d", p2.status)
			}
		})
	}
}

// The page says what became of a file. A file without a text can be chosen, too: the name has no policy then.
func TestAPolicyWhoseFileDiffers(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		p := o.writePolicy("ann", "of the store\n")
		o.publishFile(picket.PolicyFileEdited, "of the file\n", p.RevisionID)
		page := s.mustGet(annPolicy)
		page.wantText(t, "The file was edited, and it is the policy now.")
		if got := page.typed(t); got != "of the file\n" {
			t.Errorf("the editor has %q", got)
		}
		o.publishFile(picket.PolicyFileEdited, "---\nmodel: large\n---\nof the file\n", p.RevisionID,
			"it belongs elsewhere")
		page = s.mustGet(annPolicy)
		page.wantText(t, "The file is not valid. Its text is not shown", "line 2: it belongs elsewhere", "Use the version of the store")
		page.wantNoText(t, "Use the version of the file", "of the file\n")
		if got := page.typed(t); got != "of the store\n" {
			t.Errorf("the editor has %q", got)
		}
		o.publishFile(picket.PolicyFileRefused, "", p.RevisionID)
		page = s.mustGet(annPolicy)
		page.wantText(t, "A link, or something else than a file")
		page.wantNoText(t, "Use the version of the file", "as the file")
		o.publishFile(picket.PolicyFileRemoved, "", p.RevisionID)
		page = s.mustGet(annPolicy)
		page.wantText(t, "The file is gone", "Delete the policy, as the file", "Use the version of the store")
		form := append(page.hidden(annPolicy+"/choose"), "once", s.newNonce())
		for i := range form {
			if form[i] == "version" {
				form[i+1] = "file"
			}
		}
		s.follow(s.post(annPolicy+"/choose", form...)).wantText(t, "Deleted.")
	})
}

// Nobody changes a policy of the files beside picket.yaml here. The page says where, and shows which instructions hold.
func TestAPolicyOfTheWorkspace(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		p := o.writePolicy("ann", "of the store\n")
		o.publishFile(picket.PolicyFileWorkspace, "of the workspace\n", p.RevisionID)
		must(t, o.redis.HSet(t.Context(), "pk:{default}:instruction-files", "ann",
			`{"path":"picket/agents/ann/AGENT.md","digest":"sha256:x","bytes":12,"diagnostics":[]}`).Err())
		page := s.mustGet(annPolicy)
		page.wantText(t, "picket/agents/ann/HEARTBEAT.md:", "only these count",
			"edit the file on the server, and run picket config trust",
			"picket/agents/ann/AGENT.md", "12 bytes", "of the workspace")
		page.wantNoText(t, "Use the version of", "Save")
		once := s.newNonce()
		answer := s.post(annPolicy, "once", once, "expected", p.Digest, "body", "of the console\n")
		if got, err := o.WakePolicy(t.Context(), "ann"); err != nil || got.Body != "of the workspace\n" {
			t.Errorf("the policy is %+v, %v", got, err)
		}
		answer.wantText(t, "the wake policy of ann is in the files beside picket.yaml")

		must(t, o.redis.HSet(t.Context(), "pk:{default}:instruction-files", "ann", `{"path":"ann/AGENT.md",`+
			`"digest":"","bytes":0,"diagnostics":[{"severity":"error","message":"<b>too long","line":3}]}`).Err())
		s.mustGet(annPolicy).wantText(t, "refused; the earlier ones stay", "line 3: <b>too long")
	})
}

// The reply of the store is lost: the text is there, and the same button saves it once.
func TestALostReplyToAPolicy(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		o.writePolicy("ann", "before\n")
		form := append(s.mustGet(annPolicy).hidden(annPolicy), "body", "after\n")
		o.loseReplies = true
		p := s.post(annPolicy, form...)
		if p.status != http.StatusServiceUnavailable {
			t.Errorf("a lost reply: %d", p.status)
		}
		p.wantText(t, "Whether it took effect is not known")
		o.loseReplies = false
		s.follow(s.post(annPolicy, append(p.hidden(annPolicy), "body", p.typed(t))...)).wantText(t, "Saved.")
		page, err := o.PolicyHistory(t.Context(), "ann", picket.PolicyHistoryQuery{})
		must(t, err)
		if len(page.Revisions) != 2 {
			t.Errorf("%d revisions", len(page.Revisions))
		}
	})
}

// Each revision is on one page, with what it changed, also the last one of a page.
func TestTheHistoryOfAPolicyHasPages(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		for n := range 23 {
			o.writePolicy("ann", fmt.Sprintf("number %02d\n", n))
		}
		pages, all := 0, ""
		for path := annPolicy + "/history"; path != ""; pages++ {
			p := s.mustGet(path)
			all, path = all+p.body, nextOf(p)
		}
		if pages != 3 {
			t.Errorf("%d pages", pages)
		}
		for n := range 23 {
			line := fmt.Sprintf("number %02d", n)
			if strings.Count(all, "<ins>&#43;"+line) != 1 || n < 22 && strings.Count(all, "<del>-"+line) != 1 {
				t.Errorf("%s is not compared with its neighbours", line)
			}
		}
		s.mustGet("/console/policies/none/history").wantText(t, "No revision is kept.")
	})
}
