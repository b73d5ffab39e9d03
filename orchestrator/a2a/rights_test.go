package a2a_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/a2a"
)

// Each route of each endpoint is open to a client of the pool and to operators, and to nobody else. A client of another
// pool, and a key of another namespace, do not learn that the endpoint exists.
func TestWhoMayUseAnEndpoint(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	var routes []string
	f := newFixture(t, store, func(cfg *a2a.Config) {
		server, err := a2a.New(*cfg)
		must(t, err)
		routes = server.Routes()
	})
	key := func(scope picket.Scope) string {
		return f.newKey(picket.KeyRequest{Name: string(scope), Scopes: []picket.Scope{scope}})
	}
	other, err := f.store.Engine("other").CreateKey(t.Context(), operator,
		picket.KeyRequest{Name: "other", Scopes: []picket.Scope{picket.ScopeOperator}})
	must(t, err)
	f.register(t, "t1", "tester")
	if len(routes) < 20 {
		t.Fatalf("only %d routes", len(routes))
	}
	for _, r := range routes {
		method, path, _ := strings.Cut(r, " ")
		ofPool := strings.Contains(path, ":role")
		path = strings.NewReplacer(":role", "tester", ":namespace", "default", ":agent", "t1",
			"*", "tasks").Replace(path)
		for name, c := range map[string]struct {
			key  string
			want func(status int) bool
		}{
			"nobody":             {"", is(401)},
			"agent":              {key(picket.ScopeAgent), is(403)},
			"reviewer":           {key(picket.ScopeReviewer), is(403)},
			"operator":           {key(picket.ScopeOperator), admitted},
			"admin":              {key(picket.ScopeAdmin), admitted},
			"client":             {f.other, admitted},
			"client of builders": {f.client, func(s int) bool { return s == 404 || !ofPool && admitted(s) }},
			"another namespace":  {other.Key.Reveal(), is(404)},
		} {
			req, err := http.NewRequestWithContext(t.Context(), method, f.url+path, strings.NewReader("{}"))
			must(t, err)
			req.Header.Set("Content-Type", "application/json")
			if c.key != "" {
				req.Header.Set("X-API-Key", c.key)
			}
			res, err := f.http.Do(req)
			must(t, err)
			must(t, res.Body.Close())
			if !c.want(res.StatusCode) {
				t.Errorf("%s %s for %s: %d", method, path, name, res.StatusCode)
			}
		}
	}
}

func is(want int) func(int) bool { return func(status int) bool { return status == want } }

// admitted reports whether the credential was accepted. The request itself may be wrong.
func admitted(status int) bool { return status != 401 && status != 403 }
