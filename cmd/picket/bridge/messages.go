package bridge

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/internal/sse"
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
	cancels       map[string]context.CancelFunc // by request id
	mcpSessionID  string                        // of the session, when the server gave one
	negotiated    string                        // negotiated by initialize
	headerSchemas map[string]jsontext.Value     // input schemas whose arguments travel in headers too
	outMu         sync.Mutex                    // one line of output at a time
}

func newMCPBridge(url string, token picket.Secret, fence string) *mcpBridge {
	return &mcpBridge{
		url:           url,
		token:         token,
		fence:         fence,
		client:        &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()},
		cancels:       map[string]context.CancelFunc{},
		headerSchemas: map[string]jsontext.Value{},
	}
}

// mcpMessage is as much of a message as its way needs.
type mcpMessage struct {
	ID     jsontext.Value `json:"id"`
	Method string         `json:"method"`
	Params struct {
		Name      string                    `json:"name"`
		URI       string                    `json:"uri"`
		RequestID jsontext.Value            `json:"requestId"`
		Arguments jsontext.Value            `json:"arguments"`
		Meta      map[string]jsontext.Value `json:"_meta"`
	} `json:"params"`
	Result jsontext.Value `json:"result"`
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

// forwardMessage sends one message on. Requests are answered beside each other; what the
// order matters for is waited for.
func (b *mcpBridge) forwardMessage(ctx context.Context, line []byte) {
	var m mcpMessage
	if err := json.Unmarshal(line, &m); err != nil {
		b.write([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"this line is not a JSON-RPC message"}}`))
		return
	}
	switch {
	case m.Method == "notifications/cancelled" && b.cancel(m.Params.RequestID):
		return // to end the request is how the newer wire says it
	case m.Method == "initialize" || !m.isRequest():
		b.send(ctx, m, line)
	default:
		b.pending.Add(1)
		ctx := b.beginRequest(ctx, m)
		go func() {
			defer b.pending.Done()
			defer b.endRequest(m)
			b.send(ctx, m, line)
		}()
	}
	if m.Method == "notifications/initialized" && b.sessionID() != "" {
		b.listeners.Go(func() { b.listen(ctx) })
	}
}

func (b *mcpBridge) beginRequest(ctx context.Context, m mcpMessage) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancels[string(m.ID)] = cancel
	return ctx
}

func (b *mcpBridge) endRequest(m mcpMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cancel := b.cancels[string(m.ID)]; cancel != nil {
		cancel()
		delete(b.cancels, string(m.ID))
	}
}

// cancel ends a request of the newer wire; false when it has to be told to the
// server.
func (b *mcpBridge) cancel(id jsontext.Value) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	cancel := b.cancels[string(id)]
	if b.negotiated != "" || cancel == nil {
		return b.negotiated == ""
	}
	cancel()
	return true
}

func (b *mcpBridge) sessionID() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mcpSessionID
}

// send posts a message and writes what comes back for it.
func (b *mcpBridge) send(ctx context.Context, m mcpMessage, line []byte) {
	resp, err := b.post(ctx, m, line)
	if err == nil {
		defer resp.Body.Close()
		err = b.answer(resp, m)
	}
	if err != nil && m.isRequest() && ctx.Err() == nil {
		b.writeError(m, err)
	} else if err != nil && ctx.Err() == nil {
		fmt.Fprintln(b.err, "picket mcp:", err)
	}
}

// errUnanswered is about a request that may have been carried out.
var errUnanswered = errors.New("the connection ended before the answer: call it again with the same idempotency key")

// post repeats only what has reached nobody.
func (b *mcpBridge) post(ctx context.Context, m mcpMessage, line []byte) (resp *http.Response, err error) {
	err = cli.RetryUnanswered(ctx, cli.ToolPatience, b.err, func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, bytes.NewReader(line))
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

// answer writes what a response holds: one message, a stream of them, or
// nothing.
func (b *mcpBridge) answer(resp *http.Response, m mcpMessage) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		b.mu.Lock()
		b.mcpSessionID = id
		b.mu.Unlock()
	}
	switch {
	case kind == sse.ContentType:
		answered, err := b.stream(resp.Body, m)
		if err == nil && !answered && m.isRequest() {
			err = errUnanswered
		}
		return err
	case kind == "application/json" && resp.StatusCode != http.StatusAccepted:
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxMCPMessage))
		if err != nil {
			return err
		}
		b.forwardAnswer(body, m)
		return nil
	case resp.StatusCode/100 == 2:
		return nil
	}
	return mcpResponseError(resp, kind)
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
