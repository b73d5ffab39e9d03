package agentheartbeat

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket/internal/conformance"
)

// Trial is one rule being held against the server, on a goroutine of its own.
// The first expectation that is not met ends it.
type Trial struct {
	*conformance.Trial
	s       *suite
	keepers []*keeper
	names   []string // of agents, which may have policies
	retired bool     // the names are not used again
	files   bool     // the rule changes the files of its names, and the names are not used again
	tasks   []string
}

// policyPath is a route of the wake policy of an agent name.
func policyPath(name, rest string) string {
	return "/api/agents/" + url.PathEscape(name) + "/heartbeat" + rest
}

// name is the name of an agent without a policy.
func (t *Trial) name() string {
	name := t.s.takeName()
	t.names = append(t.names, name)
	return name
}

// clean takes away what the rule made and answers what it could not.
func (t *Trial) clean(ctx context.Context) (left []string) {
	for _, k := range t.keepers {
		body := fields{"incarnation": k.incarnation, "sessions": []fields{}} // its sessions end at once
		t.s.Ask(ctx, owner, "PUT", agentsPath+"/"+k.id+"/sessions", body)
		if a := t.s.Ask(ctx, owner, "DELETE", agentsPath+"/"+k.id, nil); a.Status/100 != 2 && a.Status != 404 {
			left = append(left, "agent "+k.id)
		}
	}
	for _, id := range t.tasks {
		a := t.s.Ask(ctx, operator, "POST", "/api/v1/tasks/"+id+"/cancel", fields{"reason": "conformance run"})
		if a.Status != 200 && a.Status != 409 {
			left = append(left, "task "+id)
		}
	}
	for _, name := range t.names {
		if t.files {
			_ = os.RemoveAll(filepath.Dir(t.path(name)))
		}
		if !t.s.forget(ctx, name) {
			left = append(left, "policy of "+name)
		} else if !t.retired && !t.files {
			t.s.returnName(name)
		}
	}
	return left
}

// forget deletes the policy of a name, if it has one.
func (s *suite) forget(ctx context.Context, name string) bool {
	a := s.Ask(ctx, operator, "GET", policyPath(name, ""), nil)
	if present, known := a.At("present"); known && present == false {
		return true
	}
	a = s.Ask(ctx, operator, "DELETE", policyPath(name, ""), fields{"expected_digest": a.Str("digest")})
	return a.Status == 200 || a.Status == 404
}

// front is a HEARTBEAT.md with front matter and a body.
func front(lines ...string) string {
	return "---\n" + strings.Join(lines, "\n") + "\n---\nRead your messages.\n"
}

// plain is a policy that allows wakes at any time.
const plain = "Read your messages first.\n"

// write makes a text the policy of a name that has none.
func (t *Trial) write(name, text string) *answer {
	return t.ExpectStatus(t.change("PUT", name, "", fields{"body": text}), 200)
}

// replace makes a text the policy of a name that has one.
func (t *Trial) replace(name, text string) *answer {
	digest := t.read(name).Str("digest")
	return t.ExpectStatus(t.change("PUT", name, "", fields{"body": text, "expected_digest": digest}), 200)
}

// change sends a change of a policy as an operator.
func (t *Trial) change(method, name, rest string, body fields, headers ...string) *answer {
	return t.Call(operator, method, policyPath(name, rest), body, headers...)
}

func (t *Trial) read(name string) *answer {
	return t.ExpectStatus(t.Call(operator, "GET", policyPath(name, ""), nil), 200)
}

// status is what a policy means at an instant; empty: now.
func (t *Trial) status(name, at string) *answer {
	path := policyPath(name, "/status")
	if at != "" {
		path += "?at=" + url.QueryEscape(at)
	}
	return t.ExpectStatus(t.Call(operator, "GET", path, nil), 200)
}

func (t *Trial) history(name, query string) *answer {
	return t.ExpectStatus(t.Call(operator, "GET", policyPath(name, "/history"+query), nil), 200)
}

// validate asks what a text would be as a policy.
func (t *Trial) validate(text string) *answer {
	return t.Call(operator, "POST", policyPath(t.s.Prefix+"none", "/validate"), fields{"body": text})
}

// valid expects that a text is a policy.
func (t *Trial) valid(text string) *answer {
	a := t.ExpectStatus(t.validate(text), 200)
	t.ExpectMember(a, "valid", true)
	return a
}

// invalid expects that a text is refused as a policy, and answers the first diagnostic with a code.
func (t *Trial) invalid(text, code string) fields {
	a := t.ExpectCode(t.validate(text), 422, "heartbeat_invalid")
	d := diagnostic(a.List("policy.diagnostics"), code)
	t.Assert(d != nil && conformance.Text(d, "severity") == "error", a, "a diagnostic %s with the severity error", code)
	return d
}

// warned expects a valid text with a warning, and answers the warning.
func (t *Trial) warned(text, code string) (*answer, fields) {
	a := t.valid(text)
	d := diagnostic(a.List("diagnostics"), code)
	t.Assert(d != nil && conformance.Text(d, "severity") == "warning", a, "a diagnostic %s with the severity warning", code)
	return a, d
}

func diagnostic(list []fields, code string) fields {
	for _, d := range list {
		if conformance.Text(d, "code") == code {
			return d
		}
	}
	return nil
}

// expectInactive expects that a policy allows no wakes at an instant, for a reason.
func (t *Trial) expectInactive(name, at, reason string) *answer {
	a := t.status(name, at)
	t.ExpectMember(a, "active", false)
	t.ExpectMember(a, "reason", reason)
	return a
}

func (t *Trial) expectActive(name, at string) *answer {
	a := t.status(name, at)
	t.ExpectMember(a, "active", true)
	t.ExpectMember(a, "reason", "")
	return a
}

// holds expects that a condition about an answer holds.
func (t *Trial) holds(a *answer, what string, holds bool) { t.Assert(holds, a, "%s", what) }

// mark is where the event log stands.
func (t *Trial) mark() string {
	a := t.ExpectStatus(t.Call(operator, "GET", "/api/v1/stats", nil), 200)
	return fmt.Sprint(max(0, a.Num("lastSeq")))
}

// events are those of an agent since a mark, with a type that begins with one of some texts.
func (k *keeper) events(after string, kinds ...string) (types []string) {
	for _, e := range k.t.log(after, url.Values{"agent": {k.id}}) {
		kind := conformance.Text(e, "type")
		if slices.ContainsFunc(kinds, func(begin string) bool { return strings.HasPrefix(kind, begin) }) {
			types = append(types, kind)
		}
	}
	return types
}

// log is what the event log holds since a mark, for a query.
func (t *Trial) log(after string, q url.Values) (list []fields) {
	for {
		q.Set("after", after)
		q.Set("limit", "1000")
		a := t.ExpectStatus(t.Call(operator, "GET", "/api/v1/events?"+q.Encode(), nil), 200)
		list = append(list, a.List("events")...)
		next := a.Str("next")
		if next == after || next == "" {
			return list
		}
		after = next
	}
}

// await looks until a condition about an answer holds.
func (t *Trial) await(what string, ask func() *answer, holds func(*answer) bool) *answer {
	for end := t.Now().Add(t.s.cfg.Slack); ; t.Sleep(t.s.cfg.Poll) {
		a := ask()
		if holds(a) {
			return a
		}
		t.Assert(t.Now().Before(end), a, "%s within %s", what, t.s.cfg.Slack)
	}
}

// instant is a time as the server takes it.
func instant(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }
