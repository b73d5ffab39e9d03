package mcp

import (
	"context"
	stdjson "encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket/toolproxy"
)

// listTools is what the run of a message can call now, on one page.
func (f *endpoint) listTools(ctx context.Context, r *mcp.ListToolsRequest) (mcp.Result, error) {
	backend, held, err := f.callerOf(r.Extra)
	if err != nil {
		return nil, protocolError(err)
	}
	list, err := f.proxy.ToolsFor(ctx, backend, held)
	if err != nil {
		return nil, protocolError(err)
	}
	result := &mcp.ListToolsResult{
		Tools:     make([]*mcp.Tool, 0, len(list)),
		Cacheable: mcp.Cacheable{CacheScope: "private"},
	}
	for _, t := range list {
		result.Tools = append(result.Tools, f.describe(t))
	}
	return result, nil
}

// metaPrice is the member of a listed tool's _meta that holds its price.
const metaPrice = "picket/price"

// readOnly are built-in tools that change nothing.
var readOnly = map[string]bool{"get_task": true, "await_subtask": true, "await_top_up": true}

// describe is a tool as MCP lists it. What an upstream says of its own tool
// stays as it is.
func (f *endpoint) describe(t toolproxy.Tool) *mcp.Tool {
	d := &mcp.Tool{Name: t.Name, Description: t.Description, InputSchema: stdjson.RawMessage(t.InputSchema)}
	if their := f.gateway.listing(t.Name); their != nil {
		copied := *their
		d = &copied
	} else {
		if len(t.OutputSchema) > 0 {
			d.OutputSchema = stdjson.RawMessage(t.OutputSchema)
		}
		no := false
		d.Annotations = &mcp.ToolAnnotations{
			ReadOnlyHint:    readOnly[t.Name],
			DestructiveHint: &no,
			IdempotentHint:  readOnly[t.Name],
		}
	}
	if t.Price != nil {
		if raw, err := toolproxy.EncodeJSON(t.Price); err == nil {
			d.Meta = mcp.Meta{metaPrice: stdjson.RawMessage(raw)}
		}
	}
	return d
}
