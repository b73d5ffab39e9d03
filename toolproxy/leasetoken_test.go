package toolproxy_test

import (
	"context"
	"encoding/base64"
	stdjson "encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
	"github.com/picket-dev/picket/toolproxy/tools"
)

// everyLetter writes each letter of a text by its number.
func everyLetter(format, text string) string {
	var b strings.Builder
	for _, r := range text {
		fmt.Fprintf(&b, format, r)
	}
	return b.String()
}

// disguises are ways in which a token may stand in arguments, as JSON strings.
func disguises(token string) map[string]string {
	quote := func(s string) string {
		raw, _ := stdjson.Marshal(s)
		return string(raw)
	}
	all := map[string]string{
		"plain":         quote("x " + token),
		"escaped":       `"` + everyLetter(`\u%04x`, token) + `"`,
		"one letter":    `"` + strings.Replace(token, "k", `\u006B`, 1) + `"`,
		"nested":        quote(`{"t":"` + everyLetter(`\u%04X`, token) + `"}`),
		"percent":       quote("http://h/?t=100%&u=" + everyLetter("%%%02x", token)),
		"escaped slash": quote(`a\/` + token),
	}
	for i := range 4 {
		user := strings.Repeat("u", i)
		all["basic "+user] = quote("Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+token)))
		all["url "+user] = quote(base64.RawURLEncoding.EncodeToString([]byte(user + ":" + token + user)))
	}
	return all
}

// The lease token goes to no other server, however it is written.
func TestLeaseTokenIsNotSentOverHTTP(t *testing.T) {
	u := serveRecording(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	door := newFakeEnvelope(100 * cent)
	p := newHTTPProxy(t, func(c *tools.HTTPConfig) { c.Allow = []string{u.at()} })
	token := newSealer(t).LeaseToken(aHeld.Namespace, aHeld.TaskID, aHeld.RunID).Reveal()
	for name, text := range disguises(token) {
		for _, args := range []string{`{"method":"POST","url":"http://%s/","body":%s}`,
			`{"method":"POST","url":"http://%s/","body":{"deep":[[%s]]}}`,
			`{"method":"POST","url":"http://%s/","body":{%s:1}}`} {
			if _, err := get(t, p, door,
				fmt.Sprintf(args, u.at(), text)); picket.CodeOf(err) != picket.CodeValidation ||
				!strings.Contains(err.Error(), "lease token") {
				t.Errorf("%s in %s: %v", name, args, err)
			}
		}
	}
	for _, harmless := range []string{`"pkl_"`, `"pkl_default.another"`, `"100% of \\u00e4 %zz"`,
		`"` + strings.Repeat("cGts", 100) + `"`} {
		if _, err := get(t, p, door,
			fmt.Sprintf(`{"url":"http://%s/","body":%s,"method":"POST"}`, u.at(), harmless)); err != nil {
			t.Errorf("%s: %v", harmless, err)
		}
	}
	if u.count() != 4 {
		t.Errorf("%d requests were made, want the four harmless ones", u.count())
	}
}

// The lease token never goes to an MCP server, in any call.
func TestLeaseTokenIsNotSentToUpstreams(t *testing.T) {
	for _, wire := range protocolVersions {
		t.Run(wire, func(t *testing.T) {
			o := newFakeUpstream()
			reached := 0
			o.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
				return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
					switch method {
					case "tools/call", "prompts/get", "resources/read", "completion/complete":
						reached++
					}
					return next(ctx, method, req)
				}
			})
			o.server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "other://any/{+what}", Name: "any"},
				func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
					return &mcp.ReadResourceResult{}, nil
				})
			envelope := newFakeEnvelope(100 * cent)
			b := newGatewayEnv(t, envelope, mcppart.Upstream{Name: "up", URL: o.listen(t, wire)})
			s := connect(t, b.url, b.token(), wire, nil)
			for name, text := range disguises(b.token()) {
				r := call(t, s, "up_echo", map[string]any{"deep": []stdjson.RawMessage{stdjson.RawMessage(text)}})
				if code, _ := refusal(t, r); code != string(picket.CodeValidation) {
					t.Errorf("%s: %s", name, code)
				}
			}
			if _, err := s.GetPrompt(t.Context(),
				&mcp.GetPromptParams{Name: "up_greet", Arguments: map[string]string{"who": b.token()}}); err == nil ||
				!strings.Contains(err.Error(), "lease token") {
				t.Errorf("a prompt: %v", err)
			}
			if _, err := s.ReadResource(t.Context(),
				&mcp.ReadResourceParams{URI: "other://any/" + b.token()}); err == nil ||
				!strings.Contains(err.Error(), "lease token") {
				t.Errorf("a resource: %v", err)
			}
			if reached != 0 {
				t.Errorf("%d messages reached the upstream", reached)
			}
			envelope.expectSettled(t, 0)
		})
	}
}

// Nor with what the client answers when it is asked.
func TestLeaseTokenIsNotSentInAnswers(t *testing.T) {
	for _, behind := range protocolVersions {
		t.Run(behind, func(t *testing.T) {
			o := newFakeUpstream()
			b := newGatewayEnv(t, newFakeEnvelope(100*cent), mcppart.Upstream{Name: "up", URL: o.listen(t, behind)})
			told := answeringClient("anna")
			told.ElicitationHandler = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "I am " + b.token()}}, nil
			}
			s := connect(t, b.url, b.token(), protocolVersions[0], told)
			tool := map[string]string{protocolVersions[0]: "up_elicit", protocolVersions[1]: "up_input"}[behind]
			r := call(t, s, tool, nil)
			if all, _ := stdjson.Marshal(r); !r.IsError || strings.Contains(string(all), b.token()) {
				t.Errorf("%s", all)
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			if len(o.calls) != 1 {
				t.Errorf("%d messages reached the upstream, want only the first", len(o.calls))
			}
		})
	}
}
