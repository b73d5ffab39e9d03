package bridge

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

// maxMCPMessage bounds a message of either side, in bytes.
const maxMCPMessage = 8 << 20

// statelessMCPVersion is the first version of MCP without sessions.
const statelessMCPVersion = "2026-07-28"

// mcpBridge passes MCP messages between lines of text and a server over HTTP.
// It understands no more of them than the way takes.
type mcpBridge struct {
	url    string
	token  picket.Secret
	fence  string
	client *http.Client
	out    io.Writer
	err    io.Writer

	pending       sync.WaitGroup // requests that are not answered yet
	listeners     sync.WaitGroup // listening goroutines
	mu            sync.Mutex
	unanswered    map[string]*request       // by the key of the id
	mcpSessionID  string                    // of the session, when the server gave one
	negotiated    string                    // negotiated by initialize
	headerSchemas map[string]jsontext.Value // input schemas whose arguments travel in headers too
	outMu         sync.Mutex                // one line of output at a time
}

func newMCPBridge(url string, token picket.Secret, fence string) *mcpBridge {
	return &mcpBridge{
		url:           url,
		token:         token,
		fence:         fence,
		client:        &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()},
		unanswered:    map[string]*request{},
		headerSchemas: map[string]jsontext.Value{},
	}
}

// mcpMessage is as much of a message as its way needs.
type mcpMessage struct {
	ID     jsontext.Value
	Method string
	Params mcpParams
	Result jsontext.Value
	raw    jsontext.Value // the whole message
}

// mcpParams are the parameters that a message needs on its way.
type mcpParams struct {
	Name      string                    `json:"name"`
	URI       string                    `json:"uri"`
	RequestID jsontext.Value            `json:"requestId"`
	Arguments jsontext.Value            `json:"arguments"`
	Meta      map[string]jsontext.Value `json:"_meta"`
}

// parseMessage reads an object. The receiver of the message judges its parameters: here,
// another form than that of mcpParams is accepted.
func parseMessage(raw jsontext.Value) (m mcpMessage, err error) {
	var parts struct {
		ID     jsontext.Value `json:"id"`
		Method string         `json:"method"`
		Params jsontext.Value `json:"params"`
		Result jsontext.Value `json:"result"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return m, err
	}
	m = mcpMessage{ID: parts.ID, Method: parts.Method, Result: parts.Result, raw: raw}
	if json.Unmarshal(parts.Params, &m.Params) != nil {
		m.Params = mcpParams{}
	}
	return m, nil
}

// splitBatch returns the messages of an array of messages. Any other value is one message.
func splitBatch(raw jsontext.Value) (messages []jsontext.Value) {
	if raw.Kind() != '[' || json.Unmarshal(raw, &messages) != nil || len(messages) == 0 {
		return []jsontext.Value{raw}
	}
	return messages
}

func (m mcpMessage) isRequest() bool { return m.Method != "" && len(m.ID) > 0 }

// protocolVersion is the version a message names itself, "" when it does not.
func (m mcpMessage) protocolVersion() (version string) {
	_ = json.Unmarshal(m.Params.Meta["io.modelcontextprotocol/protocolVersion"], &version)
	return version
}

// readMessages reads one message a line; lines is closed at the end.
func readMessages(ctx context.Context, in io.Reader, lines chan<- []byte) error {
	defer close(lines)
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 64<<10), maxMCPMessage)
	for s.Scan() {
		line := bytes.TrimSpace(s.Bytes())
		if len(line) == 0 {
			continue
		}
		select {
		case lines <- bytes.Clone(line):
		case <-ctx.Done():
			return nil
		}
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		return exit.Usagef("a message has more than %d bytes", maxMCPMessage)
	}
	return s.Err()
}

// forwardLine passes on a line of the client. It may be a batch: its messages are passed on one by
// one, and each answer is a line.
func (b *mcpBridge) forwardLine(ctx context.Context, line []byte) {
	for _, raw := range splitBatch(line) {
		if m, err := parseMessage(raw); err == nil {
			b.forwardMessage(ctx, m)
		} else {
			b.writeProtocolError(codeParseError, "this line is not a JSON-RPC message")
		}
	}
}

// forwardMessage sends one message on. Requests are answered beside each other; what the
// order matters for is waited for.
func (b *mcpBridge) forwardMessage(ctx context.Context, m mcpMessage) {
	switch {
	case m.Method == "notifications/cancelled" && b.cancel(m.Params.RequestID):
		return // to end the request is how the newer wire says it
	case m.isRequest():
		b.forwardRequest(ctx, m)
	default:
		b.send(ctx, &request{mcpMessage: m})
	}
	if m.Method == "notifications/initialized" && b.sessionID() != "" {
		b.listeners.Go(func() { b.listen(ctx) })
	}
}

// forwardRequest sends a request on. A request with the id of an unanswered one is refused without
// an id, because the client would take an answer with this id for that of the first.
func (b *mcpBridge) forwardRequest(ctx context.Context, m mcpMessage) {
	ctx, cancel := context.WithCancel(ctx)
	r := &request{mcpMessage: m, cancel: cancel}
	switch {
	case !b.beginRequest(r):
		cancel()
		b.writeProtocolError(codeInvalidRequest, "an earlier request with the id "+string(m.ID)+" has no answer yet")
	case m.Method == "initialize":
		defer b.endRequest(r)
		b.send(ctx, r)
	default:
		b.pending.Go(func() {
			defer b.endRequest(r)
			b.send(ctx, r)
		})
	}
}

// request is a message of the client, and whether its answer was written. Messages other than
// requests get no answer.
type request struct {
	mcpMessage
	cancel   context.CancelFunc
	answered bool // guarded by mcpBridge.mu
}

// idKey is the same for all spellings of an id, such as 1 and 1.0.
func idKey(id jsontext.Value) string {
	v := id.Clone()
	_ = v.Canonicalize(jsontext.CanonicalizeRawInts(false))
	return string(v)
}

// beginRequest reports whether no other request with the same id is unanswered.
func (b *mcpBridge) beginRequest(r *request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := idKey(r.ID)
	if b.unanswered[key] != nil {
		return false
	}
	b.unanswered[key] = r
	return true
}

// takeAnswer reports whether r still needs an answer. The caller writes it: a second one is never
// written. From now on the client may use the id again.
func (b *mcpBridge) takeAnswer(r *request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !r.isRequest() || r.answered {
		return false
	}
	r.answered = true
	delete(b.unanswered, idKey(r.ID))
	return true
}

// endRequest releases what a request holds, also that of one without an answer.
func (b *mcpBridge) endRequest(r *request) {
	r.cancel()
	b.takeAnswer(r)
}

// cancel ends a request of the newer wire; false when it has to be told to the
// server.
func (b *mcpBridge) cancel(id jsontext.Value) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.unanswered[idKey(id)]
	if b.negotiated != "" || r == nil {
		return b.negotiated == ""
	}
	r.cancel()
	return true
}

func (b *mcpBridge) sessionID() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mcpSessionID
}

// send posts a message and writes what comes back for it. A request that the client did not cancel
// gets exactly one answer.
func (b *mcpBridge) send(ctx context.Context, r *request) {
	resp, err := b.post(ctx, r.mcpMessage)
	if err == nil {
		defer resp.Body.Close()
		err = b.answer(resp, r)
	}
	switch {
	case ctx.Err() != nil:
	case r.isRequest() && b.takeAnswer(r):
		b.writeError(r.mcpMessage, cmp.Or(err, errUnanswered))
	case err != nil:
		fmt.Fprintln(b.err, "picket mcp:", err)
	}
}

// post repeats only what has reached nobody.
func (b *mcpBridge) post(ctx context.Context, m mcpMessage) (resp *http.Response, err error) {
	err = cli.RetryUnanswered(ctx, cli.ToolPatience, b.err, func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, bytes.NewReader(m.raw))
		if err != nil {
			return err
		}
		b.setHeaders(req, m)
		if resp, err = b.client.Do(req); refusedToConnect(err) {
			return picket.Refuse(picket.CodeUnavailable, "Check that the server runs.",
				"the tool proxy cannot be reached").WithCause(err)
		} else if err != nil {
			return fmt.Errorf("%w: %w", errUnanswered, err)
		}
		return nil
	})
	return resp, err
}

// closeSession tells the server that the session is over. The context of everything
// else has ended.
func (b *mcpBridge) closeSession() {
	b.pending.Wait()
	b.listeners.Wait()
	defer b.client.CloseIdleConnections()
	if b.sessionID() == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, b.url, nil)
	if err != nil {
		return
	}
	b.setHeaders(req, mcpMessage{})
	if resp, err := b.client.Do(req); err == nil {
		resp.Body.Close()
	}
}
