//go:build linux

package e2e

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// consoleFixture is a server with something of everything that a page can show, made
// through the doors that agents use. say turns the words of an agent into what
// is sent; field names where they stand.
type consoleFixture struct {
	w    *testEnv
	say  func(field, words string) string
	shop *paidService

	running  string
	child    string
	queued   string
	closed   string
	rejected string // ids of tasks
	reviews  []string
	handoffs map[picket.HandoffKind]string // ids, by kind
	agent    string
	session  *keptSession
	plain    bool // its visitors come without JavaScript
	person   *tab // who visits, when it is always the same
}

// asWritten leaves an agent's words as they are.
func asWritten(_, words string) string { return words }

// newConsoleFixture makes a world for scenes: a server that sells tool calls.
func newConsoleFixture(t *testing.T, say func(field, words string) string, more ...string) *consoleFixture {
	t.Helper()
	w := newTestEnv(t)
	s := &consoleFixture{w: w, say: say, shop: newPaidService(t), handoffs: map[picket.HandoffKind]string{}}
	host := strings.TrimPrefix(s.shop.URL, "http://")
	settings := strings.Join(more, "\n") +
		fmt.Sprintf("\ntools:\n  prices: {http_request: {call: 0.04}}\n  http_request: {allow: [%q], timeout: 3s}\n",
			host)
	if err := os.MkdirAll(w.path("config", "picket"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.path("config", "picket", "picket.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	w.up()
	return s
}

// populate fills the server.
func (s *consoleFixture) populate() {
	s.w.t.Helper()
	s.startWorker()
	s.runs()
	s.asks()
	s.fails()
	s.expectHandoff()
	s.cancelTask()
	s.talks()
	s.plans()
	for _, words := range []string{"Raise the timeout of the flaky upload test", "Translate the release notes",
		"Look into the memory of the importer"} {
		s.queued = s.submit("waiting", words, func(t *picket.TaskSpec) { t.Needs = []string{"gpu"} }).TaskID
	}
}

func (s *consoleFixture) submit(role, title string, more ...func(*picket.TaskSpec)) picket.Task {
	s.w.t.Helper()
	task := spec(s.say("title", title), 3600)
	task.Role = role
	task.Input = quoted(s.say("input", "Keep the public API as it is, and write a test first."))
	task.Labels = map[string]string{"team": s.say("label", "payments"), "issue": "2041"}
	task.BudgetEnvelope = &budget.Envelope{Tokens: 200_000, USD: 1_500_000_000}
	for _, change := range more {
		change(&task)
	}
	var made picket.Task
	s.w.into(&made, http.MethodPost, "/tasks", task)
	return made
}

// leased submits a task and takes it, as an agent of a name.
func (s *consoleFixture) leased(role, agent, title string, more ...func(*picket.TaskSpec)) picket.Lease {
	s.w.t.Helper()
	s.submit(role, title, more...)
	return s.take(role, agent)
}

func (s *consoleFixture) take(role, agent string) picket.Lease {
	s.w.t.Helper()
	var got picket.Acquired
	wait := 30
	s.w.into(&got, http.MethodPost, "/leases", picket.AcquireRequest{AgentID: agent, Role: role, WaitSeconds: &wait})
	if len(got.Leases) != 1 {
		s.w.t.Fatalf("%d leases of role %s", len(got.Leases), role)
	}
	s.with(got.Leases[0], "/v1/lease/renew", struct{}{}) // it has arrived
	return got.Leases[0]
}

// with calls the proxy with the token of a lease. A store that does not answer in time
// is asked again with the same key.
func (s *consoleFixture) with(l picket.Lease, path string, body any, header ...string) answer {
	s.w.t.Helper()
	header = append([]string{"Idempotency-Key", rand.Text()}, header...)
	var got answer
	s.w.until(path+" is answered", func() bool {
		got = s.w.call(l.LeaseToken.Reveal(), http.MethodPost, l.ProxyURL+path, body, header...)
		return got.code() != picket.CodeUnavailable
	})
	if got.status/100 != 2 {
		s.w.t.Fatalf("%s: %d %s", path, got.status, got.body)
	}
	return got
}

// startWorker registers agents of two roles.
func (s *consoleFixture) startWorker() {
	s.w.t.Helper()
	s.agent = "coder-1"
	for i, a := range []struct {
		id   string
		role string
	}{{s.agent, "coder"}, {"coder-2", "coder"}, {"scout-1", "scout"}} {
		var made picket.Agent
		s.w.into(&made, http.MethodPost, "/agents", map[string]any{
			"agent_id":     a.id,
			"role_id":      a.role,
			"name":         s.say("agent name", "Coder on build-"+a.id),
			"capabilities": []string{"go", "sql"},
			"capacity":     map[string]any{"max_concurrent_tasks": 4},
			"metadata":     map[string]any{"host": s.say("metadata", "build-7.internal"), "pid": 4000 + i},
		})
	}
}

// runs leaves a task running, with reports, a log, calls that cost and a
// subtask.
func (s *consoleFixture) runs() {
	s.w.t.Helper()
	l := s.leased("coder", s.agent, "Make the connection pool safe for concurrent Close")
	s.running = l.TaskID
	s.with(l, "/v1/run/events",
		map[string]any{
			"events": []map[string]any{{
				"type":          "run.launched",
				"containment":   "group",
				"workspacePath": "/srv/runs/" + s.say("workspace", "pool"),
			}},
		})
	for i, summary := range []string{"Reproduced the race with -race in 3 of 50 runs",
		"Found it: Close and Put both write p.n without the lock"} {
		s.with(l, "/v1/tools/report_progress", s.report(summary))
		s.with(l, "/v1/tools/http_request",
			map[string]any{"method": "GET", "url": s.shop.URL + fmt.Sprintf("/ok/%d?", i) + "q=" + "pool"})
	}
	s.with(l, "/v1/run/usage", map[string]any{"source": "claude", "session": "s1", "tokens": 1200, "usd": 0.01})
	s.log(l, "stdout", "go test -race ./pool\n"+strings.Repeat("ok  \texample.com/app/pool\t0.412s\n", 8)+
		s.say("stdout", "WARNING: DATA RACE at pool.go:88")+"\n")
	s.log(l, "stderr", s.say("stderr", "exit status 66")+"\n")
	var made picket.Delegated
	decodeInto(s.w.t, s.with(l, "/v1/tools/delegate_subtask",
		map[string]any{
			"title":          s.say("subtask title", "Measure the pool under 64 goroutines"),
			"input":          s.say("subtask input", "report p50 and p99"),
			"role":           "scout",
			"budgetEnvelope": map[string]any{"tokens": 20000, "usd": 0.2},
		}).body, &made)
	s.child = made.TaskID
	// A second task that runs, and whose agent is then told to stop by nobody.
	s.leased("coder", "coder-2", "Replace the home-made retry loop in the uploader")
}

func (s *consoleFixture) report(summary string) map[string]any {
	return map[string]any{
		"summary": s.say("report", summary),
		"beliefs": []string{s.say("belief", "the counter is read without the mutex in Stats, too")},
		"attempted": []map[string]string{{
			"action":  s.say("action", "go test -race -count=50"),
			"outcome": s.say("outcome", "3 failures, always in Close"),
		}},
		"nextStep": s.say("next step", "guard p.n with the mutex and run 500 times"),
		"blockers": []string{s.say("blocker", "the staging database has no TLS certificate")},
	}
}

func (s *consoleFixture) log(l picket.Lease, stream, text string) {
	s.w.t.Helper()
	s.logAt(l, stream, 0, text)
}

// logAt sends what a run printed after so many bytes.
func (s *consoleFixture) logAt(l picket.Lease, stream string, offset int, text string) {
	s.w.t.Helper()
	req, err := http.NewRequest(http.MethodPost,
		fmt.Sprintf("%s/v1/run/logs?offset=%d&stream=%s", l.ProxyURL, offset, stream), strings.NewReader(text))
	if err != nil {
		s.w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+l.LeaseToken.Reveal())
	req.Header.Set("Content-Type", "text/plain")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.w.t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode/100 != 2 {
		s.w.t.Fatalf("a log: %s", res.Status)
	}
}

// asks leaves a hand-off of every kind that an agent makes.
func (s *consoleFixture) asks() {
	s.w.t.Helper()
	for _, q := range []struct {
		title    string
		question string
		body     map[string]any
	}{
		{"Move the session table to the new cluster", "Which database is the one to copy from?",
			map[string]any{"options": []string{s.say("option", "live"), "staging"}}},
		{"Delete the accounts that asked for it", "May I delete 214 accounts permanently?",
			map[string]any{
				"kind":            "approval",
				"deadlineSeconds": 7200,
				"onDeadline":      "deny",
				"options":         []string{"yes", "no"},
			}},
		{"Summarize 4,000 support tickets", "1,900 are done and the envelope is nearly empty. Shall I go on?",
			map[string]any{"kind": "budget"}},
	} {
		l := s.leased("coder", s.agent, q.title)
		s.with(l, "/v1/tools/report_progress", s.report("Compared both schemas; 3 columns differ"))
		q.body["question"] = s.say("question", q.question)
		var asked picket.HelpRequested
		decodeInto(s.w.t, s.with(l, "/v1/tools/request_human_help", q.body).body, &asked)
		kind, _ := q.body["kind"].(string)
		if kind == "" {
			kind = string(picket.HandoffQuestion)
		}
		s.handoffs[picket.HandoffKind(kind)] = asked.HandoffID
		s.evidence(l)
	}
}

// fails hands a task over that cannot be done, and has a late write refused.
func (s *consoleFixture) fails() {
	s.w.t.Helper()
	attempts := 1
	once := func(t *picket.TaskSpec) { t.Retry = &picket.Retry{MaxAttempts: &attempts} }
	l := s.leased("coder", s.agent, "Restore the backup of Tuesday", once)
	s.with(l, "/v1/tools/mark_failed",
		map[string]any{
			"reason":    s.say("failure", "the archive ends in the middle of table orders"),
			"retryable": false,
		})
	for _, h := range s.openHandoffs() {
		if h.Kind == picket.HandoffEscalation {
			s.handoffs[h.Kind] = h.HandoffID
		}
	}
	late := s.leased("scout", "scout-1", "List the endpoints without a rate limit")
	s.w.into(&struct{}{}, http.MethodPost, "/leases/"+late.TaskID+"/expire",
		map[string]string{"reason": "its machine is being replaced"})
	s.w.call(late.LeaseToken.Reveal(), http.MethodPost, late.ProxyURL+"/v1/tools/report_progress",
		s.report("still here"))
}

func (s *consoleFixture) openHandoffs() []picket.Handoff {
	s.w.t.Helper()
	var page picket.HandoffPage
	s.w.into(&page, http.MethodGet, "/handoffs", nil)
	return page.Handoffs
}

// expectHandoff leaves results to review.
func (s *consoleFixture) expectHandoff() {
	s.w.t.Helper()
	for _, title := range []string{"Guard Close with a mutex", "Write the changelog of 2.4",
		"Drop the unused feature flags"} {
		s.reviews = append(s.reviews, s.result(title))
	}
}

// result brings a task to review, with all that a reviewer looks at.
func (s *consoleFixture) result(title string, more ...func(*picket.TaskSpec)) (task string) {
	s.w.t.Helper()
	return s.resultOf("coder", s.agent, title, more...)
}

func (s *consoleFixture) resultOf(role, agent, title string, more ...func(*picket.TaskSpec)) (task string) {
	s.w.t.Helper()
	l := s.leased(role, agent, title, more...)
	s.with(l, "/v1/tools/report_progress", s.report("Wrote the test; it fails without the change"))
	s.with(l, "/v1/tools/http_request", map[string]any{"method": "GET", "url": s.shop.URL + "/ok/review"})
	s.log(l, "stdout", "--- PASS: TestCloseTwice (0.00s)\n"+s.say("stdout", "500 runs, 0 failures")+"\n")
	s.with(l, "/v1/tools/mark_complete",
		map[string]any{
			"output":  map[string]any{"note": s.say("output", "no caller has to change")},
			"summary": s.say("summary", "Guarded the counter with the pool's mutex, and tested Close against Put."),
		})
	s.with(l, "/v1/run/exit",
		map[string]any{"class": "success", "code": 0, "signal": nil, "containment": "group", "durationMs": 5120})
	s.evidence(l)
	return l.TaskID
}

func (s *consoleFixture) evidence(l picket.Lease) {
	s.w.t.Helper()
	diff := "--- a/pool.go\n+++ b/pool.go\n@@ -86,7 +86,9 @@ func (p *Pool) Close() {\n \tfor _, c := range p.idle {\n-\tp.n--\n+\tp.mu.Lock()\n+\tp.n-- // " + s.say("diff", "under the lock") + "\n+\tp.mu.Unlock()\n \t}\n"
	s.with(l, "/v1/run/evidence",
		map[string]any{
			"repository": "/srv/" + s.say("repository", "app"),
			"branch":     "picket/" + s.say("branch", "pool-close"),
			"base":       "6a787ab",
			"diffstat":   " " + s.say("diffstat", "pool.go") + " | 4 +++-\n",
			"diff":       diff,
			"truncated":  false,
			"files":      []map[string]any{{"path": s.say("file", "pool.go"), "added": 3, "removed": 1}},
		})
}

// cancelTask leaves tasks that are over.
func (s *consoleFixture) cancelTask() {
	s.w.t.Helper()
	s.closed = s.result("Pin the versions of the build images")
	s.decideReview(s.closed, "approve", "thank you")
	s.rejected = s.result("Rewrite the parser in one go")
	s.decideReview(s.rejected, "reject", "too much at once: in steps, please")
	gone := s.submit("coder", "Try the new linter")
	s.w.into(&struct{}{}, http.MethodPost, "/tasks/"+gone.TaskID+"/cancel", map[string]string{"reason": "done by hand"})
}

// decideReview looks at a review and decides about what is there.
func (s *consoleFixture) decideReview(task, decision, note string) {
	s.w.t.Helper()
	var seen picket.Task
	s.w.into(&seen, http.MethodGet, "/tasks/"+task, nil)
	s.w.into(&struct{}{}, http.MethodPost, "/reviews/"+task+"/"+decision,
		picket.Decision{Note: note, Digest: seen.Review.Digest})
}

func quoted(text string) picket.RawJSON {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return b
}
