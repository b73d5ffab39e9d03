package mcp

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
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
	metaPrice     = "picket/price" // of a listed tool
)

// unknownToolName stands for every name that is not registered: the library would
// answer one with a protocol error, which a model never sees.
const unknownToolName = "picket.other"

var anyObject = stdjson.RawMessage(`{"type":"object"}`)

type toolNameKey struct{}

// intercept answers what depends on the lease before the library does.
func (f *mcpEndpoint) intercept(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if err := f.takeMessage(req); err != nil {
			if _, ok := req.(*mcp.CallToolRequest); ok {
				return refusalResult(err), nil
			}
			return nil, protocolError(err)
		}
		switch r := req.(type) {
		case *mcp.ListToolsRequest:
			return f.listTools(ctx, r)
		case *mcp.CallToolRequest:
			ctx, cancel := f.proxy.UntilClosed(ctx)
			defer cancel()
			return f.routeCall(ctx, next, method, r)
		}
		return next(ctx, method, req)
	}
}

// routeCall sends a name that is not registered to the tool that stands for it.
func (f *mcpEndpoint) routeCall(ctx context.Context, next mcp.MethodHandler, method string,
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

func (f *mcpEndpoint) hasTool(name string) bool {
	return toolproxy.IsFreeTool(name) || f.gateway.has(name)
}

// callTool is the handler of every tool.
func (f *mcpEndpoint) callTool(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	name := r.Params.Name
	if other, ok := ctx.Value(toolNameKey{}).(string); ok {
		name = other
	}
	door, held, err := f.callerOf(r.Extra)
	if err != nil {
		return refusalResult(err), nil
	}
	key, err := idempotencyKeyFromMeta(r.Params.Meta, MetaKey)
	if err != nil {
		return refusalResult(err), nil
	}
	x := &clientRequest{
		session:         r.Session,
		held:            held,
		caps:            r.ClientCapabilities(),
		protocolVersion: r.ProtocolVersion(),
		meta:            r.Params.Meta,
		inputResponses:  r.Params.InputResponses,
		requestState:    r.Params.RequestState,
		ctx:             ctx,
	}
	answer, err := f.proxy.Invoke(context.WithValue(ctx, clientRequestKey{}, x), door, held, name,
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

// callerOf finds the state of record of a message's lease.
func (f *mcpEndpoint) callerOf(extra *mcp.RequestExtra) (toolproxy.Backend, picket.LeaseCredential, error) {
	held, ok := heldOf(extra)
	if !ok {
		return nil, held, toolproxy.Unauthenticated("there is no lease token")
	}
	door, err := f.proxy.BackendOf(held)
	return door, held, err
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

// structuredResult is a result that is one JSON object, as text too for clients that
// show only that.
func structuredResult(answer jsontext.Value) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: string(answer)}},
		StructuredContent: stdjson.RawMessage(answer),
	}
}

// refusalResult is a refusal as a model sees it: a result, never a protocol error.
func refusalResult(err error) *mcp.CallToolResult {
	e := asRefusal(err)
	object := map[string]any{
		"code":      e.Code,
		"message":   e.Error(),
		"remedy":    e.Remedy,
		"retryable": e.Code.Retryable(),
		"facts":     e.Facts,
	}
	if e.Facts == nil {
		object["facts"] = struct{}{}
	}
	raw, encodeErr := toolproxy.EncodeJSON(map[string]any{"error": object})
	if encodeErr != nil {
		raw = jsontext.Value(`{"error":{"code":"internal","message":"something went wrong on our side","remedy":"Try again.","retryable":false,"facts":{}}}`)
	}
	text := string(e.Code) + ": " + strings.TrimSuffix(e.Error(), ".") + "."
	if e.Remedy != "" {
		text += " " + e.Remedy
	}
	return &mcp.CallToolResult{
		IsError:           true,
		Content:           []mcp.Content{&mcp.TextContent{Text: text}},
		StructuredContent: stdjson.RawMessage(raw),
	}
}

// asRefusal finds the refusal in err; anything else stays on our side.
func asRefusal(err error) *picket.Error {
	if refusal, ok := picket.RefusalOf(err); ok {
		return refusal
	}
	if errors.Is(err, picket.ErrUnknown) || errors.Is(err, context.Canceled) {
		return picket.Refuse(picket.CodeUnavailable, "Call it again with the same idempotency key.",
			"the answer was lost")
	}
	return picket.Refuse(picket.CodeInternal, "Try again; if it stays, ask a person to look into the server's log.",
		"something went wrong on our side")
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
