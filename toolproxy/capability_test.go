package toolproxy_test

import (
	stdjson "encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

// sessionSurface is all that a session capability opens. It is written down here once more, on purpose.
var sessionSurface = map[string]bool{
	"GET /agent/context":           true,
	"GET /v1/tools":                true,
	"POST /v1/tools/get_context":   true,
	"POST /v1/tools/next_task":     true,
	"POST /v1/tools/read_messages": true,
	"POST /v1/tools/send_message":  true,
}

const noCapability = picket.CodeSessionCapability

var sessionMatrix = []matrixRow{
	{name: "a session capability", session: true, fenced: picket.CodeLeaseRequired, make: func(h *engineEnv) string {
		return h.openPrompt().secret.Reveal()
	}},
	everywhere(noCapability, "a session capability of a prompt that has ended", func(h *engineEnv) string {
		p := h.openPrompt()
		p.end(picket.PromptAnswered)
		return p.secret.Reveal()
	}),
	{name: "the capability of a process", session: true, fenced: picket.CodeLeaseRequired,
		make: func(h *engineEnv) string { return h.openPrompt().asProcess().secret.Reveal() }},
	everywhere(noCapability, "the capability of a process between prompts", func(h *engineEnv) string {
		p := h.openPrompt().asProcess()
		p.end(picket.PromptAnswered)
		return p.secret.Reveal()
	}),
	everywhere(noCapability, "the capability of a process of no session", func(*engineEnv) string {
		return picket.NewSessionCapability("default", "asession_"+ulid.Make().String()).Reveal()
	}),
	everywhere(noCapability, "an overdue session capability", func(h *engineEnv) string {
		p := h.openPrompt()
		h.advance(600 * time.Second)
		return p.secret.Reveal()
	}),
	everywhere(noCapability, "a session capability of a session that has ended", func(h *engineEnv) string {
		p := h.openPrompt()
		h.ok(h.ReportSessions(h.ctx, operator, p.agent, picket.SessionsReport{Incarnation: p.incarnation}))
		return p.secret.Reveal()
	}),
	everywhere(noCapability, "a superseded session capability", func(h *engineEnv) string {
		p := h.openPrompt()
		_, err := h.Deregister(h.ctx, operator, p.agent, nil)
		h.ok(err)
		_, err = h.Register(h.ctx, operator, picket.Registration{AgentID: p.agent})
		h.ok(err)
		return p.secret.Reveal()
	}),
	everywhere(noCapability, "a session capability of an agent that is gone", func(h *engineEnv) string {
		p := h.openPrompt()
		_, err := h.Deregister(h.ctx, operator, p.agent, nil)
		h.ok(err)
		return p.secret.Reveal()
	}),
	everywhere(noCapability, "a forged session capability", func(h *engineEnv) string {
		p := h.openPrompt()
		return picket.NewSessionCapability("default", p.id).Reveal()
	}),
	everywhere(noCapability, "a session capability of no prompt", func(*engineEnv) string {
		return picket.NewSessionCapability("default", "prompt_"+ulid.Make().String()).Reveal()
	}),
	everywhere(noEntry, "a malformed session capability", func(h *engineEnv) string {
		return h.openPrompt().secret.Reveal() + "x"
	}),
	everywhere(noCapability, "a session capability of a namespace that is served elsewhere", func(h *engineEnv) string {
		return picket.NewSessionCapability("tenant", h.openPrompt().id).Reveal()
	}),
}

// openPrompt is a prompt of an agent session that was accepted with a capability.
type openPrompt struct {
	h           *engineEnv
	agent       string
	incarnation int64
	session     string
	id          string
	secret      picket.Secret
}

func (h *engineEnv) openPrompt() *openPrompt {
	h.t.Helper()
	p := &openPrompt{h: h, agent: "talker-" + ulid.Make().String()}
	for _, id := range []string{p.agent, "listener"} {
		a, err := h.Register(h.ctx, operator, picket.Registration{AgentID: id})
		h.ok(err)
		if id == p.agent {
			p.incarnation = a.Incarnation
		}
	}
	session := "asession_" + ulid.Make().String()
	p.session = session
	h.ok(h.ReportSessions(h.ctx, operator, p.agent, picket.SessionsReport{Incarnation: p.incarnation,
		Sessions: []picket.SessionReport{{SessionID: session, Kind: picket.SessionResident, Preset: "exec",
			State: picket.SessionIdle}}}))
	prompt, err := h.PromptSession(h.ctx, operator, session, picket.PromptRequest{Text: "hello"})
	h.ok(err)
	p.id, p.secret = prompt.PromptID, picket.NewSessionCapability("default", prompt.PromptID)
	_, err = h.CommandResult(h.ctx, operator, p.agent, p.id, picket.CommandResult{Incarnation: p.incarnation,
		State: picket.PromptAccepted, CapabilityHash: picket.SessionCapabilityHash(p.secret)})
	h.ok(err)
	return p
}

func (p *openPrompt) end(state picket.PromptState) {
	p.h.t.Helper()
	_, err := p.h.CommandResult(p.h.ctx, operator, p.agent, p.id,
		picket.CommandResult{Incarnation: p.incarnation, State: state})
	p.h.ok(err)
}

// A session reads its context and its messages over HTTP, and answers another agent. Nothing that is refused
// changes anything.
func TestASessionUsesItsCapability(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		p := h.openPrompt()
		person := picket.Caller{Actor: "key_person", Operator: true}
		_, err := h.Tell(h.ctx, person, p.agent, picket.MessageRequest{Body: "how is it going?"})
		h.ok(err)
		secret := p.secret.Reveal()
		call := func(method, path, body string, want ...string) {
			t.Helper()
			a := h.call(t, request{method: method, path: path, body: body, bearer: secret})
			for _, w := range want {
				if a.status != http.StatusOK || !strings.Contains(a.raw, w) {
					t.Errorf("%s: %d %s, want %q", path, a.status, a.raw, w)
				}
			}
			if strings.Contains(a.raw, secret) {
				t.Errorf("%s repeats the capability: %s", path, a.raw)
			}
		}
		call("GET", "/agent/context", "", p.agent, p.id, `"messages":1`, `"budget":{"usd":0.1}`)
		call("POST", "/v1/tools/get_context", `{}`, p.agent)
		call("POST", "/v1/tools/next_task", `{}`, `"reserved":false`, `"reason":"none"`)
		call("POST", "/v1/tools/read_messages", `{}`, "how is it going?")
		call("POST", "/v1/tools/send_message", `{"to":"listener","body":"well"}`, "messageId")
		before := h.state()
		for _, body := range []string{`{"to":"listener","body":"` + secret + `"}`, `{"body":"to people"}`} {
			if a := h.call(t, request{path: "/v1/tools/send_message", body: body, bearer: secret}); a.status/100 != 4 {
				t.Errorf("%s: %d %s", body, a.status, a.raw)
			}
		}
		for _, tool := range []string{"sql", "exec", "http_request"} {
			path := "/v1/tools/" + tool
			a := h.undescribed().call(t, request{path: path, body: `{}`, bearer: secret})
			if a.status != http.StatusForbidden || a.code() != string(picket.CodeLeaseRequired) || a.remedy() == "" {
				t.Errorf("%s: %d %s", path, a.status, a.raw)
			}
		}
		if after := h.state(); !maps.Equal(before, after) {
			t.Error("what was refused has changed the store")
		}
	})
}

// Over MCP a session has its tools, and nothing of the upstreams.
func TestASessionOverMCPReal(t *testing.T) {
	h, leave := newEngineEnv(t, rig.Real(t))
	defer leave()
	p := h.openPrompt()
	url := listenMCP(t, h.proxyEnv)
	for _, version := range protocolVersions {
		s := connect(t, url, p.secret.Reveal(), version, nil)
		if told := s.InitializeResult().Instructions; !strings.Contains(told, "You hold no task") {
			t.Errorf("%s: %q", version, told)
		}
		list, err := s.ListTools(t.Context(), nil)
		h.ok(err)
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		if want := []string{"get_context", "next_task", "read_messages", "send_message"}; !slices.Equal(slices.Sorted(
			slices.Values(names)), want) {
			t.Errorf("%s: the tools are %q", version, names)
		}
		got, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "get_context", Arguments: map[string]any{}})
		if err != nil || got.IsError {
			t.Errorf("%s: %v %+v", version, err, got)
		}
		for _, name := range []string{"get_task", "mark_complete", "sql", "whatever"} {
			got, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: map[string]any{}})
			if err != nil || !got.IsError || !strings.Contains(resultText(t, got), "lease_required") {
				t.Errorf("%s: %s: %v %+v", version, name, err, got)
			}
		}
		if _, err := s.ListPrompts(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "lease_required") {
			t.Errorf("%s: prompts: %v", version, err)
		}
		h.ok(s.Close())
	}
	p.end(picket.PromptAnswered)
	a := h.undescribed().call(t, request{path: mcppart.Path, bearer: p.secret.Reveal(),
		body: `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`})
	if a.status != http.StatusUnauthorized || a.code() != string(picket.CodeSessionCapability) {
		t.Errorf("after the end: %d %s", a.status, a.raw)
	}
}

// A token that somebody made up does not tell which namespaces the proxy serves.
func TestAForgedCapabilityTellsNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		var answers []string
		for _, namespace := range []string{"default", "other"} {
			forged := picket.NewSessionCapability(namespace, "prompt_"+ulid.Make().String()).Reveal()
			for _, r := range []request{{method: "GET", path: "/agent/context", bearer: forged},
				{path: "/v1/tools/get_context", body: `{}`, bearer: forged}} {
				a := h.call(t, r)
				var said struct{ Code, Title, Detail, Remedy string }
				h.ok(stdjson.Unmarshal([]byte(a.raw), &said))
				answers = append(answers, fmt.Sprint(a.status, said))
			}
		}
		slices.Sort(answers)
		all := slices.Compact(answers)
		if len(all) != 1 || !strings.HasPrefix(all[0], "401 {session_capability_invalid") {
			t.Errorf("the answers are %q", all)
		}
	})
}
