package mcp

import (
	"context"
	stdjson "encoding/json"
	"reflect"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/toolproxy"
)

// What an upstream has beside tools is paid for under these names, after the
// upstream's own and an underscore. No tool can have them.
const (
	promptCall     = "prompts/get"
	resourceCall   = "resources/read"
	completionCall = "completion/complete"
)

// publish brings the servers up to date with the gateway, which calls it under its lock with the
// tools that it had before. It does not touch a tool that has not changed, so clients get no
// needless notification.
func (f *endpoint) publish(before map[string]upstreamTool) {
	for _, s := range f.servers {
		for name, o := range f.gateway.tools {
			if old, ok := before[name]; !ok || old.listed != o.listed && !reflect.DeepEqual(old.listed, o.listed) {
				s.AddTool(o.listed, f.callTool)
			}
		}
		s.RemoveTools(removedNames(before, f.gateway.tools)...)
		f.publishOffers(s, f.gateway.upstreams, f.gateway.offers)
	}
}

// tellUpdated tells every client that listens of a changed resource.
func (f *endpoint) tellUpdated(uri string) {
	ctx, cancel := f.proxy.UntilClosed(context.Background())
	defer cancel()
	for _, s := range f.servers {
		_ = s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri})
	}
}

// publishOffers brings the prompts and resources of a server up to date.
func (f *endpoint) publishOffers(s *mcp.Server, upstreams []*upstreamClient,
	offers map[*upstreamClient]upstreamCatalog) {
	before, now := f.published[s], publishedOffers{map[string]offer{}, map[string]offer{}, map[string]offer{}}
	for _, u := range upstreams {
		for name, theirs := range byLocalName(u, offers[u].prompts, promptName) {
			if name == reportPrompt {
				continue
			}
			p := &mcp.Prompt{Name: name, Title: theirs.Title, Description: theirs.Description,
				Arguments: withoutNil(theirs.Arguments), Icons: theirs.Icons}
			f.publishOffer(before.prompts, now.prompts, name, offer{u, theirs.Name, p}, func() {
				s.AddPrompt(p, func(ctx context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
					return f.upstreamPrompt(ctx, u, theirs.Name, r)
				})
			})
		}
		for _, theirs := range offers[u].resources {
			if r := *theirs; isForeignURI(r.URI) {
				r.Meta = nil
				f.publishOffer(before.resources, now.resources, r.URI, offer{u, r.URI, &r},
					func() { s.AddResource(&r, f.upstreamResource(u)) })
			}
		}
		for _, theirs := range offers[u].templates {
			if t := *theirs; isForeignURI(t.URITemplate) {
				t.Meta = nil
				f.publishOffer(before.templates, now.templates, t.URITemplate, offer{u, t.URITemplate, &t},
					func() { s.AddResourceTemplate(&t, f.upstreamResource(u)) })
			}
		}
	}
	s.RemovePrompts(removedNames(before.prompts, now.prompts)...)
	s.RemoveResources(removedNames(before.resources, now.resources)...)
	s.RemoveResourceTemplates(removedNames(before.templates, now.templates)...)
	f.published[s] = now
}

// publishOffer adds an offer to a server, unless the name is taken by now or the server
// has the same offer already. What the library panics over is left out.
func (f *endpoint) publishOffer(before, now map[string]offer, name string, o offer, add func()) {
	if _, taken := now[name]; taken {
		return
	}
	now[name] = o
	if b := before[name]; b.from == o.from && b.originalName == o.originalName &&
		reflect.DeepEqual(b.listing, o.listing) {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			f.log.Warn("a prompt or a resource of an upstream is left out", "upstream", o.from.Name, "name",
				web.Shortened(name), "why", v)
		}
	}()
	add()
}

// withoutNil leaves out what an upstream said to be null.
func withoutNil[T any](list []*T) []*T {
	return slices.DeleteFunc(list, func(item *T) bool { return item == nil })
}

func removedNames[T any](before, now map[string]T) (names []string) {
	for name := range before {
		if _, still := now[name]; !still {
			names = append(names, name)
		}
	}
	return names
}

func (f *endpoint) upstreamPrompt(ctx context.Context, u *upstreamClient, name string,
	r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	x := newClientRequest(ctx, r)
	x.inputResponses, x.requestState = r.Params.InputResponses, r.Params.RequestState
	return meterUpstreamCall(ctx, f, x, r.Extra, u, promptCall, r.Params.Arguments,
		func(ctx context.Context) (*mcp.GetPromptResult, error) {
			res, err := u.getPrompt(ctx, x, name, r.Params.Arguments)
			if err != nil {
				return nil, err
			}
			out := &mcp.GetPromptResult{
				Description:   res.Description,
				InputRequests: questionsWithoutMeta(res.InputRequests),
				RequestState:  res.RequestState,
			}
			for _, m := range withoutNil(res.Messages) {
				out.Messages = append(out.Messages,
					&mcp.PromptMessage{Role: m.Role, Content: contentWithoutMeta(m.Content)})
			}
			return out, nil
		})
}

func (f *endpoint) upstreamResource(u *upstreamClient) mcp.ResourceHandler {
	return func(ctx context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		x := newClientRequest(ctx, r)
		x.inputResponses, x.requestState = r.Params.InputResponses, r.Params.RequestState
		return meterUpstreamCall(ctx, f, x, r.Extra, u, resourceCall, r.Params.URI,
			func(ctx context.Context) (*mcp.ReadResourceResult, error) {
				res, err := u.readResource(ctx, x, r.Params.URI)
				if err != nil {
					return nil, err
				}
				out := &mcp.ReadResourceResult{
					InputRequests: questionsWithoutMeta(res.InputRequests),
					RequestState:  res.RequestState,
					Cacheable:     mcp.Cacheable{CacheScope: "private"},
				}
				for _, c := range withoutNil(res.Contents) {
					out.Contents = append(out.Contents, resourceWithoutMeta(c))
				}
				return out, nil
			})
	}
}

// complete completes an argument where an upstream knows how.
func (f *endpoint) complete(ctx context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	nothing := &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}
	if r.Params.Ref == nil {
		return nothing, nil
	}
	u, ref := f.gateway.completionOwner(*r.Params.Ref)
	if u == nil {
		return nothing, nil
	}
	x := newClientRequest(ctx, r)
	return meterUpstreamCall(ctx, f, x, r.Extra, u, completionCall, r.Params,
		func(ctx context.Context) (*mcp.CompleteResult, error) {
			res, err := u.complete(ctx, x,
				&mcp.CompleteParams{Ref: &ref, Argument: r.Params.Argument, Context: r.Params.Context})
			if err != nil {
				return nil, err
			}
			return &mcp.CompleteResult{Completion: res.Completion}, nil
		})
}

// meterUpstreamCall sends what is not a tool's call to an upstream, under the lease and at
// its price like one.
func meterUpstreamCall[R any](ctx context.Context, f *endpoint, x *clientRequest, extra *mcp.RequestExtra,
	u *upstreamClient, what string, asks any, send func(context.Context) (R, error)) (result R, err error) {
	backend, held, err := f.callerOf(extra)
	if err != nil {
		return result, protocolError(err)
	}
	if sent, err := stdjson.Marshal(asks); err != nil {
		return result, err
	} else if err := toolproxy.CheckNoLeaseToken(held, append(x.inputAnswers(), sent)...); err != nil {
		return result, protocolError(err)
	}
	x.held = held
	ctx, cancel := f.proxy.UntilClosed(ctx)
	defer cancel()
	_, err = f.proxy.Metered(ctx, backend, held, toolproxy.MeteredCall{
		Tool:    u.Name + "_" + what,
		Timeout: u.Timeout,
		Dispatch: func(ctx context.Context, _ picket.Reservation) (d toolproxy.DispatchResult, err error) {
			result, err = send(ctx)
			if refused := answeredError(err); refused != nil {
				x.rpcError = refused
				return toolproxy.DispatchResult{Result: picket.RawJSON("{}"), Failed: true}, nil
			}
			if err != nil {
				return toolproxy.DispatchResult{}, err
			}
			body, err := stdjson.Marshal(result)
			return toolproxy.DispatchResult{Result: picket.RawJSON("{}"), Used: budget.Usage{Bytes: int64(len(body))}},
				err
		},
	})
	switch {
	case x.rpcError != nil:
		return result, x.rpcError
	case err != nil:
		f.proxy.RecordRefusal(ctx, backend, held, u.Name+"_"+what, err)
		return result, protocolError(err)
	}
	return result, nil
}

// subscribe sends a client the changes of an upstream's resource. The upstream is asked once for
// all clients, and until its connection ends.
func (f *endpoint) subscribe(ctx context.Context, r *mcp.SubscribeRequest) error {
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

func (f *endpoint) unsubscribe(context.Context, *mcp.UnsubscribeRequest) error { return nil }
