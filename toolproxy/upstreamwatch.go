package toolproxy

import (
	"context"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
)

// maxWatched bounds the resources of an upstream that are watched.
const maxWatched = 1000

// subscribe lets a client hear of changes of an upstream's resource. The
// upstream is asked once for all clients, and until its connection ends.
func (f *mcpFace) subscribe(ctx context.Context, r *mcp.SubscribeRequest) error {
	extra := r.Extra
	if extra == nil { // on the newer wire it is part of a request that listens
		extra = extraOf(ctx)
	}
	if _, err := f.taskOf(ctx, extra); err != nil {
		return err
	}
	u := f.p.gateway.watches(r.Params.URI)
	if u == nil {
		return nil // nothing there ever changes
	}
	if err := u.watch(ctx, r.Params.URI); err != nil {
		return protocolError(err)
	}
	return nil
}

func (f *mcpFace) unsubscribe(context.Context, *mcp.UnsubscribeRequest) error { return nil }

func (u *upstream) watch(ctx context.Context, uri string) error {
	u.mu.Lock()
	l, known := u.shared, u.watched[uri]
	full := len(u.watched) >= maxWatched
	u.mu.Unlock()
	switch {
	case l == nil:
		return u.away()
	case known:
		return nil
	case full:
		return picket.Refuse(picket.CodeRateLimited, "Read the resource when you need it.",
			"too many resources of %s are watched", u.Name)
	}
	if err := l.session.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}); err != nil {
		return picket.Refuse(picket.CodeUpstream, "Read the resource when you need it.", "%s does not tell of changes",
			u.Name).Because(err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.watched[uri] = true
	return nil
}

// updated tells every client that listens.
func (u *upstream) updated(uri string) { u.tell(u, uri) }

// watches finds who tells of changes of a resource: only whose resource it is.
func (g *gateway) watches(uri string) *upstream {
	if !foreign(uri) {
		return nil
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, u := range g.upstreams {
		o := g.offers[u]
		for _, r := range o.resources {
			if r.URI == uri && o.watches {
				return u
			} else if r.URI == uri {
				return nil
			}
		}
	}
	return nil
}

// completes finds who completes the arguments of a prompt or a resource
// template, and what it is called there.
func (g *gateway) completes(ref mcp.CompleteReference) (*upstream, mcp.CompleteReference) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, u := range g.upstreams {
		o := g.offers[u]
		if !o.completes {
			continue
		}
		if p := named(u, o.prompts, promptName)[ref.Name]; p != nil && ref.Type == "ref/prompt" {
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
