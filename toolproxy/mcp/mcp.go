//lint:file-ignore SA1019 clients and upstreams of the older wire still ask for samples and roots, and log

// Package mcp is the part of the tool proxy that serves the tools over MCP, and that
// offers the tools of other MCP servers under the lease and at a price.
package mcp

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/toolproxy"
)

// New returns the part that serves the tools of the proxy over MCP, and that offers the
// tools of these MCP servers too. Add it last: no upstream takes the name of a tool
// that another part offers. [toolproxy.Proxy.Start] connects the upstreams. An upstream
// with an invalid name or address is an error of [toolproxy.New].
func New(upstreams []Upstream) toolproxy.Part {
	return func(p *toolproxy.Proxy) error {
		g, err := newGateway(p, upstreams)
		if err != nil {
			return err
		}
		f := newEndpoint(p, g)
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			p.Handle(toolproxy.Route{
				Method:       method,
				Path:         Path,
				CountsItself: method == http.MethodPost,
				ForSessions:  true,
				Serve:        f.handle,
			})
		}
		p.AddSource(g)
		p.OnStart(g.start)
		p.OnClose(func() {
			f.close()
			g.stop()
		})
		return nil
	}
}

// Path is where the tools are served over MCP.
const Path = "/mcp"

// Bounds of what clients send and take.
const (
	maxMessage    = 4 << 20         // bytes of one request
	maxInitialize = 16 << 10        // bytes of the request that opens a session, which keeps what it says
	sessionIdle   = 2 * time.Hour   // after which a session is forgotten
	streamWrite   = 2 * time.Minute // for a piece of a stream to be taken
)

const (
	sessionHeader  = "Mcp-Session-Id"
	protocolHeader = "Mcp-Protocol-Version"
	methodHeader   = "Mcp-Method"
)

func newEndpoint(p *toolproxy.Proxy, g *gateway) *endpoint {
	f := &endpoint{proxy: p, gateway: g, log: p.Log(), published: map[*mcp.Server]publishedOffers{}}
	g.changed, g.updated = f.publish, f.tellUpdated
	f.statefulServer = f.newServer()
	bare := f.newServer()
	f.servers = []*mcp.Server{f.statefulServer, bare}
	guard := auth.RequireBearerToken(tokenInfo, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})
	f.statefulHandler, f.statelessHandler = guard(f.handler(f.statefulServer, false)), guard(f.handler(bare, true))
	return f
}

// newServer has every tool that any run may see: which a run does see is decided
// as it asks.
func (f *endpoint) newServer() *mcp.Server {
	opts := &mcp.ServerOptions{
		Instructions: instructions,
		Capabilities: &mcp.ServerCapabilities{Logging: &mcp.LoggingCapabilities{}},
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
	}
	if len(f.gateway.upstreams) > 0 {
		opts.CompletionHandler, opts.SubscribeHandler, opts.UnsubscribeHandler = f.complete, f.subscribe,
			f.unsubscribe
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "picket", Title: "Picket", Version: "1"}, opts)
	s.AddReceivingMiddleware(f.intercept)
	for _, t := range append(toolproxy.Tools(), toolproxy.SessionTools()...) {
		s.AddTool(f.describe(t), f.callTool)
	}
	s.AddTool(&mcp.Tool{Name: unknownToolName, InputSchema: anyObject}, f.callTool)
	f.addReport(s)
	return s
}

const instructions = "Tools of the task you hold under a lease. Call get_task first, report_progress as you go, and mark_complete when it is done. " +
	"A result with an error says in its remedy what to do; after stale_fence, lease_expired or lease_released stop working and exit."

func (f *endpoint) handler(s *mcp.Server, stateless bool) http.Handler {
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{
		Stateless:                    stateless,
		PropagateRequestCancellation: true,
		// Its guard refuses every foreign Host at a loopback address, so also those
		// that a reverse proxy on this machine passes on. Here the bearer decides,
		// and checkOrigin keeps the pages of browsers out.
		DisableLocalhostProtection: true,
		MaxRequestBodyBytes:        maxMessage,
		SessionTimeout:             sessionIdle,
	})
}

// tokenInfo hands the checked credential on to the handlers of calls.
func tokenInfo(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
	held, ok := ctx.Value(heldKey{}).(picket.LeaseCredential)
	if !ok {
		return nil, auth.ErrInvalidToken
	}
	// The deadline of the lease is not the token's: a call under an ended lease is
	// answered by the state of record, and never with a 401.
	extra := map[string]any{"held": held}
	if giveBack, ok := ctx.Value(bodyKey{}).(func()); ok {
		extra["body"] = giveBack
	}
	return &auth.TokenInfo{UserID: held.Namespace + "/" + held.HolderID(), Extra: extra}, nil
}

// handle serves a request to the MCP route.
func (f *endpoint) handle(c echo.Context, held picket.LeaseCredential) error {
	r := c.Request()
	if err := checkOrigin(r); err != nil {
		return err
	}
	ctx := context.WithValue(r.Context(), heldKey{}, held)
	if waitsForEvents(r) {
		wait, cancel := web.WaitContext(c)
		defer cancel()
		ctx = context.WithValue(wait, heldKey{}, held)
	}
	if r.Method == http.MethodPost {
		giveBack, err := f.proxy.TakeBody(held)
		if err != nil {
			return err
		}
		ctx = context.WithValue(ctx, bodyKey{}, giveBack)
	}
	f.serve(&streamWriter{Response: c.Response(), c: c}, r.WithContext(ctx))
	return nil
}

// checkOrigin refuses pages that a browser has open except for those of this
// machine. That a page's host is the request's proves nothing: a name of its own
// can be led to any address.
func checkOrigin(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	if at, err := url.Parse(origin); err == nil && isLoopback(at.Hostname()) {
		return nil
	}
	return picket.Refuse(picket.CodeForbidden, "Call it from a program, without an Origin header.",
		"the origin %s may not call this proxy", web.Shortened(origin))
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// waitsForEvents reports whether a request only listens: it ends when the
// server stops.
func waitsForEvents(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Header.Get(methodHeader) == "subscriptions/listen"
}

// streamWriter gives every piece of a stream its own time to be taken.
type streamWriter struct {
	*echo.Response
	c           echo.Context
	beforeWrite func(http.Header) // called before the first byte is sent; may be nil
}

func (s *streamWriter) WriteHeader(status int) {
	s.begin()
	s.Response.WriteHeader(status)
}

func (s *streamWriter) Write(b []byte) (int, error) {
	s.begin()
	web.ExtendWriteDeadline(s.c, streamWrite)
	return s.Response.Write(b)
}

func (s *streamWriter) Flush() {
	s.begin()
	s.Response.Flush()
}

func (s *streamWriter) begin() {
	if begun := s.beforeWrite; begun != nil {
		s.beforeWrite = nil
		begun(s.Header())
	}
}

func (s *streamWriter) Unwrap() http.ResponseWriter { return s.Response }

func (f *endpoint) serve(w *streamWriter, r *http.Request) {
	id := r.Header.Get(sessionHeader)
	switch {
	case id != "" && f.sessions.isFinished(id):
		http.Error(w, "session not found", http.StatusNotFound)
	case id != "" && f.sessions.has(id):
		f.statefulHandler.ServeHTTP(w, r)
		if r.Method == http.MethodDelete && w.Status == http.StatusNoContent {
			f.sessions.finish(id)
		}
	case id == "" && opensSession(r) && f.sessions.admit(runOf(r.Context())):
		// The client may come back with its new id before this request has ended.
		w.beforeWrite = func(h http.Header) { f.sessions.add(h.Get(sessionHeader), runOf(r.Context())) }
		f.statefulHandler.ServeHTTP(w, r)
		w.begin()
		f.watchSession(w.Header().Get(sessionHeader))
	default:
		f.statelessHandler.ServeHTTP(w, r)
	}
}

// runOf names the run, or the prompt of a session, that a request came from.
func runOf(ctx context.Context) string {
	held, _ := ctx.Value(heldKey{}).(picket.LeaseCredential)
	return held.Namespace + "/" + held.HolderID()
}

// opensSession reports whether a request is an initialize of the older wire,
// short enough to be kept. It leaves the body as it was.
func opensSession(r *http.Request) bool {
	if r.Method != http.MethodPost || r.Header.Get(protocolHeader) >= statelessProtocol {
		return false
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxMessage+1))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
	if err != nil || len(body) > maxInitialize || !bytes.Contains(body, []byte(`"initialize"`)) {
		return false
	}
	var message struct {
		Method string         `json:"method"`
		Rest   jsontext.Value `json:",inline"`
	}
	return json.Unmarshal(body, &message) == nil && message.Method == "initialize"
}

// watchSession forgets a session when it ends.
func (f *endpoint) watchSession(id string) {
	for s := range f.statefulServer.Sessions() {
		if s.ID() == id {
			f.sessions.goWatch(func() {
				_ = s.Wait()
				f.sessions.forget(id)
				f.gateway.forgetClient(s)
			})
			return
		}
	}
	f.sessions.forget(id)
}

// close ends every session and waits until they are gone.
func (f *endpoint) close() {
	for _, server := range f.servers {
		for s := range server.Sessions() {
			_ = s.Close()
		}
	}
	f.sessions.wait()
}
