package mcp

import (
	stdjson "encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// What is repeated of what an upstream says in an error, in bytes.
const (
	maxUntrustedText = 4 << 10
	maxErrorData     = 64 << 10
)

// untrustedText is text of an upstream's as it is repeated to agents and in logs:
// the beginning of it, without what steers a terminal or turns the direction of
// text.
func untrustedText(text string) string {
	whole := len(text)
	text = strings.ToValidUTF8(text[:min(whole, maxUntrustedText)], "")
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, text)
	if whole > maxUntrustedText {
		text += fmt.Sprintf("… (cut: it had %d bytes)", whole)
	}
	return text
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
