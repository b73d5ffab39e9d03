package toolproxy_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/toolproxy/llm"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

// sides says of every route which side of a lease may call it. It is written
// down here once more, on purpose: a new route has to be added here, too.
var sides = map[string]picket.LeaseSide{
	"POST /v1/lease/renew": picket.SideAdapter, "POST /v1/lease/reclaim": picket.SideAdapter,
	"POST /v1/lease/release": picket.SideAdapter, "GET /v1/lease/watch": picket.SideAdapter,
	"POST /v1/run/bundle": picket.SideAdapter, "POST /v1/run/bundle/:digest/:piece": picket.SideAdapter,
	"POST /v1/run/exit": picket.SideAdapter, "POST /v1/run/logs": picket.SideAdapter,
	"POST /v1/run/events": picket.SideAdapter, "POST /v1/run/evidence": picket.SideAdapter,
	"GET /v1/run/messages": picket.SideAdapter,
	"POST /v1/run/usage":   picket.SideAdapter, "POST /v1/run/exec/:callId": picket.SideAdapter,
	"GET /agent/context": picket.SideAgent,
	"GET /v1/tools":      picket.SideAgent, "POST /v1/tools/:name": picket.SideAgent,
	"POST /mcp": picket.SideAgent, "GET /mcp": picket.SideAgent, "DELETE /mcp": picket.SideAgent,
	"ANY /llm/anthropic/*": picket.SideAgent, "ANY /llm/openai/*": picket.SideAgent,
}

// separateLease takes the next lease with two credentials and confirms it.
func (h *engineEnv) separateLease() picket.Lease {
	h.t.Helper()
	h.submit()
	leases, err := h.Acquire(h.ctx, operator, picket.AcquireRequest{AgentID: "agent-1", SeparateCredentials: true})
	h.ok(err)
	if len(leases) != 1 || leases[0].AgentToken == "" || leases[0].AgentToken == leases[0].LeaseToken {
		h.t.Fatalf("the acquire with separateCredentials got %+v", leases)
	}
	_, err = h.Renew(h.ctx, h.held(leases[0]))
	h.ok(err)
	return leases[0]
}

// mountedRoutes lists the routes of the proxy, those that take any method once.
func (h *engineEnv) mountedRoutes() []string {
	var all []string
	for _, r := range h.e.Routes() {
		name := r.Method + " " + r.Path
		if strings.HasPrefix(r.Path, llm.Path) {
			name = "ANY " + r.Path
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// requestFor is a good request for a route of the table.
func requestFor(at string) request {
	method, path, _ := strings.Cut(at, " ")
	switch {
	case method == "ANY":
		return request{method: http.MethodPost, path: strings.Replace(path, "*", "v1/messages", 1), body: `{}`}
	case path == mcppart.Path:
		r := request{
			method: method,
			path:   path,
			header: map[string]string{"Accept": "application/json, text/event-stream"},
		}
		if method == http.MethodPost {
			r.body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mark_complete","arguments":{"output":1}}}`
		}
		return r
	case path == "/v1/tools/:name":
		return goodRequests["mark_complete"]
	}
	return requestTo(at)
}

// Every route of the proxy refuses the credential of the other side, and the
// refusal changes nothing: no state, no event.
func TestEachRouteRefusesTheOtherSide(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		if got, want := h.mountedRoutes(), slices.Sorted(maps.Keys(sides)); !slices.Equal(got, want) {
			t.Fatalf("mounted are\n%s\nthe table has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		l := h.separateLease()
		h.undescribed().refusesAll(t, h, l)
	})
}

func (f *proxyEnv) refusesAll(t *testing.T, h *engineEnv, l picket.Lease) {
	t.Helper()
	before, refused := h.state(), h.refusals()
	for at, side := range sides {
		token := l.AgentToken
		if side == picket.SideAgent {
			token = l.LeaseToken
		}
		a := f.call(t, requestFor(at).with(token.Reveal(), ""))
		if a.status != http.StatusForbidden || strings.Contains(a.raw, token.Reveal()) {
			t.Errorf("%s with the credential of the other side: %d %s", at, a.status, a.raw)
		}
		if !strings.HasPrefix(at, "ANY") && (a.code() != string(picket.CodeForbidden) || a.remedy() == "") {
			t.Errorf("%s: %s", at, a.raw)
		}
	}
	if after := h.state(); !maps.Equal(before, after) {
		t.Errorf("a refused call changed the state:\n%s", difference(before, after))
	}
	if n := h.refusals(); n != refused {
		t.Errorf("%d refusals were put into the event log, which lets an agent fill it", n-refused)
	}
}

// refusals counts the write.refused events.
func (h *engineEnv) refusals() int {
	h.t.Helper()
	page, err := h.Events(h.ctx, picket.EventQuery{Types: []string{picket.EventWriteRefused}, Limit: 1000})
	h.ok(err)
	return len(page.Events)
}

// forgeries are what an agent would say in its adapter's name.
var forgeries = []string{"bundle", "bundle_piece",
	"exit", "logs", "events", "evidence", "usage", "exec", "renew", "release", "watch"}

// An agent cannot speak as its adapter: not while its lease holds, not after it
// has ended, and not with a credential that it has made out of its own.
func TestAnAgentCannotSpeakAsItsAdapter(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		l := h.separateLease()
		h.forges(t, l, "held")
		h.expire()
		h.forges(t, l, "expired")
		h.separateLease() // of the same task or another: both are queued
		h.forges(t, l, "superseded")
	})
}

func (h *engineEnv) forges(t *testing.T, l picket.Lease, when string) {
	t.Helper()
	before := h.state()
	token := l.AgentToken.Reveal()
	tokens := map[string]int{
		token: http.StatusForbidden,
		strings.Replace(token, ".agent.", ".adapter.", 1):     http.StatusUnauthorized,
		strings.Replace(token, ".agent.", ".", 1):             http.StatusUnauthorized,
		strings.Replace(token, ".agent.", "..", 1):            http.StatusUnauthorized,
		strings.Replace(token, ".agent.", ".agent.agent.", 1): http.StatusUnauthorized,
	}
	for bearer, want := range tokens {
		for _, name := range append(slices.Clone(forgeries), "reclaim") {
			call, known := goodRequests[name]
			if !known {
				call = request{path: "/v1/lease/" + name, body: `{}`}
			}
			if a := h.call(t, call.with(bearer, "")); a.status != want {
				t.Errorf("%s, %s: %d %s, want %d", when, name, a.status, a.raw, want)
			}
		}
	}
	if after := h.state(); !maps.Equal(before, after) {
		t.Errorf("%s: a forged call changed the state:\n%s", when, difference(before, after))
	}
}

// The verbs with which an agent ends its run are the agent's.
func TestAnAgentEndsItsRunWithItsOwnCredential(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		for _, name := range []string{"mark_complete", "mark_failed", "request_human_help"} {
			l := h.separateLease()
			if a := h.call(t, goodRequests["report_progress"].with(l.AgentToken.Reveal(), "")); a.status != 200 {
				t.Fatalf("report_progress: %d %s", a.status, a.raw)
			}
			a := h.call(t, goodRequests[name].with(l.AgentToken.Reveal(), ""))
			if a.status != 200 {
				t.Errorf("%s: %d %s", name, a.status, a.raw)
			}
			if again := h.call(t, goodRequests[name].with(l.AgentToken.Reveal(), "")); again.raw != a.raw &&
				name != "request_human_help" {
				t.Errorf("%s again: %s, first %s", name, again.raw, a.raw)
			}
			for _, then := range []string{"exit", "logs", "events"} {
				if a := h.call(t, goodRequests[then].with(l.LeaseToken.Reveal(), "")); a.status != 200 {
					t.Errorf("%s by the adapter after %s: %d %s", then, name, a.status, a.raw)
				}
			}
			h.expire() // a failed task is delayed; the next submission is another one
		}
	})
}

// An acquire that does not ask for two credentials gets the one of before.
func TestOneCredentialStillOpensEveryRoute(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		l := h.submitAndLease()
		if l.AgentToken != "" {
			t.Fatal("an agentToken came without being asked for")
		}
		for _, name := range []string{"renew", "report_progress", "logs", "mark_complete", "exit"} {
			if a := h.call(t, goodRequests[name].with(l.LeaseToken.Reveal(), "")); a.status != 200 {
				t.Errorf("%s: %d %s", name, a.status, a.raw)
			}
		}
	})
}
