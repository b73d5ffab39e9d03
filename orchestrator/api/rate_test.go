package api_test

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator/api"
)

// A key that sends too many requests is refused. Its heartbeats, what stops
// something, and other keys go on.
func TestTheRateOfAKeyIsBounded(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	p := newFixture(t, store, api.Config{Rates: web.NewRates(1, 1)})
	id := p.want(201, "POST", "/api/v1/agents", "operator", `{"agent_id":"a-1","role_id":"coder"}`).text("agent_id")
	var refused response
	for range 60 { // the bucket holds five and gains one a second
		if a := p.call("GET", "/api/v1/tasks", "operator", ""); a.status != 200 {
			refused = a
		}
	}
	if refused.text("code") != string(picket.CodeRateLimited) || refused.header.Get("Retry-After") != "1" ||
		refused.text("remedy") == "" {
		t.Fatalf("60 requests were not refused: %s", refused.raw)
	}
	for _, route := range []string{"POST /api/v1/agents/" + id + "/heartbeat", "DELETE /api/v1/agents/" + id,
		"DELETE /api/v1/keys/key_" + aULID,
		"POST /api/v1/tasks/task_" + aULID + "/cancel", "POST /api/v1/leases/task_" + aULID + "/expire",
		"POST /api/v1/pause"} {
		method, path, _ := strings.Cut(route, " ")
		if a := p.call(method, path, "operator", "{}"); a.text("code") == string(picket.CodeRateLimited) {
			t.Errorf("%s: %s", route, a.raw)
		}
	}
	p.want(200, "GET", "/api/v1/tasks", "reviewer", "")
	if metrics := p.want(200, "GET", "/metrics", "", "").raw; !strings.Contains(metrics,
		`picket_requests_rate_limited_total{kind="key"} `) ||
		strings.Contains(metrics, `picket_requests_rate_limited_total{kind="key"} 0`) {
		t.Error("the refusals are not counted in /metrics")
	}
}

// A client key has a rate of its own also on the routes that refuse it. Other keys go on.
func TestTheRateOfAClientKeyIsItsOwn(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	p := newFixture(t, store, api.Config{Rates: web.NewRates(0, 0)})
	made := p.want(201, "POST", "/api/v1/keys", "admin",
		`{"name":"partner","scopes":["client"],"client":{"roles":["coder"],"ratePerMinute":2}}`)
	p.keys["partner"] = made.text("key")
	p.wantCode(picket.CodeForbidden, "GET", "/api/v1/tasks", "partner", "")
	a := p.wantCode(picket.CodeRateLimited, "GET", "/api/v1/tasks", "partner", "")
	if a.header.Get("Retry-After") != "30" || a.body["perMinute"] != 2.0 {
		t.Errorf("refused with %s", a.raw)
	}
	p.wantCode(picket.CodeForbidden, "GET", "/api/v1/tasks", "client", "")
	shown := p.want(200, "GET", "/api/v1/keys/"+made.text("keyId"), "admin", "").raw
	if !strings.Contains(shown, `"client":{"roles":["coder"],"maxOpen":100,"ratePerMinute":2}`) {
		t.Errorf("the key is shown as %s", shown)
	}
}
