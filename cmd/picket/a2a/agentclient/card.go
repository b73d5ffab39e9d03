package agentclient

import (
	"context"
	"net/url"
	"slices"
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// ReadCard reads the card of an agent, and its JSON.
func ReadCard(ctx context.Context, t *Target) (*protocol.AgentCard, []byte, error) {
	return readCard(ctx, newGuard(t))
}

func readCard(ctx context.Context, g *guard) (*protocol.AgentCard, []byte, error) {
	ctx, stop := context.WithTimeout(ctx, CallTimeout)
	defer stop()
	t := g.target
	var raw []byte
	resolver := agentcard.Resolver{Client: g.http(), CardParser: func(body []byte) (*protocol.AgentCard, error) {
		raw = body
		card, err := agentcard.DefaultCardParser(bareScopes(body))
		if err != nil {
			return nil, picket.Refuse(picket.CodeUpstream, "Check that the agent speaks A2A 1.0. Cards of A2A 0.3 have "+
				"another form.", "%s is not the card of an agent of A2A 1.0: %s", t.URL+cardPath, Excerpt(err.Error()))
		}
		return card, nil
	}}
	card, err := resolver.Resolve(ctx, t.URL)
	if err != nil {
		return nil, nil, t.explain(err)
	}
	return card, raw, nil
}

// bindings are those that can be used.
var bindings = []protocol.TransportProtocol{protocol.TransportProtocolJSONRPC, protocol.TransportProtocolHTTPJSON}

// usable are the interfaces of a card to which requests may go.
func (t *Target) usable(card *protocol.AgentCard) (list []*protocol.AgentInterface, err error) {
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
		case !t.mayCall(u):
			elsewhere = append(elsewhere, u.Host)
		default:
			list = append(list, i)
		}
	}
	switch {
	case len(list) > 0:
		return list, nil
	case len(elsewhere) > 0:
		return nil, t.notAllowed(elsewhere[0], "the card of %s sends requests to another host: %s", t.URL,
			Excerpt(strings.Join(elsewhere, ", ")))
	}
	return nil, picket.Refuse(picket.CodeNotAvailable, "Ask the operator of the agent for A2A 1.0 over JSON-RPC or "+
		"HTTP+JSON.",
		"the card of %s has no interface of A2A 1.0 over JSON-RPC or HTTP+JSON; it has: %s", t.URL,
		Excerpt(term.OneLine(strings.Join(spoken, ", "))))
}
