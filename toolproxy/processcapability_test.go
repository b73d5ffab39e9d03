package toolproxy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// asProcess ends the prompt and opens the next one, with a capability that a process keeps.
func (p *openPrompt) asProcess() *openPrompt {
	p.h.t.Helper()
	p.end(picket.PromptAnswered)
	p.secret = picket.NewSessionCapability("default", p.session)
	return p.next()
}

// next opens the next prompt with the same capability.
func (p *openPrompt) next() *openPrompt {
	p.h.t.Helper()
	prompt, err := p.h.PromptSession(p.h.ctx, operator, p.session, picket.PromptRequest{Text: "hello"})
	p.h.ok(err)
	p.id = prompt.PromptID
	_, err = p.h.CommandResult(p.h.ctx, operator, p.agent, p.id, picket.CommandResult{Incarnation: p.incarnation,
		State: picket.PromptAccepted, CapabilityHash: picket.SessionCapabilityHash(p.secret)})
	p.h.ok(err)
	return p
}

// One MCP session of a process goes on from prompt to prompt. Between them every call is refused.
func TestAProcessUsesOneMCPSessionReal(t *testing.T) {
	h, leave := newEngineEnv(t, rig.Real(t))
	defer leave()
	p := h.openPrompt().asProcess()
	url := listenMCP(t, h.proxyEnv)
	send := func(session, body string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		h.ok(err)
		for name, value := range map[string]string{"Authorization": "Bearer " + p.secret.Reveal(),
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"Mcp-Session-Id": session} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		res, err := http.DefaultClient.Do(r)
		h.ok(err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		h.ok(err)
		return res, string(text)
	}
	res, text := send("", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",`+
		`"capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	session := res.Header.Get("Mcp-Session-Id")
	if session == "" || !strings.Contains(text, "You hold no task") {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	send(session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	ask := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"get_context","arguments":{}}}`
	for range 3 {
		if res, text := send(session, ask); res.StatusCode != 200 || !strings.Contains(text, p.id) {
			t.Errorf("in a prompt: %d %s", res.StatusCode, text)
		}
		p.end(picket.PromptAnswered)
		if res, text := send(session, ask); res.StatusCode != 401 || !strings.Contains(text, string(noCapability)) {
			t.Errorf("between prompts: %d %s", res.StatusCode, text)
		}
		p.next()
	}
	other := *p
	other.session = "asession_" + ulid.Make().String()
	h.ok(h.ReportSessions(h.ctx, operator, p.agent, picket.SessionsReport{Incarnation: p.incarnation,
		Sessions: []picket.SessionReport{{SessionID: p.session, Kind: picket.SessionResident, Preset: "claude",
			State: picket.SessionPrompting, PromptID: p.id}, {SessionID: other.session, Kind: picket.SessionResident,
			Preset: "claude", State: picket.SessionIdle}}}))
	other.secret = picket.NewSessionCapability("default", other.session)
	p.secret = other.next().secret
	if res, text := send(session, ask); res.StatusCode != 403 {
		t.Errorf("another process uses the MCP session: %d %s", res.StatusCode, text)
	}
}

// The prompt that is open pays for a model. Between prompts the vendor is not asked.
func TestTheOpenPromptOfAProcessPays(t *testing.T) {
	m := newFakeModel(t, answersJSON(200, sessionAnswer))
	h, leave := newEngineEnv(t, rig.Real(t))
	defer leave()
	b := newLLMEnvOf(t, m, h.sealer, h.Engine)
	p := h.openPrompt().asProcess()
	for range 2 {
		status, text, _ := b.get("POST", "/llm/anthropic/v1/messages", sessionQuestion, "X-Api-Key", p.secret.Reveal())
		if got := p.money(t); status != 200 || got.Spent.USD != 4_500_000 {
			t.Errorf("%d %s: the prompt has spent %s", status, text, got.Spent.USD)
		}
		p.end(picket.PromptAnswered)
		before := m.calls()
		status, text, _ = b.get("POST", "/llm/anthropic/v1/messages", sessionQuestion, "X-Api-Key", p.secret.Reveal())
		if status != 401 || !strings.Contains(text, string(noCapability)) || m.calls() != before {
			t.Errorf("between prompts: %d %s", status, text)
		}
		p.next()
	}
}

// A process cannot send its capability to another agent.
func TestACapabilityOfAProcessStays(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		p := h.openPrompt().asProcess()
		for _, words := range []string{p.secret.Reveal(), strings.ReplaceAll(p.secret.Reveal(), "_", `\u005f`)} {
			a := h.call(t, request{path: "/v1/tools/send_message", body: `{"to":"listener","body":"` + words + `"}`,
				bearer: p.secret.Reveal()})
			if a.status != 400 || !strings.Contains(a.raw, "must not leave") {
				t.Errorf("%d %s", a.status, a.raw)
			}
		}
	})
}
