//lint:file-ignore SA1019 clients and upstreams of the older wire still ask for samples and roots, and log

package mcp

import (
	"context"
	"crypto/rand"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket/internal/web"
)

// connectTimeout bounds the opening of a connection, and the reading of all lists.
const connectTimeout = 30 * time.Second

// connOptions are what all connections to an upstream share.
type connOptions struct {
	config          Upstream
	log             *slog.Logger
	listsChanged    func()           // called when its lists have changed
	resourceUpdated func(uri string) // called when a resource has changed
}

// upstreamConn is one connection to an upstream. The shared connection serves every call and cannot
// ask anybody. A connection that a session owns passes the upstream's questions on to that session
// only.
type upstreamConn struct {
	connOptions
	owner          *mcp.ServerSession // nil: shared
	session        *mcp.ClientSession
	closeTransport func() // of the transport, when it has an own end
	closed         chan struct{}
	err            error // why it is gone; after gone

	connected atomic.Bool // the upstream has accepted the connection

	mu       sync.Mutex
	calls    map[string]*activeCall // by the progress token the upstream was given
	latest   *activeCall
	lastUsed time.Time // when the last call began or ended
}

// activeCall is a message under way to an upstream.
type activeCall struct {
	request       *clientRequest
	progressToken any // the client's own progress token; nil: it wants none
}

type activeCallKey struct{}

// connect opens a connection; owner is who answers its questions, nil for the
// shared one.
func (o connOptions) connect(ctx context.Context, owner *mcp.ServerSession) (*upstreamConn, error) {
	l := &upstreamConn{
		connOptions:    o,
		owner:          owner,
		closed:         make(chan struct{}),
		calls:          map[string]*activeCall{},
		closeTransport: func() {},
		lastUsed:       time.Now(),
	}
	transport, err := l.transport()
	if err != nil {
		return nil, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "picket-gateway", Version: "1"}, l.clientOptions())
	client.AddReceivingMiddleware(l.forwardRequests)
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var opts mcp.ClientSessionOptions
	if owner != nil {
		opts.ProtocolVersion = statefulProtocol
	}
	if l.session, err = client.Connect(ctx, transport, &opts); err != nil {
		l.closeTransport()
		return nil, err
	}
	l.connected.Store(true)
	go func() {
		l.err = l.session.Wait()
		if l.err == nil {
			l.err = errors.New("it closed the connection")
		}
		close(l.closed)
	}()
	if caps := l.session.InitializeResult().Capabilities; caps != nil && caps.Logging != nil && !l.isStateless() {
		_ = l.session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "info"}) // some send nothing before
	}
	return l, nil
}

// clientOptions say what the upstream may ask of us.
func (l *upstreamConn) clientOptions() *mcp.ClientOptions {
	opts := &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		// What an upstream asks in a result is for the client to answer.
		MultiRoundTrip:             &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { l.listsChanged() },
		PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { l.listsChanged() },
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { l.listsChanged() },
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			if r.Params != nil {
				l.resourceUpdated(r.Params.URI)
			}
		},
	}
	if l.owner != nil {
		opts.Capabilities = askableCapabilities(l.owner.InitializeParams().Capabilities)
	}
	return opts
}

// askableCapabilities is what a client can be asked, of all that it can do.
func askableCapabilities(c *mcp.ClientCapabilities) *mcp.ClientCapabilities {
	if c == nil {
		return &mcp.ClientCapabilities{}
	}
	return &mcp.ClientCapabilities{Sampling: c.Sampling, Elicitation: c.Elicitation, RootsV2: c.RootsV2}
}

func (l *upstreamConn) isStateless() bool {
	return l.session.InitializeResult().ProtocolVersion >= statelessProtocol
}

// close ends the connection, and the process behind it.
func (l *upstreamConn) close() {
	ended := make(chan struct{})
	go func() {
		_ = l.session.Close()
		close(ended)
	}()
	l.closeTransport()
	<-ended
	<-l.closed
}

// track notes a call; leave must be called when it is over. The context and
// the token lead what the upstream says about the call back to it.
func (l *upstreamConn) track(ctx context.Context, x *clientRequest,
	token any) (_ context.Context, theirs string, leave func()) {
	c := &activeCall{request: x, progressToken: token}
	theirs = rand.Text()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[theirs], l.latest, l.lastUsed = c, c, time.Now()
	return context.WithValue(ctx, activeCallKey{}, c), theirs, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.calls, theirs)
		l.lastUsed = time.Now()
		if l.latest == c {
			l.latest = nil
			for _, other := range l.calls {
				l.latest = other
			}
		}
	}
}

// idle reports since when there has been no call; ok is false while there is one.
func (l *upstreamConn) idle() (since time.Time, ok bool) {
	if l == nil {
		return since, false // it is being opened
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastUsed, len(l.calls) == 0
}

// currentCall finds the call that an upstream's question or word is about: in a
// connection of one session, any of its calls.
func (l *upstreamConn) currentCall() *activeCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner == nil {
		return nil
	}
	return l.latest
}

// forwardNotification passes on what the upstream says while it works. It is called in the order of
// the upstream's messages, before any later answer. call is nil if the transport does not know to
// which call a message belongs.
func (l *upstreamConn) forwardNotification(call *activeCall, method string, params []byte) {
	switch method {
	case "notifications/progress":
		var p mcp.ProgressNotificationParams
		if stdjson.Unmarshal(params, &p) != nil {
			return
		}
		token, _ := p.ProgressToken.(string)
		l.mu.Lock()
		c := l.calls[token]
		l.mu.Unlock()
		if c != nil && c.progressToken != nil && c.request != nil {
			_ = c.request.session.NotifyProgress(c.request.ctx,
				&mcp.ProgressNotificationParams{
					ProgressToken: c.progressToken,
					Progress:      p.Progress,
					Total:         p.Total,
					Message:       p.Message,
				})
		}
	case "notifications/message":
		var p mcp.LoggingMessageParams
		if stdjson.Unmarshal(params, &p) != nil {
			return
		}
		if call == nil {
			call = l.currentCall()
		}
		if call == nil || call.request == nil {
			l.log.Debug("an upstream says", "level", string(p.Level), "data", web.Shortened(string(params)))
			return
		}
		_ = call.request.session.Log(call.request.ctx,
			&mcp.LoggingMessageParams{Level: p.Level, Logger: p.Logger, Data: p.Data})
	}
}

// forwardRequests passes what an upstream asks on to the session that owns the link,
// rebuilt: the _meta of either side stays there.
func (l *upstreamConn) forwardRequests(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch r := req.(type) {
		case *mcp.CreateMessageWithToolsRequest:
			return askClient(ctx, l, method,
				func(ctx context.Context, s *mcp.ServerSession) (*mcp.CreateMessageWithToolsResult, error) {
					return s.CreateMessageWithTools(ctx, copyWithoutMeta(r.Params))
				})
		case *mcp.ElicitRequest:
			return askClient(ctx, l, method,
				func(ctx context.Context, s *mcp.ServerSession) (*mcp.ElicitResult, error) {
					return s.Elicit(ctx, copyWithoutMeta(r.Params))
				})
		case *mcp.ListRootsRequest:
			return askClient(ctx, l, method,
				func(ctx context.Context, s *mcp.ServerSession) (*mcp.ListRootsResult, error) {
					return s.ListRoots(ctx, &mcp.ListRootsParams{})
				})
		case *mcp.ElicitationCompleteNotificationRequest:
			if c := l.currentCall(); c != nil && c.request != nil && r.Params != nil {
				_ = c.request.session.NotifyElicitationComplete(c.request.ctx,
					&mcp.ElicitationCompleteParams{ElicitationID: r.Params.ElicitationID})
			}
			return nil, nil
		}
		return next(ctx, method, req)
	}
}

// askClient puts a question to the client, in the stream of the call it is about.
func askClient[R mcp.Result](ctx context.Context, l *upstreamConn, method string,
	put func(context.Context, *mcp.ServerSession) (R, error)) (mcp.Result, error) {
	c := l.currentCall()
	if c == nil || c.request == nil {
		return nil, &jsonrpc.Error{
			Code:    jsonrpc.CodeMethodNotFound,
			Message: fmt.Sprintf("%s: there is nobody to ask", method),
		}
	}
	// The values lead to the client's stream; the end of either side ends it.
	asking, cancel := context.WithCancel(c.request.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	res, err := put(asking, l.owner)
	if err == nil {
		err = c.request.checkNoLeaseToken(res)
	}
	if err != nil {
		return nil, err
	}
	res.SetMeta(nil)
	return res, nil
}

// transport is how the upstream is reached.
func (l *upstreamConn) transport() (mcp.Transport, error) {
	if l.config.URL == "" {
		c, err := startChild(l.config, l.log)
		if err != nil {
			return nil, err
		}
		l.closeTransport = c.stop
		return childTransport{c, func(method string, params []byte) { l.forwardNotification(nil, method, params) }}, nil
	}
	h := &observingTransport{config: l.config, connected: &l.connected, onNotification: l.notified}
	l.closeTransport = h.open()
	return &mcp.StreamableClientTransport{
		Endpoint:   l.config.URL,
		HTTPClient: &http.Client{Transport: h, CheckRedirect: h.checkRedirect},
	}, nil
}

// notified passes on what the upstream says in the stream of a request, whose context
// leads to its call.
func (l *upstreamConn) notified(ctx context.Context, method string, params []byte) {
	call, _ := ctx.Value(activeCallKey{}).(*activeCall)
	l.forwardNotification(call, method, params)
}
