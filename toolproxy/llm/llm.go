// Package llm is the part of the tool proxy that passes calls of language models
// through: it puts the vendor's key in place of the lease token, bounds what a call
// may cost, pays for it from the envelope of the task, and hands the answer on.
package llm

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/outbound"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/toolproxy"
)

// New returns the part that passes calls of language models through. It returns
// an error for an upstream whose URL is not an http or https URL.
func New(cfg Config) toolproxy.Part {
	return func(p *toolproxy.Proxy) error {
		l, err := newForwarder(p, cfg)
		if err != nil {
			return err
		}
		p.OnMount(l.mount)
		p.OnClose(l.close)
		return nil
	}
}

func (l *forwarder) mount(e *echo.Echo) {
	for _, v := range vendors {
		e.Any(Path+"/"+v.name+"/*", func(c echo.Context) error {
			if err := l.serve(c, v); err != nil {
				return writeVendorError(c, v, err)
			}
			return nil
		})
	}
}

// serve answers one request of an agent. It returns an error only while nothing
// of the answer has been written.
func (l *forwarder) serve(c echo.Context, v *vendor) error {
	r := c.Request()
	up := l.upstreams[v.name]
	backend, held, err := l.proxy.AdmitLLM(c)
	switch {
	case up == nil && picket.CodeOf(err) == picket.CodeUnauthenticated:
		return noUpstream(v) // adapters ask without a credential which vendors are served
	case err != nil:
		return err
	}
	path := vendorPath(r, v)
	d := v.dialects[r.Method+" "+path]
	if d == nil && !v.isFreeRoute(r.Method+" "+path) {
		return picket.Refuse(picket.CodeNotFound, "Call one of: "+v.routeList()+".", "%s %s is not passed through",
			r.Method, web.Shortened(path))
	}
	if up == nil {
		return noUpstream(v)
	}
	leave, err := l.limiter.admit(held.HolderID())
	if err != nil {
		return err
	}
	defer leave()
	body, err := l.body(c)
	if err != nil {
		return err
	}
	x := &call{
		forwarder: l,
		c:         c,
		vendor:    v,
		dialect:   d,
		endpoint:  up,
		backend:   backend,
		held:      held,
		path:      path,
		body:      body,
	}
	if d == nil {
		err = x.forwardFree(r.Context())
	} else {
		ctx, end := l.proxy.BeginCall(r.Context(), held, v.ledgerTool)
		err = x.serve(ctx)
		end(err)
	}
	l.proxy.RecordRefusal(context.WithoutCancel(r.Context()), backend, held, v.ledgerTool, err)
	return err
}

// noUpstream refuses calls to a vendor that is not configured.
func noUpstream(v *vendor) error {
	return picket.Refuse(picket.CodeNotFound, "Ask an operator to set tools.llm."+v.name+" in picket.yaml.",
		"no upstream for %s is configured", v.name)
}

// writeVendorError writes a refusal as the vendor's own errors look, so that the
// agent's program shows it. Clients that ask are told not to try again.
func writeVendorError(c echo.Context, v *vendor, err error) error {
	if c.Response().Committed {
		return nil // the connection ends where the answer broke off
	}
	refusal := refusalOf(err)
	h := c.Response().Header()
	h.Set("X-Should-Retry", fmt.Sprint(refusal.Code.Retryable()))
	if refusal.Code == picket.CodeUnauthenticated {
		h.Set("WWW-Authenticate", `Bearer realm="picket"`)
	}
	if refusal.RetryAfter > 0 {
		h.Set("Retry-After", fmt.Sprint(max(1, int(refusal.RetryAfter/time.Second))))
	}
	return web.JSON(c, refusal.Code.Status(), v.encodeError(refusal))
}

// body reads a whole request of at most maxBody bytes. A compressed one is uncompressed,
// because its price cannot be bounded otherwise.
func (l *forwarder) body(c echo.Context) ([]byte, error) {
	r := c.Request()
	encoding := strings.ToLower(r.Header.Get(echo.HeaderContentEncoding))
	r.Header.Del(echo.HeaderContentEncoding)
	raw, err := web.ReadBody(c, maxBody, echo.MIMEApplicationJSON)
	if err != nil {
		return nil, err
	}
	switch encoding {
	case "", "identity":
		return raw, nil
	case "gzip":
		return gunzip(raw)
	}
	return nil, picket.Refuse(picket.CodeUnsupportedMedia, "Send the body uncompressed or with gzip.",
		"Content-Encoding %q is not accepted", web.Shortened(encoding))
}

func gunzip(raw []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, picket.Invalid("", "Send a whole gzip stream.", "the body is not gzip").WithCause(err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxBody+1))
	switch {
	case err != nil:
		return nil, picket.Invalid("", "Send a whole gzip stream.", "the body is not gzip to its end").WithCause(err)
	case len(plain) > maxBody:
		return nil, picket.Refuse(picket.CodeTooLarge, "Send less.", "the body has more than %d bytes uncompressed",
			maxBody).With("limit", maxBody)
	}
	return plain, nil
}

// Config says where calls of language models go. The agent is given
// {proxy}/llm/anthropic or {proxy}/llm/openai as its base URL and its lease
// token as its key; the real key never leaves this process.
type Config struct {
	// Anthropic takes what comes to /llm/anthropic: the Messages API. Defaults to
	// none: calls are refused.
	Anthropic *Upstream
	// OpenAI takes what comes to /llm/openai: Chat Completions and Responses.
	// Defaults to none: calls are refused.
	OpenAI *Upstream
	// Timeout bounds a call from its first byte to its last. Defaults to 15
	// minutes, which is also the most.
	Timeout time.Duration
	// Drain is how long an answer is still read for its usage when the agent has
	// gone away. Defaults to 1 minute.
	Drain time.Duration
	// TLS is for upstreams whose certificates no public authority has signed.
	// Defaults to what the system trusts.
	TLS *tls.Config
}

// What a request and its answer may hold, in bytes.
const (
	maxBody  = 32 << 20
	maxEvent = 8 << 20 // one event of a stream, and an answer whose usage is looked for
)

// forwarder passes the requests of agents to the vendors and their answers back.
type forwarder struct {
	proxy        *toolproxy.Proxy
	cfg          Config
	upstreams    map[string]*endpoint
	client       *http.Client
	transport    *http.Transport // of client
	knownPrompts knownPrompts
	limiter      callLimiter
}

func newForwarder(p *toolproxy.Proxy, cfg Config) (*forwarder, error) {
	cfg.Timeout = min(cmp.Or(cfg.Timeout, toolproxy.MaxCallTimeout), toolproxy.MaxCallTimeout)
	cfg.Drain = cmp.Or(cfg.Drain, time.Minute)
	l := &forwarder{proxy: p, cfg: cfg, upstreams: map[string]*endpoint{}}
	for _, v := range vendors {
		up, err := v.endpoint(map[string]*Upstream{"anthropic": cfg.Anthropic, "openai": cfg.OpenAI}[v.name])
		if err != nil {
			return nil, err
		}
		if up != nil {
			l.upstreams[v.name] = up
		}
	}
	l.transport = &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, DisableCompression: true, TLSClientConfig: cfg.TLS,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 32,
		MaxResponseHeaderBytes: 256 << 10,
	}
	l.client = &http.Client{
		Transport: outbound.Once{Base: l.transport},
		// A redirect would carry the key elsewhere: it is the agent's to see.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return l, nil
}

func (l *forwarder) close() { l.transport.CloseIdleConnections() }

// maxCallsPerRun is how many requests of a run may be under way at once. Each of them
// holds its whole body, and one event of its answer.
const maxCallsPerRun = 8

// callLimiter counts the requests of each run. The zero value is ready.
type callLimiter struct {
	mu     sync.Mutex
	active map[string]int
}

// admit lets one more in, until leave is called.
func (g *callLimiter) admit(run string) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.active[run] >= maxCallsPerRun {
		return nil, tooManyCalls()
	}
	if g.active == nil {
		g.active = map[string]int{}
	}
	g.active[run]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.active[run]--; g.active[run] == 0 {
			delete(g.active, run)
		}
	}, nil
}

func tooManyCalls() error {
	refusal := picket.Refuse(picket.CodeRateLimited, "Wait until one of them has ended.",
		"%d calls of models are under way in this run already", maxCallsPerRun)
	refusal.RetryAfter = time.Second
	return refusal
}

// discardableBody is a body that is freed once it was sent, because the answer may take
// many minutes after that.
type discardableBody struct {
	mu    sync.Mutex
	whole []byte
}

// open returns a reader of the body. The transport opens it again if a connection turns
// out to be closed.
func (p *discardableBody) open() (io.ReadCloser, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &discardableReader{left: p.whole}, nil
}

// discard frees the body. Readers that are open keep what they have not read.
func (p *discardableBody) discard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.whole = nil
}

type discardableReader struct {
	mu   sync.Mutex // it may be closed while it is read
	left []byte
}

func (r *discardableReader) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.left) == 0 {
		r.left = nil
		return 0, io.EOF
	}
	n := copy(b, r.left)
	r.left = r.left[n:]
	return n, nil
}

func (r *discardableReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = nil
	return nil
}
