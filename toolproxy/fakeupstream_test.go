//lint:file-ignore SA1019 clients and upstreams of the older wire still ask for samples and roots, and log

package toolproxy_test

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// asStdio makes the test binary an MCP server on its standard streams, of the
// wire it names.
const asStdio = "PICKET_TEST_UPSTREAM"

func init() {
	if os.Getenv(asStdio) == "" {
		return
	}
	o := newFakeUpstream(os.Getenv(asStdio))
	if err := o.server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(0)
}

// fakeUpstream is an MCP server behind the gateway. It counts what reaches it.
type fakeUpstream struct {
	server *mcp.Server
	mu     sync.Mutex
	calls  []string
	meta   []mcp.Meta
	began  chan struct{} // a call of hang has begun
	ended  chan error    // and was cancelled
}

var plain = stdjson.RawMessage(`{"type":"object"}`)

func newFakeUpstream(wire ...string) *fakeUpstream {
	o := &fakeUpstream{began: make(chan struct{}, 10), ended: make(chan error, 10)}
	o.server = mcp.NewServer(&mcp.Implementation{Name: "other", Version: "1"}, &mcp.ServerOptions{
		SupportedProtocolVersions: wire,
		SubscribeHandler:          func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler:        func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	for name, call := range map[string]mcp.ToolHandler{
		"echo":   o.echo,
		"work":   o.work,
		"hang":   o.hang,
		"sample": o.sample,
		"elicit": o.elicit,
		"input":  o.input,
		"roots":  o.roots,
		"die": func(context.Context,
			*mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			os.Exit(1)
			return nil, nil
		},
		"pid": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return say(fmt.Sprint(os.Getpid())), nil
		},
		"env": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return say(fmt.Sprint(os.Environ())), nil
		},
		"drop": func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if r.Extra != nil && r.Extra.CloseSSEStream != nil {
				r.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: time.Millisecond})
			}
			return say("resumed"), nil
		},
		"no": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, fmt.Errorf("the other server says no")
		},
	} {
		o.server.AddTool(&mcp.Tool{Name: name, Description: "does " + name, InputSchema: plain}, o.counted(call))
	}
	o.server.AddTool(&mcp.Tool{Name: "dotted.name-x", InputSchema: plain}, o.counted(o.echo))
	o.server.AddReceivingMiddleware(withBadTools)
	o.server.AddPrompt(&mcp.Prompt{Name: "greet"},
		func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{
				Messages: []*mcp.PromptMessage{{
					Role:    "user",
					Content: &mcp.TextContent{Text: "greet " + r.Params.Arguments["who"]},
				}},
			}, nil
		})
	o.server.AddResource(&mcp.Resource{URI: "other://thing", Name: "thing"},
		func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{
				Contents: []*mcp.ResourceContents{{
					URI:  r.Params.URI,
					Text: "a thing",
					Meta: mcp.Meta{"other/secret": 1},
				}},
			}, nil
		})
	return o
}

// withBadTools adds tools no library would take.
func withBadTools(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if list, ok := res.(*mcp.ListToolsResult); ok {
			copied := *list
			copied.Tools = append(copied.Tools[:len(copied.Tools):len(copied.Tools)], &mcp.Tool{Name: "no_schema"},
				&mcp.Tool{Name: "empty_schema", InputSchema: stdjson.RawMessage(`{}`)},
				&mcp.Tool{Name: "text_schema", InputSchema: stdjson.RawMessage(`{"type":"string"}`)})
			res = &copied
		}
		return res, err
	}
}

func (o *fakeUpstream) counted(call mcp.ToolHandler) mcp.ToolHandler {
	return func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		o.mu.Lock()
		o.calls = append(o.calls, r.Params.Name)
		o.meta = append(o.meta, r.Params.Meta)
		o.mu.Unlock()
		return call(ctx, r)
	}
}

func (o *fakeUpstream) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.calls)
}

func say(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: text, Meta: mcp.Meta{"other/secret": 1}}},
		Meta:    mcp.Meta{"other/secret": 1},
	}
}

func (o *fakeUpstream) echo(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	res := say(string(r.Params.Arguments))
	res.StructuredContent = stdjson.RawMessage(r.Params.Arguments)
	return res, nil
}

// work speaks while it works, and answers in the same breath.
func (o *fakeUpstream) work(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	for i := range 3 {
		_ = r.Session.NotifyProgress(ctx,
			&mcp.ProgressNotificationParams{
				ProgressToken: r.Params.GetProgressToken(),
				Progress:      float64(i + 1),
				Total:         3,
				Message:       "step",
			})
		_ = r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: fmt.Sprintf("line %d", i+1)})
	}
	return say("worked"), nil
}

func (o *fakeUpstream) hang(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	o.began <- struct{}{}
	<-ctx.Done()
	o.ended <- ctx.Err()
	return nil, ctx.Err()
}

func (o *fakeUpstream) sample(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	res, err := r.Session.CreateMessage(ctx,
		&mcp.CreateMessageParams{
			MaxTokens: 10,
			Messages:  []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "say hello"}}},
		})
	if err != nil {
		return nil, err
	}
	return say(res.Content.(*mcp.TextContent).Text), nil
}

func (o *fakeUpstream) elicit(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	res, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "which?", RequestedSchema: askName})
	if err != nil {
		return nil, err
	}
	return say(fmt.Sprint(res.Action, " ", res.Content["name"])), nil
}

var askName = stdjson.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)

func (o *fakeUpstream) roots(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	res, err := r.Session.ListRoots(ctx, nil)
	if err != nil {
		return nil, err
	}
	return say(res.Roots[0].URI), nil
}

// input asks in its result, twice.
func (o *fakeUpstream) input(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	answer, _ := r.Params.InputResponses["name"].(*mcp.ElicitResult)
	switch r.Params.RequestState {
	case "":
		return asks("first"), nil
	case "first":
		return asks("second " + fmt.Sprint(answer.Content["name"])), nil
	}
	return say(r.Params.RequestState + " " + fmt.Sprint(answer.Content["name"])), nil
}

func asks(state string) *mcp.CallToolResult {
	return &mcp.CallToolResult{RequestState: state, Meta: mcp.Meta{"other/secret": 1},
		InputRequests: mcp.InputRequestMap{"name": &mcp.ElicitParams{Message: "which?", RequestedSchema: askName}}}
}

// listen serves the other server on the older wire (with sessions) or the newer.
func (o *fakeUpstream) listen(t testing.TB, wire string) string {
	t.Helper()
	h := o.handler(t, wire)
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		o.endSessions()
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// handler serves a wire over HTTP.
func (o *fakeUpstream) handler(t testing.TB, wire string) http.Handler {
	t.Cleanup(o.endSessions)
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return o.server },
		&mcp.StreamableHTTPOptions{
			Stateless:                    wire == protocolVersions[1],
			PropagateRequestCancellation: true,
			EventStore:                   mcp.NewMemoryEventStore(nil),
		})
}

func (o *fakeUpstream) endSessions() {
	for session := range o.server.Sessions() {
		_ = session.Close()
	}
}
