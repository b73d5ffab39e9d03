package mcp

import (
	"context"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
)

// maxSubscriptions bounds the resources of an upstream that are watched.
const maxSubscriptions = 1000

// subscribe lets a client hear of changes of an upstream's resource. The
// upstream is asked once for all clients, and until its connection ends.
func (f *mcpEndpoint) subscribe(ctx context.Context, r *mcp.SubscribeRequest) error {
	extra := r.Extra
	if extra == nil { // on the newer wire it is part of a request that listens
		extra = extraOf(ctx)
	}
	if _, err := f.heldTask(ctx, extra); err != nil {
		return err
	}
	u := f.gateway.subscriptionOwner(r.Params.URI)
	if u == nil {
		return nil // nothing there ever changes
	}
	if err := u.subscribe(ctx, r.Params.URI); err != nil {
		return protocolError(err)
	}
	return nil
}

func (f *mcpEndpoint) unsubscribe(context.Context, *mcp.UnsubscribeRequest) error { return nil }

func (u *upstreamClient) subscribe(ctx context.Context, uri string) error {
	u.mu.Lock()
	l, known := u.sharedConn, u.subscribed[uri]
	full := len(u.subscribed) >= maxSubscriptions
	u.mu.Unlock()
	switch {
	case l == nil:
		return u.unavailable()
	case known:
		return nil
	case full:
		return picket.Refuse(picket.CodeRateLimited, "Read the resource when you need it.",
			"too many resources of %s are watched", u.Name)
	}
	if err := l.session.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}); err != nil {
		return picket.Refuse(picket.CodeUpstream, "Read the resource when you need it.", "%s does not tell of changes",
			u.Name).WithCause(err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.subscribed[uri] = true
	return nil
}

// resourceUpdated tells every client that listens.
func (u *upstreamClient) resourceUpdated(uri string) { u.notifyUpdated(u, uri) }

// subscriptionOwner finds who tells of changes of a resource: only whose resource it is.
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
