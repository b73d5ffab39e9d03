// Package fakeagent is an agent of A2A for tests. It answers what a test says, whether that follows the protocol or
// not.
package fakeagent

import (
	stdjson "encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/picket-dev/picket/client"
)

// Agent is an agent of A2A over JSON-RPC. Its fields can be set until it is called.
type Agent struct {
	// URL is that of the agent.
	URL string
	// Card is the JSON of its card, in which AT stands for the URL.
	Card string
	// Answer returns the result of a call or, beginning with error:, its error. If it is nil, the connection is cut.
	Answer func(method string, params string) string
	// Stream answers a subscription. If it is nil, Answer does. An error cuts the connection.
	Stream func(w http.ResponseWriter, method string) error
	// Rest answers all requests except for the card, if it is set.
	Rest func(http.ResponseWriter, *http.Request)

	mu      sync.Mutex
	methods []string
	headers []http.Header
}

// UsualCard is the card of an agent over JSON-RPC with streams. AT stands for the URL.
const UsualCard = `{"name":"Fake","description":"Answers.","version":"1","capabilities":{"streaming":true},
	"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[],
	"supportedInterfaces":[{"url":"AT/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`

// New starts an agent with the usual card.
func New(t *testing.T) *Agent {
	t.Helper()
	f := &Agent{Card: UsualCard}
	server := httptest.NewServer(f)
	f.URL = server.URL
	t.Cleanup(func() { client.DefaultHTTP.CloseIdleConnections(); server.Close() })
	return f
}

// NewRedirect starts a server that redirects to another one. It returns its URL.
func NewRedirect(t *testing.T, to string) string {
	t.Helper()
	server := httptest.NewServer(http.RedirectHandler(to, http.StatusTemporaryRedirect))
	t.Cleanup(func() { client.DefaultHTTP.CloseIdleConnections(); server.Close() })
	return server.URL
}

// ServeHTTP answers the card, and the calls of JSON-RPC.
func (f *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var call struct {
		ID     stdjson.RawMessage
		Method string
		Params stdjson.RawMessage
	}
	_ = stdjson.Unmarshal(body, &call)
	f.mu.Lock()
	f.methods, f.headers = append(f.methods, call.Method), append(f.headers, r.Header)
	f.mu.Unlock()
	if f.Rest != nil && r.URL.Path != "/.well-known/agent-card.json" {
		f.Rest(w, r)
		return
	}
	if call.Method == "" {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, strings.ReplaceAll(f.Card, "AT", f.URL))
		return
	}
	if strings.HasPrefix(call.Method, "Subscribe") && f.Stream != nil {
		w.Header().Set("Content-Type", "text/event-stream")
		if f.Stream(w, call.Method) != nil {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		return
	}
	if f.Answer == nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	result := f.Answer(call.Method, string(call.Params))
	if failure, ok := strings.CutPrefix(result, "error:"); ok {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, call.ID, failure)
		return
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, result)
}

// Sent are the values of a header in all requests so far.
func (f *Agent) Sent(header string) (values []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.headers {
		values = append(values, h.Get(header))
	}
	return values
}

// Called is how often a method was called.
func (f *Agent) Called(method string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.methods {
		if m == method {
			n++
		}
	}
	return n
}

// Requests is how many requests there were so far.
func (f *Agent) Requests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.methods)
}

// Forget forgets the requests so far.
func (f *Agent) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.methods, f.headers = nil, nil
}

// Event writes an event of a stream of JSON-RPC.
func Event(w http.ResponseWriter, result string) {
	fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":%s}\n\n", strings.ReplaceAll(result, "\n", ""))
	_ = http.NewResponseController(w).Flush()
}

// StatusUpdate is the event that the task t1 is in a state, with a text of the agent about it.
func StatusUpdate(state, text string) string {
	return fmt.Sprintf(`{"statusUpdate":{"taskId":"t1","contextId":"c1","status":{"state":"TASK_STATE_%s",
		"message":{"messageId":"m-%[2]s","role":"ROLE_AGENT","parts":[{"text":"%[2]s"}]}}}}`, state, text)
}

// TaskIn is the task t1 in a state.
func TaskIn(state string) string {
	return fmt.Sprintf(`{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_%s"}}`, state)
}
