package api_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket/internal/rig/contract"
)

// fuzzSeeds are bodies that have broken decoders before.
var fuzzSeeds = []string{``, `{}`, `null`, `[`, `{"x":1}`, `{"title":"x"}`, `{"title":"a","title":"b"}`,
	`{"TITLE":"x"}`,
	"\xff", "{\"title\":\"\\u0000\"}",
	`{"title":"x","input":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`,
	`{"title":"x","input":-0.00e+400}`,
	`{"title":"x","budgetEnvelope":{"usd":1e400}}`, `{"title":"x","notBefore":"9999-12-31T23:59:59.999999999+23:59"}`,
	`{"title":"x","needs":["a","a"],"labels":{"k":"v"},"role":"r","priority":9,"retry":{"maxAttempts":1,"on":["crash"]}}`,
	`{"agentId":"a","capabilities":["go"],"max":3,"waitSeconds":0,"workspaceRoot":"/w"}`, `{"answer":"x","option":"a"}`,
	`{"output":[1,2.50,{"a":null}]}`,
	exampleRegistration,
	`{"agent_id":"f1","metadata":{"a":[1.50,-0,1e400]},"heartbeat_config":{"interval_seconds":1,"unhealthy_after_seconds":2,"dead_after_seconds":4}}`,
	`{"status":"active","client_timestamp":"2026-02-08T10:30:00+09:30","current_load":3,"tasks_in_progress":["t"],"handled_commands":["c"],"incarnation":1}`,
	`{"status":"draining","drain_timeout_seconds":0}`, `{"command":"stop_task","task_id":"t","reason":"\u0000"}`,
	`{"command":"drain","drain_timeout_seconds":1}`,
	`{"note":"n","fix":{"title":"f"}}`, `{"hard":false,"reason":"r"}`,
	`{"name":"k","scopes":["agent"],"expiresAt":"2999-01-01T00:00:00Z"}`}

// fuzz calls a route with any body: no panic, no 5xx, an answer of bounded
// size that is described.
func fuzz(f *testing.F, path func(p *fixture) string) { fuzzMethod(f, "POST", path) }

func fuzzMethod(f *testing.F, method string, path func(p *fixture) string) {
	p := newMemoryFixture(f)
	p.want(200, "GET", "/healthz", "", "")
	at, d := path(p), contract.Load(f)
	for _, s := range fuzzSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if hugeNumber(body) {
			t.Skip("numbers are kept digit for digit, but the checker of answers reads them into a float64")
		}
		r := httptest.NewRequest(method, "http://localhost"+at, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("If-Match", "*")
		r.Header.Set("X-API-Key", p.keys["admin"])
		p.checkResponse(t, d, r)
	})
}

func (p *fixture) checkResponse(t *testing.T, d *contract.Document, r *http.Request) {
	t.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r.WithContext(ctx))
	if deadline, _ := ctx.Deadline(); !time.Now().Before(deadline) {
		return // a long poll, or a store that was slow: nobody waits for the answer
	}
	if w.Code >= 500 || w.Body.Len() > 4<<20 {
		t.Fatalf("%d with %d bytes: %.1000s", w.Code, w.Body.Len(), w.Body)
	}
	if err := d.Check(r, w.Code, w.Header(), w.Body.Bytes()); err != nil {
		t.Error(err)
	}
}

func fixedPath(path string) func(*fixture) string { return func(*fixture) string { return path } }

func FuzzSubmitBody(f *testing.F)  { fuzz(f, fixedPath("/api/v1/tasks")) }
func FuzzAcquireBody(f *testing.F) { fuzz(f, fixedPath("/api/v1/leases")) }
func FuzzKeyBody(f *testing.F)     { fuzz(f, fixedPath("/api/v1/keys")) }
func FuzzPauseBody(f *testing.F)   { fuzz(f, fixedPath("/api/v1/pause")) }
func FuzzResumeBody(f *testing.F)  { fuzz(f, fixedPath("/api/v1/resume")) }

// A body that has the lease token completes; the rest is refused.
func FuzzAdvanceBody(f *testing.F) {
	fuzz(f, func(p *fixture) string {
		p.submit(`{"title":"x"}`)
		lease, _ := p.lease()
		f.Add([]byte(advanceBody(lease, `{"agentId":"a1","max":2}`)))
		f.Add([]byte(advanceBody(lease, `{"waitSeconds":1}`)))
		f.Add([]byte(advanceBody(lease, `null`)))
		return advancePath
	})
}

func FuzzRegisterBody(f *testing.F) { fuzz(f, fixedPath("/api/v1/agents")) }

func fuzzAgentRoute(f *testing.F, method, rest string) {
	fuzzMethod(f, method, func(p *fixture) string { p.register("admin", `{"agent_id":"a1"}`); return anAgent + rest })
}

func FuzzHeartbeatBody(f *testing.F) { fuzzAgentRoute(f, "POST", "/heartbeat") }
func FuzzCommandBody(f *testing.F)   { fuzzAgentRoute(f, "POST", "/commands") }
func FuzzStatusBody(f *testing.F)    { fuzzAgentRoute(f, "PATCH", "/status") }

// The first body accepted decides; the rest meets a task in another state,
// which must be as harmless.
func FuzzRejectBody(f *testing.F) {
	fuzz(f, func(p *fixture) string { return "/api/v1/reviews/" + p.toReview() + "/reject" })
}

func FuzzAnswerBody(f *testing.F) {
	fuzz(f, func(p *fixture) string { _, h := p.toHandoff(); return "/api/v1/handoffs/" + h + "/answer" })
}

func FuzzFinishBody(f *testing.F) {
	fuzz(f, func(p *fixture) string { _, h := p.toHandoff(); return "/api/v1/handoffs/" + h + "/finish" })
}

func FuzzReasonBody(f *testing.F) {
	fuzz(f, func(p *fixture) string { return "/api/v1/tasks/" + p.submit(`{"title":"x"}`) + "/cancel" })
}

func FuzzQuery(f *testing.F) {
	p, d := newMemoryFixture(f), contract.Load(f)
	task := p.submit(`{"title":"x","labels":{"team":"a"}}`)
	p.register("admin", exampleRegistration)
	paths := []string{"/api/v1/tasks", "/api/v1/events", "/api/v1/handoffs", "/api/v1/tasks/" + task + "/logs",
		"/api/v1/tasks/" + task,
		"/api/v1/agents", "/api/v1/pools/billing-processor"}
	for _, s := range []string{"", "state=queued,leased&limit=1", "label=team=a&role=x", "since=2026-01-01T00:00:00Z",
		"cursor=1", "cursor=99999999999999999999", "after=0&type=task.leased&agent=a",
		"stream=stderr&offset=1&limit=10", "follow=1", "parent=x", "state=open", "limit=%zz", "a;b", "label=%7B=%7D",
		"role=%00"} {
		f.Add(uint8(0), s)
		f.Add(uint8(1), s)
		f.Add(uint8(3), s)
	}
	for _, s := range []string{"status=*", "status=%2A,dead", "capabilities=a,b,,&min_available_capacity=1",
		"role_id=billing-processor&limit=1&cursor=active:a", "cursor=active%7Cr:a", "cursor=:"} {
		f.Add(uint8(5), s)
	}
	f.Fuzz(func(t *testing.T, which uint8, query string) {
		r := httptest.NewRequest("GET", "http://localhost"+paths[int(which)%len(paths)], nil)
		r.URL.RawQuery = query
		r.Header.Set("X-API-Key", p.keys["admin"])
		p.checkResponse(t, d, r)
	})
}

// FuzzPath sends any id and any header of identity: nobody gets in, and no
// text reaches a key of the store.
func FuzzPath(f *testing.F) {
	p, d := newMemoryFixture(f), contract.Load(f)
	for _, s := range []string{"task_" + aULID, "task_{01}", "..", "%2e%2e", "task_\x00", strings.Repeat("a", 300),
		"pkk_default_x", "pkk_{a}_x"} {
		f.Add(s, s)
		f.Add(s, "")
	}
	f.Fuzz(func(t *testing.T, id, key string) {
		r := httptest.NewRequest("GET", "http://localhost/api/v1/tasks/x", nil)
		r.URL.Path, r.URL.RawPath = "/api/v1/tasks/"+id, "/api/v1/tasks/"+url.PathEscape(id)
		r.Header["X-Api-Key"] = []string{key}
		w := httptest.NewRecorder()
		p.handler.ServeHTTP(w, r)
		if w.Code < 400 || w.Code >= 500 {
			t.Fatalf("%d: %.500s", w.Code, w.Body)
		}
		if strings.Contains(id, "/") {
			return // the description knows no path with a slash inside an id
		}
		r.Header.Set("X-API-Key", p.keys["admin"])
		p.checkResponse(t, d, r)
	})
}

// hugeNumber reports whether a text has a number that no float64 can hold, also inside of a string.
func hugeNumber(text []byte) bool {
	return slices.ContainsFunc(numbers.FindAll(text, -1), func(number []byte) bool {
		_, err := strconv.ParseFloat(string(number), 64)
		return err != nil
	})
}

var numbers = regexp.MustCompile(`[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?`)
