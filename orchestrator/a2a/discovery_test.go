package a2a_test

import (
	stdjson "encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// An agent that gave no endpoint is shown with the one that it has at the server, from its registration on. What it
// gave itself stays. The address that is shown is that of the agent's card.
func TestAnAgentIsShownWithItsEndpoint(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		own := http.Header{"X-Api-Key": {f.person}, "Content-Type": {"application/json"}}
		ask := func(method, path, body string) (endpoint string) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), method, f.url+path, strings.NewReader(body))
			must(t, err)
			req.Header = own.Clone()
			res, err := f.http.Do(req)
			must(t, err)
			defer res.Body.Close()
			var a picket.Agent
			must(t, stdjson.NewDecoder(res.Body).Decode(&a))
			if res.StatusCode >= 300 {
				t.Fatalf("%s %s: %d", method, path, res.StatusCode)
			}
			return a.Endpoint
		}
		const agents = "/api/v1/agents"
		want := f.url + "/agents/builder/instances/one"
		if got := ask("POST", agents, `{"agent_id":"one","role_id":"builder"}`); got != want {
			t.Errorf("registered with the endpoint %q, want %q", got, want)
		}
		if got := ask("GET", agents+"/one", ""); got != want {
			t.Errorf("shown with the endpoint %q, want %q", got, want)
		}
		res, _ := f.get(t, strings.TrimPrefix(want, f.url)+"/.well-known/agent-card.json", f.client, nil)
		if res.StatusCode != http.StatusOK {
			t.Errorf("the card at the endpoint: %d", res.StatusCode)
		}
		const hook = "https://hook.example/x"
		ask("POST", agents, `{"agent_id":"two","role_id":"builder","endpoint":"`+hook+`"}`)
		if got := ask("GET", agents+"/two", ""); got != hook {
			t.Errorf("the endpoint of its own is shown as %q", got)
		}
		ask("POST", agents, `{"agent_id":"three","role_id":"plain"}`)
		if got := ask("GET", agents+"/three", ""); got != "" {
			t.Errorf("an agent of a role without endpoints is shown with %q", got)
		}
		// It is not stored, so it is not what the agent gave.
		if a, _, err := f.Agent(t.Context(), "one"); err != nil || a.Endpoint != "" {
			t.Errorf("stored is %q, %v", a.Endpoint, err)
		}
	})
}
