package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/unixsocket"
)

// BasePath is where the routes of an orchestrator begin.
const BasePath = "/api/v1"

// Client talks to one server with one key. Its fields are the services of an
// orchestrator. [Client.Call] makes any other request, for example one to a tool
// proxy. A Client is safe for concurrent use. [New] makes one.
type Client struct {
	Tasks    Tasks
	Leases   Leases
	Agents   Agents
	Pools    Pools
	Handoffs Handoffs
	Reviews  Reviews
	Budgets  Budgets
	Events   Events
	Webhooks Webhooks
	Policies Policies
	Sessions AgentSessions
	Keys     Keys
	RunKeys  RunKeys
	Server   Server

	url     string
	base    string // what the URLs of requests begin with
	baseErr error  // why there is no base
	key     picket.Secret
	options Options
}

// Options change how a Client makes its requests. The zero value is ready to use.
type Options struct {
	// HTTP sends the requests. It should have no Timeout, because a long poll lasts
	// up to 50 s. To reach a server on a Unix socket, it has to use the Transport of
	// DefaultHTTP. Defaults to DefaultHTTP.
	HTTP *http.Client
	// Timeout bounds a call whose context has no deadline. Defaults to 30 s.
	Timeout time.Duration
	// MaxResponse bounds an answer in bytes. Defaults to 16 MiB.
	MaxResponse int64
	// Attempts is how often a change is sent if its answers are lost. All attempts carry
	// the same idempotency key, so the server makes the change once. A Client with one
	// attempt adds no key: its caller decides whether to repeat. Defaults to 4.
	Attempts int
	// OnError may replace the error of a request, for example to add advice for the
	// users of a program. Defaults to none.
	OnError func(error) error
}

const (
	defaultTimeout     = 30 * time.Second
	defaultMaxResponse = 16 << 20
	defaultAttempts    = 4
	maxProblem         = 1 << 20
)

// DefaultHTTP sends the requests of clients that have no HTTP client of their own. They
// share its connections. It does not follow redirects.
var DefaultHTTP = &http.Client{
	Transport: func() http.RoundTripper {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 32
		unixsocket.Register(t)
		return t
	}(),
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// New makes a client of the server at a URL such as http://127.0.0.1:7070. The URL of a
// server on a Unix socket is unix: and the path of the socket, of at most 107 bytes. A
// relative path is taken from the current directory. The key is the bearer of every
// request: an API key, or a lease token for a tool proxy. It may be empty.
func New(url string, key picket.Secret, o Options) *Client {
	if o.HTTP == nil {
		o.HTTP = DefaultHTTP
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.MaxResponse <= 0 {
		o.MaxResponse = defaultMaxResponse
	}
	if o.Attempts <= 0 {
		o.Attempts = defaultAttempts
	}
	if o.OnError == nil {
		o.OnError = func(err error) error { return err }
	}
	c := &Client{url: strings.TrimRight(url, "/"), key: key, options: o}
	if path, err := unixsocket.Path(c.url); err == nil {
		c.url = unixsocket.URL(path)
	}
	c.base, c.baseErr = unixsocket.RequestURL(c.url)
	c.Tasks, c.Leases, c.Agents, c.Pools = Tasks{c}, Leases{c}, Agents{c}, Pools{c}
	c.Handoffs, c.Reviews, c.Budgets, c.Events = Handoffs{c}, Reviews{c}, Budgets{c}, Events{c}
	c.Sessions = AgentSessions{c}
	c.Webhooks, c.Policies, c.Keys, c.RunKeys, c.Server = Webhooks{c}, Policies{c}, Keys{c}, RunKeys{c}, Server{c}
	return c
}

// URL is the server's URL without a slash at its end. It has the absolute path of a Unix
// socket.
func (c *Client) URL() string { return c.url }

// Key is the credential that every request carries.
func (c *Client) Key() picket.Secret { return c.key }

// Text is a request body that is sent as text/plain instead of JSON.
type Text []byte

// Bytes is a request body that is sent as it is, as application/octet-stream.
type Bytes []byte

// Option changes one request.
type Option func(*request)

type request struct {
	header         http.Header
	query          url.Values
	askTwice       bool
	status         *int
	responseHeader *http.Header
	body           func([]byte)
}

const idempotencyKey = "Idempotency-Key"

// WithIdempotencyKey makes a repetition of the request harmless: the server answers the
// same again instead of doing it twice.
func WithIdempotencyKey(key string) Option { return WithHeader(idempotencyKey, key) }

// WithIfMatch lets a change of an agent's record take effect only while the record has
// this version. Version 0 matches any.
func WithIfMatch(version int64) Option {
	if version == 0 {
		return WithHeader("If-Match", "*")
	}
	return WithHeader("If-Match", `"`+strconv.FormatInt(version, 10)+`"`)
}

// WithHeader sets a request header.
func WithHeader(name, value string) Option { return func(r *request) { r.header.Set(name, value) } }

// WithQuery adds parameters to the query of a request as they are. A program can pass on
// what a person typed, and let the server check it.
func WithQuery(q url.Values) Option {
	return func(r *request) {
		for name, values := range q {
			r.query[name] = values
		}
	}
}

// WithSecondTry repeats a request once, half a second later, if the key is refused. A
// program that has used its key before needs it while an emptied store gets its keys
// back.
func WithSecondTry() Option { return func(r *request) { r.askTwice = true } }

// WithStatus stores the status of a successful answer, to tell 200 from 204.
func WithStatus(status *int) Option { return func(r *request) { r.status = status } }

// WithResponseHeader stores the header of a successful answer.
func WithResponseHeader(h *http.Header) Option { return func(r *request) { r.responseHeader = h } }

// WithBody stores the body of a successful answer byte for byte.
func WithBody[B ~[]byte](body *B) Option {
	return func(r *request) { r.body = func(b []byte) { *body = b } }
}

// Call sends in as JSON (nothing if it is nil, and as it is if it is a [Text] or [Bytes]) and
// decodes the answer into out (nothing if it is nil). The path may carry a query.
//
// A request that is refused because the key sends too many a second is repeated while
// the deadline of ctx leaves time. A refusal is a *[picket.Error] with the server's
// code, remedy and facts. A call without a whole answer may or may not have taken
// effect: its error is [picket.CodeUnavailable] and [picket.ErrUnknown].
func (c *Client) Call(ctx context.Context, method, path string, in, out any, opts ...Option) error {
	return c.call(ctx, method, path, in, out, newRequest(opts))
}

func newRequest(opts []Option) *request {
	r := &request{header: http.Header{"Accept": {"application/json"}}, query: url.Values{}}
	for _, opt := range opts {
		opt(r)
	}
	return r
}

func (c *Client) call(ctx context.Context, method, path string, in, out any, r *request) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.options.Timeout)
		defer cancel()
	}
	res, err := c.open(ctx, method, path, in, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if r.status != nil {
		*r.status = res.StatusCode
	}
	if r.responseHeader != nil {
		*r.responseHeader = res.Header
	}
	if err := c.decode(res, out, r); err != nil {
		return c.options.OnError(err)
	}
	return nil
}

// change is a Call that is repeated while its answer is lost, see Options.Attempts.
func (c *Client) change(ctx context.Context, method, path string, in, out any, opts []Option) error {
	r := newRequest(opts)
	if c.options.Attempts > 1 && r.header.Get(idempotencyKey) == "" {
		r.header.Set(idempotencyKey, "go_"+rand.Text())
	}
	return c.repeat(ctx, method, path, in, out, r)
}

// repeat is a call that is repeated while its answer is lost. The request must be one that the server
// recognizes.
func (c *Client) repeat(ctx context.Context, method, path string, in, out any, r *request) error {
	wait := 100 * time.Millisecond
	for attempt := 1; ; attempt++ {
		err := c.call(ctx, method, path, in, out, r)
		if !errors.Is(err, picket.ErrUnknown) || attempt >= c.options.Attempts || sleep(ctx, wait) != nil {
			return err
		}
		wait *= 2
	}
}

// Stream opens a long answer, such as server-sent events, and returns its body, which
// the caller closes. It lasts as long as ctx does.
func (c *Client) Stream(ctx context.Context, path string, opts ...Option) (io.ReadCloser, error) {
	res, err := c.open(ctx, http.MethodGet, path, nil, newRequest(opts))
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// open answers a response with a 2xx status, or an error.
func (c *Client) open(ctx context.Context, method, path string, in any, r *request) (*http.Response, error) {
	if len(r.query) > 0 {
		path += "?" + r.query.Encode()
	}
	res, err := c.sendWithRateRetry(ctx, method, path, in, r)
	if r.askTwice && errors.Is(err, picket.CodeUnauthenticated) && sleep(ctx, 500*time.Millisecond) == nil {
		res, err = c.sendWithRateRetry(ctx, method, path, in, r)
	}
	if err != nil {
		return nil, c.options.OnError(err)
	}
	return res, nil
}

// maxRateRetries bounds how often a request is repeated after a refusal for its rate.
const maxRateRetries = 30

// sendWithRateRetry sends a request. If the server refuses it because the credential
// sends too many a second, it waits as the server says and sends it again. Such
// a refused request had no effect, so a repetition is harmless.
func (c *Client) sendWithRateRetry(ctx context.Context, method, path string, in any,
	r *request) (*http.Response, error) {
	for repeats := 0; ; repeats++ {
		res, err := c.send(ctx, method, path, in, r)
		wait := rateLimitWait(err)
		if wait == 0 || repeats == maxRateRetries {
			return res, err
		}
		if lacksTime(ctx, wait) || sleep(ctx, wait) != nil {
			return res, err
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

func (c *Client) send(ctx context.Context, method, path string, in any, r *request) (*http.Response, error) {
	body, contentType, err := encode(in)
	if err != nil {
		return nil, picket.Refuse(picket.CodeValidation, "Send text that is valid UTF-8.",
			"the request cannot be written as JSON: %v", err).WithCause(err)
	}
	req, err := c.newRequest(ctx, method, path, body)
	if err != nil {
		return nil, picket.Refuse(picket.CodeValidation,
			"Use a URL such as http://127.0.0.1:7070 or unix:/run/picket/api.sock.",
			"the server's URL cannot be used: %v", err)
	}
	req.Header = r.header.Clone()
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key.Reveal())
	}
	res, err := c.options.HTTP.Do(req)
	if err != nil {
		return nil, unreachable(c.url, err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		defer res.Body.Close()
		return nil, decodeProblem(res)
	}
	return res, nil
}

func (c *Client) newRequest(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	if c.baseErr != nil {
		return nil, c.baseErr
	}
	return http.NewRequestWithContext(ctx, method, c.base+path, body)
}

func encode(in any) (io.Reader, string, error) {
	switch in := in.(type) {
	case nil:
		return nil, "", nil
	case Text:
		return bytes.NewReader(in), "text/plain; charset=utf-8", nil
	case Bytes:
		return bytes.NewReader(in), "application/octet-stream", nil
	}
	// A repeated request has to have the same bytes, or the server refuses it as another one.
	b, err := json.Marshal(in, json.Deterministic(true))
	return bytes.NewReader(b), "application/json", err
}

func (c *Client) decode(res *http.Response, out any, r *request) error {
	limit := c.options.MaxResponse
	b, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return unreachable(c.url, fmt.Errorf("read answer: %w", err))
	}
	if int64(len(b)) > limit {
		return picket.Refuse(picket.CodeTooLarge, "Ask for less, for example with a smaller limit.",
			"the answer has more than %d bytes", limit)
	}
	if r.body != nil {
		r.body(b)
	}
	if out == nil || len(b) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return picket.Refuse(picket.CodeInternal, "Check that the URL is that of a Picket server of this version.",
			"the answer to %s %s cannot be read: %v", res.Request.Method, res.Request.URL.Path, err).WithCause(err)
	}
	return nil
}

// sleep waits for d or the end of ctx, whose cause it returns.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// route joins the segments of a path below BasePath. Each of them is escaped.
func route(segments ...string) string {
	path := BasePath
	for _, s := range segments {
		path += "/" + url.PathEscape(s)
	}
	return path
}

// get reads one answer.
func get[T any](ctx context.Context, c *Client, path string, opts []Option) (out T, err error) {
	err = c.Call(ctx, http.MethodGet, path, nil, &out, opts...)
	return out, err
}

// query reads one answer to a query; what the options add to the query counts more.
func query[T any](ctx context.Context, c *Client, path string, q url.Values, opts []Option) (T, error) {
	return get[T](ctx, c, path, append([]Option{WithQuery(q)}, opts...))
}

// post makes a change and reads its answer.
func post[T any](ctx context.Context, c *Client, path string, in any, opts []Option) (out T, err error) {
	err = c.change(ctx, http.MethodPost, path, in, &out, opts)
	return out, err
}
