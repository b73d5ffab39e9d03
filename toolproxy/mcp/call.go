package mcp

import (
	"context"
	stdjson "encoding/json"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket/toolproxy"
)

// MetaKey is the member of a call's _meta that holds its idempotency key.
const MetaKey = "picket/idempotencyKey"

// Members of the _meta of a result of an upstream's tool. Its own structured
// content stays what its schema says.
const (
	metaCost      = "picket/cost"
	metaAvailable = "picket/available"
	metaReplayed  = "picket/replayed"
	metaNudge     = "picket/nudge"
)

// unknownToolName stands for every name that is not registered: the library would
// answer one with a protocol error, which a model never sees.
const unknownToolName = "picket.other"

var anyObject = stdjson.RawMessage(`{"type":"object"}`)

type toolNameKey struct{}

// intercept answers what depends on the lease before the library does.
func (f *endpoint) intercept(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if err := f.takeMessage(req); err != nil {
			if _, ok := req.(*mcp.CallToolRequest); ok {
				return refusalResult(err), nil
			}
			return nil, protocolError(err)
		}
		if err := checkSession(method, req); err != nil {
			return nil, err
		}
		switch r := req.(type) {
		case *mcp.ListToolsRequest:
			return f.listTools(ctx, r)
		case *mcp.CallToolRequest:
			ctx, cancel := f.proxy.UntilClosed(ctx)
			defer cancel()
			return f.routeCall(ctx, next, method, r)
		}
		result, err := next(ctx, method, req)
		return instructSession(req, result), err
	}
}

// routeCall sends a name that is not registered to the tool that stands for it.
func (f *endpoint) routeCall(ctx context.Context, next mcp.MethodHandler, method string,
	r *mcp.CallToolRequest) (mcp.Result, error) {
	name := r.Params.Name
	if f.hasTool(name) {
		return next(ctx, method, r)
	}
	params := *r.Params
	params.Name = unknownToolName
	ctx = context.WithValue(ctx, toolNameKey{}, name)
	return next(ctx, method, &mcp.CallToolRequest{Session: r.Session, Params: &params, Extra: r.Extra})
}

func (f *endpoint) hasTool(name string) bool {
	return toolproxy.IsFreeTool(name) || f.gateway.has(name)
}

// callTool is the handler of every tool.
func (f *endpoint) callTool(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	name := r.Params.Name
	if other, ok := ctx.Value(toolNameKey{}).(string); ok {
		name = other
	}
	backend, held, err := f.callerOf(r.Extra)
	if err != nil {
		return refusalResult(err), nil
	}
	key, err := idempotencyKeyFromMeta(r.Params.Meta, MetaKey)
	if err != nil {
		return refusalResult(err), nil
	}
	x := newClientRequest(ctx, r)
	x.held, x.inputResponses, x.requestState = held, r.Params.InputResponses, r.Params.RequestState
	answer, err := f.proxy.Invoke(context.WithValue(ctx, clientRequestKey{}, x), backend, held, name,
		jsontext.Value(r.Params.Arguments), key)
	switch {
	case x.rpcError != nil:
		return nil, x.rpcError
	case err != nil:
		return refusalResult(err), nil
	case x.fromUpstream:
		return upstreamResult(answer)
	}
	return structuredResult(answer), nil
}

// idempotencyKeyFromMeta reads an idempotency key; "" when there is none.
func idempotencyKeyFromMeta(m mcp.Meta, name string) (string, error) {
	v, there := m[name]
	if !there || v == nil {
		return "", nil
	}
	text, ok := v.(string)
	if !ok {
		return "", toolproxy.CheckKey("")
	}
	return text, toolproxy.CheckKey(text)
}

// upstreamResult takes a result of an upstream's tool out of a metered answer,
// whose price tag goes into _meta.
func upstreamResult(answer jsontext.Value) (*mcp.CallToolResult, error) {
	var parts struct {
		Structured stdjson.RawMessage `json:"structuredContent"`
		Cost       jsontext.Value     `json:"cost"`
		Available  jsontext.Value     `json:"available"`
		Replayed   bool               `json:"replayed"`
		Nudge      jsontext.Value     `json:"nudge"`
	}
	if err := json.Unmarshal(answer, &parts); err != nil {
		return nil, err
	}
	var result mcp.CallToolResult
	if err := result.UnmarshalJSON(answer); err != nil {
		return nil, err
	}
	if parts.Structured != nil {
		result.StructuredContent = parts.Structured // digit for digit
	}
	result.Meta = mcp.Meta{metaCost: stdjson.RawMessage(parts.Cost), metaAvailable: stdjson.RawMessage(parts.Available)}
	if parts.Replayed {
		result.Meta[metaReplayed] = true
	}
	if parts.Nudge != nil {
		result.Meta[metaNudge] = stdjson.RawMessage(parts.Nudge)
	}
	return &result, nil
}

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
var readOnly = map[string]bool{"get_context": true, "get_task": true, "await_subtask": true, "await_top_up": true,
	"find_agents": true}

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
