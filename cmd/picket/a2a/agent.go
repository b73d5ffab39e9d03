package a2a

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// agent is an agent that a command talks to.
type agent struct {
	*target
	client *a2aclient.Client
	// streams reports whether the agent streams what happens to tasks.
	streams bool
	// history is how many messages of a task are read with it; nil: as many as the agent likes.
	history *int
}

// open prepares the calls to an agent. The addresses of an agent of the Picket server are known. Those of any other
// agent stand in its card.
func open(ctx context.Context, t *target) (*agent, error) {
	g := t.guard()
	if t.server != nil {
		return t.dial(ctx, g, true, []*protocol.AgentInterface{
			protocol.NewAgentInterface(t.base+"/a2a", protocol.TransportProtocolJSONRPC)})
	}
	card, _, err := readCard(ctx, t, g)
	if err != nil {
		return nil, err
	}
	interfaces, err := t.usable(card)
	if err != nil {
		return nil, err
	}
	if g.credential != "" {
		if g.set, err = howToAuthenticate(card); err != nil {
			return nil, err
		}
	}
	return t.dial(ctx, g, card.Capabilities.Streaming, interfaces)
}

func (t *target) guard() *guard {
	g := &guard{next: client.DefaultHTTP.Transport, target: t, credential: t.credential, set: bearer}
	if t.worker != nil {
		g.next = t.worker.transport
	}
	return g
}

// http is the client of HTTP for the calls. It follows no redirect, which could lead to another host.
func (g *guard) http() *http.Client {
	return &http.Client{Transport: g, CheckRedirect: client.DefaultHTTP.CheckRedirect}
}

// dial makes the client that calls one of the interfaces.
func (t *target) dial(ctx context.Context, g *guard, streams bool, interfaces []*protocol.AgentInterface,
) (*agent, error) {
	c, err := a2aclient.NewFromEndpoints(ctx, interfaces, a2aclient.WithDefaultsDisabled(),
		a2aclient.WithJSONRPCTransport(g.http()), a2aclient.WithRESTTransport(g.http()))
	if err != nil {
		return nil, t.explain(err)
	}
	return &agent{target: t, client: c, streams: streams}, nil
}

// readCard reads the card of an agent, and its JSON.
func readCard(ctx context.Context, t *target, g *guard) (*protocol.AgentCard, []byte, error) {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	var raw []byte
	resolver := agentcard.Resolver{Client: g.http(), CardParser: func(body []byte) (*protocol.AgentCard, error) {
		raw = body
		card, err := agentcard.DefaultCardParser(bareScopes(body))
		if err != nil {
			return nil, picket.Refuse(picket.CodeUpstream, "Check that the agent speaks A2A 1.0. Cards of A2A 0.3 have "+
				"another form.", "%s is not the card of an agent of A2A 1.0: %s", t.base+cardPath, excerpt(err.Error()))
		}
		return card, nil
	}}
	card, err := resolver.Resolve(ctx, t.base)
	if err != nil {
		return nil, nil, t.explain(err)
	}
	return card, raw, nil
}

// bindings are those that can be used.
var bindings = []protocol.TransportProtocol{protocol.TransportProtocolJSONRPC, protocol.TransportProtocolHTTPJSON}

// usable are the interfaces of a card to which requests may go.
func (t *target) usable(card *protocol.AgentCard) (list []*protocol.AgentInterface, err error) {
	var elsewhere, spoken []string
	for _, i := range card.SupportedInterfaces {
		if i == nil {
			continue
		}
		version, _, _ := strings.Cut(strings.TrimPrefix(string(i.ProtocolVersion), "v"), ".")
		u, err := url.Parse(i.URL)
		switch {
		case version != "1" || !slices.Contains(bindings, i.ProtocolBinding) || err != nil:
			spoken = append(spoken, string(i.ProtocolBinding)+" "+string(i.ProtocolVersion))
		case !t.allows(u):
			elsewhere = append(elsewhere, u.Host)
		default:
			list = append(list, i)
		}
	}
	switch {
	case len(list) > 0:
		return list, nil
	case len(elsewhere) > 0:
		return nil, picket.Refuse(exit.CodeUsage, t.allowRemedy(elsewhere[0]), "the card of %s sends requests to another host: %s", t.base,
			excerpt(strings.Join(elsewhere, ", ")))
	}
	return nil, picket.Refuse(picket.CodeNotAvailable, "Ask for an interface with JSON-RPC or HTTP+JSON of version 1.0.",
		"the card of %s has no interface of A2A 1.0 over JSON-RPC or HTTP+JSON; it has: %s", t.base,
		excerpt(term.OneLine(strings.Join(spoken, ", "))))
}

// task reads a task with its artifacts and its history.
func (a *agent) task(ctx context.Context, id protocol.TaskID) (*protocol.Task, error) {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	t, err := a.client.GetTask(ctx, &protocol.GetTaskRequest{ID: id, HistoryLength: a.history})
	if err != nil {
		return nil, a.explain(err)
	}
	if t.ID == "" {
		return nil, notA2A("the task that the agent answered has no id")
	}
	return t, nil
}
