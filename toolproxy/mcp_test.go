package toolproxy_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/toolproxy"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

// The wires a client may speak: with a session, and without.
var protocolVersions = []string{"2025-11-25", "2026-07-28"}

// listenMCP puts a proxy on a port of its own.
func listenMCP(t testing.TB, f *proxyEnv) string {
	t.Helper()
	s := httptest.NewServer(f.e)
	t.Cleanup(func() {
		f.proxy.Close()
		s.Close()
	})
	return s.URL + mcppart.Path
}

// bearerTransport adds the lease to every request.
type bearerTransport struct {
	token string
	base  http.RoundTripper
}

func (b bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.base.RoundTrip(r)
}

// connect is a client of the given wire.
func connect(t testing.TB, url, token, wire string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	return connectAs(t, mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, opts), url, token, wire)
}

func connectAs(t testing.TB, client *mcp.Client, url, token, wire string) *mcp.ClientSession {
	t.Helper()
	transport := &http.Transport{}
	s, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: url, HTTPClient: &http.Client{Transport: bearerTransport{token, transport}}, MaxRetries: -1,
	}, &mcp.ClientSessionOptions{ProtocolVersion: wire})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		transport.CloseIdleConnections()
	})
	if got := s.InitializeResult().ProtocolVersion; got != wire {
		t.Fatalf("the wire is %s, want %s", got, wire)
	}
	return s
}

// object is a structured result as JSON.
func object(t testing.TB, r *mcp.CallToolResult) map[string]any {
	t.Helper()
	raw, err := json.Marshal(r.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, string(raw))
}

// refusal is the error member of a result.
func refusal(t testing.TB, r *mcp.CallToolResult) (code, remedy string) {
	t.Helper()
	e, _ := object(t, r)["error"].(map[string]any)
	if !r.IsError || e == nil {
		t.Fatalf("the result is not a refusal: %+v", r)
	}
	return text(e["code"]), text(e["remedy"])
}

func TestToolsOverMCP(t *testing.T) {
	for _, wire := range protocolVersions {
		t.Run(wire, func(t *testing.T) {
			d := &fakeBackend{}
			f := newProxyEnv(t, d)
			s := connect(t, listenMCP(t, f), f.token(), wire, nil)
			list, err := s.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range list.Tools {
				names = append(names, tool.Name)
				if tool.InputSchema == nil || tool.Description == "" {
					t.Errorf("%s has no schema or no description", tool.Name)
				}
			}
			for _, tool := range toolproxy.Tools() {
				if !slices.Contains(names, tool.Name) {
					t.Errorf("%s is not listed: %v", tool.Name, names)
				}
			}
			r, err := s.CallTool(t.Context(),
				&mcp.CallToolParams{Name: "report_progress", Arguments: map[string]any{"summary": "halfway"},
					Meta: mcp.Meta{mcppart.MetaKey: "step-1"}})
			if err != nil || r.IsError {
				t.Fatalf("report: %v %+v", err, r)
			}
			if got := object(t, r); got["seq"] != 1.0 || got["pinned"] != true {
				t.Errorf("the report answered %v", got)
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			if len(d.keys) != 1 || len(d.keys[0]) != 32 || d.held[len(d.held)-1].RunID != aRun {
				t.Errorf("the state of record was told %v of %v", d.keys, d.held)
			}
		})
	}
}

// What is refused is a result that tells the model what to do; nothing but a
// credential that was not made here is a 401.
func TestRefusalsOverMCP(t *testing.T) {
	for _, wire := range protocolVersions {
		t.Run(wire, func(t *testing.T) {
			d := &fakeBackend{}
			f := newProxyEnv(t, d)
			url := listenMCP(t, f)
			s := connect(t, url, f.token(), wire, nil)
			d.mu.Lock()
			d.err = picket.Refuse(picket.CodeStaleFence, "Stop writing and exit: this task now belongs to run_2.",
				"token 17 was superseded by 18").With("current", 18)
			d.mu.Unlock()
			for name, args := range map[string]any{"mark_complete": map[string]any{"output": 1}, "get_task": nil} {
				r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if code, remedy := refusal(t, r); code != "stale_fence" || !strings.HasPrefix(remedy, "Stop writing") {
					t.Errorf("%s: %s, %s", name, code, remedy)
				}
				if text := r.Content[0].(*mcp.TextContent).Text; !strings.Contains(text, "stale_fence") ||
					!strings.Contains(text, "Stop writing and exit") {
					t.Errorf("%s tells the model %q", name, text)
				}
			}
			d.mu.Lock()
			refused := slices.Clone(d.refused)
			d.mu.Unlock()
			if !slices.Equal(refused, []string{"mark_complete stale_fence"}) {
				t.Errorf("noted as refused writes: %v", refused)
			}
			for _, call := range []*mcp.CallToolParams{
				{Name: "no_such_tool"},
				{Name: "report_progress", Arguments: map[string]any{"summary": 3}},
				{Name: "get_task", Meta: mcp.Meta{mcppart.MetaKey: 7}},
			} {
				r, err := s.CallTool(t.Context(), call)
				if err != nil {
					t.Fatalf("%s: %v", call.Name, err)
				}
				want := map[string]string{"no_such_tool": "not_found"}[call.Name]
				if want == "" {
					want = "validation_failed"
				}
				if code, remedy := refusal(t, r); code != want || remedy == "" {
					t.Errorf("%s: %s, %s", call.Name, code, remedy)
				}
			}
		})
	}
}

func TestOnlyForgedLeasesAreUnauthenticated(t *testing.T) {
	d := &fakeBackend{err: picket.CodeLeaseExpired}
	f := newProxyEnv(t, d)
	url := listenMCP(t, f)
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	for name, c := range map[string]struct {
		bearer string
		status int
		origin string
	}{
		"none":                   {"", 401, ""},
		"forged":                 {f.token()[:len(f.token())-2] + "zz", 401, ""},
		"an API key":             {picket.KeyPrefix + "x", 401, ""},
		"expired":                {f.token(), 200, ""},
		"served elsewhere":       {f.sealer.LeaseToken("other", aTask, aRun).Reveal(), 503, ""},
		"a page of another site": {f.token(), 403, "https://evil.example"},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(list))
		for k, v := range map[string]string{"Authorization": bearerOf(c.bearer), "Content-Type": "application/json",
			"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2025-11-25", "Origin": c.origin} {
			if v != "" {
				req.Header.Set(k, v)
			}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s: %d, want %d", name, resp.StatusCode, c.status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestPinnedReportOverMCP(t *testing.T) {
	for _, wire := range protocolVersions {
		t.Run(wire, func(t *testing.T) {
			inMemory(t, func(h *engineEnv) {
				h.submit()
				l := h.lease()
				if _, err := h.Report(context.Background(), h.held(l), "r1",
					picket.Progress{Summary: "the parser works", NextStep: "the printer"}); err != nil {
					t.Fatal(err)
				}
				s := connect(t, listenMCP(t, h.proxyEnv), l.LeaseToken.Reveal(), wire, nil)
				r, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: mcppart.ReportURI})
				if err != nil {
					t.Fatal(err)
				}
				if got := decode(t, r.Contents[0].Text); got["summary"] != "the parser works" || got["seq"] != 1.0 {
					t.Errorf("the resource holds %v", got)
				}
				r, err = s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: mcppart.PoolsURI})
				if err != nil {
					t.Fatal(err)
				}
				if got := decode(t, r.Contents[0].Text); got["more"] != false || got["pools"] == nil {
					t.Errorf("the resource of pools holds %v", got)
				}
				p, err := s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "continue_task"})
				if err != nil {
					t.Fatal(err)
				}
				if got := p.Messages[0].Content.(*mcp.TextContent).Text; !strings.Contains(got, "the parser works") ||
					!strings.Contains(got, "a task") {
					t.Errorf("the prompt says %q", got)
				}
				h.expire()
				for _, uri := range []string{mcppart.ReportURI, mcppart.PoolsURI} {
					if _, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil ||
						!strings.Contains(err.Error(), "lease_expired") {
						t.Errorf("under an ended lease %s answers %v", uri, err)
					}
				}
			})
		})
	}
}

// inMemory runs a test on a store in this process and on real time.
func inMemory(t *testing.T, test func(h *engineEnv)) {
	t.Helper()
	store, stop := rig.Memory()
	defer stop()
	h, leave := newEngineEnv(t, store)
	defer leave()
	test(h)
}
