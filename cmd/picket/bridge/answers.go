package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/sse"
)

// Codes of JSON-RPC.
const (
	codeParseError     = -32700
	codeInvalidRequest = -32600
	codeInternalError  = -32603
)

// repeatRemedy is for a request that may have been carried out.
const repeatRemedy = "call it again with the same idempotency key"

// errUnanswered is about a request that may have been carried out.
var errUnanswered = errors.New("the connection ended before the answer: " + repeatRemedy)

// answer writes what a response holds: one message, a stream of them, or nothing. The error says
// why r has no answer, or why the response was not read to its end.
func (b *mcpBridge) answer(resp *http.Response, r *request) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		b.mu.Lock()
		b.mcpSessionID = id
		b.mu.Unlock()
	}
	switch {
	case kind == sse.ContentType:
		return b.stream(resp.Body, r)
	case kind == "application/json" && resp.StatusCode != http.StatusAccepted:
		return b.answerJSON(resp, r)
	case resp.StatusCode/100 != 2:
		return mcpResponseError(resp, kind)
	}
	return withoutMessage(resp, r)
}

// withoutMessage is the error of a request whose response is successful, but has no message.
func withoutMessage(resp *http.Response, r *request) error {
	if !r.isRequest() {
		return nil
	}
	return fmt.Errorf("the server answered %d without a message: %s", resp.StatusCode, repeatRemedy)
}

// answerJSON writes the message of a response that is not a stream.
func (b *mcpBridge) answerJSON(resp *http.Response, r *request) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxMCPMessage+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errUnanswered, err)
	case len(body) > maxMCPMessage:
		return fmt.Errorf("the answer of the server has more than %d bytes: %s", maxMCPMessage, repeatRemedy)
	case b.forwardAnswer(body, r):
		return nil
	case resp.StatusCode/100 != 2:
		return statusError(resp, body)
	case !r.isRequest() || len(bytes.TrimSpace(body)) == 0:
		return withoutMessage(resp, r)
	}
	return fmt.Errorf("the server answered another request, or not with a message (%s): %s", excerpt(body), repeatRemedy)
}

// stream writes every message of an event stream.
func (b *mcpBridge) stream(body io.Reader, r *request) error {
	for events := sse.NewReader(body, maxMCPMessage); ; {
		e, err := events.Next()
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, sse.ErrTooLong):
			return fmt.Errorf("%w: %s", err, repeatRemedy)
		case err != nil:
			return fmt.Errorf("%w: %w", errUnanswered, err)
		case len(bytes.TrimSpace(e.Data)) > 0:
			b.forwardAnswer(e.Data, r)
		}
	}
}

// forwardAnswer writes what a server sent in its response to r: its own requests and notifications,
// and the answer to r. Other answers are dropped, because their requests get another one. It
// reports whether the answer to r was written.
func (b *mcpBridge) forwardAnswer(raw []byte, r *request) (answered bool) {
	v := jsontext.Value(bytes.Clone(raw))
	if v.Compact() != nil {
		return false
	}
	for _, v := range splitBatch(v) {
		switch m, err := parseMessage(v); {
		case err != nil:
		case m.Method != "":
			b.write(v)
		case len(m.ID) > 0 && idKey(m.ID) == idKey(r.ID) && b.takeAnswer(r):
			b.rememberAnswer(r.mcpMessage, m.Result)
			b.write(v)
			answered = true
		}
	}
	return answered
}

func (b *mcpBridge) write(line []byte) {
	b.outMu.Lock()
	defer b.outMu.Unlock()
	_, _ = b.out.Write(append(bytes.TrimSpace(line), '\n'))
}

// writeError answers a request that got no answer. A model reads the result of its tool call,
// while many clients keep errors of the protocol to themselves.
func (b *mcpBridge) writeError(m mcpMessage, err error) {
	text := term.OneLine(exit.Text(err))
	var refusal *picket.Error
	if errors.As(err, &refusal) && refusal.Remedy != "" {
		text += ". " + refusal.Remedy
	}
	if m.Method != "tools/call" {
		b.writeObject(map[string]any{"jsonrpc": "2.0", "id": m.ID,
			"error": map[string]any{"code": codeInternalError, "message": text}})
		return
	}
	b.writeObject(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": map[string]any{
		"isError": true,
		"content": []any{map[string]any{"type": "text", "text": text}},
	}})
}

// writeProtocolError tells the client of a message that cannot be passed on. The error has no id.
func (b *mcpBridge) writeProtocolError(code int, text string) {
	b.writeObject(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": text}})
}

func (b *mcpBridge) writeObject(object map[string]any) {
	line, _ := json.Marshal(object, json.Deterministic(true))
	b.write(line)
}

// mcpResponseError reads an answer that is not a message.
func mcpResponseError(resp *http.Response, kind string) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var p struct {
		Code    picket.Code `json:"code"`
		Message string      `json:"message"`
		Remedy  string      `json:"remedy"`
	}
	if kind == "application/problem+json" && json.Unmarshal(body, &p) == nil && p.Code != "" {
		return picket.Refuse(p.Code, p.Remedy, "%s", p.Message)
	}
	return statusError(resp, body)
}

func statusError(resp *http.Response, body []byte) error {
	return fmt.Errorf("the server answered %d: %s", resp.StatusCode, excerpt(body))
}

// excerpt is the beginning of a body, for an error.
func excerpt(body []byte) string { return term.Clip(strings.TrimSpace(string(body)), 200) }
