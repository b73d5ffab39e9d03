package a2a_test

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/contract"
	"github.com/picket-dev/picket/orchestrator/a2a"
)

// addressOf matches the address of an endpoint at the beginning of a route.
var addressOf = regexp.MustCompile(`^(/n/:namespace)?(/agents/:role(/instances/:agent)?)?`)

// withRoutes is a fixture in memory, and the routes of its server.
func withRoutes(t *testing.T) (f *fixture, routes []string) {
	t.Helper()
	store, stop := rig.Memory()
	t.Cleanup(stop)
	f = newFixture(t, store, func(cfg *a2a.Config) {
		cfg.CheckPush = func(context.Context, picket.Secret) error { return nil }
		server, err := a2a.New(*cfg)
		must(t, err)
		routes = server.Routes()
	})
	return f, routes
}

// described is a path in the form of docs/openapi.yaml.
func described(path string) string {
	return strings.NewReplacer(":id", "{id}", ":config", "{config}").Replace(path)
}

// Each route stands in docs/openapi.yaml once for all endpoints, and each endpoint has all of them.
func TestEveryRouteOfAnEndpointIsDescribed(t *testing.T) {
	_, routes := withRoutes(t)
	at := map[string][]string{}
	for _, r := range routes {
		method, path, _ := strings.Cut(r, " ")
		of := addressOf.FindString(path)
		at[of] = append(at[of], method+" "+described(path[len(of):]))
	}
	var all []string
	for _, r := range contract.Load(t).Routes() {
		if strings.Contains(r, " /a2a") || strings.Contains(r, " /.well-known/") {
			all = append(all, r)
		}
	}
	slices.Sort(all)
	if len(at) != 6 {
		t.Errorf("%d addresses of endpoints", len(at))
	}
	for of, list := range at {
		slices.Sort(list)
		if !slices.Equal(list, all) {
			t.Errorf("%s has the routes\n%s\ndescribed are\n%s", of, strings.Join(list, "\n"), strings.Join(all, "\n"))
		}
	}
}

// The list of routes is true: what is in it is there, and nothing else is.
func TestTheRoutesBelowAnEndpoint(t *testing.T) {
	f, routes := withRoutes(t)
	var paths []string
	for _, r := range routes {
		_, path, _ := strings.Cut(r, " ")
		if below, ok := strings.CutPrefix(path, "/agents/:role/a2a/"); ok && !slices.Contains(paths, below) {
			paths = append(paths, below)
		}
	}
	for _, below := range paths {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			listed := slices.Contains(routes, method+" /agents/:role/a2a/"+below)
			status, _, body := f.ask(f.client, method, "/a2a/"+strings.NewReplacer(":id", "mine", ":config",
				"c1").Replace(below), "")
			there := !strings.Contains(body, protocol.ErrorReason(protocol.ErrMethodNotFound))
			if there != listed {
				t.Errorf("%s a2a/%s: %d %s, in the list: %v", method, below, status, body, listed)
			}
		}
	}
}

// rootOf makes the endpoint of the server that of a pool, so that addresses are those that are described.
type rootOf struct{ next http.RoundTripper }

func (r rootOf) RoundTrip(req *http.Request) (*http.Response, error) {
	req.URL.Path = strings.TrimPrefix(req.URL.Path, "/agents/builder")
	return r.next.RoundTrip(req)
}

// Answers are as docs/openapi.yaml describes them.
func TestAnswersOfEndpointsAreAsDescribed(t *testing.T) {
	f := onMemory(t, func(cfg *a2a.Config) {
		cfg.CheckPush = func(context.Context, picket.Secret) error { return nil }
	})
	f.register(t, "one", "builder")
	f.http = &http.Client{Transport: rootOf{contract.Load(t).Transport(t, f.http.Transport)}}
	call := func(method, path, body string, want int, headers ...string) {
		t.Helper()
		if status, _, said := f.ask(f.client, method, path, body, headers...); status != want {
			t.Errorf("%s %s: %d %s, want %d", method, path, status, said, want)
		}
	}
	const message = `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"work"}]},` +
		`"configuration":{"returnImmediately":true}}`
	call("GET", "/.well-known/agent-card.json", "", 200)
	call("GET", "/.well-known/agent-card.json", "", 200, "Accept", "application/vnd.picket.agent-card+json")
	call("POST", "/a2a", `{"jsonrpc":"2.0","id":1,"method":"ListTasks"}`, 200)
	call("POST", "/a2a/", `{"jsonrpc":"2.0","id":1,"method":"NoSuchMethod"}`, 200)
	call("POST", "/a2a/message:send", message, 200)
	call("POST", "/a2a/message:send", `{}`, 400)
	call("GET", "/a2a/tasks?includeArtifacts=true&historyLength=3", "", 200)
	call("GET", "/a2a/tasks/none", "", 404)
	call("POST", "/a2a/messages", `{"toAgentId":"one","type":"hint","payload":"x"}`, 409)
	held := f.heldBy(t, "one")
	call("POST", "/a2a/messages", `{"toAgentId":"one","type":"hint","payload":"x"}`, 202)
	call("GET", "/a2a/tasks/"+held.TaskID, "", 200)
	pushes := "/a2a/tasks/" + held.TaskID + "/pushNotificationConfigs"
	call("POST", pushes, `{"id":"c1","url":"https://hooks.example.com/a","token":"t","authentication":`+
		`{"scheme":"Bearer","credentials":"c"}}`, 200)
	call("POST", pushes, `{}`, 400)
	call("GET", pushes, "", 200)
	call("GET", pushes+"/c1", "", 200)
	call("GET", pushes+"/c2", "", 404)
	call("DELETE", pushes+"/c1", "", 200)
	call("POST", "/a2a/tasks/"+held.TaskID+":cancel", "", 200)
	call("POST", "/a2a/tasks", `{"title":"work"}`, 202)
	call("POST", "/a2a/tasks", `{}`, 400)
	call("GET", "/a2a/health", "", 200)
	call("GET", "/a2a/extendedAgentCard", "", 400)
}
