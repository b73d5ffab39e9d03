package toolproxy

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// What is repeated of what an upstream says in an error, in bytes.
const (
	maxWords = 4 << 10
	maxData  = 64 << 10
)

// theirWords is text of an upstream's as it is repeated to agents and in logs:
// the beginning of it, without what steers a terminal or turns the direction of
// text.
func theirWords(text string) string {
	whole := len(text)
	text = strings.ToValidUTF8(text[:min(whole, maxWords)], "")
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, text)
	if whole > maxWords {
		text += fmt.Sprintf("… (cut: it had %d bytes)", whole)
	}
	return text
}

// boundedError is an error that an upstream has answered, as far as it is repeated.
func boundedError(e *jsonrpc.Error) *jsonrpc.Error {
	out := &jsonrpc.Error{Code: e.Code, Message: theirWords(e.Message), Data: e.Data}
	if len(out.Data) > maxData {
		out.Data = json.RawMessage(fmt.Sprintf(`{"cut":"it had %d bytes"}`, len(e.Data)))
	}
	return out
}

// briefly is an error that says no more of an upstream's words than is repeated.
type briefly struct{ error }

func (b briefly) Error() string { return theirWords(b.error.Error()) }
func (b briefly) Unwrap() error { return b.error }
