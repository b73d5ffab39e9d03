package mcp

import (
	stdjson "encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/picket-dev/picket/internal/text"
)

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
