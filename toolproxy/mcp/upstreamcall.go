//lint:file-ignore SA1019 clients and upstreams of the older wire still ask for samples and roots, and log

package mcp

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/outbound"
	"github.com/picket-dev/picket/toolproxy"
)

// Codes of the protocol that a client has to see as they are.
const (
	codeMissingCapability = -32021 // the client could do more
	codeURLElicitation    = -32042 // the client is to open a page first
	codeRejected          = -32005 // the transport did not take a message
)

// connFor finds the connection of a message: that of the client's own session when the upstream
// might ask it something while it works, else the shared one. A command gets a session of the older
// wire even if it speaks the newer one, because on one pair of streams only the connection shows to
// whom messages and questions belong.
func (u *upstreamClient) connFor(ctx context.Context, x *clientRequest) (*upstreamConn, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sharedConn == nil {
		return nil, nil
	}
	if !x.canBeAsked() || u.sharedConn.isStateless() && u.URL != "" {
		return u.sharedConn, nil
	}
	owned, known := u.ownedConns[x.session]
	if owned != nil {
		select {
		case <-owned.closed:
			delete(u.ownedConns, x.session)
			known = false
			u.closing.Go(owned.close)
		default:
			return owned, nil
		}
	}
	if known || len(u.ownedConns) >= maxOwnedConns && !u.evictIdle() {
		return u.sharedConn, nil // it is being opened, or all are at work: without questions then
	}
	u.ownedConns[x.session] = nil
	u.mu.Unlock()
	owned, err := u.conns.connect(ctx, x.session)
	u.mu.Lock()
	if _, mine := u.ownedConns[x.session]; err != nil || !mine {
		delete(u.ownedConns, x.session)
		if err == nil {
			u.closing.Go(owned.close) // the upstream or the session went meanwhile
		}
		return u.sharedConn, nil
	}
	u.ownedConns[x.session] = owned
	return owned, nil
}

// evictIdle closes the connection that has been idle for longest: clients leave
// sessions behind without a word. The caller holds the lock.
func (u *upstreamClient) evictIdle() bool {
	var idle *upstreamConn
	for _, l := range u.ownedConns {
		if since, ok := l.idle(); ok && (idle == nil || since.Before(idle.lastUsed)) {
			idle = l
		}
	}
	if idle == nil {
		return false
	}
	delete(u.ownedConns, idle.owner)
	u.closing.Go(idle.close)
	return true
}

// closeOwnedConn closes the connection of a session that has ended.
func (u *upstreamClient) closeOwnedConn(s *mcp.ServerSession) {
	u.mu.Lock()
	owned := u.ownedConns[s]
	delete(u.ownedConns, s)
	u.mu.Unlock()
	if owned != nil {
		owned.close()
	}
}

// send prepares a message for the upstream: who answers its questions, the token of its progress,
// and where its log lines go.
func (u *upstreamClient) send(ctx context.Context, x *clientRequest,
	send func(ctx context.Context, s *mcp.ClientSession, meta mcp.Meta) error) error {
	l, err := u.connFor(ctx, x)
	if err != nil {
		return err
	}
	if l == nil {
		return u.unavailable()
	}
	select {
	case <-l.closed:
		return u.unavailable()
	default:
	}
	err = u.sendOn(ctx, l, x, send)
	// The upstream has answered that it does not know the session, so no tool has
	// run. The message is not sent again: the next call opens a new session.
	if errors.Is(err, mcp.ErrSessionMissing) {
		if l.owner != nil {
			u.closeOwnedConn(l.owner)
		}
		return u.unavailable()
	}
	return upstreamError(err)
}

func (u *upstreamClient) sendOn(ctx context.Context, l *upstreamConn, x *clientRequest,
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
	ctx, theirs, leave := l.track(ctx, x, token)
	defer leave()
	if token != nil {
		meta["progressToken"] = theirs
	}
	if x != nil && l.isStateless() {
		if level, ok := x.meta[mcp.MetaKeyLogLevel]; ok {
			meta[mcp.MetaKeyLogLevel] = level
		} else if !x.isStateless() {
			meta[mcp.MetaKeyLogLevel] = "info" // the session's own level decides what is shown
		}
		if x.isStateless() || x.canBeAsked() {
			meta[mcp.MetaKeyClientCapabilities] = capabilitiesMeta(askableCapabilities(x.caps))
		}
	}
	return send(ctx, l.session, meta)
}

// capabilitiesMeta are capabilities as a message carries them.
func capabilitiesMeta(c *mcp.ClientCapabilities) map[string]any {
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

// upstreamError tells an error before which nothing reached the upstream from any other.
func upstreamError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*outbound.UnsentError](err); ok {
		return toolproxy.NotSent(picket.Refuse(picket.CodeUpstream,
			"Wait a moment and call it again, or do without it.", "the MCP server cannot be reached").WithCause(err))
	}
	return untrustedError{err}
}

// answeredError is an error that the upstream itself has answered; nil when err
// is of another kind.
func answeredError(err error) *jsonrpc.Error {
	var e *jsonrpc.Error
	if !errors.As(err, &e) || e.Code == codeRejected || errors.Is(err, mcp.ErrConnectionClosed) {
		return nil
	}
	return boundedRPCError(e)
}

// round is one message of an exchange.
type round struct {
	meta    mcp.Meta
	answers mcp.InputResponseMap // to what the upstream wanted to know
	state   string               // of the exchange, which the upstream alone reads
}

// sendRounds sends a message, asking the client in between where it can be asked
// and the upstream wants to know. To a client of the newer wire the questions
// go as they are. asked says of an answer what the upstream wants to know, and its state.
func sendRounds[R any](ctx context.Context, u *upstreamClient, x *clientRequest,
	send func(context.Context, *mcp.ClientSession, round) (R, error),
	asked func(R) (wanted mcp.InputRequestMap, state string)) (result R, err error) {
	var r round
	if x != nil {
		r.answers, r.state = x.inputResponses, x.requestState
	}
	for range maxRounds {
		var wanted mcp.InputRequestMap
		err := u.send(ctx, x, func(ctx context.Context, s *mcp.ClientSession, meta mcp.Meta) (err error) {
			r.meta = meta
			if result, err = send(ctx, s, r); err == nil {
				wanted, r.state = asked(result)
			}
			return err
		})
		if err != nil || wanted == nil || x.isStateless() {
			return result, err
		}
		if !x.canBeAsked() {
			return result, picket.Refuse(picket.CodeUpstream, "Do without it, or use an MCP client that can be asked.",
				"the MCP server %s wants an answer that this client cannot give", u.Name)
		}
		if r.answers, err = answerAll(x.ctx, x, wanted); err == nil {
			err = x.checkNoLeaseToken(r.answers)
		}
		if err != nil {
			return result, picket.Refuse(picket.CodeUpstream, "Do without it, or answer what is asked.",
				"the MCP server %s asked, and got no answer", u.Name).WithCause(err)
		}
	}
	return result, picket.Refuse(picket.CodeUpstream, "Do without it.", "the MCP server %s asked more than %d times",
		u.Name, maxRounds)
}

func (u *upstreamClient) callTool(ctx context.Context, x *clientRequest, name string,
	args stdjson.RawMessage) (*mcp.CallToolResult, error) {
	send := func(ctx context.Context, s *mcp.ClientSession, r round) (*mcp.CallToolResult, error) {
		return s.CallTool(ctx, &mcp.CallToolParams{Meta: r.meta, Name: name, Arguments: args,
			InputResponses: r.answers, RequestState: r.state})
	}
	return sendRounds(ctx, u, x, send,
		func(r *mcp.CallToolResult) (mcp.InputRequestMap, string) { return r.InputRequests, r.RequestState })
}

func (u *upstreamClient) getPrompt(ctx context.Context, x *clientRequest, name string,
	args map[string]string) (*mcp.GetPromptResult, error) {
	send := func(ctx context.Context, s *mcp.ClientSession, r round) (*mcp.GetPromptResult, error) {
		return s.GetPrompt(ctx, &mcp.GetPromptParams{Meta: r.meta, Name: name, Arguments: args,
			InputResponses: r.answers, RequestState: r.state})
	}
	return sendRounds(ctx, u, x, send,
		func(r *mcp.GetPromptResult) (mcp.InputRequestMap, string) { return r.InputRequests, r.RequestState })
}

func (u *upstreamClient) readResource(ctx context.Context, x *clientRequest,
	uri string) (*mcp.ReadResourceResult, error) {
	send := func(ctx context.Context, s *mcp.ClientSession, r round) (*mcp.ReadResourceResult, error) {
		return s.ReadResource(ctx, &mcp.ReadResourceParams{Meta: r.meta, URI: uri,
			InputResponses: r.answers, RequestState: r.state})
	}
	return sendRounds(ctx, u, x, send,
		func(r *mcp.ReadResourceResult) (mcp.InputRequestMap, string) { return r.InputRequests, r.RequestState })
}

func (u *upstreamClient) complete(ctx context.Context, x *clientRequest,
	p *mcp.CompleteParams) (result *mcp.CompleteResult, err error) {
	err = u.send(ctx, x, func(ctx context.Context, s *mcp.ClientSession, meta mcp.Meta) (err error) {
		result, err = s.Complete(ctx,
			&mcp.CompleteParams{Meta: meta, Ref: p.Ref, Argument: p.Argument, Context: p.Context})
		return err
	})
	return result, err
}

// maxSubscriptions bounds the resources of an upstream that are watched.
const maxSubscriptions = 1000

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
		return picket.Refuse(picket.CodeUpstream, "Read the resource when you need it.", "%s does not report changes",
			u.Name).WithCause(err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.subscribed[uri] = true
	return nil
}
