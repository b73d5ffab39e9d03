// Package llm is the part of the tool proxy that passes calls of language models
// through: it puts the vendor's key in place of the lease token, bounds what a call
// may cost, pays for it from the envelope of the task, and hands the answer on.
package llm

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/outbound"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/toolproxy"
)

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

// Upstream is an API or any gateway that speaks like it.
type Upstream struct {
	// URL is the base, with or without /v1. Defaults to the vendor's own.
	URL string
	// Key is sent in place of the agent's lease token. Defaults to none.
	Key picket.Secret
}

// Path is where the pass-through is mounted.
const Path = "/llm"

// What a request and its answer may hold, in bytes.
const (
	maxBody  = 32 << 20
	maxEvent = 8 << 20 // one event of a stream, and an answer whose usage is looked for
)

// vendor is one of the APIs passed through.
type vendor struct {
	name        string
	defaultURL  string // its own base URL
	ledgerTool  string // in the ledger
	dialects    map[string]*dialect
	freeRoutes  []string // paths that cost nothing, one ending in / covers what is below
	headers     []string // of an agent's request, that go there
	encodeError func(e *picket.Error) any
	sign        func(h http.Header, u *endpoint)
}

var vendors = []*vendor{
	{
		name: "anthropic", defaultURL: "https://api.anthropic.com", ledgerTool: "llm_anthropic",
		dialects:   map[string]*dialect{"POST /v1/messages": anthropicMessages},
		freeRoutes: []string{"POST /v1/messages/count_tokens", "GET /v1/models", "GET /v1/models/"},
		headers:    anthropicHeaders, encodeError: anthropicError, sign: signAnthropic,
	},
	{
		name: "openai", defaultURL: "https://api.openai.com", ledgerTool: "llm_openai",
		dialects:   map[string]*dialect{"POST /v1/chat/completions": openAIChat, "POST /v1/responses": openAIResponses},
		freeRoutes: []string{"GET /v1/models", "GET /v1/models/"},
		headers:    openAIHeaders, encodeError: openAIError, sign: signOpenAI,
	},
}

func signAnthropic(h http.Header, u *endpoint) {
	key := u.key.Reveal()
	if key == "" {
		return
	}
	// A token of an account is not an API key; a gateway may look at either header.
	oauth := strings.HasPrefix(key, "sk-ant-oat")
	if !oauth {
		h.Set("X-Api-Key", key)
	}
	if oauth || u.base.Hostname() != "api.anthropic.com" {
		h.Set("Authorization", "Bearer "+key)
	}
}

func signOpenAI(h http.Header, u *endpoint) {
	if key := u.key.Reveal(); key != "" {
		h.Set("Authorization", "Bearer "+key)
	}
}

// endpoint is a configured upstream.
type endpoint struct {
	base *url.URL
	key  picket.Secret
}

func (v *vendor) endpoint(cfg *Upstream) (*endpoint, error) {
	if cfg == nil {
		return nil, nil
	}
	base, err := url.Parse(cmp.Or(cfg.URL, v.defaultURL))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, picket.Invalid("LLM", "Set a URL such as "+v.defaultURL+".",
			"the URL of the %s upstream is not one of http or https", v.name)
	}
	base.Path = strings.TrimSuffix(strings.TrimSuffix(base.Path, "/"), "/v1")
	return &endpoint{base: base, key: cfg.Key}, nil
}

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
	backend, held, err := l.proxy.AdmitLLM(c)
	if err != nil {
		return err
	}
	path := vendorPath(r, v)
	d := v.dialects[r.Method+" "+path]
	if d == nil && !v.isFreeRoute(r.Method+" "+path) {
		return picket.Refuse(picket.CodeNotFound, "Call one of: "+v.routeList()+".", "%s %s is not passed through",
			r.Method, web.Shortened(path))
	}
	up := l.upstreams[v.name]
	if up == nil {
		return picket.Refuse(picket.CodeNotFound, "Ask an operator to set tools.llm."+v.name+" in picket.yaml.",
			"no upstream for %s is configured", v.name)
	}
	leave, err := l.limiter.admit(held.RunID)
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
		err = x.serve(r.Context())
	}
	l.proxy.RecordRefusal(context.WithoutCancel(r.Context()), backend, held, v.ledgerTool, err)
	return err
}

// vendorPath is the path at the vendor, whether or not the client's base URL had
// /v1 at its end.
func vendorPath(r *http.Request, v *vendor) string {
	path := strings.TrimPrefix(r.URL.Path, Path+"/"+v.name)
	if !strings.HasPrefix(path, "/v1/") {
		path = "/v1" + path
	}
	return path
}

func (v *vendor) isFreeRoute(call string) bool {
	for _, f := range v.freeRoutes {
		if rest, below := strings.CutPrefix(call, f); call == f ||
			below && strings.HasSuffix(f, "/") && isPlainPath(rest) {
			return true
		}
	}
	return false
}

// isPlainPath keeps a path from leading elsewhere.
func isPlainPath(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, "\\?#%") && !strings.Contains(s, "//") &&
		!strings.Contains(s, "..")
}

func (v *vendor) routeList() string {
	priced := slices.Sorted(maps.Keys(v.dialects))
	return strings.Join(append(priced, v.freeRoutes...), ", ")
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
