package outbound_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/picket-dev/picket/internal/outbound"
	"github.com/picket-dev/picket/internal/rig"
)

// repeatableRequests are requests that an http.Transport repeats, each in another way.
var repeatableRequests = []struct {
	name    string
	method  string
	header  string
	body    string
	nilBody bool
}{
	{"GET", "GET", "", "", true},
	{"HEAD", "HEAD", "", "", true},
	{"GET with a body", "GET", "", "body", false},
	{"POST with a key", "POST", "Idempotency-Key", "body", false},
	{"POST with the other key", "POST", "X-Idempotency-Key", "body", false},
	{"empty POST with a key", "POST", "Idempotency-Key", "", true},
	{"POST", "POST", "", "body", false},
	{"DELETE", "DELETE", "", "", true},
	{"GET with a long URL", "GET", "", "long", true},
}

// A server that breaks the connection at an awkward moment gets each request
// once. It is told apart from a request of which nothing was sent.
func TestARequestIsSentOnce(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, how := range rig.BreakModes(http2) {
			for _, m := range repeatableRequests {
				t.Run(fmt.Sprintf("HTTP2 %v/%s/%s", http2, how, m.name), func(t *testing.T) {
					mark := "/marked"
					if http2 {
						mark = ""
					}
					b := rig.StartBreaker(t,
						http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							_, _ = io.WriteString(w, "ok")
						}), http2, how, mark)
					transport := &http.Transport{TLSClientConfig: b.TLS, ForceAttemptHTTP2: true}
					defer transport.CloseIdleConnections()
					once := outbound.Once{Base: transport}
					for range 2 { // so that a connection is kept
						resp, err := once.RoundTrip(newRequest(t, "GET", b.URL+"/first", nil))
						if err != nil {
							t.Fatal(err)
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
					b.Arm()
					var body io.Reader
					if !m.nilBody {
						body = bytes.NewReader([]byte(m.body))
					}
					path := "/marked"
					if m.body == "long" {
						path += "?" + strings.Repeat("x", 8<<10)
					}
					req := newRequest(t, m.method, b.URL+path, body)
					if m.header != "" {
						req.Header.Set(m.header, "a key")
					}
					resp, err := once.RoundTrip(req)
					if err == nil {
						_ = resp.Body.Close()
						t.Errorf("it was answered with %d", resp.StatusCode)
					}
					var unsent *outbound.UnsentError
					if errors.As(err, &unsent) {
						t.Errorf("it is said not to be sent: %v", err)
					}
					if n := b.Requests(); n != 1 {
						t.Errorf("the server got it %d times: %v", n, err)
					}
				})
			}
		}
	}
}

func newRequest(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// A kept connection that was closed before the request is replaced, and a server
// that is not there has got nothing.
func TestARequestThatWasNotSent(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	_, err = outbound.Once{Base: &http.Transport{}}.RoundTrip(newRequest(t, "GET", "http://"+ln.Addr().String(), nil))
	var unsent *outbound.UnsentError
	if !errors.As(err, &unsent) {
		t.Errorf("nobody listens: %v", err)
	}
}

// The wire looks as it does without Once.
func TestOnceChangesNothingOnTheWire(t *testing.T) {
	seen := make(chan *http.Request, 1)
	b := rig.StartBreaker(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r }), false,
		rig.CloseOnArrival, "never")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for _, m := range repeatableRequests {
		var body io.Reader
		if !m.nilBody {
			body = strings.NewReader(m.body)
		}
		resp, err := outbound.Once{Base: transport}.RoundTrip(newRequest(t, m.method, b.URL, body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		r, want := <-seen, int64(len(m.body))
		if m.nilBody {
			want = 0
		}
		if r.Method != m.method || r.ContentLength != want || len(r.TransferEncoding) != 0 {
			t.Errorf("%s: %s with %d bytes and the encoding %v", m.name, r.Method, r.ContentLength, r.TransferEncoding)
		}
	}
}
