package adapter

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
)

// Client speaks HTTP with an orchestrator or a tool proxy. Its zero value
// lacks only BaseURL. It is safe for concurrent use.
type Client struct {
	// BaseURL is the server, such as http://127.0.0.1:7070. Required.
	BaseURL string
	// Key is sent as the bearer of every call: an API key for the control
	// plane, a lease token for the tool proxy. Defaults to none.
	Key picket.Secret
	// HTTP does the work. It should have no Timeout of its own, for long polls
	// last up to 50 s. Defaults to a client with a pool of its own kind that
	// follows no redirects.
	HTTP *http.Client
	// Timeout bounds a call whose context has no deadline. Defaults to 30 s.
	Timeout time.Duration
	// MaxResponse bounds an answer in bytes. Defaults to 16 MiB.
	MaxResponse int64
}

const (
	defaultTimeout     = 30 * time.Second
	defaultMaxResponse = 16 << 20
	maxProblem         = 1 << 20
)

// defaultHTTP is shared, so that connections are reused between leases.
var defaultHTTP = &http.Client{
	Transport: func() http.RoundTripper {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 32
		return t
	}(),
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Text is a request body that is sent as text/plain instead of JSON.
type Text []byte

// Option changes one call.
type Option func(*call)

type call struct {
	header         http.Header
	bearer         picket.Secret
	status         *int
	responseHeader *http.Header
}

// WithIdempotencyKey makes a repetition of the call harmless: the server
// answers the same again instead of doing it twice.
func WithIdempotencyKey(key string) Option {
	return func(c *call) { c.header.Set("Idempotency-Key", key) }
}

// WithBearer sends another credential than the client's key.
func WithBearer(secret picket.Secret) Option { return func(c *call) { c.bearer = secret } }

// WithHeader sets a request header.
func WithHeader(name, value string) Option { return func(c *call) { c.header.Set(name, value) } }

// WithStatus stores the status of a successful answer, to tell 200 from 204.
func WithStatus(status *int) Option { return func(c *call) { c.status = status } }

// WithResponseHeader stores the header of a successful answer.
func WithResponseHeader(h *http.Header) Option { return func(c *call) { c.responseHeader = h } }

// Call sends in as JSON (nothing when nil, text/plain when it is a [Text]) and
// decodes the answer into out (nil: discarded; *[]byte: kept as it is). The
// path may carry a query. A request that is refused because the credential
// sends too many a second is repeated while the deadline of ctx leaves time. A refusal is a
// *[picket.Error] with the server's code, remedy and facts; a call that got no whole answer is
// [picket.CodeUnavailable] and [picket.ErrUnknown] at once, since it may or may not have taken
// effect.
func (c *Client) Call(ctx context.Context, method, path string, in, out any, opts ...Option) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout())
		defer cancel()
	}
	res, set, err := c.sendWithRateRetry(ctx, method, path, in, opts)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if set.status != nil {
		*set.status = res.StatusCode
	}
	if set.responseHeader != nil {
		*set.responseHeader = res.Header
	}
	return c.decode(res, out)
}

// Stream opens a long answer, such as server-sent events, and returns its
// body, which the caller closes. It lasts as long as ctx does.
func (c *Client) Stream(ctx context.Context, path string, header http.Header) (io.ReadCloser, error) {
	var opts []Option
	for name, values := range header {
		for _, v := range values {
			opts = append(opts, WithHeader(name, v))
		}
	}
	res, _, err := c.sendWithRateRetry(ctx, http.MethodGet, path, nil, opts)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// send answers a response with a 2xx status, or an error.
func (c *Client) send(ctx context.Context, method, path string, in any, opts []Option) (*http.Response, call, error) {
	set := call{header: http.Header{}, bearer: c.Key}
	set.header.Set("Accept", "application/json")
	for _, opt := range opts {
		opt(&set)
	}
	body, contentType, err := encode(in)
	if err != nil {
		return nil, set, picket.Refuse(picket.CodeValidation, "Send text that is valid UTF-8.",
			"the request cannot be written as JSON: %v", err).WithCause(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(c.BaseURL, "/")+path, body)
	if err != nil {
		return nil, set, picket.Refuse(picket.CodeValidation, "Use a URL such as http://127.0.0.1:7070.",
			"the server's URL cannot be used: %v", err)
	}
	if contentType != "" {
		set.header.Set("Content-Type", contentType)
	}
	if set.bearer != "" {
		set.header.Set("Authorization", "Bearer "+set.bearer.Reveal())
	}
	req.Header = set.header
	client := c.HTTP
	if client == nil {
		client = defaultHTTP
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, set, unreachable(c.BaseURL, err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		defer res.Body.Close()
		return nil, set, decodeProblem(res)
	}
	return res, set, nil
}

func (c *Client) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return defaultTimeout
}

func encode(in any) (io.Reader, string, error) {
	switch in := in.(type) {
	case nil:
		return nil, "", nil
	case Text:
		return bytes.NewReader(in), "text/plain; charset=utf-8", nil
	}
	b, err := json.Marshal(in)
	return bytes.NewReader(b), "application/json", err
}

func (c *Client) decode(res *http.Response, out any) error {
	limit := c.MaxResponse
	if limit <= 0 {
		limit = defaultMaxResponse
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return unreachable(c.BaseURL, fmt.Errorf("read answer: %w", err))
	}
	if int64(len(b)) > limit {
		return picket.Refuse(picket.CodeTooLarge, "Ask for less, for example with a smaller limit.",
			"the answer has more than %d bytes", limit)
	}
	if raw, ok := out.(*[]byte); ok {
		*raw = b
		return nil
	}
	if out == nil || len(b) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return picket.Refuse(picket.CodeInternal, "Check that the URL is that of a Picket server of this version.",
			"the answer to %s %s cannot be read", res.Request.Method, res.Request.URL.Path).WithCause(err)
	}
	return nil
}

// unreachable is the error of a call without a whole answer; its fact "tls" says
// what is wrong with the TLS of a server that is there.
func unreachable(baseURL string, err error) error {
	err = fmt.Errorf("%w: %w", picket.ErrUnknown, err)
	if what, remedy := tlsFault(err); what != "" {
		return picket.Refuse(picket.CodeUnavailable, remedy, "%s %s", baseURL, what).With("tls", what).WithCause(err)
	}
	return picket.Refuse(picket.CodeUnavailable,
		"Check that the server runs and that its URL is right, then try again.",
		"%s does not answer", baseURL).WithCause(err)
}

// decodeProblem turns an error answer into a *picket.Error.
func decodeProblem(res *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	members := map[string]any{}
	if strings.Contains(res.Header.Get("Content-Type"), "json") {
		_ = json.Unmarshal(b, &members, jsontext.AllowDuplicateNames(true))
	}
	e := &picket.Error{
		Code:    picket.Code(stringMember(members, "code")),
		Message: stringMember(members, "message"),
		Remedy:  stringMember(members, "remedy"),
	}
	if e.Message == "" {
		e.Message = stringMember(members, "detail")
	}
	for _, known := range []string{"code", "message", "remedy", "detail", "type", "title", "status", "retryable"} {
		delete(members, known)
	}
	if len(members) > 0 {
		e.Facts = members
	}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 && s < 3600 {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	if e.Code == "" {
		return foreignAnswer(res, e)
	}
	return e
}

// errNotPicket says that it was not a Picket server that knows no such thing.
var errNotPicket = errors.New("the answer is not one of Picket")

// foreignAnswer completes the error of an answer that did not come from Picket, such
// as that of a load balancer: nothing is known about the call's effect.
func foreignAnswer(res *http.Response, e *picket.Error) error {
	e.Message = fmt.Sprintf("%s %s was answered %s", res.Request.Method, res.Request.URL.Path, res.Status)
	e.Remedy = "Check that the URL is that of a Picket server."
	switch {
	case res.StatusCode >= 500 || res.StatusCode == http.StatusTooManyRequests:
		e.Code = picket.CodeUnavailable
		return e.WithCause(picket.ErrUnknown)
	case res.StatusCode == http.StatusUnauthorized:
		e.Code = picket.CodeUnauthenticated
	case res.StatusCode == http.StatusNotFound:
		e.Code = picket.CodeNotFound
		return e.WithCause(errNotPicket)
	case res.StatusCode == http.StatusMethodNotAllowed:
		e.Code = picket.CodeMethodNotAllowed
		return e.WithCause(errNotPicket)
	default:
		e.Code = picket.CodeInternal
	}
	return e
}

func stringMember(members map[string]any, name string) string {
	s, _ := members[name].(string)
	return s
}

// factInt reads an integer fact of a refusal.
func factInt(err error, name string) (int64, bool) {
	var e *picket.Error
	if !errors.As(err, &e) {
		return 0, false
	}
	f, ok := e.Facts[name].(float64)
	return int64(f), ok
}

// maxRateRetries bounds how often a request is repeated after a refusal for its rate.
const maxRateRetries = 30

// sendWithRateRetry sends a request. If the server refuses it because the credential
// sends too many a second, it waits as the server says and sends it again. Such
// a refused request had no effect, so a repetition is harmless.
func (c *Client) sendWithRateRetry(ctx context.Context, method, path string, in any,
	opts []Option) (*http.Response, call, error) {
	for repeats := 0; ; repeats++ {
		res, set, err := c.send(ctx, method, path, in, opts)
		wait := rateLimitWait(err)
		if wait == 0 || repeats == maxRateRetries {
			return res, set, err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
			return res, set, err
		}
		if !sleep(ctx, wait) {
			return res, set, err
		}
	}
}

// rateLimitWait is how long to wait after a refusal for the rate of the credential, and 0
// after any other error. Other refusals with the same code end when something
// else has ended.
func rateLimitWait(err error) time.Duration {
	var e *picket.Error
	if !errors.As(err, &e) || e.Code != picket.CodeRateLimited {
		return 0
	}
	if _, ok := e.Facts["perSecond"]; !ok {
		return 0
	}
	return max(e.RetryAfter, 100*time.Millisecond)
}

// tlsFault says why nothing can be said to a server that is there, and what to
// do about it; empty when TLS is not the reason.
func tlsFault(err error) (what, remedy string) {
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		return "shows a certificate that is not trusted here: " + certificate.Err.Error(),
			"Trust the authority that signed it on this machine; on Linux SSL_CERT_FILE=FILE names another one. Or use a host name that the certificate has."
	case err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "speaks no TLS", "Write http:// instead of https://."
	}
	return "", ""
}
