package llm

import (
	"cmp"
	"crypto/tls"
	"net/http"
	"time"

	"github.com/picket-dev/picket/internal/outbound"
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
