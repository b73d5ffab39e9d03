package webhooks_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/reaper/webhooks"
)

const (
	testSecret    = picket.Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	testWebhookID = "webhook_01ARZ3NDEKTSV4RRFFQ69G5FAV"
)

func testTarget(url string) picket.WebhookTarget {
	return picket.WebhookTarget{
		Webhook: picket.Webhook{WebhookID: testWebhookID, Format: picket.WebhookStandard},
		Target:  picket.Secret(url),
		Secret:  testSecret,
	}
}

var testEvent = picket.Event{
	ID:     "7",
	Seq:    7,
	Type:   picket.EventTaskReview,
	TaskID: "task_1",
	Data:   picket.RawJSON(`{"state":"review"}`),
}

// However an address inside is written, and whatever name leads to it, nothing
// is sent there: not when a target is made, and not when it is called.
func TestNoWebhookReachesPrivateAddresses(t *testing.T) {
	var hits atomic.Int64
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer inner.Close()
	_, port, _ := net.SplitHostPort(inner.Listener.Addr().String())
	dns := rig.StartDNSServer(t,
		map[string][]string{
			"loop.test": {"127.0.0.1"},
			"six.test":  {"::1"},
			"meta.test": {"169.254.169.254"},
			"ten.test":  {"10.0.0.1"},
			"open.test": {"169.254.169.254"},
		})
	s := newTestSender(t, webhooks.SenderConfig{
		Resolver: dns.Resolver(),
		Allow:    []string{"127.0.0.1:1", "open.test:" + port},
	})
	for _, host := range []string{"127.0.0.1", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]",
		"0.0.0.0", "169.254.169.254", "10.0.0.1", "192.168.0.1", "100.64.0.1",
		"loop.test", "LOOP.test.", "six.test", "meta.test", "ten.test", "open.test"} {
		url := "http://" + host + ":" + port + "/latest/meta-data"
		if err := s.Check(t.Context(), picket.Secret(url)); picket.CodeOf(err) != picket.CodeValidation ||
			!strings.Contains(err.(*picket.Error).Remedy, "notify.allow") {
			t.Errorf("%s may be a target: %v", host, err)
		}
		if d := s.Send(t.Context(), testTarget(url), testEvent); d.Outcome != picket.WebhookFailed || d.Status != 0 ||
			!strings.Contains(d.Error, "leads inside") {
			t.Errorf("%s was called: %+v", host, d)
		}
	}
	for _, bad := range []string{"ftp://example.com/", "http:///x", "http://u:p@example.com/", "%zz", ""} {
		if err := s.Check(t.Context(), picket.Secret(bad)); picket.CodeOf(err) != picket.CodeValidation {
			t.Errorf("%q may be a target: %v", bad, err)
		}
		if d := s.Send(t.Context(), testTarget(bad), testEvent); d.Outcome != picket.WebhookFailed {
			t.Errorf("%q was called: %+v", bad, d)
		}
	}
	if hits.Load() != 0 {
		t.Errorf("the inside was reached %d times", hits.Load())
	}
}

// A name that was public when the target was made and leads inside later gets
// nothing.
func TestATargetThatMovesInsideGetsNothing(t *testing.T) {
	var hits atomic.Int64
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer inner.Close()
	_, port, _ := net.SplitHostPort(inner.Listener.Addr().String())
	dns := rig.StartDNSServer(t, map[string][]string{"rebind.test": {"93.184.216.34", "127.0.0.1"}})
	s := newTestSender(t, webhooks.SenderConfig{Resolver: dns.Resolver()})
	url := "http://rebind.test:" + port + "/"
	if err := s.Check(t.Context(), picket.Secret(url)); err != nil {
		t.Fatalf("while it is outside: %v", err)
	}
	if d := s.Send(t.Context(), testTarget(url), testEvent); d.Outcome != picket.WebhookFailed || hits.Load() != 0 {
		t.Errorf("when it leads inside: %+v, %d hits", d, hits.Load())
	}
}

// What a target can do to a request, and what is said of it: never the path,
// the query or the secret.
func TestWhatATargetCanAnswer(t *testing.T) {
	var requests atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		switch strings.TrimPrefix(r.URL.Path, "/T0/") {
		case "redirect":
			http.Redirect(w, r, "/T0/ok", http.StatusTemporaryRedirect)
		case "reset", "silent":
			conn, _, _ := w.(http.Hijacker).Hijack()
			if r.URL.Path == "/T0/reset" {
				_ = conn.(*net.TCPConn).SetLinger(0)
			}
			_ = conn.Close()
		case "garbage", "banner", "header", "version", "length", "coding":
			conn, rw, _ := w.(http.Hijacker).Hijack()
			_, _ = rw.WriteString(map[string]string{
				"garbage": "HTTP/1.1 " + r.URL.String() + " it says\r\n\r\n",
				"banner":  "220 it says ESMTP\r\n",
				"header":  "HTTP/1.1 200 OK\r\nit says\r\n\r\n",
				"version": "HTTP/it.says 200 OK\r\n\r\n",
				"length":  "HTTP/1.1 200 OK\r\nContent-Length: it says\r\n\r\n",
				"coding":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: it says\r\n\r\n",
			}[strings.TrimPrefix(r.URL.Path, "/T0/")])
			_ = rw.Flush()
			_ = conn.Close()
		case "hang":
			<-r.Context().Done()
		case "endless":
			for r.Context().Err() == nil {
				_, _ = w.Write(bytes.Repeat([]byte("x"), 64<<10))
			}
		case "gone":
			w.WriteHeader(http.StatusGone)
		case "broken":
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer s.Close()
	way := newTestSender(t, webhooks.SenderConfig{
		Allow:   []string{s.Listener.Addr().String(), "127.0.0.1:1"},
		Timeout: 500 * time.Millisecond,
	})
	for path, want := range map[string]struct {
		outcome picket.WebhookOutcome
		status  int
		says    string
	}{
		"ok":       {picket.WebhookTaken, 200, ""},
		"endless":  {picket.WebhookTaken, 200, ""},
		"gone":     {picket.WebhookGone, 410, "410"},
		"broken":   {picket.WebhookFailed, 500, "HTTP 500"},
		"redirect": {picket.WebhookFailed, 307, "not followed"},
		"reset":    {picket.WebhookFailed, 0, "reset by peer"},
		"silent":   {picket.WebhookFailed, 0, "ended the connection"},
		"garbage":  {picket.WebhookFailed, 0, "not HTTP"},
		"banner":   {picket.WebhookFailed, 0, "not HTTP"},
		"header":   {picket.WebhookFailed, 0, "not HTTP"},
		"version":  {picket.WebhookFailed, 0, "not HTTP"},
		"length":   {picket.WebhookFailed, 0, "not HTTP"},
		"coding":   {picket.WebhookFailed, 0, "not HTTP"},
		"hang":     {picket.WebhookFailed, 0, "no answer within 500ms"},
	} {
		before := requests.Load()
		d := way.Send(t.Context(), testTarget(s.URL+"/T0/"+path+"?token=abc"), testEvent)
		if d.Outcome != want.outcome || d.Status != want.status || !strings.Contains(d.Error, want.says) {
			t.Errorf("%s: %+v", path, d)
		}
		if strings.Contains(d.Error, "/T0/") || strings.Contains(d.Error, "abc") ||
			strings.Contains(d.Error, "whsec") || strings.Contains(d.Error, "it says") ||
			strings.Contains(d.Error, "it.says") {
			t.Errorf("%s says a secret: %s", path, d.Error)
		}
		if n := requests.Load() - before; n != 1 {
			t.Errorf("%s: %d requests", path, n)
		}
	}
	if d := way.Send(t.Context(), testTarget("http://127.0.0.1:1/T0/x?token=abc"),
		testEvent); d.Outcome != picket.WebhookFailed || !strings.Contains(d.Error, "refused") ||
		strings.Contains(d.Error, "token") {
		t.Errorf("nobody there: %+v", d)
	}
	tried := way.Test(t.Context(), testTarget(s.URL+"/T0/ok"))
	if !tried.Delivered || tried.Status != 200 || tried.WebhookID != testWebhookID || tried.Error != "" {
		t.Errorf("a test notice: %+v", tried)
	}
}

// A target that is reached by TLS is only called when it is who it says; what
// stands in its certificate is not repeated.
func TestATargetThatCannotProveItself(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // it gets every caller that goes
	s.StartTLS()
	defer s.Close()
	plain := httptest.NewServer(s.Config.Handler)
	defer plain.Close()
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	trusted, later := x509.NewCertPool(), func() time.Time { return time.Now().AddDate(100, 0, 0) }
	trusted.AddCert(s.Certificate())
	dns := rig.StartDNSServer(t, map[string][]string{"other.test": {"127.0.0.1"}})
	allow := []string{s.Listener.Addr().String(), plain.Listener.Addr().String(), "other.test:" + port}
	for _, row := range []struct {
		config *tls.Config
		url    string
		want   string
	}{
		{&tls.Config{RootCAs: trusted}, s.URL, ""},
		{nil, s.URL, "its certificate is signed by nobody that is trusted here"},
		{&tls.Config{RootCAs: trusted}, "https://other.test:" + port, "its certificate is for another name"},
		{&tls.Config{RootCAs: trusted, Time: later}, s.URL, "its certificate has expired, or is not valid yet"},
		{nil, "https://" + plain.Listener.Addr().String(), "tls: first record does not look like a TLS handshake"},
	} {
		way := newTestSender(t, webhooks.SenderConfig{Allow: allow, TLS: row.config, Resolver: dns.Resolver()})
		if d := way.Send(t.Context(), testTarget(row.url), testEvent); d.Error != row.want ||
			(d.Outcome == picket.WebhookTaken) != (row.want == "") {
			t.Errorf("%s: %+v, want %q", row.url, d, row.want)
		}
	}
}
