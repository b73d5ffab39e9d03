package toolproxy_test

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/toolproxy"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

func addThing(o *fakeUpstream, uri, text string) {
	o.server.AddResource(&mcp.Resource{URI: uri, Name: "thing"},
		func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, Text: text}}}, nil
		})
}

// An upstream can report changes of its own resources only, not of another upstream's or of
// Picket's.
func TestAnUpstreamTellsOfItsOwnResources(t *testing.T) {
	a, b := newFakeUpstream(), newFakeUpstream()
	addThing(a, "a://thing", "a")
	pretends := map[string]string{
		"b://as-a":      "a://thing",
		"b://as-ours":   mcppart.ReportURI,
		"b://as-PICKET": "PICKET://task/report",
	}
	for uri := range pretends {
		addThing(b, uri, "b")
	}
	addThing(b, "b://own", "b")
	addThing(b, mcppart.ReportURI, "b") // it lists ours as well
	b.server.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if p, ok := req.GetParams().(*mcp.ResourceUpdatedNotificationParams); ok && pretends[p.URI] != "" {
				p.URI = pretends[p.URI]
			}
			return next(ctx, method, req)
		}
	})
	g := newGatewayEnvFor(t, newFakeEnvelope(cent), "b_echo", map[string]budget.Price{"*": {Call: cent}},
		mcppart.Upstream{Name: "a", URL: a.listen(t, protocolVersions[0])},
		mcppart.Upstream{Name: "b", URL: b.listen(t, protocolVersions[0])})
	heard := make(chan string, 100)
	s := connect(t, g.url, g.token(), protocolVersions[0],
		&mcp.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			heard <- r.Params.URI
		}})
	g.await(t, s, "a_echo", true)
	for _, uri := range []string{"a://thing", mcppart.ReportURI, "b://own", "b://as-a", "b://as-ours",
		"b://as-PICKET"} {
		if err := s.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
			t.Fatalf("%s: %v", uri, err)
		}
	}
	// in one stream, so in this order
	for _, uri := range []string{"b://as-a", "b://as-ours", "b://as-PICKET", "b://own"} {
		if err := b.server.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: uri}); err != nil {
			t.Fatal(err)
		}
	}
	if got := receive(t, heard, "a change"); got != "b://own" {
		t.Errorf("b could report %s", got)
	}
	_ = a.server.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: "a://thing"})
	if got := receive(t, heard, "a's change"); got != "a://thing" {
		t.Errorf("then %s has changed", got)
	}
}

// What an upstream says in an error is repeated in part, and does nothing to a
// terminal.
func TestUpstreamErrorTextIsBounded(t *testing.T) {
	for _, wire := range protocolVersions {
		t.Run(wire, func(t *testing.T) {
			o := newFakeUpstream()
			long := "stop\x1b[2J\u202e here\n" + strings.Repeat("é", 500_000)
			data, _ := stdjson.Marshal(long)
			for tool, code := range map[string]int64{"refuses": -32000, "opens": -32042} {
				o.server.AddTool(&mcp.Tool{Name: tool, InputSchema: plain},
					o.counted(func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
						return nil, &jsonrpc.Error{Code: code, Message: long, Data: data}
					}))
			}
			o.server.AddPrompt(&mcp.Prompt{Name: "refuses"},
				func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
					return nil, &jsonrpc.Error{Code: -32000, Message: long, Data: data}
				})
			p := newFakeEnvelope(100 * cent)
			b := newGatewayEnv(t, p, mcppart.Upstream{Name: "up", URL: o.listen(t, wire)})
			s := connect(t, b.url, b.token(), wire, nil)
			short := func(what, text string) {
				t.Helper()
				if len(text) > 5000 || !strings.Contains(text, "stop[2J here\n") ||
					!strings.Contains(text, "cut: it had 1000") {
					t.Errorf("%s: %d bytes: %.60q", what, len(text), text)
				}
			}
			r, err := s.CallTool(t.Context(),
				&mcp.CallToolParams{Name: "up_refuses", Meta: mcp.Meta{mcppart.MetaKey: "kept"}})
			if err != nil || !r.IsError {
				t.Fatalf("%+v %v", r, err)
			}
			short("a result", resultText(t, r))
			p.mu.Lock()
			for _, kept := range p.settled {
				if len(kept.Result) > 6000 || len(kept.Result) < 1000 {
					t.Errorf("%d bytes are kept of a call", len(kept.Result))
				}
			}
			p.mu.Unlock()
			_, openErr := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "up_opens"})
			_, promptErr := s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "up_refuses"})
			for what, err := range map[string]error{"an error": openErr, "a prompt's": promptErr} {
				if e := new(jsonrpc.Error); errors.As(err, &e) {
					short(what, e.Message)
					if len(e.Data) > 100 {
						t.Errorf("%s: %d bytes of data", what, len(e.Data))
					}
				} else {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

// Two names that could have a tool of one name are not taken together.
func TestNamesOfUpstreamsAreDistinct(t *testing.T) {
	for names, want := range map[string]string{
		"a a_b":       "both have a tool of the same name",
		"a_b a":       "both have a tool of the same name",
		"x a_b_c a_b": "both have",
		"a a":         "two upstreams",
		"llm":         "language models",
		"llm_x":       "language models",
		"a ab":        "",
		"a_b ab":      "",
		"llms a":      "",
		"a b_a":       "",
	} {
		var upstreams []mcppart.Upstream
		for _, name := range strings.Fields(names) {
			upstreams = append(upstreams, mcppart.Upstream{Name: name, URL: "http://127.0.0.1:1"})
		}
		p, err := toolproxy.New(toolproxy.Config{
			Sealer:  newSealer(t),
			Backend: func(string) toolproxy.Backend { return nil },
			Log:     slog.New(slog.DiscardHandler),
			Parts:   []toolproxy.Part{mcppart.New(upstreams)},
		})
		if p != nil {
			p.Close()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", names, err, want)
		}
	}
}

// Of tools that come to the same name the one that is called so has it,
// whatever the order in which they are listed.
func TestListOrderDoesNotChangeRouting(t *testing.T) {
	for _, order := range [][]string{{"x.y", "x_y", "x-y", "u.v", "u-v"}, {"u-v", "u.v", "x-y", "x_y", "x.y"}} {
		o := newFakeUpstream()
		o.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				switch r := req.(type) {
				case *mcp.ListToolsRequest:
					list := &mcp.ListToolsResult{Tools: []*mcp.Tool{{Name: "echo", InputSchema: plain}}}
					for _, name := range order {
						list.Tools = append(list.Tools, &mcp.Tool{Name: name, InputSchema: plain})
					}
					return list, nil
				case *mcp.CallToolRequest:
					return say(r.Params.Name), nil
				}
				return next(ctx, method, req)
			}
		})
		b := newGatewayEnv(t, newFakeEnvelope(100*cent),
			mcppart.Upstream{Name: "up", URL: o.listen(t, protocolVersions[0])})
		s := connect(t, b.url, b.token(), protocolVersions[0], nil)
		for name, want := range map[string]string{"up_x_y": "x_y", "up_u_v": "u-v"} {
			if got := resultText(t, call(t, s, name, nil)); got != want {
				t.Errorf("of %v %s is %s, want %s", order, name, got, want)
			}
		}
	}
}

// A resource that passes from one upstream to another is read there.
func TestAResourceThatMoves(t *testing.T) {
	a, b := newFakeUpstream(), newFakeUpstream()
	addThing(a, "shared://thing", "of a")
	addThing(b, "shared://thing", "of b")
	g := newGatewayEnvFor(t, newFakeEnvelope(100*cent), "b_echo", map[string]budget.Price{"*": {Call: cent}},
		mcppart.Upstream{Name: "a", URL: a.listen(t, protocolVersions[0])},
		mcppart.Upstream{Name: "b", URL: b.listen(t, protocolVersions[0])})
	changed := make(chan struct{}, 100)
	s := connect(t, g.url, g.token(), protocolVersions[0],
		&mcp.ClientOptions{
			ResourceListChangedHandler: func(context.Context,
				*mcp.ResourceListChangedRequest) {
				changed <- struct{}{}
			},
		})
	g.await(t, s, "a_echo", true)
	read := func() string {
		r, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "shared://thing"})
		if err != nil { // a has it no more, and it is not known yet
			return err.Error()
		}
		return r.Contents[0].Text
	}
	if got := read(); got != "of a" {
		t.Errorf("both list it: it is %s", got)
	}
	a.server.RemoveResources("shared://thing")
	for read() != "of b" {
		receive(t, changed, "the resource to move")
	}
}
