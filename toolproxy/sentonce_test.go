//lint:file-ignore SA1019 clients of the older wire still answer samples

package toolproxy_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/toolproxy/llm"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
	"github.com/picket-dev/picket/toolproxy/tools"
)

// forEachBreak runs a test for each way in which a server can break a connection.
func forEachBreak(t *testing.T, test func(t *testing.T, http2 bool, how rig.BreakMode)) {
	for _, http2 := range []bool{false, true} {
		for _, how := range rig.BreakModes(http2) {
			t.Run(fmt.Sprintf("HTTP2 %v/%s", http2, how), func(t *testing.T) { test(t, http2, how) })
		}
	}
}

// chargedOnce checks that one request was on the wire for one uncertain charge.
func chargedOnce(t *testing.T, b *rig.Breaker, p *fakeEnvelope) {
	t.Helper()
	uncertain := 0
	for _, o := range p.outcomes() {
		if o == picket.CallUncertain {
			uncertain++
		}
	}
	if n := b.Requests(); n != 1 || uncertain != 1 {
		t.Errorf("%d requests on the wire for %d uncertain charges, want 1 for 1", n, uncertain)
	}
}

// One admitted call of http_request is at most one request on the wire.
func TestAnHTTPCallIsSentOnce(t *testing.T) {
	for _, args := range []string{
		`"method":"GET"`, `"method":"HEAD"`, `"method":"POST","body":"x","headers":{"Idempotency-Key":"k"}`,
		`"method":"PUT","headers":{"X-Idempotency-Key":"k"}`,
		`"method":"POST","body":{"a":1}`, `"method":"DELETE"`,
	} {
		t.Run(strings.ReplaceAll(args, `"`, ""), func(t *testing.T) {
			forEachBreak(t, func(t *testing.T, http2 bool, how rig.BreakMode) {
				mark := "/marked"
				if http2 {
					mark = ""
				}
				b := rig.StartBreaker(t,
					http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }),
					http2, how, mark)
				shop := newHTTPProxy(t, func(c *tools.HTTPConfig) {
					_, at, _ := strings.Cut(b.URL, "://")
					c.Allow, c.TLS = []string{at}, b.TLS
				})
				p := newFakeEnvelope(100 * cent)
				if _, err := get(t, shop, p, `{"url":"`+b.URL+`/first"}`); err != nil {
					t.Fatal(err)
				}
				b.Arm()
				if a, err := get(t, shop, p,
					`{"url":"`+b.URL+`/marked",`+args+`}`); picket.CodeOf(err) != picket.CodeUpstream {
					t.Errorf("%v, %v", a, err)
				}
				chargedOnce(t, b, p)
			})
		})
	}
}

// One admitted call of a model is at most one request on the wire, whatever the
// agent's program says of repeating it.
func TestAModelCallIsSentOnce(t *testing.T) {
	forEachBreak(t, func(t *testing.T, http2 bool, how rig.BreakMode) {
		b := rig.StartBreaker(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			streaming(claudeAll)(w, r)
		}), http2, how, "marked")
		p := newRichEnvelope(1000)
		mind := newLLMEnv(t, newFakeModel(t, nil), p, func(c *llm.Config) {
			c.Anthropic, c.TLS = &llm.Upstream{URL: b.URL, Key: "sk-real"}, b.TLS
		})
		if status, text, _ := mind.get("POST", messages, claudeAsk); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		b.Arm()
		ask := strings.Replace(claudeAsk, "hi ", "marked ", 1)
		status, text, _ := mind.get("POST", messages, ask, "Idempotency-Key", "k", "X-Idempotency-Key", "k")
		if how == rig.CloseOnAnswer && status == 200 {
			t.Errorf("answered %d %s", status, text)
		}
		chargedOnce(t, b, p)
	})
}

// One admitted call of an MCP server is at most one request on the wire.
func TestAnMCPCallIsSentOnce(t *testing.T) {
	for _, wire := range protocolVersions {
		t.Run(wire, func(t *testing.T) {
			forEachBreak(t, func(t *testing.T, http2 bool, how rig.BreakMode) {
				o := newFakeUpstream()
				b := rig.StartBreaker(t, o.handler(t, wire), http2, how, "marked")
				p := newFakeEnvelope(100 * cent)
				bridge := newGatewayEnv(t, p,
					mcppart.Upstream{
						Name:    "up",
						URL:     b.URL,
						TLS:     b.TLS,
						Headers: map[string]picket.Secret{"Idempotency-Key": "k"},
					})
				if _, err := bridge.Invoke(t.Context(), p, aHeld, "up_echo", []byte(`{"n":1}`), ""); err != nil {
					t.Fatal(err)
				}
				b.Arm()
				if a, err := bridge.Invoke(t.Context(), p, aHeld, "up_echo", []byte(`{"n":"marked"}`),
					""); picket.CodeOf(err) != picket.CodeUpstream {
					t.Errorf("%s, %v", a, err)
				}
				chargedOnce(t, b, p)
			})
		})
	}
}

// A redirect never sends a request with effects again.
func TestARedirectSendsNothingTwice(t *testing.T) {
	for _, status := range []int{307, 308} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			u := serveRecording(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/again")
				w.WriteHeader(status)
			})
			p, door := newHTTPProxy(t, func(c *tools.HTTPConfig) { c.Allow = []string{u.at()} }),
				newFakeEnvelope(100*cent)
			a, err := get(t, p, door, `{"method":"`+method+`","url":"`+u.URL+`/first","body":"order"}`)
			if err != nil || a["status"] != float64(status) ||
				!strings.Contains(text(a["notFollowed"]), "a second time") || u.count() != 1 {
				t.Errorf("%s with %d: %d requests, %v, %v", method, status, u.count(), a, err)
			}
		}
	}
}

// redirectingMCP is an MCP server that redirects from / to /there, and that can begin to
// refuse every call with the same redirect, or as one of an unknown session.
type redirectingMCP struct {
	*httptest.Server
	status atomic.Int64 // the answer of calls; 0: they are carried out
	calls  atomic.Int64
}

func serveRedirectingMCP(t *testing.T, o *fakeUpstream, wire string) *redirectingMCP {
	t.Helper()
	m, behind := &redirectingMCP{}, o.handler(t, wire)
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		isCall := bytes.Contains(body, []byte(`"tools/call"`))
		if isCall {
			m.calls.Add(1)
		}
		switch status := int(m.status.Load()); {
		case status == http.StatusNotFound && isCall:
			http.Error(w, "session not found", status)
		case status != 0 && isCall, r.URL.Path != "/there":
			w.Header().Set("Location", "/there")
			w.WriteHeader(http.StatusTemporaryRedirect)
		default:
			behind.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		m.CloseClientConnections()
		m.Close()
	})
	return m
}

// The path of an MCP server is learned while the connection is made. A call that
// is answered with a redirect, or as one of an unknown session, is not sent again.
func TestAnMCPCallIsNotSentAgainAfterItsAnswer(t *testing.T) {
	for _, wire := range protocolVersions {
		for _, status := range []int{http.StatusTemporaryRedirect, http.StatusNotFound} {
			t.Run(fmt.Sprintf("%s/%d", wire, status), func(t *testing.T) {
				m := serveRedirectingMCP(t, newFakeUpstream(), wire)
				p := newFakeEnvelope(100 * cent)
				bridge := newGatewayEnvFor(t, p, "up_echo", map[string]budget.Price{"up_*": {Call: cent}},
					mcppart.Upstream{Name: "up", URL: m.URL})
				if _, err := bridge.Invoke(t.Context(), p, aHeld, "up_echo", []byte(`{"n":1}`), ""); err != nil ||
					m.calls.Load() != 1 {
					t.Fatalf("%d requests: %v", m.calls.Load(), err)
				}
				asked := connect(t, bridge.url, bridge.token(), protocolVersions[0],
					&mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{Sampling: &mcp.SamplingCapabilities{}}})
				call(t, asked, "up_echo", map[string]any{"n": 1}) // has a connection of its own
				m.status.Store(int64(status))
				before := m.calls.Load()
				_, _ = asked.CallTool(t.Context(),
					&mcp.CallToolParams{Name: "up_echo", Arguments: map[string]any{"n": 2}})
				if n := m.calls.Load() - before; n != 1 {
					t.Errorf("a call of a session was sent %d times", n)
				}
				before = m.calls.Load()
				if _, err := bridge.Invoke(t.Context(), p, aHeld, "up_echo", []byte(`{"n":3}`), ""); err == nil {
					t.Error("a call was answered")
				}
				if n := m.calls.Load() - before; n > 1 {
					t.Errorf("a call was sent %d times", n)
				}
			})
		}
	}
}

// The route for models keeps no answers: it charges each call that it admits and
// passes no idempotency key on.
func TestEachModelCallIsChargedWhateverItsKey(t *testing.T) {
	for path, ask := range map[string]string{
		messages:  claudeAsk,
		chats:     `{"model":"gpt-x"}`,
		responses: `{"model":"gpt-x"}`,
	} {
		m, p := newFakeModel(t, answersAll), newRichEnvelope(1000)
		b := newLLMEnv(t, m, p)
		for range 2 {
			if status, text, _ := b.get("POST", path, ask, "Idempotency-Key", "k"); status != 200 {
				t.Fatalf("%d %s", status, text)
			}
			if _, head, _ := m.last(t); head.Get("Idempotency-Key") != "" {
				t.Errorf("%s: the vendor got the key", path)
			}
		}
		if m.calls() != 2 || len(p.outcomes()) != 2 || p.charged.USD != 2*tokenCost {
			t.Errorf("%s: %d calls, %d charges, $%s", path, m.calls(), len(p.outcomes()), p.charged.USD)
		}
	}
}
