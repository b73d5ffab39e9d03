package api_test

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// runKeyAllowed says of each route whether a run key of the agent r1 may call it,
// beside the public ones. It is written down here once more, on purpose.
var runKeyAllowed = map[string]bool{
	"POST /api/v1/leases": true, "POST /api/v1/leases/advance": true, "POST /v1/leases/renew": true,
	"POST /api/v1/agents": true, "GET /api/v1/agents/:id": true, "DELETE /api/v1/agents/:id": true,
	"PATCH /api/v1/agents/:id/status": true, "POST /api/v1/agents/:id/heartbeat": true,
	"GET /api/v1/tasks": true, "GET /api/v1/tasks/:id": true, "GET /api/v1/tasks/:id/evidence": true,
	"GET /api/v1/tasks/:id/bundle": true, "GET /api/v1/tasks/:id/bundle/:digest/:piece": true,
	"GET /api/v1/events": true, "POST /api/v1/run-keys/renew": true, "DELETE /api/v1/run-keys": true,
}

// A run key works as its one agent: every other route, and every other agent,
// is refused with 403.
func TestARunKeyWorksAsItsAgentAlone(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		made := p.want(201, "POST", "/api/v1/run-keys", "operator", `{"agentId":"r1"}`)
		p.keys["run"] = made.text("key")
		for _, l := range p.api.RouteList() {
			if len(l.Scopes) == 0 || l.Path == "/api/v1/run-keys" && l.Method == "DELETE" {
				continue
			}
			body := ""
			if l.Method == "POST" || l.Method == "PATCH" {
				body = `{}`
			}
			a := p.call(l.Method, withUnknownIDs(l.Path), "run", body) // for another agent, or none
			refused := a.status == 403
			at := l.Method + " " + l.Path
			if !runKeyAllowed[at] && !refused {
				t.Errorf("%s with a run key: %d %s", at, a.status, a.raw)
			}
			own := p.call(l.Method, strings.Replace(withUnknownIDs(l.Path), "/agents/agent_"+aULID, "/agents/r1", 1),
				"run",
				body)
			if runKeyAllowed[at] && l.Method == "GET" && !strings.Contains(l.Path, "events") && own.status == 403 {
				t.Errorf("%s with a run key: %d %s", at, own.status, own.raw)
			}
		}
		for _, body := range []string{`{}`, `{"agentId":"r2"}`} {
			p.wantCode(picket.CodeForbidden, "POST", "/api/v1/leases", "run", body)
		}
		p.wantCode(picket.CodeForbidden, "POST", "/api/v1/agents", "run", `{"agent_id":"r2"}`)
		p.wantCode(picket.CodeForbidden, "POST", "/api/v1/agents/r2/heartbeat", "run", `{}`)
		p.wantCode(picket.CodeForbidden, "GET", "/api/v1/events", "run", "")
		task := p.submit(`{"title":"x"}`)
		p.want(200, "GET", "/api/v1/events?task="+task, "run", "")
		if leases := leasesOf(t, p.want(200, "POST", "/api/v1/leases", "run", `{"agentId":"r1"}`)); len(leases) != 1 {
			t.Errorf("%d leases", len(leases))
		}
		list := p.want(200, "GET", "/api/v1/keys", "admin", "")
		if !strings.Contains(list.raw, `"agentId":"r1"`) || !strings.Contains(list.raw, `"parentKeyId":"key_`) ||
			strings.Contains(list.raw, p.keys["run"]) {
			t.Errorf("the list of keys: %s", list.raw)
		}
		p.want(200, "POST", "/api/v1/run-keys/renew", "run", `{}`)
		p.wantCode(picket.CodeStateConflict, "POST", "/api/v1/run-keys/renew", "operator", `{}`)
		p.wantCode(picket.CodeStateConflict, "DELETE", "/api/v1/run-keys", "operator", "")
		p.want(204, "DELETE", "/api/v1/run-keys", "run", "")
	})
}

// What a run key has registered belongs to the key that made it: the next
// adapter, with another run key of the same person, can act for it.
func TestTheNextRunKeyActsForTheSameAgent(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		for _, name := range []string{"first", "second"} {
			p.keys[name] = p.want(201, "POST", "/api/v1/run-keys", "operator", `{"agentId":"r1"}`).text("key")
		}
		p.keys["foreign"] = p.want(201, "POST", "/api/v1/run-keys", "admin", `{"agentId":"r1"}`).text("key")
		p.want(201, "POST", "/api/v1/agents", "first", `{"agent_id":"r1","role_id":"coder"}`)
		p.wantCode(picket.CodeForbidden, "DELETE", "/api/v1/agents/r1", "foreign", "")
		p.want(200, "DELETE", "/api/v1/agents/r1", "second", "")
	})
}

// Only a run key may register in the role attached, where discovery does not look: an agent
// cannot hide there. What the run key has registered can be read with the next one.
func TestOnlyARunKeyRegistersAsAttached(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		for _, name := range []string{"run", "next"} {
			p.keys[name] = p.want(201, "POST", "/api/v1/run-keys", "operator", `{"agentId":"run-1"}`).text("key")
		}
		body := `{"agent_id":"run-1","role_id":"attached"}`
		for _, scope := range []string{"agent", "operator", "admin"} {
			refused := p.wantCode(picket.CodeForbidden, "POST", "/api/v1/agents", scope, body)
			if !strings.Contains(refused.raw, "picket run") {
				t.Errorf("the refusal names no remedy: %s", refused.raw)
			}
		}
		p.wantCode(picket.CodeForbidden, "POST", "/api/v1/agents", "run", `{"agent_id":"run-2","role_id":"attached"}`)
		p.wantCode(picket.CodeValidation, "POST", "/api/v1/agents", "run",
			`{"agent_id":"run-1","role_id":"attached","endpoint":"https://example.com/"}`)
		p.want(201, "POST", "/api/v1/agents", "run", body)
		p.want(200, "GET", "/api/v1/agents/run-1", "next", "")
		p.wantCode(picket.CodeForbidden, "GET", "/api/v1/agents/run-1", "agent", "")
		p.wantCode(picket.CodeForbidden, "GET", "/api/v1/pools/attached", "agent", "")
		p.wantCode(picket.CodeNotFound, "GET", "/api/v1/pools/attached", "operator", "")
		for query, want := range map[string]string{"": "", "?attached=false": "", "?role_id=attached": "",
			"?attached=true": "run-1", "?attached=true&role_id=attached": "run-1"} {
			if ids, _ := p.listAgents("operator", query); strings.Join(ids, " ") != want {
				t.Errorf("%q lists %v, want %q", query, ids, want)
			}
		}
		p.wantCode(picket.CodeValidation, "GET", "/api/v1/agents?attached=yes", "operator", "")
		p.wantCode(picket.CodeValidation, "POST", "/api/v1/tasks", "operator", `{"title":"x","role":"attached"}`)
		p.want(200, "DELETE", "/api/v1/agents/run-1", "next", "")
	})
}
