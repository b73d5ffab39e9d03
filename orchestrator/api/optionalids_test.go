package api_test

import (
	"strconv"
	"testing"

	"github.com/picket-dev/picket"
)

// An empty id does not count as left out. Otherwise a task that should be pinned would go to any
// agent, and an agent would register under an id that the server made.
func TestAnEmptyIDIsRefused(t *testing.T) {
	const task = "task_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	onBothStores(t, func(t *testing.T, p *fixture) {
		for i, c := range []struct {
			scope  string
			method string
			path   string
			body   string
			field  string
		}{
			{"operator", "POST", "/api/v1/tasks", `{"title":"x","agent":""}`, "/agent"},
			{"operator", "POST", "/api/v1/tasks", `{"title":"x","role":""}`, "/role"},
			{"operator", "POST", "/api/v1/tasks", `{"title":"x","fixes":""}`, "/fixes"},
			{"operator", "POST", "/api/v1/tasks", `{"\u0061gent":"","title":"x"}`, "/agent"},
			{"agent", "POST", "/api/v1/agents", `{"agent_id":""}`, "/agent_id"},
			{"agent", "POST", "/api/v1/agents", `{"role_id":""}`, "/role_id"},
			{"operator", "POST", "/api/v1/agents/a1/commands", `{"command":"ping","task_id":""}`, "/task_id"},
			{"agent", "POST", "/api/v1/leases", `{"agentId":""}`, "/agentId"},
			{"agent", "POST", "/api/v1/leases", `{"role":""}`, "/role"},
			{"agent", "POST", "/api/v1/leases/advance", `{"leaseToken":"pkl_x","acquire":{"role":""}}`,
				"/acquire/role"},
			{"agent", "POST", "/api/v1/leases/advance", `{"leaseToken":"pkl_x","acquire":{"agentId":""}}`,
				"/acquire/agentId"},
			{"reviewer", "POST", "/api/v1/reviews/" + task + "/reject", `{"fix":{"title":"x","agent":""}}`,
				"/fix/agent"},
			{"reviewer", "POST", "/api/v1/reviews/approve", `{"filter":{"role":"","parent":"` + task + `"},"count":1}`,
				"/filter/role"},
			{"reviewer", "POST", "/api/v1/reviews/approve", `{"filter":{"role":"r","parent":""},"count":1}`,
				"/filter/parent"},
			{"operator", "POST", "/api/v1/envelopes/" + task + "/top-up", `{"usd":1,"handoffId":""}`, "/handoffId"},
			{"operator", "POST", "/api/v1/leases/" + task + "/expire", `{"runId":""}`, "/runId"},
			{"operator", "GET", "/api/v1/leases?agent=", "", "?agent"},
			{"operator", "GET", "/api/v1/leases?task=", "", "?task"},
			{"operator", "GET", "/api/v1/tasks?role=", "", "?role"},
			{"operator", "GET", "/api/v1/tasks?parent=", "", "?parent"},
			{"operator", "GET", "/api/v1/events?agent=", "", "?agent"},
			{"operator", "GET", "/api/v1/tasks/" + task + "/evidence?run=", "", "?run"},
		} {
			got := p.wantCode(picket.CodeValidation, c.method, c.path, c.scope, c.body, "Idempotency-Key",
				"k"+strconv.Itoa(i))
			if field := got.text("field"); field != c.field {
				t.Errorf("%s %s: the refusal names %q, want %q", c.path, c.body, field, c.field)
			}
		}
		if list := p.want(200, "GET", "/api/v1/tasks", "operator", "").raw; list != `{"tasks":[],"nextCursor":null}` {
			t.Errorf("a refused submission made a task: %s", list)
		}
		// Text that happens to be empty elsewhere stays what it is.
		p.want(201, "POST", "/api/v1/tasks", "operator",
			`{"title":"x","input":{"agent":"","role":""},"labels":{"role":"","agent":""},"agent":null}`)
	})
}
