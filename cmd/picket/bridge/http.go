package bridge

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/internal/sse"
)

// setHeaders puts everything on a request that HTTP wants to know beside the
// message.
func (b *mcpBridge) setHeaders(req *http.Request, m mcpMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := req.Header
	h.Set("Authorization", "Bearer "+b.token.Reveal())
	h.Set("Accept", "application/json, "+sse.ContentType)
	h.Set("Content-Type", "application/json")
	if b.fence != "" {
		h.Set("X-Fencing-Token", b.fence)
	}
	if b.mcpSessionID != "" {
		h.Set("Mcp-Session-Id", b.mcpSessionID)
	}
	version := m.protocolVersion()
	if version == "" {
		version = b.negotiated
	}
	if version != "" {
		h.Set("Mcp-Protocol-Version", version)
	}
	if version < statelessMCPVersion {
		return
	}
	h.Set("Mcp-Method", m.Method)
	switch m.Method {
	case "tools/call", "prompts/get":
		h.Set("Mcp-Name", m.Params.Name)
	case "resources/read":
		h.Set("Mcp-Name", m.Params.URI)
	}
	if schema, ok := b.headerSchemas[m.Params.Name]; ok && m.Method == "tools/call" {
		headers := map[string]string{}
		argumentHeaders(schema, m.Params.Arguments, headers)
		for name, value := range headers {
			h.Set("Mcp-Param-"+name, value)
		}
	}
}

// argumentHeaders finds the arguments that a schema wants in headers too.
func argumentHeaders(schema, arguments jsontext.Value, into map[string]string) {
	var s struct {
		Properties map[string]jsontext.Value `json:"properties"`
	}
	var given map[string]jsontext.Value
	if json.Unmarshal(schema, &s) != nil || json.Unmarshal(arguments, &given) != nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		var p struct {
			Header     string         `json:"x-mcp-header"`
			Properties jsontext.Value `json:"properties"`
		}
		value, there := given[name]
		if json.Unmarshal(s.Properties[name], &p) != nil || !there || value.Kind() == 'n' {
			continue
		}
		if len(p.Properties) > 0 {
			argumentHeaders(s.Properties[name], value, into)
		}
		if p.Header != "" {
			into[p.Header] = headerText(value)
		}
	}
}

// headerText is a value as a header can carry it.
func headerText(value jsontext.Value) string {
	text := string(value)
	if value.Kind() == '"' {
		_ = json.Unmarshal(value, &text)
	}
	plain := text == strings.TrimSpace(text) && !strings.HasPrefix(text, "=?base64?")
	for i := range len(text) {
		plain = plain && text[i] >= 0x20 && text[i] < 0x7f
	}
	if plain {
		return text
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}

func (b *mcpBridge) rememberAnswer(m mcpMessage, result jsontext.Value) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch m.Method {
	case "initialize":
		var r struct {
			ProtocolVersion string `json:"protocolVersion"`
		}
		_ = json.Unmarshal(result, &r)
		b.negotiated = r.ProtocolVersion
	case "tools/list":
		var r struct {
			Tools []struct {
				Name        string         `json:"name"`
				InputSchema jsontext.Value `json:"inputSchema"`
			} `json:"tools"`
		}
		_ = json.Unmarshal(result, &r)
		for _, t := range r.Tools {
			if bytes.Contains(t.InputSchema, []byte(`"x-mcp-header"`)) {
				b.headerSchemas[t.Name] = t.InputSchema
			}
		}
	}
}

// listen takes what the server says outside of any request.
func (b *mcpBridge) listen(ctx context.Context) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url, nil)
		if err != nil {
			return
		}
		b.setHeaders(req, mcpMessage{})
		req.Header.Set("Accept", sse.ContentType)
		resp, err := b.client.Do(req)
		if err == nil {
			if resp.StatusCode != http.StatusOK {
				resp.Body.Close()
				return // it has nothing to say
			}
			_ = b.stream(resp.Body, &request{})
			resp.Body.Close()
		}
		_ = cli.Sleep(ctx, time.Second)
	}
}

// refusedToConnect reports whether nothing of a request has left.
func refusedToConnect(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
