package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// expectedAccess says once more, apart from the list of routes, which scopes each route
// lets in beside admin; "public" asks for no key. A route that is added, or
// opened to somebody else, has to be changed here, too.
var expectedAccess = map[string]string{
	"POST /api/v1/tasks":                               "operator",
	"POST /api/v1/tasks/batch":                         "operator",
	"GET /api/v1/tasks":                                "agent reviewer operator",
	"GET /api/v1/tasks/:id":                            "agent reviewer operator",
	"POST /api/v1/tasks/:id/cancel":                    "operator",
	"POST /api/v1/tasks/:id/retry":                     "operator",
	"GET /api/v1/tasks/:id/explain":                    "agent reviewer operator",
	"GET /api/v1/tasks/:id/logs":                       "agent reviewer operator",
	"GET /api/v1/tasks/:id/reports":                    "agent reviewer operator",
	"GET /api/v1/tasks/:id/evidence":                   "agent reviewer operator",
	"GET /api/v1/tasks/:id/bundle":                     "agent reviewer operator",
	"GET /api/v1/tasks/:id/bundle/:digest/:piece":      "agent reviewer operator",
	"POST /api/v1/tasks/:id/messages":                  "reviewer operator",
	"GET /api/v1/tasks/:id/messages":                   "reviewer operator",
	"POST /api/v1/agents/:id/messages":                 "agent operator",
	"GET /api/v1/agents/:id/messages":                  "agent operator",
	"POST /api/v1/leases":                              "agent operator",
	"POST /api/v1/leases/advance":                      "agent operator",
	"POST /v1/leases/renew":                            "agent operator",
	"GET /api/v1/leases":                               "reviewer operator",
	"POST /api/v1/leases/:task/expire":                 "operator",
	"POST /api/v1/agents":                              "agent operator",
	"GET /api/v1/agents":                               "agent operator",
	"GET /api/v1/agents/:id":                           "agent operator",
	"DELETE /api/v1/agents/:id":                        "agent operator",
	"PATCH /api/v1/agents/:id/status":                  "agent operator",
	"POST /api/v1/agents/:id/heartbeat":                "agent operator",
	"POST /api/v1/agents/:id/commands":                 "operator",
	"PUT /api/v1/agents/:id/sessions":                  "agent operator",
	"GET /api/v1/agents/:id/commands/pending":          "agent operator",
	"POST /api/v1/agents/:id/commands/:command/result": "agent operator",
	"GET /api/v1/agent-sessions":                       "reviewer operator",
	"GET /api/v1/agent-sessions/:id":                   "reviewer operator",
	"POST /api/v1/agent-sessions/:id/stop":             "operator",
	"POST /api/v1/agent-sessions/:id/prompts":          "operator",
	"GET /api/v1/agent-sessions/:id/prompts":           "reviewer operator",
	"GET /api/v1/agent-sessions/:id/prompts/:prompt":   "reviewer operator",
	"GET /api/agents/:name/heartbeat":                  "agent reviewer operator",
	"PUT /api/agents/:name/heartbeat":                  "operator",
	"DELETE /api/agents/:name/heartbeat":               "operator",
	"POST /api/agents/:name/heartbeat/validate":        "reviewer operator",
	"POST /api/agents/:name/heartbeat/rollback":        "operator",
	"GET /api/agents/:name/heartbeat/history":          "agent reviewer operator",
	"GET /api/agents/:name/heartbeat/status":           "agent reviewer operator",
	"POST /api/agents/:name/heartbeat/wake":            "agent operator",
	"GET /api/agents/:name/heartbeat/wakes":            "agent reviewer operator",
	"GET /api/v1/pools":                                "agent operator",
	"GET /api/v1/pools/:role":                          "agent operator",
	"GET /api/v1/handoffs":                             "reviewer operator",
	"GET /api/v1/handoffs/:id":                         "reviewer operator",
	"POST /api/v1/handoffs/:id/claim":                  "reviewer operator",
	"POST /api/v1/handoffs/:id/answer":                 "reviewer operator",
	"POST /api/v1/handoffs/:id/finish":                 "reviewer operator",
	"POST /api/v1/handoffs/:id/cancel":                 "reviewer operator",
	"GET /api/v1/reviews":                              "reviewer operator",
	"POST /api/v1/reviews/approve":                     "reviewer operator",
	"POST /api/v1/reviews/:task/approve":               "reviewer operator",
	"POST /api/v1/reviews/:task/reject":                "reviewer operator",
	"GET /api/v1/events":                               "reviewer operator",
	"GET /api/v1/audit":                                "operator",
	"POST /api/v1/pause":                               "operator",
	"POST /api/v1/resume":                              "operator",
	"GET /api/v1/stats":                                "reviewer operator",
	"POST /api/v1/invariants":                          "operator",
	"GET /api/v1/prices":                               "reviewer operator",
	"GET /api/v1/envelopes/:id":                        "reviewer operator",
	"POST /api/v1/envelopes/:id/top-up":                "operator",
	"GET /api/v1/ledger":                               "reviewer operator",
	"GET /api/v1/spending":                             "reviewer operator",
	"POST /api/v1/webhooks":                            "operator",
	"GET /api/v1/webhooks":                             "operator",
	"GET /api/v1/webhooks/:id":                         "operator",
	"DELETE /api/v1/webhooks/:id":                      "operator",
	"POST /api/v1/webhooks/:id/revive":                 "operator",
	"POST /api/v1/webhooks/:id/test":                   "operator",
	"POST /api/v1/keys":                                "",
	"GET /api/v1/keys":                                 "",
	"GET /api/v1/keys/:id":                             "",
	"DELETE /api/v1/keys/:id":                          "",
	"POST /api/v1/run-keys":                            "operator",
	"POST /api/v1/run-keys/renew":                      "agent operator",
	"DELETE /api/v1/run-keys":                          "agent operator",
	"GET /openapi.yaml":                                "public",
	"GET /healthz":                                     "public",
	"GET /readyz":                                      "public",
	"GET /metrics":                                     "public",
}

// Every route is called with a key of every scope and of every combination of two that a key can have. A key without
// the scope that the route needs gets 403 with the name of that scope. All others are let in.
func TestWhoMayDoWhat(t *testing.T) {
	p := newMemoryFixture(t)
	keys := map[string][]picket.Scope{}
	for i, one := range picket.Scopes {
		for _, two := range picket.Scopes[i:] {
			scopes := slices.Compact([]picket.Scope{one, two})
			if len(scopes) > 1 && one == picket.ScopeClient {
				continue // there is no such key
			}
			keys[p.newKey(keyWith(fmt.Sprint(scopes), scopes...))] = scopes
		}
	}
	listed, cells := map[string]bool{}, 0
	for _, l := range p.api.RouteList() {
		at := l.Method + " " + l.Path
		want, known := expectedAccess[at]
		if listed[at] = true; !known {
			t.Errorf("%s is not in the table", at)
			continue
		}
		for key, scopes := range keys {
			cells++
			p.expectScope(t, l.Method, l.Path, key, scopes, strings.Fields(want))
		}
	}
	for at := range expectedAccess {
		if !listed[at] {
			t.Errorf("%s is in the table, but no route", at)
		}
	}
	t.Logf("scopes of the control plane: %d routes x %d keys: %d cells", len(expectedAccess), len(keys), cells)
}

func (p *fixture) expectScope(t *testing.T, method, path, key string, scopes []picket.Scope, want []string) {
	t.Helper()
	body := ""
	if method == "POST" || method == "PATCH" {
		body = "{}"
	}
	a, err := p.send(t.Context(), method, withUnknownIDs(path), key, body)
	must(t, err)
	may := slices.Contains(want, "public") || slices.Contains(scopes, picket.ScopeAdmin) ||
		slices.ContainsFunc(scopes, func(s picket.Scope) bool { return slices.Contains(want, string(s)) })
	switch {
	case may && (a.status == 401 || a.body["needs"] != nil || a.status >= 500 && path != "/readyz"):
		t.Errorf("%s %s with %v: %d %s", method, path, scopes, a.status, a.raw)
	case !may && (a.status != 403 || a.body["needs"] == nil || a.text("code") != string(picket.CodeForbidden) ||
		a.text("remedy") == ""):
		t.Errorf("%s %s with %v is let in: %d %s", method, path, scopes, a.status, a.raw)
	}
}
