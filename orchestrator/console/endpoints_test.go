package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/console"
)

// endpointsOf are the endpoints of some pools as the settings have them.
func endpointsOf(base string, pools ...console.PoolEndpoint) *console.Endpoints {
	for i := range pools {
		pools[i].URL = base + "/agents/" + pools[i].Role
	}
	return &console.Endpoints{URL: base, Pools: pools}
}

func TestEndpointsAreListed(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		p := s.mustGet("/console/endpoints")
		p.wantText(t, "No pool has an endpoint", "a2a: {enabled: true, budget: 0.50, max_queue: 100}",
			"picket config trust picket up")
		p.wantNoText(t, "Orchestrator")

		o.endpoints = endpointsOf("https://agents.example.com", console.PoolEndpoint{
			Role: "coder", Name: "Coders", Description: "They write code.", MaxQueue: 7, Reviewed: true,
			Budget: budget.Money(500_000_000),
			Skills: []console.EndpointSkill{{ID: "go", Name: "Go code", Description: "Writes Go."}},
		})
		p = s.mustGet("/console/endpoints")
		p.wantText(t, "Cards and tasks need a key", "Orchestrator", "https://agents.example.com/a2a",
			"https://agents.example.com/agents/coder/.well-known/agent-card.json",
			"https://agents.example.com/agents/coder/a2a", "go Go code", "0 of clients, 0 of them in the queue of at most 7",
			"at most $0.50", "No agent of the pool lives", "picket adapter --role coder -- COMMAND",
			"send waits until a person has approved the result",
			"picket key create partner --scope client --role coder",
			"picket key create partner --scope client --role '*'", "picket a2a card https://agents.example.com --token-env",
			"picket a2a card https://agents.example.com/agents/coder --token-env PARTNER",
			`picket a2a send https://agents.example.com/agents/coder "Say hello." --token-env PARTNER`)
		p.wantNoText(t, "No pool has an endpoint")

		o.registerAgent("c1", "coder", 1)
		o.registerAgent("w1", "writer", 1)
		client := o.newKey(picket.ScopeAgent)
		for _, title := range []string{"first", "second"} {
			_, err := o.Submit(t.Context(), picket.Caller{Actor: client.KeyID}, picket.TaskSpec{Title: title,
				Role: "coder", Client: &picket.ClientTask{Role: "coder", MessageID: title}})
			must(t, err)
		}
		leases, err := o.Acquire(t.Context(), picket.Caller{Actor: "test"},
			picket.AcquireRequest{AgentID: "c1", Role: "coder"})
		must(t, err)
		held, err := o.sealer.OpenLeaseToken(leases[0].LeaseToken.Reveal())
		must(t, err)
		_, err = o.RequestHelp(t.Context(), held, picket.HelpRequest{Question: "Which one?"})
		must(t, err)
		p = s.mustGet("/console/endpoints")
		p.wantText(t, "2 of clients, 1 of them in the queue of at most 7",
			"active Agent c1 https://agents.example.com/agents/coder/instances/c1")
		p.wantNoText(t, "instances/w1", "No agent of the pool lives")

		o.endpoints.PublicCards = true
		s.mustGet("/console/endpoints").wantText(t, "Cards are public: without a key they show")
	})
}

// A key that may not see agents sees no endpoint of them either.
func TestEndpointsAreForOperators(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		reviewer := o.signedIn(picket.ScopeReviewer)
		reviewer.mustGet("/console/").wantNoText(t, "/console/endpoints")
		if p := reviewer.get("/console/endpoints"); p.status != http.StatusForbidden {
			t.Errorf("a reviewer sees endpoints: %d", p.status)
		}
		if p := o.newBrowser().get("/console/endpoints"); !p.asksToSignIn() {
			t.Errorf("nobody signed in: %d", p.status)
		}
		operator := o.signedIn(picket.ScopeOperator)
		operator.mustGet("/console/").wantText(t, `href="/console/endpoints" data-go="n"`)
	})
}

// Every page of the navigation has a letter of its own.
func TestNavigationLettersDiffer(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		seen := map[string]bool{}
		parts := strings.Split(o.signedIn(picket.ScopeAdmin).mustGet("/console/").body, ` data-go="`)[1:]
		for _, part := range parts {
			if letter := part[:1]; seen[letter] {
				t.Errorf("two pages have the letter %s", letter)
			} else {
				seen[letter] = true
			}
		}
		if len(seen) < 10 {
			t.Errorf("%d letters", len(seen))
		}
	})
}

// The page is bounded however many pools and agents there are, and quotes what a shell would read otherwise.
func TestEndpointsAreBounded(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		var pools []console.PoolEndpoint
		for n := range 30 {
			pools = append(pools, console.PoolEndpoint{Role: fmt.Sprintf("role-%02d", n), Name: "Pool", MaxQueue: 1})
		}
		o.endpoints = endpointsOf("http://[::1]:7070", pools...)
		for n := range 25 {
			o.registerAgent(fmt.Sprintf("a%02d", n), "role-00", 1)
		}
		p := s.mustGet("/console/endpoints")
		p.wantText(t, "and 10 more pools", "and 15 more", "picket a2a card 'http://[::1]:7070/agents/role-00'")
		if n := strings.Count(p.body, "/instances/"); n != 10 {
			t.Errorf("%d instances", n)
		}
		if n := strings.Count(p.body, `id="pool-`); n != 20 {
			t.Errorf("%d pools", n)
		}
	})
}
