package tools

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/outbound"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/toolproxy"
)

// HTTPConfig configures http_request.
type HTTPConfig struct {
	// Allow lists what may be called: host, *.domain, host:port, or * for every
	// public address. An address that is not public needs an entry with its port.
	// Defaults to every public address.
	Allow []string
	// Timeout bounds a call. Defaults to 30 s; at most picket.MaxExternalCall
	// seconds.
	Timeout time.Duration
	// MaxBytes is how much of an answer's body is read. Defaults to 256 KiB; at
	// most 512 KiB.
	MaxBytes int64
	// Resolver finds addresses. Defaults to net.DefaultResolver.
	Resolver *net.Resolver
	// Public reports which addresses need no entry in Allow. Defaults to the public
	// internet.
	Public func(netip.Addr) bool
	// TLS is for servers whose certificates no public authority has signed.
	// Defaults to what the system trusts.
	TLS *tls.Config
}

// Bounds of a request.
const (
	maxURL         = 8 << 10
	maxRequestBody = 256 << 10
	maxHeaders     = 64
	maxHeaderBytes = 16 << 10
	maxRedirects   = 5
	maxHTTPBytes   = 512 << 10
)

// httpSource is the tool http_request.
type httpSource struct {
	proxy     *toolproxy.Proxy
	cfg       HTTPConfig
	guard     outbound.Guard
	transport *http.Transport // of once
	once      outbound.Once
}

// HTTP is the part that offers the tool http_request. An entry of cfg.Allow that names
// no destination is an error of code validation.
func HTTP(cfg HTTPConfig) toolproxy.Part {
	return func(p *toolproxy.Proxy) error {
		s, err := newHTTPSource(p, cfg)
		if err != nil {
			return err
		}
		p.AddSource(s)
		p.OnClose(s.transport.CloseIdleConnections)
		return nil
	}
}

func newHTTPSource(p *toolproxy.Proxy, cfg HTTPConfig) (*httpSource, error) {
	cfg.Timeout = min(cmp.Or(cfg.Timeout, 30*time.Second), picket.MaxExternalCall*time.Second)
	cfg.MaxBytes = min(cmp.Or(cfg.MaxBytes, 256<<10), maxHTTPBytes)
	g, err := outbound.New(outbound.Config{
		Allow:    cfg.Allow,
		Setting:  "tools.http_request.allow",
		Resolver: cfg.Resolver,
		Public:   cfg.Public,
	})
	if err != nil {
		return nil, err
	}
	transport := g.Transport(cfg.TLS)
	return &httpSource{proxy: p, cfg: cfg, guard: g, transport: transport, once: outbound.Once{Base: transport}}, nil
}

func (s *httpSource) Tools(context.Context, toolproxy.ExecQueue, picket.LeaseCredential) ([]toolproxy.Tool, error) {
	if t, ok := s.proxy.WithPrice(listing("http_request")); ok {
		return []toolproxy.Tool{t}, nil
	}
	return nil, nil
}

// httpArgs are the arguments of http_request.
type httpArgs struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	// Body is sent as it is when it is a string, as JSON otherwise.
	Body           picket.RawJSON `json:"body"`
	TimeoutSeconds *int           `json:"timeoutSeconds"`

	target *url.URL
}

func (s *httpSource) Call(ctx context.Context, c toolproxy.Call) (jsontext.Value, bool, error) {
	if c.Name != "http_request" {
		return nil, false, nil
	}
	args, err := s.args(c)
	if err != nil {
		return nil, true, err
	}
	canonical, err := toolproxy.EncodeJSON(args)
	if err != nil {
		return nil, true, err
	}
	effects := picket.EffectsExternal
	if args.Method == http.MethodGet || args.Method == http.MethodHead {
		effects = picket.EffectsNone
	}
	timeout := s.cfg.Timeout
	if args.TimeoutSeconds != nil {
		timeout = min(timeout, time.Duration(*args.TimeoutSeconds)*time.Second)
	}
	answer, err := s.proxy.MeteredAnswer(ctx, c, toolproxy.MeteredCall{
		Args:    canonical,
		Effects: effects,
		Timeout: timeout,
		Dispatch: func(ctx context.Context, r picket.Reservation) (toolproxy.DispatchResult, error) {
			return s.fetch(ctx, args, r.Token)
		},
	})
	return answer, true, err
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// args reads and checks the arguments; nothing is reserved for a bad call.
func (s *httpSource) args(c toolproxy.Call) (a httpArgs, err error) {
	if a, err = toolproxy.DecodeArgs[httpArgs](c.Args); err != nil {
		return a, err
	}
	a.Method = cmp.Or(strings.ToUpper(a.Method), http.MethodGet)
	switch {
	case a.URL == "":
		return a, picket.Invalid("/url", "Send an absolute http or https URL.", "url is required")
	case !slices.Contains(methods, a.Method):
		return a, picket.Invalid("/method", "Send one of: "+strings.Join(methods, ", ")+".",
			"%q is not a method that can be called", web.Shortened(a.Method))
	case len(a.URL) > maxURL:
		return a, picket.Refuse(picket.CodeTooLarge, "Send a shorter URL.",
			"the URL has %d bytes, at most %d are allowed", len(a.URL), maxURL).With("field", "/url")
	case len(a.Body) > maxRequestBody:
		return a, picket.Refuse(picket.CodeTooLarge, "Send less in one request.",
			"the body has %d bytes, at most %d are allowed", len(a.Body), maxRequestBody).With("field", "/body")
	case a.TimeoutSeconds != nil && (*a.TimeoutSeconds < 1 || *a.TimeoutSeconds > picket.MaxExternalCall):
		return a, picket.Invalid("/timeoutSeconds", "Send 1 to 120, or leave it out.", "timeoutSeconds is %d",
			*a.TimeoutSeconds)
	}
	if a.target, err = url.Parse(a.URL); err != nil {
		return a, picket.Invalid("/url", "Send an absolute http or https URL, percent-encoded.",
			"the URL cannot be read")
	}
	if err := s.guard.Check(a.target); err != nil {
		return a, err
	}
	if err := checkHeaders(a.Headers); err != nil {
		return a, err
	}
	return a, toolproxy.CheckNoLeaseToken(c.Held, c.Args)
}

// managedHeaders are headers that the proxy or the connection sets.
var managedHeaders = []string{"Host", "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Expect",
	toolproxy.FenceHeader}

func checkHeaders(headers map[string]string) error {
	size := 0
	seen := map[string]bool{}
	for name, value := range headers {
		size += len(name) + len(value) + 4
		at, known := "/headers/"+web.Shortened(name), http.CanonicalHeaderKey(name)
		switch {
		case !isHeaderName(name) || strings.ContainsFunc(value,
			func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return picket.Invalid(at, "Send a header's name and a value of one line.", "%q is not a header",
				web.Shortened(name))
		case slices.Contains(managedHeaders, known):
			return picket.Invalid(at, "Leave it out; it is set where the request is made.",
				"the header %s cannot be chosen", known)
		case seen[known]:
			return picket.Invalid(at, "Send each header once.", "the header %s is there twice", known)
		}
		seen[known] = true
	}
	if len(headers) > maxHeaders || size > maxHeaderBytes {
		return picket.Refuse(picket.CodeTooLarge, "Send fewer or shorter headers.",
			"%d headers with %d bytes, at most %d with %d are allowed",
			len(headers), size, maxHeaders, maxHeaderBytes).With("field", "/headers")
	}
	return nil
}

// isHeaderName reports whether a name is one of RFC 9110's tokens.
func isHeaderName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// payload is the body as it is sent, and its type when the caller gave none.
func (a httpArgs) payload() (body []byte, kind string, err error) {
	raw := jsontext.Value(bytes.TrimSpace(a.Body))
	switch {
	case len(raw) == 0 || raw.Kind() == 'n':
		return nil, "", nil
	case raw.Kind() == '"':
		var text string
		err := json.Unmarshal(raw, &text)
		return []byte(text), "text/plain; charset=utf-8", err
	}
	return raw, "application/json", nil
}
