package mcp

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/toolproxy"
)

// endpoint serves the tools over MCP: without a session to clients of either
// wire generation, and with one to those of the older wire that open it. A
// session only adds what goes from server to client; a client whose session is
// gone, or is with another proxy, is served without it.
type endpoint struct {
	proxy            *toolproxy.Proxy
	gateway          *gateway
	log              *slog.Logger
	servers          []*mcp.Server
	statefulServer   *mcp.Server // of the sessions
	statelessHandler http.Handler
	statefulHandler  http.Handler
	sessions         sessionTable
	published        map[*mcp.Server]publishedOffers
}

// publishedOffers is what a server of ours offers of the upstreams' prompts, resources
// and resource templates, by the name or URI that it has here.
type publishedOffers struct {
	prompts   map[string]offer
	resources map[string]offer
	templates map[string]offer
}

// offer is a thing of an upstream as it is offered here.
type offer struct {
	from         *upstreamClient
	originalName string // its name there
	listing      any    // a pointer to what the library lists
}

type heldKey struct{}

type bodyKey struct{}

// heldOf is the credential a message came with.
func heldOf(extra *mcp.RequestExtra) (held picket.LeaseCredential, ok bool) {
	if extra != nil && extra.TokenInfo != nil {
		held, ok = extra.TokenInfo.Extra["held"].(picket.LeaseCredential)
	}
	return held, ok
}

// extraOf is the credential of the request that a context began with.
func extraOf(ctx context.Context) *mcp.RequestExtra {
	held, ok := ctx.Value(heldKey{}).(picket.LeaseCredential)
	if !ok {
		return nil
	}
	return &mcp.RequestExtra{TokenInfo: &auth.TokenInfo{Extra: map[string]any{"held": held}}}
}

// callerOf finds the state of record of a message's lease.
func (f *endpoint) callerOf(extra *mcp.RequestExtra) (toolproxy.Backend, picket.LeaseCredential, error) {
	held, ok := heldOf(extra)
	if !ok {
		return nil, held, toolproxy.Unauthenticated("there is no lease token")
	}
	backend, err := f.proxy.BackendOf(held)
	return backend, held, err
}

// heldTask reads the task of a message's lease, which has to hold.
func (f *endpoint) heldTask(ctx context.Context, extra *mcp.RequestExtra) (picket.Task, error) {
	backend, held, err := f.callerOf(extra)
	if err != nil {
		return picket.Task{}, protocolError(err)
	}
	task, err := backend.HeldTask(ctx, held, rand.Text())
	if err != nil {
		return picket.Task{}, protocolError(err)
	}
	return task, nil
}

// takeMessage counts a message over MCP.
func (f *endpoint) takeMessage(req mcp.Request) error {
	extra := req.GetExtra()
	held, ok := heldOf(extra)
	if !ok {
		return nil // it is refused elsewhere
	}
	if giveBack, ok := extra.TokenInfo.Extra["body"].(func()); ok {
		giveBack()
	}
	tool := ""
	if call, ok := req.(*mcp.CallToolRequest); ok {
		tool = call.Params.Name
	}
	return f.proxy.TakeMessage(held, tool)
}
