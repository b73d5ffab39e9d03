package tools

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/outbound"
	"github.com/picket-dev/picket/toolproxy"
)

// httpResult is the answer of http_request.
type httpResult struct {
	Status  int               `json:"status"`
	URL     string            `json:"url"` // after redirects
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	// BodyBase64 stands for Body when that is not text.
	BodyBase64 string `json:"bodyBase64,omitempty"`
	Truncated  bool   `json:"truncated"` // there was more of the body
	// NotFollowed says why the redirect that this answer is was not followed.
	NotFollowed string `json:"notFollowed,omitempty"`
}

// fetch makes a request and follows its redirects, each one checked as the
// first was.
func (s *httpSource) fetch(ctx context.Context, a httpArgs, token int64) (toolproxy.DispatchResult, error) {
	began := time.Now()
	req, err := a.request(ctx, token)
	if err != nil {
		return toolproxy.DispatchResult{}, toolproxy.NotSent(err)
	}
	resp, why, err := s.follow(req)
	if err != nil {
		return toolproxy.DispatchResult{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	out := httpResult{
		Status:      resp.StatusCode,
		URL:         resp.Request.URL.String(),
		Headers:     responseHeaders(resp.Header),
		NotFollowed: why,
	}
	n, err := out.read(resp.Body, s.cfg.MaxBytes)
	if err != nil {
		return toolproxy.DispatchResult{}, err
	}
	raw, err := toolproxy.EncodeJSON(out)
	return toolproxy.DispatchResult{
		Result: picket.RawJSON(raw),
		Used:   budget.Usage{Bytes: n, Millis: time.Since(began).Milliseconds()},
		Failed: resp.StatusCode >= 400,
		Detail: "HTTP " + strconv.Itoa(resp.StatusCode),
	}, err
}

func (a httpArgs) request(ctx context.Context, token int64) (*http.Request, error) {
	body, kind, err := a.payload()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, a.Method, a.target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		req.Body, req.GetBody, req.ContentLength = http.NoBody, nil, 0
	}
	for name, value := range a.Headers {
		req.Header.Set(name, value)
	}
	if kind != "" && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", kind)
	}
	if _, chosen := req.Header["User-Agent"]; !chosen {
		req.Header.Set("User-Agent", "picket")
	}
	// A server that compares it can refuse the writes of an older holder.
	req.Header.Set(toolproxy.FenceHeader, strconv.FormatInt(token, 10))
	return req, nil
}

// follow makes a request and what its answers redirect to. why says, for an
// answer that is a redirect, why it ends there.
func (s *httpSource) follow(req *http.Request) (resp *http.Response, why string, err error) {
	if resp, err = s.once.RoundTrip(req); err != nil {
		return nil, "", toolproxy.MarkNotSent(err)
	}
	for hop := 1; ; hop++ {
		next, why := s.next(req, resp, hop)
		if next == nil {
			return resp, why, nil
		}
		answer, err := s.once.RoundTrip(next)
		if errors.Is(err, picket.CodeDestination) {
			return resp, err.Error(), nil
		}
		_ = resp.Body.Close()
		if err != nil {
			return nil, "", err
		}
		req, resp = next, answer
	}
}

// isReadMethod reports whether a request only reads, and so may be sent to the URL that
// the first answer names.
func isReadMethod(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// next is the request that an answer redirects to, nil when it does not, or
// when that may not be followed.
func (s *httpSource) next(req *http.Request, resp *http.Response, hop int) (next *http.Request, why string) {
	where := resp.Header.Get("Location")
	keep := resp.StatusCode == http.StatusTemporaryRedirect || resp.StatusCode == http.StatusPermanentRedirect
	if where == "" || !keep &&
		!slices.Contains([]int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther}, resp.StatusCode) {
		return nil, ""
	}
	target, err := req.URL.Parse(where)
	if err != nil {
		return nil, "its Location cannot be read"
	}
	if hop > maxRedirects {
		return nil, "there were more than " + strconv.Itoa(maxRedirects) + " redirects"
	}
	if err := s.guard.Check(target); err != nil {
		return nil, err.Error()
	}
	if keep && !isReadMethod(req.Method) {
		return nil, "following it would send the request a second time; call the new URL instead"
	}
	away := origin(target) != origin(req.URL)
	if keep && away && req.ContentLength != 0 {
		return nil, "it would send the body to another server"
	}
	return redirected(req, target, keep, away)
}

// redirected asks target what req has asked. Another server gets nothing that
// was meant for the first: any header may hold a credential.
func redirected(req *http.Request, target *url.URL, keep, away bool) (*http.Request, string) {
	next := req.Clone(req.Context())
	next.URL, next.Host = target, ""
	if away {
		maps.DeleteFunc(next.Header,
			func(name string, _ []string) bool { return !slices.Contains(crossOriginHeaders, name) })
	}
	if keep && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, "its body cannot be sent again"
		}
		next.Body = body
	}
	if !keep {
		if next.Method != http.MethodHead {
			next.Method = http.MethodGet
		}
		next.Body, next.GetBody, next.ContentLength = http.NoBody, nil, 0
		next.Header.Del("Content-Type")
	}
	return next, ""
}

var crossOriginHeaders = []string{"Accept", "Accept-Encoding", "Accept-Language", "Content-Type", "User-Agent"}

func origin(u *url.URL) string {
	return u.Scheme + "://" + outbound.CanonicalHost(u.Hostname()) + ":" + outbound.PortOf(u)
}

// read takes at most limit bytes of a body.
func (r *httpResult) read(body io.Reader, limit int64) (n int64, err error) {
	raw, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err != nil {
		return 0, err
	}
	if r.Truncated = int64(len(raw)) > limit; r.Truncated {
		raw = raw[:limit]
		for cut := 1; cut < utf8.UTFMax && cut <= len(raw); cut++ { // a rune that was cut in two
			if tail := raw[len(raw)-cut:]; utf8.RuneStart(tail[0]) {
				if !utf8.FullRune(tail) {
					raw = raw[:len(raw)-cut]
				}
				break
			}
		}
	}
	if utf8.Valid(raw) {
		r.Body = string(raw)
	} else {
		r.BodyBase64 = base64.StdEncoding.EncodeToString(raw)
	}
	return int64(len(raw)), nil
}

// responseHeaders are the headers of an answer that are the caller's business.
func responseHeaders(h http.Header) map[string]string {
	out := map[string]string{}
	for name, values := range h {
		if !slices.Contains(managedHeaders, name) || name == "Content-Length" {
			out[strings.ToValidUTF8(name, "�")] = strings.ToValidUTF8(strings.Join(values, ", "), "�")
		}
	}
	return out
}
