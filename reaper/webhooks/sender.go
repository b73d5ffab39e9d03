package webhooks

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/outbound"
)

// allowSetting is the key of picket.yaml that opens addresses which are not public.
const allowSetting = "notify.allow"

const (
	maxResponse   = 64 << 10         // of an answer is read, in bytes, so that its connection can be used again
	maxTimeout    = 15 * time.Second // of a request
	maxRetryAfter = 5 * time.Minute
)

// SenderConfig says how targets are reached.
type SenderConfig struct {
	// Allow lists addresses that may be called though they are not public, as
	// host:port; public ones need no entry. Defaults to none.
	Allow []string
	// PublicURL is where people reach the console: messages link to it. Defaults
	// to none.
	PublicURL string
	// Timeout bounds a request. Defaults to 15 s, and at most that.
	Timeout time.Duration
	// Resolver finds addresses. Defaults to net.DefaultResolver.
	Resolver *net.Resolver
	// TLS is for targets whose certificates no public authority has signed.
	// Defaults to what the system trusts.
	TLS *tls.Config
}

// Sender posts to targets.
type Sender struct {
	cfg       SenderConfig
	guard     outbound.Guard
	transport http.RoundTripper
}

// NewSender fills in the defaults and refuses entries that name no address.
func NewSender(cfg SenderConfig) (*Sender, error) {
	cfg.Timeout = min(cmp.Or(cfg.Timeout, maxTimeout), maxTimeout)
	guard, err := outbound.New(outbound.Config{
		Allow:          cfg.Allow,
		AllowAllPublic: true,
		Setting:        allowSetting,
		Resolver:       cfg.Resolver,
	})
	if err != nil {
		return nil, err
	}
	return &Sender{cfg: cfg, guard: guard, transport: guard.Transport(cfg.TLS)}, nil
}

// Close lets go of idle connections.
func (s *Sender) Close() {
	if t, ok := s.transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// Check refuses a URL that would not be called, as a field of a request.
func (s *Sender) Check(ctx context.Context, target picket.Secret) error {
	u, err := url.Parse(target.Reveal())
	if err != nil {
		return picket.Invalid("/url", "Send an absolute https or http URL.", "the URL cannot be read")
	}
	return invalidURL(s.guard.CheckReachable(ctx, u))
}

// CheckHTTPS refuses a URL to which no message with HTTPS would be sent, as a field of a request. It looks up no name,
// so that a client cannot find out which names exist on the inside. Where a name leads is decided when it is called.
func (s *Sender) CheckHTTPS(ctx context.Context, target picket.Secret) error {
	u, err := url.Parse(target.Reveal())
	if err != nil {
		return picket.Invalid("/url", "Send an absolute https URL.", "the URL cannot be read")
	}
	host := outbound.CanonicalHost(u.Hostname())
	err = s.checkMessage(u, true)
	switch {
	case err != nil:
	case net.ParseIP(host) != nil:
		err = s.guard.CheckReachable(ctx, u)
	case (host == "localhost" || strings.HasSuffix(host, ".localhost")) && !s.guard.Opens(u):
		err = picket.Invalid("/url", "Send another address, or ask an operator to put "+allowName(u)+" on "+
			allowSetting+" in picket.yaml.", "the URL leads to the host of the server")
	}
	return invalidURL(err)
}

// invalidURL is a refusal of a destination as one of a field of a request.
func invalidURL(err error) error {
	refusal, ok := errors.AsType[*picket.Error](err)
	if ok && refusal.Code == picket.CodeDestination {
		return picket.Invalid("/url", refusal.Remedy, "%s", refusal.Message)
	}
	return err
}

// Delivery is what came of one attempt.
type Delivery struct {
	Outcome    picket.WebhookOutcome // taken, failed or gone
	Status     int                   // 0 without an answer
	Error      string                // empty when it was taken
	RetryAfter time.Duration         // what the target has asked for, at most five minutes
}

// MessageID is the webhook-id of an event for a target. It has no full stop,
// which parts what is signed.
func MessageID(webhookID, eventID string) string { return webhookID + "-" + eventID }

// Send posts one event to a target. It never returns what a URL or an answer
// holds.
func (s *Sender) Send(ctx context.Context, t picket.WebhookTarget, ev picket.Event) Delivery {
	m, err := s.message(t, ev)
	if err != nil {
		return failedDelivery(0, err.Error())
	}
	return s.Post(ctx, m)
}

// Message is one request to a receiver.
type Message struct {
	URL         picket.Secret
	ID          string // of webhook-id: the same whenever the same message is sent again
	ContentType string
	Header      http.Header // further fields; nil: none
	Body        []byte
	// Secret signs the message. Empty: it has no signature.
	Secret picket.Secret
	// HTTPS refuses an http URL, unless SenderConfig.Allow has its address.
	HTTPS bool
}

// Post posts one message, and follows no redirect. It never returns what a URL or an
// answer holds.
func (s *Sender) Post(ctx context.Context, m Message) Delivery {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	req, err := s.request(ctx, m)
	if err != nil {
		return failedDelivery(0, err.Error())
	}
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return failedDelivery(0, s.safeError(ctx, req.URL, err))
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxResponse))
	switch status := resp.StatusCode; {
	case status >= 200 && status < 300:
		return Delivery{Outcome: picket.WebhookTaken, Status: status}
	case status == http.StatusGone:
		return Delivery{Outcome: picket.WebhookGone, Status: status, Error: "HTTP 410: it wants no more"}
	case status >= 300 && status < 400:
		return failedDelivery(status, "HTTP "+strconv.Itoa(status)+
			": redirects are not followed; register the address it moved to")
	default:
		d := failedDelivery(status, "HTTP "+strconv.Itoa(status))
		d.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), time.Now())
		return d
	}
}

func failedDelivery(status int, why string) Delivery {
	return Delivery{Outcome: picket.WebhookFailed, Status: status, Error: why}
}

// message is what a target is sent of an event.
func (s *Sender) message(t picket.WebhookTarget, ev picket.Event) (Message, error) {
	if t.Target == "" || t.Secret == "" {
		return Message{},
			errors.New("its URL was sealed with a secret key that this server does not have: delete the webhook and create it again")
	}
	body, err := s.body(t.Format, ev)
	if err != nil {
		return Message{}, errors.New("the event cannot be written")
	}
	return Message{
		URL:         t.Target,
		ID:          MessageID(t.WebhookID, ev.ID),
		ContentType: "application/json",
		Body:        body,
		Secret:      t.Secret,
	}, nil
}

func (s *Sender) request(ctx context.Context, m Message) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL.Reveal(), bytes.NewReader(m.Body))
	if err != nil {
		return nil, errors.New("its URL cannot be read")
	}
	if err := s.checkMessage(req.URL, m.HTTPS); err != nil {
		return nil, err
	}
	for name, values := range m.Header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", m.ContentType)
	req.Header.Set("User-Agent", "picket")
	return req, sign(req.Header, m.Secret, m.ID, time.Now(), m.Body)
}

// checkMessage refuses a URL to which nothing may be sent, before its host is looked up.
func (s *Sender) checkMessage(u *url.URL, https bool) error {
	if err := s.guard.Check(u); err != nil || !https || u.Scheme == "https" || s.guard.Opens(u) {
		return err
	}
	return picket.Invalid("/url", "Send an https URL, or ask an operator to put "+allowName(u)+" on "+allowSetting+
		" in picket.yaml.", "the URL is not https")
}

// allowName is the address of a URL as an entry of the setting has it.
func allowName(u *url.URL) string { return net.JoinHostPort(u.Hostname(), outbound.PortOf(u)) }

// safeError is an error of the way to a target without what is secret in its URL.
func (s *Sender) safeError(ctx context.Context, u *url.URL, err error) string {
	var refusal *picket.Error
	switch {
	case errors.As(err, &refusal):
		return refusal.Message
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "no answer within " + s.cfg.Timeout.String()
	}
	text := describeError(err)
	for _, part := range []string{u.String(), u.RequestURI(), u.EscapedPath(), u.Path, u.RawQuery} {
		if len(part) > 1 {
			text = strings.ReplaceAll(text, part, "…")
		}
	}
	return text
}

// describeError is what went wrong in words that are not the target's own: a line of
// its answer or a name in its certificate may hold anything.
func describeError(err error) string {
	var way *net.OpError
	var late net.Error
	var certificate *tls.CertificateVerificationError
	var hello tls.RecordHeaderError
	switch {
	case errors.As(err, &certificate):
		return describeCertificateError(certificate)
	case errors.As(err, &hello), errors.As(err, &way),
		errors.As(err, &late) && late.Timeout(), errors.Is(err, context.Canceled):
		return err.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it ended the connection without an answer"
	}
	return "the answer is not HTTP"
}

func describeCertificateError(certificate *tls.CertificateVerificationError) string {
	var name x509.HostnameError
	var signer x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(certificate, &name):
		return "its certificate is for another name"
	case errors.As(certificate, &signer):
		return "its certificate is signed by nobody that is trusted here"
	case errors.As(certificate, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired, or is not valid yet"
	}
	return "its certificate is not good"
}

// retryAfter reads seconds or a date; 0 for anything else.
func retryAfter(text string, now time.Time) time.Duration {
	most := uint64(maxRetryAfter / time.Second)
	if n, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(n, most)) * time.Second // beyond the range n is the largest number
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

// eventTest is the type of a test notice; it never stands in the log.
const eventTest = "webhook.test"

// Test posts a notice that tells only that it is a test.
func (s *Sender) Test(ctx context.Context, t picket.WebhookTarget) picket.WebhookTest {
	now := picket.InstantOf(time.Now())
	ev := picket.Event{
		ID:    "test" + strconv.FormatInt(now.Time().UnixNano(), 36),
		Type:  eventTest,
		At:    now,
		Actor: "test",
		Data:  picket.RawJSON(`{"test":true}`),
	}
	d := s.Send(ctx, t, ev)
	return picket.WebhookTest{
		WebhookID: t.WebhookID,
		Name:      t.Name,
		Delivered: d.Outcome == picket.WebhookTaken,
		Status:    d.Status,
		Error:     d.Error,
	}
}
