package toolproxy_test

import (
	stdjson "encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

// An upstream may say null wherever the protocol has an object: nothing here
// breaks over it.
func TestNullsOfAnUpstream(t *testing.T) {
	answers := map[string]string{
		"initialize": `{"protocolVersion":"` + protocolVersions[0] +
			`","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"n","version":"1"}}`,
		"tools/list":               `{"tools":[null,{"name":"echo","inputSchema":{"type":"object"}},null]}`,
		"prompts/list":             `{"prompts":[null,{"name":"p","arguments":[null]}]}`,
		"resources/list":           `{"resources":[null,{"uri":"n://r","name":"r"}]}`,
		"resources/templates/list": `{"resourceTemplates":[null]}`,
		"prompts/get":              `{"messages":[null,{"role":"user","content":null}]}`,
		"resources/read":           `{"contents":[null]}`,
		"tools/call":               `{"content":[null]}`,
	}
	m := newFakeModel(t, nil)
	m.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			ID     stdjson.RawMessage `json:"id"`
			Method string             `json:"method"`
		}
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || stdjson.Unmarshal(body, &ask) != nil || ask.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if answers[ask.Method] == "" {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, ask.ID)
			return
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, ask.ID, answers[ask.Method])
	})
	b := newGatewayEnv(t, newFakeEnvelope(100*cent), mcppart.Upstream{Name: "up", URL: m.URL})
	s := connect(t, b.url, b.token(), protocolVersions[0], nil)
	ask := func() {
		_, _ = s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "up_p"})
		_, _ = s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "n://r"})
		_, _ = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "up_echo"})
	}
	ask()
	answers["prompts/get"], answers["resources/read"], answers["tools/call"] = "null", "null", "null"
	ask()
	answers["tools/call"] = `{"content":[{"type":"resource","resource":null},{"type":"resource_link"}],"structuredContent":null,"inputRequests":{"a":null}}`
	ask()
	if _, err := s.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}
