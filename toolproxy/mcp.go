//lint:file-ignore SA1019 clients and upstreams of the older wire still ask for samples and roots, and log

package toolproxy

import (
	"bytes"
	"context"
	"io"
	"log/slog"
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
)

// MCPPath is where the tools are served over MCP.
const MCPPath = "/mcp"

// Bounds of the MCP face.
const (
	maxMessage     = 4 << 20         // bytes of one request
	maxSessions    = 1024            // that are kept open; later clients are served without one
	maxRunSessions = 16              // the same, of one run
	maxInitialize  = 16 << 10        // bytes of the request that opens a session, which keeps what it says
	sessionIdle    = 2 * time.Hour   // after which a session is forgotten
	streamWrite    = 2 * time.Minute // for a piece of a stream to be taken
)

const (
	sessionHeader = "Mcp-Session-Id"
	wireHeader    = "Mcp-Protocol-Version"
	methodHeader  = "Mcp-Method"
	newWire       = "2026-07-28" // the first version without sessions
	oldWire       = "2025-11-25" // the last one with them
)

// mcpFace serves the tools over MCP: without a session to clients of either
// wire generation, and with one to those of the older wire that open it. A
// session only adds what goes from server to client; a client whose session is
// gone, or is with another proxy, is served without it.
type mcpFace struct {
	p       *Proxy
	log     *slog.Logger
	servers []*mcp.Server
	kept    *mcp.Server // of the sessions
	without http.Handler
	with    http.Handler
	open    sessions
	shown   map[*mcp.Server]shown
}

func newMCPFace(p *Proxy) *mcpFace {
	f := &mcpFace{p: p, log: p.log, shown: map[*mcp.Server]shown{}}
	f.kept = f.server()
	bare := f.server()
	f.servers = []*mcp.Server{f.kept, bare}
	guard := auth.RequireBearerToken(tokenInfo, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})
	f.with, f.without = guard(f.handler(f.kept, false)), guard(f.handler(bare, true))
	return f
}

// server has every tool that any run may see: which a run does see is decided
// as it asks.
func (f *mcpFace) server() *mcp.Server {
	opts := &mcp.ServerOptions{
		Instructions: instructions,
		Capabilities: &mcp.ServerCapabilities{Logging: &mcp.LoggingCapabilities{}},
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
	}
	if len(f.p.gateway.upstreams) > 0 {
		opts.CompletionHandler, opts.SubscribeHandler, opts.UnsubscribeHandler = f.completion, f.subscribe,
			f.unsubscribe
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "picket", Title: "Picket", Version: "1"}, opts)
	s.AddReceivingMiddleware(f.route)
	for _, t := range tools {
		s.AddTool(f.describe(t), f.call)
	}
	s.AddTool(&mcp.Tool{Name: otherTool, InputSchema: anyObject}, f.call)
	f.addReport(s)
	return s
}

const instructions = "Tools of the task you hold under a lease. Call get_task first, report_progress as you go, and mark_complete when it is done. " +
	"A result with an error says in its remedy what to do; after stale_fence, lease_expired or lease_released stop working and exit."

func (f *mcpFace) handler(s *mcp.Server, stateless bool) http.Handler {
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
	held, ok := ctx.Value(heldKey{}).(picket.Held)
	if !ok {
		return nil, auth.ErrInvalidToken
	}
	// The deadline of the lease is not the token's: a call under an ended lease is
	// answered by the state of record, and never with a 401.
	extra := map[string]any{"held": held}
	if body, ok := ctx.Value(bodyKey{}).(*mcpBody); ok {
		extra["body"] = body
	}
	return &auth.TokenInfo{UserID: held.Namespace + "/" + held.RunID, Extra: extra}, nil
}

type heldKey struct{}

type bodyKey struct{}

// heldOf is the credential a message came with.
func heldOf(extra *mcp.RequestExtra) (held picket.Held, ok bool) {
	if extra != nil && extra.TokenInfo != nil {
		held, ok = extra.TokenInfo.Extra["held"].(picket.Held)
	}
	return held, ok
}

// extraOf is the credential of the request that a context began with.
func extraOf(ctx context.Context) *mcp.RequestExtra {
	held, ok := ctx.Value(heldKey{}).(picket.Held)
	if !ok {
		return nil
	}
	return &mcp.RequestExtra{TokenInfo: &auth.TokenInfo{Extra: map[string]any{"held": held}}}
}

// serveMCP is the route.
func serveMCP(p *Proxy, c echo.Context, _ Door, held picket.Held) error {
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
		body, err := p.takeBody(held)
		if err != nil {
			return err
		}
		ctx = context.WithValue(ctx, bodyKey{}, body)
	}
	p.mcp.serve(&streamed{Response: c.Response(), c: c}, r.WithContext(ctx))
	return nil
}

// checkOrigin refuses pages that a browser has open, but for those of this
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
		"the origin %s may not call this proxy", clip(origin))
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

// streamed gives every piece of a stream its own time to be taken.
type streamed struct {
	*echo.Response
	c     echo.Context
	begun func(http.Header) // called before the first byte is sent; may be nil
}

func (s *streamed) WriteHeader(status int) {
	s.begin()
	s.Response.WriteHeader(status)
}

func (s *streamed) Write(b []byte) (int, error) {
	s.begin()
	web.ExtendAnswer(s.c, streamWrite)
	return s.Response.Write(b)
}

func (s *streamed) Flush() {
	s.begin()
	s.Response.Flush()
}

func (s *streamed) begin() {
	if begun := s.begun; begun != nil {
		s.begun = nil
		begun(s.Header())
	}
}

func (s *streamed) Unwrap() http.ResponseWriter { return s.Response }

func (f *mcpFace) serve(w *streamed, r *http.Request) {
	id := r.Header.Get(sessionHeader)
	switch {
	case id != "" && f.open.ended(id):
		http.Error(w, "session not found", http.StatusNotFound)
	case id != "" && f.open.has(id):
		f.with.ServeHTTP(w, r)
		if r.Method == http.MethodDelete && w.Status == http.StatusNoContent {
			f.open.end(id)
		}
	case id == "" && opensSession(r) && f.open.reserve(runOf(r.Context())):
		// The client may come back with its new id before this request has ended.
		w.begun = func(h http.Header) { f.open.begin(h.Get(sessionHeader), runOf(r.Context())) }
		f.with.ServeHTTP(w, r)
		w.begin()
		f.watchSession(w.Header().Get(sessionHeader))
	default:
		f.without.ServeHTTP(w, r)
	}
}

// runOf names the run that a request came from.
func runOf(ctx context.Context) string {
	held, _ := ctx.Value(heldKey{}).(picket.Held)
	return held.Namespace + "/" + held.RunID
}

// opensSession reports whether a request is an initialize of the older wire,
// short enough to be kept. It leaves the body as it was.
func opensSession(r *http.Request) bool {
	if r.Method != http.MethodPost || r.Header.Get(wireHeader) >= newWire {
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
func (f *mcpFace) watchSession(id string) {
	for s := range f.kept.Sessions() {
		if s.ID() == id {
			f.open.watch(func() {
				_ = s.Wait()
				f.open.forget(id)
				f.p.gateway.forget(s)
			})
			return
		}
	}
	f.open.forget(id)
}

// close ends every session and waits until they are gone.
func (f *mcpFace) close() {
	for _, server := range f.servers {
		for s := range server.Sessions() {
			_ = s.Close()
		}
	}
	f.open.wait()
}
