package toolproxy

import (
	"context"
	stdjson "encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// What an upstream has beside tools is paid for under these names, after the
// upstream's own and an underscore. No tool can have them.
const (
	promptCall     = "prompts/get"
	resourceCall   = "resources/read"
	completionCall = "completion/complete"
)

// shown is what a server of ours offers of the upstreams' prompts and
// resources.
type shown struct {
	prompts   map[string]lent[mcp.Prompt]
	resources map[string]lent[mcp.Resource]
	templates map[string]lent[mcp.ResourceTemplate]
}

// lent is a thing of an upstream as it is offered here.
type lent[T any] struct {
	from   *upstream
	theirs string // its name there
	as     T
}

func (l lent[T]) is(other lent[T]) bool {
	return l.from == other.from && l.theirs == other.theirs && reflect.DeepEqual(l.as, other.as)
}

// showOffers brings the prompts and resources of a server up to date. It is
// called by one at a time.
func (f *mcpFace) showOffers(s *mcp.Server, upstreams []*upstream, offers map[*upstream]offer) {
	now := shown{map[string]lent[mcp.Prompt]{}, map[string]lent[mcp.Resource]{},
		map[string]lent[mcp.ResourceTemplate]{}}
	before := f.shown[s]
	for _, u := range upstreams {
		for name, p := range named(u, offers[u].prompts, promptName) {
			f.showPrompt(s, u, name, p, before, now)
		}
		for _, r := range offers[u].resources {
			f.showResource(s, u, r, before, now)
		}
		for _, t := range offers[u].templates {
			f.showTemplate(s, u, t, before, now)
		}
	}
	s.RemovePrompts(gone(before.prompts, now.prompts)...)
	s.RemoveResources(gone(before.resources, now.resources)...)
	s.RemoveResourceTemplates(gone(before.templates, now.templates)...)
	f.shown[s] = now
}

// present leaves out what an upstream said to be null.
func present[T any](list []*T) []*T {
	return slices.DeleteFunc(list, func(item *T) bool { return item == nil })
}

func gone[T any](before, now map[string]T) (names []string) {
	for name := range before {
		if _, still := now[name]; !still {
			names = append(names, name)
		}
	}
	return names
}

func (f *mcpFace) showPrompt(s *mcp.Server, u *upstream, name string, theirs *mcp.Prompt, before, now shown) {
	if name == reportPrompt {
		return
	}
	p := lent[mcp.Prompt]{u, theirs.Name,
		mcp.Prompt{
			Name:        name,
			Title:       theirs.Title,
			Description: theirs.Description,
			Arguments:   present(theirs.Arguments),
			Icons:       theirs.Icons,
		}}
	now.prompts[name] = p
	if !before.prompts[name].is(p) {
		s.AddPrompt(&p.as, func(ctx context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return f.upstreamPrompt(ctx, u, theirs.Name, r)
		})
	}
}

// foreign reports whether a URI is not ours.
func foreign(uri string) bool {
	scheme, _, _ := strings.Cut(uri, ":")
	return !strings.EqualFold(scheme, "picket")
}

func (f *mcpFace) showResource(s *mcp.Server, u *upstream, theirs *mcp.Resource, before, now shown) {
	if _, taken := now.resources[theirs.URI]; taken || !foreign(theirs.URI) {
		return
	}
	r := lent[mcp.Resource]{u, theirs.URI, *theirs}
	r.as.Meta = nil
	now.resources[theirs.URI] = r
	if !before.resources[theirs.URI].is(r) {
		f.tryAdd(u, theirs.URI, func() { s.AddResource(&r.as, f.upstreamResource(u)) })
	}
}

func (f *mcpFace) showTemplate(s *mcp.Server, u *upstream, theirs *mcp.ResourceTemplate, before, now shown) {
	if _, taken := now.templates[theirs.URITemplate]; taken || !foreign(theirs.URITemplate) {
		return
	}
	t := lent[mcp.ResourceTemplate]{u, theirs.URITemplate, *theirs}
	t.as.Meta = nil
	now.templates[theirs.URITemplate] = t
	if !before.templates[theirs.URITemplate].is(t) {
		f.tryAdd(u, theirs.URITemplate, func() { s.AddResourceTemplate(&t.as, f.upstreamResource(u)) })
	}
}

// tryAdd leaves out what the library panics over.
func (f *mcpFace) tryAdd(u *upstream, uri string, add func()) {
	defer func() {
		if v := recover(); v != nil {
			f.log.Warn("a resource of an upstream is left out", "upstream", u.Name, "uri", clip(uri), "why", v)
		}
	}()
	add()
}

func (f *mcpFace) upstreamPrompt(ctx context.Context, u *upstream, name string,
	r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	x := &exchange{session: r.Session, caps: r.ClientCapabilities(), wire: r.ProtocolVersion(), meta: r.Params.Meta,
		inputs: r.Params.InputResponses, state: r.Params.RequestState, ctx: ctx}
	return paid(ctx, f, x, r.Extra, u, promptCall, r.Params.Arguments,
		func(ctx context.Context) (*mcp.GetPromptResult, error) {
			res, err := u.getPrompt(ctx, x, name, r.Params.Arguments)
			if err != nil {
				return nil, err
			}
			out := &mcp.GetPromptResult{
				Description:   res.Description,
				InputRequests: bare(res.InputRequests),
				RequestState:  res.RequestState,
			}
			for _, m := range present(res.Messages) {
				out.Messages = append(out.Messages, &mcp.PromptMessage{Role: m.Role, Content: bareContent(m.Content)})
			}
			return out, nil
		})
}

func (f *mcpFace) upstreamResource(u *upstream) mcp.ResourceHandler {
	return func(ctx context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		x := &exchange{session: r.Session, caps: r.ClientCapabilities(), wire: r.ProtocolVersion(), meta: r.Params.Meta,
			inputs: r.Params.InputResponses, state: r.Params.RequestState, ctx: ctx}
		return paid(ctx, f, x, r.Extra, u, resourceCall, r.Params.URI,
			func(ctx context.Context) (*mcp.ReadResourceResult, error) {
				res, err := u.readResource(ctx, x, r.Params.URI)
				if err != nil {
					return nil, err
				}
				out := &mcp.ReadResourceResult{
					InputRequests: bare(res.InputRequests),
					RequestState:  res.RequestState,
					Cacheable:     mcp.Cacheable{CacheScope: "private"},
				}
				for _, c := range present(res.Contents) {
					out.Contents = append(out.Contents, bareResource(c))
				}
				return out, nil
			})
	}
}

// completion completes an argument where an upstream knows how.
func (f *mcpFace) completion(ctx context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	nothing := &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}
	if r.Params.Ref == nil {
		return nothing, nil
	}
	u, ref := f.p.gateway.completes(*r.Params.Ref)
	if u == nil {
		return nothing, nil
	}
	x := &exchange{
		session: r.Session,
		caps:    r.ClientCapabilities(),
		wire:    r.ProtocolVersion(),
		meta:    r.Params.Meta,
		ctx:     ctx,
	}
	return paid(ctx, f, x, r.Extra, u, completionCall, r.Params,
		func(ctx context.Context) (*mcp.CompleteResult, error) {
			res, err := u.complete(ctx, x,
				&mcp.CompleteParams{Ref: &ref, Argument: r.Params.Argument, Context: r.Params.Context})
			if err != nil {
				return nil, err
			}
			return &mcp.CompleteResult{Completion: res.Completion}, nil
		})
}

// paid sends what is no tool's call to an upstream, under the lease and at
// its price like one.
func paid[R any](ctx context.Context, f *mcpFace, x *exchange, extra *mcp.RequestExtra, u *upstream, what string,
	asks any, send func(context.Context) (R, error)) (result R, err error) {
	door, held, err := f.caller(extra)
	if err != nil {
		return result, protocolError(err)
	}
	if sent, err := stdjson.Marshal(asks); err != nil {
		return result, err
	} else if err := keepsLease(held, append(x.answers(), sent)...); err != nil {
		return result, protocolError(err)
	}
	x.held = held
	ctx, cancel := f.p.untilClosed(ctx)
	defer cancel()
	_, err = f.p.Metered(ctx, door, held, MeteredCall{Tool: u.Name + "_" + what, Timeout: u.Timeout,
		Dispatch: func(ctx context.Context, _ picket.Reservation) (d Dispatched, err error) {
			result, err = send(ctx)
			if refused := answeredError(err); refused != nil {
				x.protocol = refused
				return Dispatched{Result: picket.RawJSON("{}"), Failed: true}, nil
			}
			if err != nil {
				return Dispatched{}, err
			}
			body, err := stdjson.Marshal(result)
			return Dispatched{Result: picket.RawJSON("{}"), Used: budget.Use{Bytes: int64(len(body))}}, err
		}})
	switch {
	case x.protocol != nil:
		return result, x.protocol
	case err != nil:
		f.p.recordRefusal(ctx, door, held, u.Name+"_"+what, err)
		return result, protocolError(err)
	}
	return result, nil
}
