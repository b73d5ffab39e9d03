package api_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/api"
)

type pollResult struct {
	answer response
	err    error
}

// startPoll starts a long poll and returns when the engine has it waiting.
func (p *fixture) startPoll(ctx context.Context, body string) <-chan pollResult {
	p.t.Helper()
	done := make(chan pollResult, 1)
	go func() {
		a, err := p.send(ctx, "POST", "/api/v1/leases", p.keys["agent"], body)
		done <- pollResult{a, err}
	}()
	p.eventually("the poll waits", func() bool {
		s, err := p.Stats(p.t.Context())
		must(p.t, err)
		return s.Waiters > 0
	})
	return done
}

// eventually asks again until a thing that happens on its own has happened.
func (p *fixture) eventually(what string, happened func() bool) {
	p.t.Helper()
	for end := time.Now().Add(10 * time.Second); !happened(); {
		if time.Now().After(end) {
			p.t.Fatalf("it did not happen: %s", what)
		}
	}
}

func TestAcquireWaitsForWork(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		poll := p.startPoll(t.Context(), `{"waitSeconds":50}`)
		id := p.submit(`{"title":"x"}`)
		got := <-poll
		must(t, got.err)
		if got.answer.status != 200 || !strings.Contains(got.answer.raw, id) {
			t.Errorf("poll: %d %s", got.answer.status, got.answer.raw)
		}
		if a := p.want(200, "POST", "/api/v1/leases", "agent", `{"waitSeconds":1}`); a.raw != `{"leases":[]}` {
			t.Errorf("a wait that ran out: %s", a.raw)
		}
	})
}

func TestAcquireEndsWhenTheServerStops(t *testing.T) {
	p := newMemoryFixture(t)
	poll := p.startPoll(t.Context(), `{"waitSeconds":50}`)
	start := time.Now()
	p.stop()
	got := <-poll
	must(t, got.err)
	if got.answer.status != 503 || got.answer.header.Get("Retry-After") == "" || time.Since(start) > 9*time.Second {
		t.Errorf("poll at shutdown: %d %s after %s", got.answer.status, got.answer.raw, time.Since(start))
	}
}

func TestAcquireForgetsAClientThatWent(t *testing.T) {
	p := newMemoryFixture(t)
	ctx, leave := context.WithCancel(t.Context())
	poll := p.startPoll(ctx, `{"waitSeconds":50}`)
	leave()
	if got := <-poll; !errors.Is(got.err, context.Canceled) {
		t.Errorf("poll: %+v", got)
	}
	id := p.submit(`{"title":"x"}`)
	if lease, _ := p.lease(); lease.TaskID != id {
		t.Errorf("the next client got %+v", lease)
	}
}

// brokenPipe takes headers and fails on the first byte of the body.
type brokenPipe struct{ httptest.ResponseRecorder }

func (*brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestAGrantThatCannotBeDeliveredIsGivenBack(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		id := p.submit(`{"title":"x"}`)
		r := httptest.NewRequest("POST", "http://localhost/api/v1/leases", strings.NewReader(`{}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-API-Key", p.keys["agent"])
		p.handler.ServeHTTP(&brokenPipe{}, r)
		if a := p.want(200, "GET", "/api/v1/tasks/"+id, "agent", ""); a.text("state") != "queued" ||
			a.body["failures"] != 0.0 || a.body["attempts"] != 1.0 {
			t.Errorf("after the broken delivery: %s", a.raw)
		}
		if lease, _ := p.lease(); lease.FencingToken != 2 || lease.PreviousExit == nil ||
			lease.PreviousExit.Class != picket.ExitUndelivered {
			t.Errorf("the next lease: %+v", lease)
		}
	})
}

// The metric of agent sessions counts those that have not ended.
func TestAgentSessionsAreCounted(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		reportedSession(p)
		const line = "picket_agent_sessions{namespace=\"default\"} 1\n"
		if metrics := p.want(200, "GET", "/metrics", "", "").raw; !strings.Contains(metrics, line) {
			t.Errorf("the metrics have no line %q", line)
		}
	})
}

func TestHealth(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		p.want(200, "GET", "/healthz", "", "")
		a := p.wantCode(picket.CodeUnavailable, "GET", "/readyz", "", "")
		if !strings.Contains(a.raw, "reaper") {
			t.Errorf("without a reaper: %s", a.raw)
		}
		must(t, p.Tick(t.Context()))
		p.wantCode(picket.CodeUnavailable, "GET", "/readyz", "", "") // the other namespace
		must(t, p.other.Tick(t.Context()))
		p.want(200, "GET", "/readyz", "", "")
		p.submit(`{"title":"x"}`)
		p.call("GET", "/nowhere/"+strings.Repeat("x", 50), "", "")
		metrics := p.want(200, "GET", "/metrics", "", "").raw
		for _, line := range []string{
			`picket_tasks{namespace="default",state="queued"} 1`,
			`picket_store_up{namespace="default"} 1`,
			`picket_store_up{namespace="other"} 1`,
			`picket_script_seconds_count{script="submit"} 1`,
			`picket_http_requests_total{method="POST",route="/api/v1/tasks",status="201"} 1`,
			`picket_http_requests_total{method="GET",route="none",status="404"} 1`,
		} {
			if !strings.Contains(metrics, line) {
				t.Errorf("metrics lack %s", line)
			}
		}
	})
}

func TestOpsRoutesAlone(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	ops := newFixtureWith(t, store, api.Config{}, (*api.API).MountOps)
	ops.want(200, "GET", "/healthz", "", "")
	ops.want(200, "GET", "/metrics", "", "")
	ops.want404("/elsewhere")
	ops.want404(renewalsPath)
}

func TestTheStoreIsUnavailable(t *testing.T) {
	store, redis := rig.RealServer(t)
	p := newFixture(t, store, api.Config{Webhooks: &fakeWebhookTester{}})
	p.want(200, "GET", "/api/v1/tasks", "admin", "")
	p.want(200, "GET", "/api/v1/tasks", "operator", "")
	must(t, redis.Signal(os.Kill))
	_, err := redis.Wait()
	must(t, err)
	var calls sync.WaitGroup
	for _, l := range p.api.RouteList() {
		// Prices are not the store's, and a check of a text needs no store.
		if len(l.Scopes) == 0 || l.Path == "/api/v1/prices" || strings.HasSuffix(l.Path, "/heartbeat/validate") {
			continue
		}
		// They answer each task and each lease; see TestRenewalsWhileTheStoreIsAway.
		if l.Path == batchPath || l.Path == "/v1/leases/renew" {
			continue
		}
		// of run keys only
		if l.Path == "/api/v1/run-keys/renew" || l.Path == "/api/v1/run-keys" && l.Method == http.MethodDelete {
			continue
		}
		path, body := withUnknownIDs(l.Path), ""
		if strings.HasSuffix(path, "/commands/pending") {
			path += "?incarnation=1"
		}
		if l.Method == http.MethodPost || l.Method == http.MethodPatch || l.Method == http.MethodPut {
			body = bodyFor[l.Path]
		}
		if l.Path == "/api/v1/leases/advance" {
			body = `{"leaseToken":"` + p.sealer.LeaseToken("default", "task_"+aULID, "run_"+aULID).Reveal() + `"}`
		}
		calls.Go(func() {
			headers := []string{"Idempotency-Key", "away"}
			if !strings.HasPrefix(path, "/api/agents/") { // where it is refused
				headers = append(headers, "If-Match", "*")
			}
			a, err := p.send(t.Context(), l.Method, path, p.keys["admin"], body, headers...)
			if err != nil || a.text("code") != string(picket.CodeUnavailable) || a.header.Get("Retry-After") == "" ||
				a.body["retryable"] != true {
				t.Errorf("%s %s: %v %d %s", l.Method, l.Path, err, a.status, a.raw)
			}
		})
	}
	calls.Wait()
	for i, r := range p.submitBatch(numberedTasks(3)...) {
		if r.Status != 503 || r.Error["code"] != string(picket.CodeUnavailable) || r.RetryAfterSeconds == 0 {
			t.Errorf("task %d of a batch: %+v", i, r)
		}
	}
	p.want(200, "GET", "/healthz", "", "")
	p.wantCode(picket.CodeUnavailable, "GET", "/readyz", "", "")
	if m := p.want(200, "GET", "/metrics", "", "").raw; !strings.Contains(m, `picket_store_up{namespace="default"} 0`) {
		t.Error("metrics do not say that the store is away")
	}
}

// bodyFor is a good body of the routes that need more than none.
var bodyFor = map[string]string{
	"/api/v1/tasks/:id/messages": `{"body":"x"}`,

	"/api/agents/:name/heartbeat":          `{"body":"x"}`,
	"/api/agents/:name/heartbeat/rollback": `{"target_digest":"x"}`,
	"/api/agents/:name/heartbeat/wake":     `{"session_id":"asession_01JZZZZZZZZZZZZZZZZZZZZZZZ"}`,

	"/api/v1/agents/:id/sessions":                 `{"incarnation":1,"sessions":[]}`,
	"/api/v1/agents/:id/commands/:command/result": `{"incarnation":1,"state":"accepted"}`,
	"/api/v1/agent-sessions/:id/prompts":          `{"text":"x"}`,

	"/api/v1/agents/:id/messages":  `{"body":"x"}`,
	"/api/v1/tasks":                `{"title":"x"}`,
	"/api/v1/agents/:id/status":    `{"status":"draining"}`,
	"/api/v1/agents/:id/heartbeat": `{"status":"active","client_timestamp":"2026-02-08T10:30:00Z"}`,
	"/api/v1/agents/:id/commands":  `{"command":"ping"}`,
	"/api/v1/handoffs/:id/answer":  `{"answer":"x"}`,
	"/api/v1/handoffs/:id/finish":  `{"output":"x"}`,
	"/api/v1/webhooks":             `{"url":"https://hooks.example.test/x"}`,
	"/api/v1/reviews/approve":      `{"filter":{"role":"coder"},"count":1}`,
	"/api/v1/keys":                 `{"name":"x","scopes":["agent"]}`,
	"/api/v1/envelopes/:id/top-up": `{"usd":1}`,
	"/api/v1/run-keys":             `{"agentId":"r1"}`,
}
