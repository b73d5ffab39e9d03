package mcp

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
	"github.com/picket-dev/picket/toolproxy"
)

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

// protocolError is a refusal where MCP knows no results with errors, such as
// for lists and resources. Its data is the whole refusal.
func protocolError(err error) error {
	e := asRefusal(err)
	data, _ := toolproxy.EncodeJSON(map[string]any{
		"code":      e.Code,
		"message":   e.Error(),
		"remedy":    e.Remedy,
		"retryable": e.Code.Retryable(),
	})
	return &jsonrpc.Error{
		Code:    jsonrpc.CodeInternalError,
		Message: string(e.Code) + ": " + e.Error() + " " + e.Remedy,
		Data:    stdjson.RawMessage(data),
	}
}

// What is repeated of what an upstream says in an error, in bytes.
const (
	maxUntrustedText = 4 << 10
	maxErrorData     = 64 << 10
)

// untrustedText is text of an upstream's as it is repeated to agents and in logs:
// the beginning of it, without what steers a terminal or turns the direction of
// text.
func untrustedText(s string) string {
	shown := text.Printable(text.ValidHead(s, maxUntrustedText))
	if len(s) > maxUntrustedText {
		shown += fmt.Sprintf("… (cut: it had %d bytes)", len(s))
	}
	return shown
}

// boundedRPCError is an error that an upstream has answered, as far as it is repeated.
func boundedRPCError(e *jsonrpc.Error) *jsonrpc.Error {
	out := &jsonrpc.Error{Code: e.Code, Message: untrustedText(e.Message), Data: e.Data}
	if len(out.Data) > maxErrorData {
		out.Data = stdjson.RawMessage(fmt.Sprintf(`{"cut":"it had %d bytes"}`, len(e.Data)))
	}
	return out
}

// untrustedError is an error that says no more of an upstream's words than is repeated.
type untrustedError struct{ error }

func (b untrustedError) Error() string { return untrustedText(b.error.Error()) }
func (b untrustedError) Unwrap() error { return b.error }
