package toolproxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

// measured is how many calls the commands are counted over, and unasked how many
// of these the watch of a run may add, which looks now and then.
const (
	measured = 40
	unasked  = 4
)

// A metered call is two commands on the wire, all told, from the request of an
// agent to its answer: one that reserves and one that settles.
func TestCommandsPerMeteredCallReal(t *testing.T) {
	s := rig.Real(t)
	wire := &rig.CommandCounter{}
	s.Redis.Dialer = wire.Dialer(s.Redis.Dialer)
	h, leave := newEngineEnv(t, s)
	defer leave()
	window := 3600
	_, err := h.Submit(h.ctx, operator,
		picket.TaskSpec{
			Title:              "a task",
			LeaseWindowSeconds: &window,
			BudgetEnvelope:     &budget.Envelope{Tokens: 1_000_000, USD: 100_000 * cent},
		})
	h.ok(err)
	token := h.lease().LeaseToken.Reveal()

	doors := map[string]func(n int){}
	b := newGatewayEnv(t, h.Engine,
		mcppart.Upstream{Name: "up", URL: newFakeUpstream().listen(t, protocolVersions[1])})
	for name, key := range map[string]string{"over HTTP": "", "over HTTP with a key": "http-%d"} {
		doors[name] = func(n int) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
				strings.TrimSuffix(b.url, mcppart.Path)+"/v1/tools/up_echo",
				strings.NewReader(fmt.Sprintf(`{"n":%d}`, n)))
			h.ok(err)
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Authorization", "Bearer "+token)
			if key != "" {
				req.Header.Set("Idempotency-Key", fmt.Sprintf(key, n))
			}
			answered(t, http.DefaultClient, req, `"cost"`)
		}
	}
	for _, version := range protocolVersions {
		session := connect(t, b.url, token, version, nil)
		doors["over MCP "+version] = func(n int) {
			r, err := session.CallTool(t.Context(),
				&mcp.CallToolParams{
					Name:      "up_echo",
					Arguments: map[string]any{"n": n},
					Meta:      mcp.Meta{mcppart.MetaKey: fmt.Sprint(version, n)},
				})
			if err != nil || r.IsError || r.Meta["picket/cost"] == nil {
				t.Fatalf("%v %+v", err, r)
			}
		}
	}
	m := newFakeModel(t, answersJSON(200, `{"type":"message","usage":{"input_tokens":1,"output_tokens":1}}`))
	mind := newLLMEnvOf(t, m, h.sealer, h.Engine)
	doors["of a language model"] = func(int) {
		status, text, _ := mind.get("POST", "/llm/anthropic/v1/messages",
			`{"model":"claude-x","max_tokens":300,"messages":[]}`, "X-Api-Key", token)
		if status != 200 {
			t.Fatalf("%d %s", status, text)
		}
	}
	defer http.DefaultClient.CloseIdleConnections()

	for name, call := range doors {
		call(0) // the first one opens connections and begins to watch the run
		wire.Take()
		for n := range measured {
			call(n + 1)
		}
		sent := wire.Take()
		got := sent["fcall"]
		if got < 2*measured || got > 2*measured+unasked {
			t.Errorf("%s: %d scripts for %d calls, want two each", name, got, measured)
		}
		for command, n := range sent {
			switch command {
			case "fcall", "hello", "client": // a connection is set up
			default:
				t.Errorf("%s: %s was sent %d times", name, command, n)
			}
		}
		t.Logf("%s: %d calls, on the wire %v", name, measured, sent)
	}
}

// answered makes a request and finds a text in its answer.
func answered(t *testing.T, c *http.Client, req *http.Request, want string) {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
		t.Fatalf("%d %s: %v", resp.StatusCode, body, err)
	}
}

// Where there is not enough for the answer that was asked for, a shorter one is
// asked for in the next step; that is not an event, unlike the refusal of every
// answer.
func TestAShorterAnswerIsNoEvent(t *testing.T) {
	s := rig.Real(t)
	wire := &rig.CommandCounter{}
	s.Redis.Dialer = wire.Dialer(s.Redis.Dialer)
	h, leave := newEngineEnv(t, s)
	defer leave()
	_, err := h.Submit(h.ctx, operator,
		picket.TaskSpec{Title: "a task", BudgetEnvelope: &budget.Envelope{Tokens: 1_000_000, USD: 2 * cent}})
	h.ok(err)
	token := h.lease().LeaseToken.Reveal()
	m := newFakeModel(t, answersJSON(200, `{"type":"message","usage":{"input_tokens":1,"output_tokens":1290}}`))
	mind := newLLMEnvOf(t, m, h.sealer, h.Engine)
	for i, c := range []struct {
		status   int
		refusals int
	}{{200, 0}, {402, 1}} {
		wire.Take()
		status, text, _ := mind.get("POST", "/llm/anthropic/v1/messages",
			`{"model":"claude-x","max_tokens":60000,"messages":[]}`, "X-Api-Key", token)
		sent := wire.Take()
		page, err := h.Events(h.ctx, picket.EventQuery{Types: []string{picket.EventBudgetExceeded}, Limit: 10})
		h.ok(err)
		// the first one loads the library
		if status != c.status || len(page.Events) != c.refusals || i > 0 && sent["fcall"] != 2 {
			t.Errorf("call %d: %d %s with %v and %d events, want %d and %d events", i, status, text, sent,
				len(page.Events), c.status, c.refusals)
		}
		if i == 0 {
			body, _, _ := m.last(t)
			if found := outputLimit.FindStringSubmatch(body); found == nil || len(found[1]) > 4 {
				t.Errorf("the model was asked for %s", body)
			}
		}
	}
}
