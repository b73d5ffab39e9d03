package api_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/api"
)

// The security considerations of RFC-0016, one by one.

func (p *fixture) addStranger() {
	p.keys["stranger"] = p.newKey(picket.KeyRequest{Name: "stranger", Scopes: []picket.Scope{picket.ScopeAgent}})
}

// Heartbeat spoofing: one that another key sends is refused and keeps nobody
// alive. The agent is unhealthy and dead exactly when its own silence shows it.
func TestSpoofedHeartbeatsKeepNobodyAlive(t *testing.T) {
	virtual(t, api.Config{}, func(t *testing.T, p *fixture) {
		p.addStranger()
		p.register("agent", `{"agent_id":"a1",`+quickThresholds+`}`)
		record := p.want(200, "GET", anAgent, "operator", "").raw
		spoof := func() {
			t.Helper()
			for _, body := range []string{heartbeatBody(),
				`{"status":"draining","current_load":9,"client_timestamp":"2001-01-01T00:00:00Z","handled_commands":["cmd_1"],"tasks_in_progress":["t"]}`} {
				p.wantCode(picket.CodeForbidden, "POST", anAgent+"/heartbeat", "stranger", body)
			}
		}
		spoof()
		if got := p.want(200, "GET", anAgent, "operator", "").raw; got != record {
			t.Errorf("a spoofed heartbeat has changed the record:\n%s\n%s", record, got)
		}
		for range 20 { // as often as it may be
			p.passTime(100 * time.Millisecond)
			spoof()
		}
		if got := p.statusOf("a1"); got != "active" {
			t.Errorf("after exactly 2 s it is %s", got)
		}
		p.passTime(time.Millisecond)
		if got := p.statusOf("a1"); got != "unhealthy" {
			t.Errorf("after 2.001 s it is %s", got)
		}
		for range 19 {
			p.passTime(100 * time.Millisecond)
			spoof()
		}
		p.passTime(99 * time.Millisecond)
		if got := p.statusOf("a1"); got != "unhealthy" {
			t.Errorf("after exactly 4 s it is %s", got)
		}
		p.passTime(time.Millisecond)
		if got := p.statusOf("a1"); got != "dead" {
			t.Errorf("after 4.001 s it is %s", got)
		}
		p.wantTransitions("a1", "registering active registered a1", "active unhealthy heartbeat_timeout server",
			"unhealthy dead heartbeat_timeout server")
		if events := p.want(200, "GET", "/api/v1/events?agent=a1", "reviewer", "").raw; strings.Contains(events,
			"agent.drift") {
			t.Errorf("a spoofed heartbeat is in the log: %s", events)
		}
	})
}

// Drain abuse: only the agent itself and operators change its status.
func TestStrangersDrainAndRemoveNobody(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		p.addStranger()
		p.register("agent", `{"agent_id":"a1","role_id":"shared"}`)
		p.register("stranger", `{"agent_id":"s1","role_id":"shared"}`) // of the same pool, and a stranger still
		record := p.want(200, "GET", anAgent, "operator", "").raw
		for _, scope := range []string{"stranger", "reviewer"} {
			for _, match := range []string{`"1"`, "*", `"7"`} {
				p.wantCode(picket.CodeForbidden, "PATCH", anAgent+"/status", scope, draining, "If-Match", match)
				p.wantCode(picket.CodeForbidden, "PATCH", anAgent+"/status", scope, `{"status":"deregistered"}`,
					"If-Match", match)
				p.wantCode(picket.CodeForbidden, "DELETE", anAgent, scope, "", "If-Match", match)
			}
			p.wantCode(picket.CodeForbidden, "DELETE", anAgent, scope, "")
		}
		for _, scope := range []string{"agent", "stranger", "reviewer"} { // not even the agent's own key
			p.wantCode(picket.CodeForbidden, "POST", anAgent+"/commands", scope, `{"command":"drain"}`)
		}
		p.wantCode(picket.CodeForbidden, "POST", "/api/v1/leases", "stranger", `{"agentId":"a1"}`)
		if got := p.want(200, "GET", anAgent, "operator", "").raw; got != record {
			t.Errorf("it was changed:\n%s\n%s", record, got)
		}
		p.wantTransitions("a1", "registering active registered a1")
		p.want(200, "PATCH", anAgent+"/status", "operator", draining, "If-Match", "*")
		p.want(200, "DELETE", anAgent, "admin", "")
	})
}

// An id goes to nobody else, dead or deregistered: grants may hang on it.
func TestADeadIdIsNotTakenOver(t *testing.T) {
	virtual(t, api.Config{}, func(t *testing.T, p *fixture) {
		p.addStranger()
		p.register("agent", `{"agent_id":"dead1",`+quickThresholds+`}`)
		p.register("agent", `{"agent_id":"left1"}`)
		p.want(200, "DELETE", "/api/v1/agents/left1", "agent", "")
		p.passTime(4100 * time.Millisecond)
		for _, id := range []string{"dead1", "left1"} {
			for _, scope := range []string{"stranger", "operator", "admin"} {
				p.wantCode(picket.CodeForbidden, "POST", "/api/v1/agents", scope,
					fmt.Sprintf(`{"agent_id":%q,%s}`, id, quickThresholds))
			}
			p.register("agent", fmt.Sprintf(`{"agent_id":%q}`, id))
		}
	})
}

// A key that was revoked keeps no agent alive either; its operator can still
// end it, and nobody can take it over.
func TestARevokedKeyCannotHeartbeat(t *testing.T) {
	virtual(t, api.Config{}, func(t *testing.T, p *fixture) {
		p.addStranger()
		p.register("stranger", `{"agent_id":"a1",`+quickThresholds+`}`)
		p.passTime(time.Second)
		p.want(200, "POST", anAgent+"/heartbeat", "stranger", heartbeatBody())
		p.want(200, "DELETE", "/api/v1/keys/"+p.keyID("stranger"), "admin", "")
		for range 40 {
			p.wantCode(picket.CodeUnauthenticated, "POST", anAgent+"/heartbeat", "stranger", heartbeatBody())
			p.passTime(100 * time.Millisecond)
		}
		if got := p.statusOf("a1"); got != "unhealthy" {
			t.Errorf("4 s after its last heartbeat it is %s", got)
		}
		p.passTime(time.Millisecond)
		if got := p.statusOf("a1"); got != "dead" {
			t.Errorf("4.001 s after its last heartbeat it is %s", got)
		}
		p.wantCode(picket.CodeForbidden, "POST", "/api/v1/agents", "agent", `{"agent_id":"a1"}`)
	})
}

// Agents of two namespaces know nothing of each other.
func TestAgentsOfANamespaceAreItsOwn(t *testing.T) {
	p := newMemoryFixture(t)
	key, err := p.other.CreateKey(t.Context(), root,
		picket.KeyRequest{Name: "elsewhere", Scopes: []picket.Scope{picket.ScopeAdmin}})
	must(t, err)
	p.keys["elsewhere"] = key.Key.Reveal()
	p.register("agent", `{"agent_id":"a1","role_id":"r"}`)
	p.wantCode(picket.CodeNotFound, "GET", anAgent, "elsewhere", "")
	p.wantCode(picket.CodeNotFound, "POST", anAgent+"/heartbeat", "elsewhere", heartbeatBody())
	p.wantCode(picket.CodeNotFound, "DELETE", anAgent, "elsewhere", "")
	if ids, _ := p.listAgents("elsewhere", "?status=*"); len(ids) != 0 {
		t.Errorf("another namespace shows %v", ids)
	}
	if a := p.register("elsewhere", `{"agent_id":"a1"}`); a.body["incarnation"] != 1.0 {
		t.Errorf("the other a1: %s", a.raw)
	}
}

// responseRecorder keeps all that was answered.
type responseRecorder struct {
	next http.RoundTripper
	mu   sync.Mutex
	text strings.Builder
}

func (e *responseRecorder) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := e.next.RoundTrip(r)
	if err == nil {
		var body strings.Builder
		resp.Body = teeBody(resp.Body, &body)
		e.mu.Lock()
		defer e.mu.Unlock()
		fmt.Fprintln(&e.text, resp.Status, resp.Header, body.String())
	}
	return resp, err
}

// No key, and no hash of one, is in anything that is answered, logged, counted
// or told in an event, whatever an agent does with it.
func TestKeysNeverLeak(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		p.addStranger()
		seen := &responseRecorder{next: p.client.Transport}
		p.client.Transport = seen
		p.register("agent", exampleRegistration)
		const at = "/api/v1/agents/agent_billing_01"
		for _, scope := range []string{"agent", "stranger", "operator", "admin", "reviewer"} {
			p.call("POST", "/api/v1/agents", scope, exampleRegistration, "Idempotency-Key", "k")
			p.call("GET", at, scope, "")
			p.call("GET", "/api/v1/agents?status=*", scope, "")
			p.call("GET", "/api/v1/pools", scope, "")
			p.call("POST", at+"/heartbeat", scope, `{"status":"active","client_timestamp":"2001-01-01T00:00:00Z"}`)
			p.call("POST", at+"/heartbeat", scope, `{"status":"asleep"}`)
			p.call("POST", at+"/commands", scope, `{"command":"ping"}`)
			p.call("PATCH", at+"/status", scope, draining, "If-Match", `"9"`)
			p.call("PATCH", at+"/status", scope, draining, "If-Match", p.keys[scope])
			p.call("POST", "/api/v1/leases", scope, `{"agentId":"agent_billing_01"}`)
			p.call("GET", "/api/v1/stats", scope, "")
		}
		p.call("DELETE", at, "agent", "")
		p.call("POST", at+"/heartbeat", "agent", heartbeatBody())
		p.call("GET", "/api/v1/events?limit=1000", "reviewer", "")
		p.call("GET", "/metrics", "", "")
		text := seen.text.String() + p.log.String()
		for _, proof := range []string{"agent.lifecycle", "agent.drift", "agent_gone", "version_conflict",
			"picket_agents"} {
			if !strings.Contains(text, proof) {
				t.Errorf("%s was not seen: this test looks in the wrong place", proof)
			}
		}
		for name, key := range p.keys {
			sum := sha256.Sum256([]byte(key))
			for what, secret := range map[string]string{
				"key":         key,
				"random part": strings.TrimPrefix(key, "pkk_default_"),
				"hash":        hex.EncodeToString(sum[:]),
			} {
				if i := strings.Index(text, secret); i >= 0 {
					t.Errorf("the %s of %s is in: …%s…", what, name, text[max(0, i-200):i])
				}
			}
		}
	})
}

// What is refused as a whole leaves nothing behind.
func TestBadAgentInput(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	p := newFixture(t, store, api.Config{})
	p.register("agent", `{"agent_id":"a1"}`)
	const agents, hb, status, commands = "/api/v1/agents", anAgent + "/heartbeat", anAgent + "/status",
		anAgent + "/commands"
	good := `"status":"active","client_timestamp":"2026-02-08T10:30:00Z"`
	for _, tt := range badAgentRequests(agents, hb, status, commands, good) {
		headers := []string{"If-Match", "*"}
		a := p.wantCode(tt.code, tt.method, tt.path, "admin", tt.body, headers...)
		if a.text("field") != tt.field {
			t.Errorf("%s %.200s: field %q, want %q: %s", tt.path, tt.body, a.text("field"), tt.field, a.raw)
		}
	}
	if ids, _ := p.listAgents("operator", "?status=*"); len(ids) != 1 {
		t.Errorf("a refused request has left %v", ids)
	}
	p.wantTransitions("a1", "registering active registered a1")
}
