package toolproxy

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// gateway brings the tools of other MCP servers.
type gateway struct {
	p         *Proxy
	log       *slog.Logger
	upstreams []*upstream
	running   sync.WaitGroup

	mu     sync.RWMutex
	offers map[*upstream]offer
	known  map[string]offered // by the name that is listed here
	order  []string
	left   map[string]string // why a tool is not listed
}

// offered is a tool of an upstream.
type offered struct {
	from   *upstream
	theirs *mcp.Tool
	tool   *mcp.Tool // as it is listed here
}

func newGateway(p *Proxy, configs []Upstream) (*gateway, error) {
	g := &gateway{p: p, log: p.log, offers: map[*upstream]offer{}, known: map[string]offered{}}
	var names []string
	for _, cfg := range configs {
		if err := cfg.check(); err != nil {
			return nil, err
		}
		names = append(names, cfg.Name)
		if bad, err := CheckUpstreamNames(names); err != nil {
			return nil, fmt.Errorf("toolproxy: the upstream %s: %w", bad, err)
		}
		g.upstreams = append(g.upstreams, newUpstream(cfg, p.log, g.publish, g.updated))
	}
	return g, nil
}

// start connects to every upstream, and again whenever one goes.
func (g *gateway) start(ctx context.Context) {
	for _, u := range g.upstreams {
		g.running.Go(func() { u.run(ctx) })
	}
}

// updated tells every client that listens of a changed resource, if it is one of
// the upstream that says so.
func (g *gateway) updated(u *upstream, uri string) {
	if g.watches(uri) != u {
		return
	}
	for _, s := range g.p.mcp.servers {
		_ = s.ResourceUpdated(g.p.ending, &mcp.ResourceUpdatedNotificationParams{URI: uri})
	}
}

// stop waits until every connection is closed and every command has ended.
func (g *gateway) stop() { g.running.Wait() }

func (g *gateway) find(name string) (offered, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	o, ok := g.known[name]
	return o, ok
}

func (g *gateway) has(name string) bool {
	_, ok := g.find(name)
	return ok
}

func (g *gateway) tool(name string) *mcp.Tool {
	o, _ := g.find(name)
	return o.tool
}

// forget closes what the upstreams keep for a session that has ended.
func (g *gateway) forget(s *mcp.ServerSession) {
	for _, u := range g.upstreams {
		u.forget(s)
	}
}

// Names that no upstream may take.
var ownNames = []string{"http_request", "sql", "exec"}

var otherLetters = regexp.MustCompile(`[^A-Za-z0-9_]`)

// maxName is what agents take as a tool's name, with room for the name they
// give its server.
const maxName = 64

// publish takes what an upstream offers now, and tells clients when that is
// something else than before.
func (g *gateway) publish(u *upstream, o offer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.offers[u] = o
	before, leftBefore := g.known, g.left
	g.known, g.order, g.left = map[string]offered{}, nil, map[string]string{}
	for _, u := range g.upstreams {
		theirs := named(u, g.offers[u].tools, toolName)
		for _, t := range g.offers[u].tools {
			g.admit(u, t, theirs, before)
		}
	}
	g.sayLeft(leftBefore)
	for _, face := range g.p.mcp.servers {
		g.show(face, before)
		g.p.mcp.showOffers(face, g.upstreams, g.offers)
	}
}

// maxSaid bounds how many tools that are left out are named in the log at once.
const maxSaid = 20

// sayLeft logs which tools are left out now and were not before.
func (g *gateway) sayLeft(before map[string]string) {
	said := 0
	for who, why := range g.left {
		if before[who] == why {
			continue
		}
		if said++; said <= maxSaid {
			g.log.Warn("a tool of an upstream is left out", "tool", clip(who), "why", why)
		}
	}
	if said > maxSaid {
		g.log.Warn("more tools of upstreams are left out", "count", said-maxSaid)
	}
}

// admit lists a tool, unless nobody could call it.
func (g *gateway) admit(u *upstream, theirs *mcp.Tool, named map[string]*mcp.Tool, before map[string]offered) {
	name := u.ourName(theirs.Name)
	if old, known := before[name]; known && old.from == u && named[name] == theirs &&
		reflect.DeepEqual(old.theirs, theirs) {
		g.list(name, old)
		return
	}
	t := &mcp.Tool{Name: name, Title: theirs.Title, Description: theirs.Description, Annotations: theirs.Annotations,
		InputSchema: theirs.InputSchema, OutputSchema: theirs.OutputSchema, Icons: theirs.Icons}
	_, builtIn := bindings[name]
	var why string
	switch {
	case builtIn || slices.Contains(ownNames, name):
		why = "the name is one of ours"
	case named[name] != theirs:
		why = "another tool has the name"
	case len(name) > maxName:
		why = "the name is too long"
	default:
		why = unusable(t)
	}
	if why != "" {
		g.left[u.Name+": "+theirs.Name] = theirWords(why)
		return
	}
	g.list(name, offered{u, theirs, t})
}

func (g *gateway) list(name string, o offered) {
	g.known[name] = o
	g.order = append(g.order, name)
}

// unusable says why the library does not take a tool; it panics over schemas
// that are none.
func unusable(t *mcp.Tool) (why string) {
	defer func() {
		if v := recover(); v != nil {
			why = fmt.Sprint(v)
		}
	}()
	mcp.NewServer(&mcp.Implementation{Name: "probe"}, nil).AddTool(t, nil)
	return ""
}

// show brings a server's tools up to date; what has not changed is not touched,
// so that no client is told of nothing.
func (g *gateway) show(s *mcp.Server, before map[string]offered) {
	for name, o := range g.known {
		if old, ok := before[name]; !ok || old.tool != o.tool && !reflect.DeepEqual(old.tool, o.tool) {
			s.AddTool(o.tool, g.p.mcp.call)
		}
	}
	for name := range before {
		if _, still := g.known[name]; !still {
			s.RemoveTools(name)
		}
	}
}

// Tools are those of the upstreams that have a price.
func (g *gateway) Tools(context.Context, Door, picket.Held) ([]Tool, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var list []Tool
	for _, name := range g.order {
		o := g.known[name]
		t := Tool{Name: name, Description: o.tool.Description, Effects: picket.EffectsExternal}
		t.InputSchema, _ = encode(o.tool.InputSchema)
		if o.tool.OutputSchema != nil {
			t.OutputSchema, _ = encode(o.tool.OutputSchema)
		}
		if t, priced := g.p.Priced(t); priced {
			list = append(list, t)
		}
	}
	return list, nil
}

// Call calls a tool of an upstream.
func (g *gateway) Call(ctx context.Context, c Call) (jsontext.Value, bool, error) {
	o, ok := g.find(c.Name)
	if !ok {
		return nil, false, nil
	}
	x := exchangeOf(ctx)
	if err := keepsLease(c.Held, append(x.answers(), c.Args)...); err != nil {
		return nil, true, err
	}
	result, err := g.p.Metered(ctx, c.Door, c.Held, MeteredCall{
		Tool:    c.Name,
		Args:    x.round(canonical(c.Args)),
		Key:     x.roundKey(c.Key),
		Effects: picket.EffectsExternal,
		Timeout: o.from.Timeout,
		Dispatch: func(ctx context.Context, _ picket.Reservation) (Dispatched, error) {
			return o.dispatch(ctx, x, c.Args)
		},
	})
	if err != nil {
		return nil, true, err
	}
	if x != nil {
		x.upstream = x.protocol == nil
	}
	answer, err := result.Answer()
	return answer, true, err
}

// dispatch makes the call and rebuilds its result.
func (o offered) dispatch(ctx context.Context, x *exchange, args jsontext.Value) (Dispatched, error) {
	began := time.Now()
	raw := stdjson.RawMessage(args)
	if len(raw) == 0 {
		raw = stdjson.RawMessage("{}")
	}
	result, err := o.from.callTool(ctx, x, o.theirs.Name, raw)
	detail := ""
	if refused := answeredError(err); refused != nil {
		if x != nil && (refused.Code == codeMissingCapability || refused.Code == codeURLElicitation) {
			x.protocol = refused
		}
		result, err, detail = failed(refused.Message), nil, fmt.Sprintf("error %d", refused.Code)
	}
	if err != nil {
		return Dispatched{}, err
	}
	body, err := encodeResult(rebuilt(result))
	if err != nil {
		return Dispatched{}, err
	}
	d := Dispatched{Result: picket.RawJSON(body), Failed: result.IsError, Detail: detail,
		Used: budget.Use{Bytes: int64(len(body)), Millis: time.Since(began).Milliseconds()}}
	if result.InputRequests != nil {
		// The call is not over: it is charged when the tool has its answers.
		d.Cost, d.Detail = &budget.Envelope{}, "asks for input"
	}
	return d, nil
}

func failed(message string) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: message}}}
}
