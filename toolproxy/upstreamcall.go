//lint:file-ignore SA1019 clients and upstreams of the older wire still ask for samples and roots, and log

package toolproxy

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/outbound"
)

// Codes of the protocol that a client has to see as they are.
const (
	codeMissingCapability = -32021 // the client could do more
	codeURLElicitation    = -32042 // the client is to open a page first
	codeRejected          = -32005 // the transport did not take a message
)

type exchangeKey struct{}

// exchange is one message of an MCP client while it is answered. A call that
// came over plain HTTP has none.
type exchange struct {
	session  *mcp.ServerSession
	held     picket.Held // whose message it is
	caps     *mcp.ClientCapabilities
	wire     string
	meta     mcp.Meta
	inputs   mcp.InputResponseMap
	state    string
	ctx      context.Context // of the handler: what is sent with it goes to the client's own stream
	upstream bool            // an upstream's tool answered
	protocol *jsonrpc.Error  // to be answered instead of a result
}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// isNew reports whether the client answers questions that stand in a result.
func (x *exchange) isNew() bool { return x != nil && x.wire >= newWire }

// canBeAsked reports whether the client answers questions while a call is under
// way: only a client with a session does.
func (x *exchange) canBeAsked() bool {
	return x != nil && !x.isNew() && x.session.ID() != "" && x.caps != nil &&
		(x.caps.Sampling != nil || x.caps.Elicitation != nil || x.caps.RootsV2 != nil)
}

// linkFor finds the connection of a message: that of the client's own session
// when the upstream might ask it something while it works, else the shared one.
// A command gets one of the older wire even when it speaks the newer: on one
// pair of streams nothing but the connection tells whose words and questions
// they are.
func (u *upstream) linkFor(ctx context.Context, x *exchange) (*link, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.shared == nil {
		return nil, nil
	}
	if !x.canBeAsked() || u.shared.isNew() && u.URL != "" {
		return u.shared, nil
	}
	owned, known := u.owned[x.session]
	if owned != nil {
		select {
		case <-owned.gone:
			delete(u.owned, x.session)
			known = false
			u.closing.Go(owned.close)
		default:
			return owned, nil
		}
	}
	if known || len(u.owned) >= maxOwned && !u.evict() {
		return u.shared, nil // it is being opened, or all are at work: without questions then
	}
	u.owned[x.session] = nil
	u.mu.Unlock()
	owned, err := u.connect(ctx, x.session)
	u.mu.Lock()
	if _, mine := u.owned[x.session]; err != nil || !mine {
		delete(u.owned, x.session)
		if err == nil {
			u.closing.Go(owned.close) // the upstream or the session went meanwhile
		}
		return u.shared, nil
	}
	u.owned[x.session] = owned
	return owned, nil
}

// evict closes the connection that has been idle for longest: clients leave
// sessions behind without a word. The caller holds the lock.
func (u *upstream) evict() bool {
	var idle *link
	for _, l := range u.owned {
		if since, ok := l.idle(); ok && (idle == nil || since.Before(idle.used)) {
			idle = l
		}
	}
	if idle == nil {
		return false
	}
	delete(u.owned, idle.owner)
	u.closing.Go(idle.close)
	return true
}

// forget closes the connection of a session that has ended.
func (u *upstream) forget(s *mcp.ServerSession) {
	u.mu.Lock()
	owned := u.owned[s]
	delete(u.owned, s)
	u.mu.Unlock()
	if owned != nil {
		owned.close()
	}
}

// onto makes a message's way to the upstream: who asks there for more, what
// its progress is called, and where its words go.
func (u *upstream) onto(ctx context.Context, x *exchange,
	send func(ctx context.Context, s *mcp.ClientSession, meta mcp.Meta) error) error {
	l, err := u.linkFor(ctx, x)
	if err != nil {
		return err
	}
	if l == nil {
		return u.away()
	}
	select {
	case <-l.gone:
		return u.away()
	default:
	}
	err = u.through(ctx, l, x, send)
	// The upstream has answered that it does not know the session, so no tool has
	// run. The message is not sent again: the next call opens a new session.
	if errors.Is(err, mcp.ErrSessionMissing) {
		if l.owner != nil {
			u.forget(l.owner)
		}
		return u.away()
	}
	return sent(err)
}

func (u *upstream) through(ctx context.Context, l *link, x *exchange,
	send func(context.Context, *mcp.ClientSession, mcp.Meta) error) (err error) {
	defer func() { // the library panics over some answers
		if v := recover(); v != nil {
			err = fmt.Errorf("the answer of %s cannot be read: %v", u.Name, v)
		}
	}()
	var token any
	meta := mcp.Meta{}
	if x != nil {
		token = x.meta["progressToken"]
	}
	ctx, theirs, leave := l.enter(ctx, x, token)
	defer leave()
	if token != nil {
		meta["progressToken"] = theirs
	}
	if x != nil && l.isNew() {
		if level, ok := x.meta[mcp.MetaKeyLogLevel]; ok {
			meta[mcp.MetaKeyLogLevel] = level
		} else if !x.isNew() {
			meta[mcp.MetaKeyLogLevel] = "info" // the session's own level decides what is shown
		}
		if x.isNew() || x.canBeAsked() {
			meta[mcp.MetaKeyClientCapabilities] = onWire(asked(x.caps))
		}
	}
	return send(ctx, l.session, meta)
}

// onWire are capabilities as a message carries them.
func onWire(c *mcp.ClientCapabilities) map[string]any {
	out := map[string]any{}
	if c.Sampling != nil {
		out["sampling"] = c.Sampling
	}
	if c.Elicitation != nil {
		out["elicitation"] = c.Elicitation
	}
	if c.RootsV2 != nil {
		out["roots"] = c.RootsV2
	}
	return out
}

// sent tells an error before which nothing reached the upstream from any other.
func sent(err error) error {
	if err == nil {
		return nil
	}
	var unsent *outbound.Unsent
	if errors.As(err, &unsent) {
		return NeverLeft(picket.Refuse(picket.CodeUpstream, "Wait a moment and call it again, or do without it.",
			"the MCP server cannot be reached").Because(err))
	}
	return briefly{err}
}

// answeredError is an error that the upstream itself has answered; nil when err
// is of another kind.
func answeredError(err error) *jsonrpc.Error {
	var e *jsonrpc.Error
	if !errors.As(err, &e) || e.Code == codeRejected || errors.Is(err, mcp.ErrConnectionClosed) {
		return nil
	}
	return boundedError(e)
}

// round sends one message of an exchange: with the answers that came for what
// the upstream wanted to know. It returns what the upstream wants to know now.
type round func(ctx context.Context, s *mcp.ClientSession, meta mcp.Meta, answers mcp.InputResponseMap,
	state string) (wanted mcp.InputRequestMap, next string, err error)

// rounds sends a message, asking the client in between where it can be asked
// and the upstream wants to know. To a client of the newer wire the questions
// go as they are.
func (u *upstream) rounds(ctx context.Context, x *exchange, send round) error {
	var answers mcp.InputResponseMap
	var state string
	if x != nil {
		answers, state = x.inputs, x.state
	}
	for range maxRounds {
		var wanted mcp.InputRequestMap
		err := u.onto(ctx, x, func(ctx context.Context, s *mcp.ClientSession, meta mcp.Meta) (err error) {
			wanted, state, err = send(ctx, s, meta, answers, state)
			return err
		})
		if err != nil || wanted == nil || x.isNew() {
			return err
		}
		if !x.canBeAsked() {
			return picket.Refuse(picket.CodeUpstream, "Do without it, or use an MCP client that can be asked.",
				"the MCP server %s wants an answer that this client cannot give", u.Name)
		}
		if answers, err = answerAll(x.ctx, x, wanted); err == nil {
			err = x.keeps(answers)
		}
		if err != nil {
			return picket.Refuse(picket.CodeUpstream, "Do without it, or answer what is asked.",
				"the MCP server %s asked, and got no answer", u.Name).Because(err)
		}
	}
	return picket.Refuse(picket.CodeUpstream, "Do without it.", "the MCP server %s asked more than %d times", u.Name,
		maxRounds)
}

func (u *upstream) callTool(ctx context.Context, x *exchange, name string,
	args stdjson.RawMessage) (result *mcp.CallToolResult, err error) {
	err = u.rounds(ctx, x, func(ctx context.Context, s *mcp.ClientSession, meta mcp.Meta, answers mcp.InputResponseMap,
		state string) (mcp.InputRequestMap, string, error) {
		result, err = s.CallTool(ctx,
			&mcp.CallToolParams{Meta: meta, Name: name, Arguments: args, InputResponses: answers, RequestState: state})
		if err != nil {
			return nil, "", err
		}
		return result.InputRequests, result.RequestState, nil
	})
	return result, err
}

func (u *upstream) getPrompt(ctx context.Context, x *exchange, name string,
	args map[string]string) (result *mcp.GetPromptResult, err error) {
	err = u.rounds(ctx, x, func(ctx context.Context, s *mcp.ClientSession, meta mcp.Meta, answers mcp.InputResponseMap,
		state string) (mcp.InputRequestMap, string, error) {
		result, err = s.GetPrompt(ctx,
			&mcp.GetPromptParams{Meta: meta, Name: name, Arguments: args, InputResponses: answers, RequestState: state})
		if err != nil {
			return nil, "", err
		}
		return result.InputRequests, result.RequestState, nil
	})
	return result, err
}

func (u *upstream) readResource(ctx context.Context, x *exchange,
	uri string) (result *mcp.ReadResourceResult, err error) {
	err = u.rounds(ctx, x, func(ctx context.Context, s *mcp.ClientSession, meta mcp.Meta, answers mcp.InputResponseMap,
		state string) (mcp.InputRequestMap, string, error) {
		result, err = s.ReadResource(ctx,
			&mcp.ReadResourceParams{Meta: meta, URI: uri, InputResponses: answers, RequestState: state})
		if err != nil {
			return nil, "", err
		}
		return result.InputRequests, result.RequestState, nil
	})
	return result, err
}

func (u *upstream) complete(ctx context.Context, x *exchange,
	p *mcp.CompleteParams) (result *mcp.CompleteResult, err error) {
	err = u.onto(ctx, x, func(ctx context.Context, s *mcp.ClientSession, meta mcp.Meta) (err error) {
		result, err = s.Complete(ctx,
			&mcp.CompleteParams{Meta: meta, Ref: p.Ref, Argument: p.Argument, Context: p.Context})
		return err
	})
	return result, err
}
