package toolproxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/toolproxy"
	"github.com/picket-dev/picket/toolproxy/llm"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

// flood is how many requests an attacker sends. The bucket of the test holds
// five and gains one a second. The flood is short, because a run ends after ten
// equal calls in a row and a slow machine lets one more through each second.
const flood = 20

// overHTTP sends one of the calls to a server and reads the answer.
func overHTTP(t *testing.T, url string, r request, token picket.Secret) (status int, header http.Header, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), methodOf(r), url+r.path, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token.Reveal())
	req.Header.Set("Content-Type", "application/json")
	if r.kind != "" {
		req.Header.Set("Content-Type", r.kind)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func methodOf(r request) string {
	if r.method == "" {
		return http.MethodPost
	}
	return r.method
}

// rated runs a test with a proxy that bounds the rate of each lease, behind a
// real server, on both stores.
func rated(t *testing.T, test func(t *testing.T, h *engineEnv, rates *web.Rates, url string)) {
	t.Helper()
	run := func(t *testing.T, s rig.Store) {
		h, leave := newEngineEnv(t, s)
		defer leave()
		rates := web.NewRates(0, 1)
		h.proxyEnv = newProxyEnvWith(t, toolproxy.Config{
			Sealer:  h.sealer,
			Rates:   rates,
			Backend: func(string) toolproxy.Backend { return h.Engine },
		})
		server := httptest.NewServer(h.e)
		defer http.DefaultClient.CloseIdleConnections()
		defer server.Close()
		defer h.proxy.Close()
		test(t, h, rates, server.URL)
	}
	t.Run("Memory", func(t *testing.T) {
		store, stop := rig.Memory()
		defer stop()
		run(t, store)
	})
	t.Run("Real", func(t *testing.T) { run(t, rig.Real(t)) })
}

// A lease that floods the proxy with tool calls is refused. Its own lease is
// kept, its run can end, and another lease notices nothing.
func TestAFloodOfToolCallsIsRefused(t *testing.T) {
	rated(t, func(t *testing.T, h *engineEnv, rates *web.Rates, url string) {
		h.submit()
		h.submit()
		attacker, other := h.lease(), h.lease()
		refused := 0
		for range flood {
			status, header, body := overHTTP(t, url, goodRequests["get_task"], attacker.LeaseToken)
			switch {
			case status == http.StatusTooManyRequests:
				if header.Get("Retry-After") != "1" || !strings.Contains(body, `"rate_limited"`) ||
					!strings.Contains(body, "Retry-After says") {
					t.Fatalf("refused with Retry-After %q: %s", header.Get("Retry-After"), body)
				}
				refused++
			case status != http.StatusOK:
				t.Fatalf("%d %s", status, body)
			}
		}
		if refused == 0 || int64(refused) != rates.Refused()[web.KindLease] {
			t.Fatalf("%d of %d calls were refused, %d are counted", refused, flood, rates.Refused()[web.KindLease])
		}
		for range flood {
			if status, _, body := overHTTP(t, url, goodRequests["renew"],
				attacker.LeaseToken); status != http.StatusOK {
				t.Fatalf("a renewal: %d %s", status, body)
			}
		}
		for _, name := range []string{"events", "logs"} {
			if status, _, body := overHTTP(t, url, goodRequests[name], attacker.LeaseToken); status >= 400 {
				t.Errorf("%s of the adapter: %d %s", name, status, body)
			}
		}
		if status, _, body := overHTTP(t, url, goodRequests["get_task"], other.LeaseToken); status != http.StatusOK {
			t.Errorf("another lease: %d %s", status, body)
		}
		if status, _, body := overHTTP(t, url, goodRequests["mark_failed"],
			attacker.LeaseToken); status != http.StatusOK {
			t.Errorf("mark_failed after the flood: %d %s", status, body)
		}
		if status, _, body := overHTTP(t, url, goodRequests["exit"], attacker.LeaseToken); status >= 400 {
			t.Errorf("the exit after the flood: %d %s", status, body)
		}
	})
}

// Over MCP a refused call is a result that reports it, and the tools that end the
// run still work. Calls of models count too.
func TestAFloodOverMCPIsRefused(t *testing.T) {
	rated(t, func(t *testing.T, h *engineEnv, _ *web.Rates, url string) {
		h.submit()
		l := h.lease()
		s := connect(t, url+mcppart.Path, l.LeaseToken.Reveal(), protocolVersions[0], nil)
		refused := 0
		for range flood {
			result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "get_task", Arguments: map[string]any{}})
			if err != nil {
				t.Fatal(err)
			}
			if result.IsError {
				if code, remedy := refusal(t, result); code != string(picket.CodeRateLimited) || remedy == "" {
					t.Fatalf("refused with %s: %s", code, remedy)
				}
				refused++
			}
		}
		if refused == 0 {
			t.Fatal("no call was refused")
		}
		if _, err := s.ListTools(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "rate_limited") {
			t.Errorf("tools/list after the flood: %v", err)
		}
		llm := request{path: llm.Path + "/anthropic/v1/messages", body: `{}`}
		if status, header, body := overHTTP(t, url, llm, l.LeaseToken); status != http.StatusTooManyRequests ||
			header.Get("Retry-After") != "1" {
			t.Errorf("a call of a model after the flood: %d %s", status, body)
		}
		result, err := s.CallTool(t.Context(),
			&mcp.CallToolParams{Name: "mark_complete", Arguments: map[string]any{"output": 1}})
		if err != nil || result.IsError {
			t.Errorf("mark_complete after the flood: %v %+v", err, result)
		}
	})
}

// The tools that end a run have a small bucket. It stays full while a run floods
// other tools, and a superseded run cannot flood with them, over HTTP or MCP.
func TestAFloodOfClosingToolsIsRefused(t *testing.T) {
	rated(t, func(t *testing.T, h *engineEnv, _ *web.Rates, url string) {
		old := h.submitAndLease()
		h.expire()
		now := h.lease()
		for _, name := range []string{"mark_complete", "mark_failed", "request_human_help"} {
			if status, _, body := overHTTP(t, url, goodRequests[name],
				old.LeaseToken); status != http.StatusPreconditionFailed {
				t.Fatalf("%s: %d %s", name, status, body)
			}
		}
		refused := 0
		for range 4 * flood {
			if status, header, _ := overHTTP(t, url, goodRequests["mark_complete"],
				old.LeaseToken); status == http.StatusTooManyRequests {
				if header.Get("Retry-After") != "1" {
					t.Fatalf("Retry-After is %q", header.Get("Retry-After"))
				}
				refused++
			}
		}
		if refused == 0 {
			t.Fatal("no call was refused")
		}
		s := connect(t, url+mcppart.Path, old.LeaseToken.Reveal(), protocolVersions[0], nil)
		refused = 0
		for range flood {
			result, err := s.CallTool(t.Context(),
				&mcp.CallToolParams{Name: "mark_complete", Arguments: map[string]any{"output": 1}})
			if err != nil {
				t.Fatal(err)
			}
			if code, _ := refusal(t, result); code == string(picket.CodeRateLimited) {
				refused++
			}
		}
		if refused == 0 {
			t.Error("no call over MCP was refused")
		}
		if status, _, body := overHTTP(t, url, goodRequests["mark_complete"], now.LeaseToken); status != http.StatusOK {
			t.Errorf("the lease that replaced it: %d %s", status, body)
		}
	})
}

// A body that becomes no MCP message counts as a request. The lease can still
// end its task over HTTP.
func TestAFloodOfMalformedMCPBodiesIsRefused(t *testing.T) {
	for name, body := range map[string]string{
		"no JSON":   `{`,
		"no method": `{"jsonrpc":"2.0","id":1,"method":"x"}`,
		"an answer": `{"jsonrpc":"2.0","id":1,"result":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			rated(t, func(t *testing.T, h *engineEnv, _ *web.Rates, url string) {
				l := h.submitAndLease()
				refused := 0
				for range flood {
					status, header, answer := overHTTP(t, url, request{path: mcppart.Path, body: body},
						l.LeaseToken)
					if status != http.StatusTooManyRequests {
						continue
					}
					if header.Get("Retry-After") != "1" || !strings.Contains(answer, `"rate_limited"`) {
						t.Fatalf("refused with Retry-After %q: %s", header.Get("Retry-After"), answer)
					}
					refused++
				}
				if refused == 0 {
					t.Error("no request was refused")
				}
				if status, _, body := overHTTP(t, url, goodRequests["mark_failed"],
					l.LeaseToken); status != http.StatusOK {
					t.Errorf("mark_failed after the flood: %d %s", status, body)
				}
			})
		})
	}
}

// An agent with a credential of its own cannot use up what its adapter needs.
func TestTheRateOfAnAgentIsNotItsAdapters(t *testing.T) {
	d := &fakeBackend{}
	rates := web.NewRates(0, 1)
	f := newProxyEnvWith(t, toolproxy.Config{
		Sealer:  newSealer(t),
		Rates:   rates,
		Backend: func(string) toolproxy.Backend { return d },
	}).undescribed()
	agent := f.sealer.LeaseTokenFor(picket.SideAgent, "default", aTask, aRun).Reveal()
	adapter := f.sealer.LeaseTokenFor(picket.SideAdapter, "default", aTask, aRun).Reveal()
	for range flood {
		f.call(t, goodRequests["get_task"].with(agent, ""))
	}
	if a := f.call(t, goodRequests["get_task"].with(agent, "")); a.code() != string(picket.CodeRateLimited) {
		t.Errorf("the agent after its flood: %d %s", a.status, a.raw)
	}
	for _, name := range []string{"watch", "logs", "evidence", "usage", "exec"} {
		if a := f.call(t, goodRequests[name].with(adapter, "")); a.code() == string(picket.CodeRateLimited) {
			t.Errorf("%s of the adapter: %s", name, a.raw)
		}
	}
	for range flood {
		for _, name := range []string{"renew", "release", "exit"} {
			if a := f.call(t, goodRequests[name].with(adapter, "")); a.code() == string(picket.CodeRateLimited) {
				t.Fatalf("%s: %s", name, a.raw)
			}
		}
	}
}
