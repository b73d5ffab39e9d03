package rfc16

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket/internal/conformance"
)

// fakeServer is a server without any sense: it answers whatever its answer function
// says. It needs no socket.
type fakeServer struct {
	answer func(method, path string, body fields) (int, any)
}

func (w fakeServer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body fields
	if r.Body != nil {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		_ = json.Unmarshal(raw, &body)
	}
	status, v := w.answer(r.Method, r.URL.Path, body)
	text := []byte(conformance.JSON(v))
	header := http.Header{
		"Content-Type": {"application/json"},
		"Date":         {time.Now().UTC().Format(http.TimeFormat)},
		"Etag":         {`"1"`},
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(text)), Request: r},
		nil
}

// agreeableServer agrees to everything and remembers nothing but registrations.
func agreeableServer() fakeServer {
	var mu sync.Mutex
	records := map[string]fields{}
	made := 0
	return fakeServer{func(method, path string, body fields) (int, any) {
		mu.Lock()
		defer mu.Unlock()
		made++
		id := strings.Split(strings.TrimPrefix(path, agentsPath+"/"), "/")[0]
		switch {
		case method == "POST" && path == agentsPath:
			r := recordOf(body, made)
			records[r["agent_id"].(string)] = r
			return 201, r
		case strings.HasSuffix(path, "/heartbeat"):
			return 200, fields{
				"acknowledged":     true,
				"server_timestamp": time.Now().UTC().Format(time.RFC3339Nano),
				"agent_status":     "active",
				"pending_commands": []any{},
			}
		case strings.HasSuffix(path, "/status"):
			return 200, merge(recordOf(body, made), records[id], fields{"status": body["status"], "version": 2})
		case strings.HasSuffix(path, "/commands"):
			if strings.HasSuffix(id, "none") {
				return 404, fields{"code": "not_found"}
			}
			return 202, fields{"command_id": "cmd_1"}
		case strings.HasPrefix(path, agentsPath+"/"):
			return 200, merge(recordOf(fields{"agent_id": id}, made), records[id])
		case path == "/api/v1/keys":
			return 201, fields{"keyId": "key_1", "key": fmt.Sprintf("pkk_%d", made)}
		case method == "POST" && path == "/api/v1/tasks" && body["title"] == nil:
			return 400, fields{}
		case method == "POST" && path == "/api/v1/tasks":
			return 201, fields{"taskId": "task_1"}
		case path == "/api/v1/leases":
			return 200, fields{
				"leases": []any{fields{"taskId": "task_1", "runId": "run_1", "leaseToken": "pkl_1", "fencingToken": 1}},
			}
		case path == "/api/v1/pools":
			return 200, fields{"pools": []any{}}
		case path == agentsPath:
			return 200, fields{"agents": []any{}, "total": 0}
		}
		return 200, fields{"lastSeq": 0, "events": []any{}, "next": "0", "state": "queued"}
	}}
}

// refusingServer registers agents and refuses everything else.
func refusingServer() fakeServer {
	made := agreeableServer()
	return fakeServer{func(method, path string, body fields) (int, any) {
		setup := path == "/api/v1/keys" || path == "/api/v1/stats" || path == "/api/v1/pools" ||
			path == "/api/v1/tasks" || strings.HasSuffix(path, "none/commands") ||
			method == "GET" && path == agentsPath ||
			method == "POST" && path == agentsPath && body["heartbeat_config"] == nil || method == "DELETE"
		if setup {
			return made.answer(method, path, body)
		}
		return 403, fields{"code": "forbidden"}
	}}
}

func recordOf(body fields, n int) fields {
	now := time.Now().UTC().Format(time.RFC3339Nano)
	r := merge(fields{
		"agent_id":         fmt.Sprintf("agent_%d", n),
		"capabilities":     []any{},
		"metadata":         fields{},
		"heartbeat_config": fields{"interval_seconds": 30, "unhealthy_after_seconds": 90, "dead_after_seconds": 300},
	}, body)
	return merge(r, fields{
		"status":            "active",
		"version":           1,
		"incarnation":       1,
		"registered_at":     now,
		"last_heartbeat_at": now,
		"capacity":          fields{"current_load": 0},
	})
}

// outcomes runs every rule against a server on the virtual clock.
func outcomes(t *testing.T, server http.RoundTripper, cfg Config) map[string]conformance.Result {
	t.Helper()
	got := map[string]conformance.Result{}
	synctest.Test(t, func(t *testing.T) {
		cfg.URL, cfg.Key, cfg.HTTP, cfg.Exact = "http://wrong.test", "pkk_0", &http.Client{Transport: server}, true
		cfg.Parallel, cfg.Slack = 400, 3*time.Second
		report, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range report.Results {
			got[r.Section+"/"+r.ID] = r
		}
	})
	return got
}

// No rule is one that cannot fail: each fails on a server that agrees to
// everything and does nothing, or on one that refuses everything.
func TestEveryRuleFailsSomewhere(t *testing.T) {
	yes, no := outcomes(t, agreeableServer(), Config{}), outcomes(t, refusingServer(), Config{})
	failed := 0
	for _, r := range Rules() {
		if r.Check == nil {
			continue
		}
		a, b := yes[r.Name()], no[r.Name()]
		if a.Outcome != conformance.Failed && b.Outcome != conformance.Failed {
			t.Errorf("%s passes on servers without any sense: %s %s, %s %s", r.Name(), a.Outcome, a.Why, b.Outcome,
				b.Why)
		}
		if a.Outcome == conformance.Failed {
			failed++
		}
	}
	t.Logf("%d rules, %d fail on a server that agrees to everything", len(Rules()), failed)
}

// A key is never shown, and a server that shows one is found out.
func TestNoSecretIsShown(t *testing.T) {
	talkative := agreeableServer()
	inner := talkative.answer
	talkative.answer = func(method, path string, body fields) (int, any) {
		status, v := inner(method, path, body)
		return status, merge(v.(fields), fields{"detail": "pkk_0 pkk_default_abc.def pkl_secret"})
	}
	var names []string
	for name, r := range outcomes(t, talkative, Config{}) {
		if text := conformance.JSON(r); strings.Contains(text, "pkk_default") || strings.Contains(text, "pkl_secret") ||
			strings.Contains(text, "pkk_0") {
			names = append(names, name+": "+text)
		}
	}
	slices.Sort(names)
	if len(names) > 0 {
		t.Errorf("secrets are shown by %d rules, such as %.600s", len(names), names[0])
	}
}
