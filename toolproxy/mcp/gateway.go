package mcp

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/toolproxy"
)

// gateway brings the tools of other MCP servers.
type gateway struct {
	proxy     *toolproxy.Proxy
	log       *slog.Logger
	upstreams []*upstreamClient
	changed   func(before map[string]upstreamTool) // called after a change of what is offered
	updated   func(uri string)                     // called after a change of a resource
	running   sync.WaitGroup

	mu      sync.RWMutex
	offers  map[*upstreamClient]upstreamCatalog
	tools   map[string]upstreamTool // by the name that is listed here
	order   []string
	skipped map[string]string // why a tool is not listed
}

// upstreamTool is a tool of an upstream.
type upstreamTool struct {
	from     *upstreamClient
	original *mcp.Tool
	listed   *mcp.Tool // as it is listed here
}

func newGateway(p *toolproxy.Proxy, configs []Upstream) (*gateway, error) {
	g := &gateway{
		proxy:  p,
		log:    p.Log(),
		offers: map[*upstreamClient]upstreamCatalog{},
		tools:  map[string]upstreamTool{},
	}
	var names []string
	for _, cfg := range configs {
		if err := cfg.check(); err != nil {
			return nil, err
		}
		names = append(names, cfg.Name)
		if bad, err := picket.CheckUpstreamNames(names); err != nil {
			return nil, fmt.Errorf("toolproxy: the upstream %s: %w", bad, err)
		}
		g.upstreams = append(g.upstreams, newUpstreamClient(cfg, p.Log(), g.publish, g.resourceUpdated))
	}
	return g, nil
}

// start connects to every upstream, and again whenever one goes.
func (g *gateway) start(ctx context.Context) {
	for _, u := range g.upstreams {
		g.running.Go(func() { u.run(ctx) })
	}
}

// resourceUpdated reports a changed resource to clients if it belongs to the upstream that reported
// it.
func (g *gateway) resourceUpdated(u *upstreamClient, uri string) {
	if g.subscriptionOwner(uri) == u {
		g.updated(uri)
	}
}

// stop waits until every connection is closed and every command has ended.
func (g *gateway) stop() { g.running.Wait() }

func (g *gateway) lookup(name string) (upstreamTool, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	o, ok := g.tools[name]
	return o, ok
}

func (g *gateway) has(name string) bool {
	_, ok := g.lookup(name)
	return ok
}

func (g *gateway) listing(name string) *mcp.Tool {
	o, _ := g.lookup(name)
	return o.listed
}

// forgetClient closes what the upstreams keep for a session that has ended.
func (g *gateway) forgetClient(s *mcp.ServerSession) {
	for _, u := range g.upstreams {
		u.closeOwnedConn(s)
	}
}

// Names that no upstream may take.
var reservedNames = []string{"http_request", "sql", "exec"}

// maxToolName is what agents take as a tool's name, with room for the name they
// give its server.
const maxToolName = 64

// publish takes what an upstream offers now, and tells clients when that is
// something else than before.
func (g *gateway) publish(u *upstreamClient, o upstreamCatalog) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.offers[u] = o
	before, leftBefore := g.tools, g.skipped
	g.tools, g.order, g.skipped = map[string]upstreamTool{}, nil, map[string]string{}
	for _, u := range g.upstreams {
		theirs := byLocalName(u, g.offers[u].tools, toolName)
		for _, t := range g.offers[u].tools {
			g.addTool(u, t, theirs, before)
		}
	}
	g.logSkipped(leftBefore)
	g.changed(before)
}

// maxLoggedSkips bounds how many tools that are left out are named in the log at once.
const maxLoggedSkips = 20

// logSkipped logs which tools are left out now and were not before.
func (g *gateway) logSkipped(before map[string]string) {
	said := 0
	for who, why := range g.skipped {
		if before[who] == why {
			continue
		}
		if said++; said <= maxLoggedSkips {
			g.log.Warn("a tool of an upstream is left out", "tool", web.Shortened(who), "why", why)
		}
	}
	if said > maxLoggedSkips {
		g.log.Warn("more tools of upstreams are left out", "count", said-maxLoggedSkips)
	}
}

// addTool lists a tool, unless nobody could call it.
func (g *gateway) addTool(u *upstreamClient, theirs *mcp.Tool, named map[string]*mcp.Tool,
	before map[string]upstreamTool) {
	name := u.localName(theirs.Name)
	if old, known := before[name]; known && old.from == u && named[name] == theirs &&
		reflect.DeepEqual(old.original, theirs) {
		g.keepTool(name, old)
		return
	}
	t := &mcp.Tool{Name: name, Title: theirs.Title, Description: theirs.Description, Annotations: theirs.Annotations,
		InputSchema: theirs.InputSchema, OutputSchema: theirs.OutputSchema, Icons: theirs.Icons}
	builtIn := toolproxy.IsFreeTool(name)
	var why string
	switch {
	case builtIn || slices.Contains(reservedNames, name):
		why = "the name is one of ours"
	case named[name] != theirs:
		why = "another tool has the name"
	case len(name) > maxToolName:
		why = "the name is too long"
	default:
		why = schemaProblem(t)
	}
	if why != "" {
		g.skipped[u.Name+": "+theirs.Name] = untrustedText(why)
		return
	}
	g.keepTool(name, upstreamTool{u, theirs, t})
}

func (g *gateway) keepTool(name string, o upstreamTool) {
	g.tools[name] = o
	g.order = append(g.order, name)
}

// schemaProblem returns why the library does not take a tool, "" if it does. The library
// panics over invalid schemas.
func schemaProblem(t *mcp.Tool) (why string) {
	defer func() {
		if v := recover(); v != nil {
			why = fmt.Sprint(v)
		}
	}()
	mcp.NewServer(&mcp.Implementation{Name: "probe"}, nil).AddTool(t, nil)
	return ""
}

// Tools are those of the upstreams that have a price.
func (g *gateway) Tools(context.Context, toolproxy.ExecQueue, picket.LeaseCredential) ([]toolproxy.Tool, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var list []toolproxy.Tool
	for _, name := range g.order {
		o := g.tools[name]
		t := toolproxy.Tool{Name: name, Description: o.listed.Description, Effects: picket.EffectsExternal}
		t.InputSchema, _ = toolproxy.EncodeJSON(o.listed.InputSchema)
		if o.listed.OutputSchema != nil {
			t.OutputSchema, _ = toolproxy.EncodeJSON(o.listed.OutputSchema)
		}
		if t, priced := g.proxy.WithPrice(t); priced {
			list = append(list, t)
		}
	}
	return list, nil
}

// Call calls a tool of an upstream.
func (g *gateway) Call(ctx context.Context, c toolproxy.Call) (jsontext.Value, bool, error) {
	o, ok := g.lookup(c.Name)
	if !ok {
		return nil, false, nil
	}
	x := clientRequestOf(ctx)
	if err := toolproxy.CheckNoLeaseToken(c.Held, append(x.inputAnswers(), c.Args)...); err != nil {
		return nil, true, err
	}
	c.Key = x.roundKey(c.Key)
	answer, err := g.proxy.MeteredAnswer(ctx, c, toolproxy.MeteredCall{
		Args:    x.argsWithAnswers(canonicalArgs(c.Args)),
		Effects: picket.EffectsExternal,
		Timeout: o.from.Timeout,
		Dispatch: func(ctx context.Context, _ picket.Reservation) (toolproxy.DispatchResult, error) {
			return o.dispatch(ctx, x, c.Args)
		},
	})
	if err == nil && x != nil {
		x.fromUpstream = x.rpcError == nil
	}
	return answer, true, err
}

// dispatch makes the call and rebuilds its result.
func (o upstreamTool) dispatch(ctx context.Context, x *clientRequest,
	args jsontext.Value) (toolproxy.DispatchResult, error) {
	began := time.Now()
	raw := stdjson.RawMessage(args)
	if len(raw) == 0 {
		raw = stdjson.RawMessage("{}")
	}
	result, err := o.from.callTool(ctx, x, o.original.Name, raw)
	detail := ""
	if refused := answeredError(err); refused != nil {
		if x != nil && (refused.Code == codeMissingCapability || refused.Code == codeURLElicitation) {
			x.rpcError = refused
		}
		result, err, detail = errorResult(refused.Message), nil, fmt.Sprintf("error %d", refused.Code)
	}
	if err != nil {
		return toolproxy.DispatchResult{}, err
	}
	body, err := encodeResult(withoutMeta(result))
	if err != nil {
		return toolproxy.DispatchResult{}, err
	}
	d := toolproxy.DispatchResult{Result: picket.RawJSON(body), Failed: result.IsError, Detail: detail,
		Used: budget.Usage{Bytes: int64(len(body)), Millis: time.Since(began).Milliseconds()}}
	if result.InputRequests != nil {
		// The call is not over: it is charged when the tool has its answers.
		d.Cost, d.Detail = &budget.Envelope{}, "asks for input"
	}
	return d, nil
}

func errorResult(message string) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: message}}}
}

// subscriptionOwner finds the upstream that reports changes of a resource, which is the one that
// owns it.
func (g *gateway) subscriptionOwner(uri string) *upstreamClient {
	if !isForeignURI(uri) {
		return nil
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, u := range g.upstreams {
		o := g.offers[u]
		for _, r := range o.resources {
			if r.URI == uri && o.canSubscribe {
				return u
			} else if r.URI == uri {
				return nil
			}
		}
	}
	return nil
}

// completionOwner finds who completes the arguments of a prompt or a resource
// template, and what it is called there.
func (g *gateway) completionOwner(ref mcp.CompleteReference) (*upstreamClient, mcp.CompleteReference) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, u := range g.upstreams {
		o := g.offers[u]
		if !o.canComplete {
			continue
		}
		if p := byLocalName(u, o.prompts, promptName)[ref.Name]; p != nil && ref.Type == "ref/prompt" {
			return u, mcp.CompleteReference{Type: ref.Type, Name: p.Name}
		}
		for _, t := range o.templates {
			if ref.Type == "ref/resource" && strings.EqualFold(ref.URI, t.URITemplate) {
				return u, ref
			}
		}
	}
	return nil, ref
}

// isForeignURI reports whether a URI is not ours.
func isForeignURI(uri string) bool {
	scheme, _, _ := strings.Cut(uri, ":")
	return !strings.EqualFold(scheme, "picket")
}
