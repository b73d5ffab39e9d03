package mcp

import (
	"context"
	stdjson "encoding/json"
	"reflect"
	"slices"
	"strings"

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

// publishedOffers is what a server of ours offers of the upstreams' prompts and
// resources.
type publishedOffers struct {
	prompts   map[string]republished[mcp.Prompt]
	resources map[string]republished[mcp.Resource]
	templates map[string]republished[mcp.ResourceTemplate]
}

// republished is a thing of an upstream as it is offered here.
type republished[T any] struct {
	from         *upstreamClient
	originalName string // its name there
	listing      T
}

func (l republished[T]) equal(other republished[T]) bool {
	return l.from == other.from && l.originalName == other.originalName && reflect.DeepEqual(l.listing, other.listing)
}

// publishOffers brings the prompts and resources of a server up to date. It is
// called by one at a time.
func (f *mcpEndpoint) publishOffers(s *mcp.Server, upstreams []*upstreamClient,
	offers map[*upstreamClient]upstreamCatalog) {
	now := publishedOffers{map[string]republished[mcp.Prompt]{}, map[string]republished[mcp.Resource]{},
		map[string]republished[mcp.ResourceTemplate]{}}
	before := f.published[s]
	for _, u := range upstreams {
		for name, p := range byLocalName(u, offers[u].prompts, promptName) {
			f.publishPrompt(s, u, name, p, before, now)
		}
		for _, r := range offers[u].resources {
			f.publishResource(s, u, r, before, now)
		}
		for _, t := range offers[u].templates {
			f.publishTemplate(s, u, t, before, now)
		}
	}
	s.RemovePrompts(removedNames(before.prompts, now.prompts)...)
	s.RemoveResources(removedNames(before.resources, now.resources)...)
	s.RemoveResourceTemplates(removedNames(before.templates, now.templates)...)
	f.published[s] = now
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

func (f *mcpEndpoint) publishPrompt(s *mcp.Server, u *upstreamClient, name string, theirs *mcp.Prompt,
	before, now publishedOffers) {
	if name == reportPrompt {
		return
	}
	p := republished[mcp.Prompt]{u, theirs.Name,
		mcp.Prompt{
			Name:        name,
			Title:       theirs.Title,
			Description: theirs.Description,
			Arguments:   withoutNil(theirs.Arguments),
			Icons:       theirs.Icons,
		}}
	now.prompts[name] = p
	if !before.prompts[name].equal(p) {
		s.AddPrompt(&p.listing, func(ctx context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return f.upstreamPrompt(ctx, u, theirs.Name, r)
		})
	}
}

// isForeignURI reports whether a URI is not ours.
func isForeignURI(uri string) bool {
	scheme, _, _ := strings.Cut(uri, ":")
	return !strings.EqualFold(scheme, "picket")
}

func (f *mcpEndpoint) publishResource(s *mcp.Server, u *upstreamClient, theirs *mcp.Resource,
	before, now publishedOffers) {
	if _, taken := now.resources[theirs.URI]; taken || !isForeignURI(theirs.URI) {
		return
	}
	r := republished[mcp.Resource]{u, theirs.URI, *theirs}
	r.listing.Meta = nil
	now.resources[theirs.URI] = r
	if !before.resources[theirs.URI].equal(r) {
		f.tryAdd(u, theirs.URI, func() { s.AddResource(&r.listing, f.upstreamResource(u)) })
	}
}

func (f *mcpEndpoint) publishTemplate(s *mcp.Server, u *upstreamClient, theirs *mcp.ResourceTemplate,
	before, now publishedOffers) {
	if _, taken := now.templates[theirs.URITemplate]; taken || !isForeignURI(theirs.URITemplate) {
		return
	}
	t := republished[mcp.ResourceTemplate]{u, theirs.URITemplate, *theirs}
	t.listing.Meta = nil
	now.templates[theirs.URITemplate] = t
	if !before.templates[theirs.URITemplate].equal(t) {
		f.tryAdd(u, theirs.URITemplate, func() { s.AddResourceTemplate(&t.listing, f.upstreamResource(u)) })
	}
}

// tryAdd leaves out what the library panics over.
func (f *mcpEndpoint) tryAdd(u *upstreamClient, uri string, add func()) {
	defer func() {
		if v := recover(); v != nil {
			f.log.Warn("a resource of an upstream is left out", "upstream", u.Name, "uri", web.Shortened(uri), "why", v)
		}
	}()
	add()
}

func (f *mcpEndpoint) upstreamPrompt(ctx context.Context, u *upstreamClient, name string,
	r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	x := &clientRequest{
		session:         r.Session,
		caps:            r.ClientCapabilities(),
		protocolVersion: r.ProtocolVersion(),
		meta:            r.Params.Meta,
		inputResponses:  r.Params.InputResponses,
		requestState:    r.Params.RequestState,
		ctx:             ctx,
	}
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

func (f *mcpEndpoint) upstreamResource(u *upstreamClient) mcp.ResourceHandler {
	return func(ctx context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		x := &clientRequest{
			session:         r.Session,
			caps:            r.ClientCapabilities(),
			protocolVersion: r.ProtocolVersion(),
			meta:            r.Params.Meta,
			inputResponses:  r.Params.InputResponses,
			requestState:    r.Params.RequestState,
			ctx:             ctx,
		}
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
func (f *mcpEndpoint) complete(ctx context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	nothing := &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}
	if r.Params.Ref == nil {
		return nothing, nil
	}
	u, ref := f.gateway.completionOwner(*r.Params.Ref)
	if u == nil {
		return nothing, nil
	}
	x := &clientRequest{
		session:         r.Session,
		caps:            r.ClientCapabilities(),
		protocolVersion: r.ProtocolVersion(),
		meta:            r.Params.Meta,
		ctx:             ctx,
	}
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
func meterUpstreamCall[R any](ctx context.Context, f *mcpEndpoint, x *clientRequest, extra *mcp.RequestExtra,
	u *upstreamClient, what string,
	asks any, send func(context.Context) (R, error)) (result R, err error) {
	door, held, err := f.callerOf(extra)
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
	_, err = f.proxy.Metered(ctx, door, held, toolproxy.MeteredCall{
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
		f.proxy.RecordRefusal(ctx, door, held, u.Name+"_"+what, err)
		return result, protocolError(err)
	}
	return result, nil
}
