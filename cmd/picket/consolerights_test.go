package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/api"
	"github.com/picket-dev/picket/orchestrator/console"
)

// A page or a button of the console lets in whom the routes of the API that do
// the same let in, and nobody else; an agent's key never.
func TestConsoleRightsAreThoseOfTheAPI(t *testing.T) {
	control, err := api.New(api.Config{
		Engine:  func(string) *orchestrator.Engine { return nil },
		Engines: func() []*orchestrator.Engine { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	rights, compared := control.Permissions(), 0
	for _, r := range console.Permissions() {
		if slices.Contains(r.Scopes, picket.ScopeAgent) {
			t.Errorf("%s lets agents in", r.Route)
		}
		if len(r.APIRoutes) == 0 && len(r.Scopes) > 0 {
			t.Errorf("%s does nothing that the API does: say what it is held against", r.Route)
		}
		for _, scope := range []picket.Scope{picket.ScopeReviewer, picket.ScopeOperator} {
			may := len(r.APIRoutes) > 0 || len(r.Scopes) == 0
			for _, route := range r.APIRoutes {
				scopes, known := rights[route]
				if !known {
					t.Errorf("%s is held against %s, which the API does not have", r.Route, route)
				}
				may = may && slices.Contains(scopes, scope)
				compared++
			}
			if has := slices.Contains(r.Scopes, scope) || len(r.Scopes) == 0; has != may {
				t.Errorf("%s: %s may %v, with %s %v", r.Route, scope, has, strings.Join(r.APIRoutes, ", "), may)
			}
		}
	}
	t.Logf("rights of the console: %d routes, %d comparisons", len(console.Permissions()), compared)
}
