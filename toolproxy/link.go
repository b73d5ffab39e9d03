//lint:file-ignore SA1019 clients and upstreams of the older wire still ask for samples and roots, and log

package toolproxy

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// link is one connection to an upstream. The shared one serves every call and
// can ask nobody anything; one that a session owns passes the upstream's
// questions on to that session, and to no other.
type link struct {
	up      *upstream
	owner   *mcp.ServerSession // nil: shared
	session *mcp.ClientSession
	end     func() // of the transport, when it has an own end
	gone    chan struct{}
	err     error // why it is gone; after gone

	connected atomic.Bool // the upstream has accepted the connection

	mu     sync.Mutex
	calls  map[string]*liveCall // by the progress token the upstream was given
	latest *liveCall
	used   time.Time // when the last call began or ended
}

// liveCall is a message under way to an upstream.
type liveCall struct {
	x     *exchange
	token any // the client's own progress token; nil: it wants none
}

type liveKey struct{}

// connect opens a connection; owner is who answers its questions, nil for the
// shared one.
func (u *upstream) connect(ctx context.Context, owner *mcp.ServerSession) (*link, error) {
	l := &link{
		up:    u,
		owner: owner,
		gone:  make(chan struct{}),
		calls: map[string]*liveCall{},
		end:   func() {},
		used:  time.Now(),
	}
	transport, err := l.transport(u)
	if err != nil {
		return nil, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "picket-gateway", Version: "1"}, l.options())
	client.AddReceivingMiddleware(l.receive)
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	var opts mcp.ClientSessionOptions
	if owner != nil {
		opts.ProtocolVersion = oldWire
	}
	if l.session, err = client.Connect(ctx, transport, &opts); err != nil {
		l.end()
		return nil, err
	}
	l.connected.Store(true)
	go func() {
		l.err = l.session.Wait()
		if l.err == nil {
			l.err = errors.New("it closed the connection")
		}
		close(l.gone)
	}()
	if caps := l.session.InitializeResult().Capabilities; caps != nil && caps.Logging != nil && !l.isNew() {
		_ = l.session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "info"}) // some send nothing before
	}
	return l, nil
}

// options say what the upstream may ask of us.
func (l *link) options() *mcp.ClientOptions {
	opts := &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		// What an upstream asks in a result is for the client to answer.
		MultiRoundTrip:             &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { l.up.changed() },
		PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { l.up.changed() },
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { l.up.changed() },
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			if r.Params != nil {
				l.up.updated(r.Params.URI)
			}
		},
	}
	if l.owner != nil {
		opts.Capabilities = asked(l.owner.InitializeParams().Capabilities)
	}
	return opts
}

// asked is what a client can be asked, of all that it can do.
func asked(c *mcp.ClientCapabilities) *mcp.ClientCapabilities {
	if c == nil {
		return &mcp.ClientCapabilities{}
	}
	return &mcp.ClientCapabilities{Sampling: c.Sampling, Elicitation: c.Elicitation, RootsV2: c.RootsV2}
}

func (l *link) isNew() bool { return l.session.InitializeResult().ProtocolVersion >= newWire }

// close ends the connection, and the process behind it.
func (l *link) close() {
	ended := make(chan struct{})
	go func() {
		_ = l.session.Close()
		close(ended)
	}()
	l.end()
	<-ended
	<-l.gone
}

// enter notes a call; leave must be called when it is over. The context and
// the token lead what the upstream says about the call back to it.
func (l *link) enter(ctx context.Context, x *exchange, token any) (_ context.Context, theirs string, leave func()) {
	c := &liveCall{x: x, token: token}
	theirs = rand.Text()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[theirs], l.latest, l.used = c, c, time.Now()
	return context.WithValue(ctx, liveKey{}, c), theirs, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.calls, theirs)
		l.used = time.Now()
		if l.latest == c {
			l.latest = nil
			for _, other := range l.calls {
				l.latest = other
			}
		}
	}
}

// idle reports since when there has been no call; ok is false while there is one.
func (l *link) idle() (since time.Time, ok bool) {
	if l == nil {
		return since, false // it is being opened
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used, len(l.calls) == 0
}

// about finds the call that an upstream's question or word is about: in a
// connection of one session, any of its calls.
func (l *link) about() *liveCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner == nil {
		return nil
	}
	return l.latest
}

// notice passes on what the upstream says while it works. It is called in the
// order in which the upstream speaks, before any answer that came later; call
// is nil when the transport does not know which one it is about.
func (l *link) notice(call *liveCall, method string, params []byte) {
	switch method {
	case "notifications/progress":
		var p mcp.ProgressNotificationParams
		if json.Unmarshal(params, &p) != nil {
			return
		}
		token, _ := p.ProgressToken.(string)
		l.mu.Lock()
		c := l.calls[token]
		l.mu.Unlock()
		if c != nil && c.token != nil && c.x != nil {
			_ = c.x.session.NotifyProgress(c.x.ctx,
				&mcp.ProgressNotificationParams{
					ProgressToken: c.token,
					Progress:      p.Progress,
					Total:         p.Total,
					Message:       p.Message,
				})
		}
	case "notifications/message":
		var p mcp.LoggingMessageParams
		if json.Unmarshal(params, &p) != nil {
			return
		}
		if call == nil {
			call = l.about()
		}
		if call == nil || call.x == nil {
			l.up.log.Debug("an upstream says", "level", string(p.Level), "data", clip(string(params)))
			return
		}
		_ = call.x.session.Log(call.x.ctx, &mcp.LoggingMessageParams{Level: p.Level, Logger: p.Logger, Data: p.Data})
	}
}
