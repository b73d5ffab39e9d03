package notify_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/notify"
)

const (
	aSecret = picket.Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	anID    = "webhook_01ARZ3NDEKTSV4RRFFQ69G5FAV"
)

func aTarget(url string) picket.WebhookTarget {
	return picket.WebhookTarget{Webhook: picket.Webhook{WebhookID: anID, Format: picket.WebhookStandard}, Target: picket.Secret(url), Secret: aSecret}
}

var anEvent = picket.Event{ID: "7", Seq: 7, Type: picket.EventTaskReview, TaskID: "task_1", Data: picket.RawJSON(`{"state":"review"}`)}

// However an address inside is written, and whatever name leads to it, nothing
// is sent there: not when a target is made, and not when it is called.
func TestNoWebhookLeadsInside(t *testing.T) {
	var hits atomic.Int64
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer inner.Close()
	_, port, _ := net.SplitHostPort(inner.Listener.Addr().String())
	dns := rig.ServeNames(t, map[string][]string{"loop.test": {"127.0.0.1"}, "six.test": {"::1"}, "meta.test": {"169.254.169.254"}, "ten.test": {"10.0.0.1"}, "open.test": {"169.254.169.254"}})
	s := sender(t, notify.SenderConfig{Resolver: dns.Resolver(), Allow: []string{"127.0.0.1:1", "open.test:" + port}})
	for _, host := range []string{"127.0.0.1", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "0.0.0.0", "169.254.169.254", "10.0.0.1", "192.168.0.1", "100.64.0.1",
		"loop.test", "LOOP.test.", "six.test", "meta.test", "ten.test", "open.test"} {
		url := "http://" + host + ":" + port + "/latest/meta-data"
		if err := s.Check(t.Context(), picket.Secret(url)); picket.CodeOf(err) != picket.CodeValidation || !strings.Contains(err.(*picket.Error).Remedy, "notify.allow") {
			t.Errorf("%s may be a target: %v", host, err)
		}
		if d := s.Send(t.Context(), aTarget(url), anEvent); d.Outcome != picket.WebhookFailed || d.Status != 0 || !strings.Contains(d.Error, "leads inside") {
			t.Errorf("%s was called: %+v", host, d)
		}
	}
	for _, bad := range []string{"ftp://example.com/", "http:///x", "http://u:p@example.com/", "%zz", ""} {
		if err := s.Check(t.Context(), picket.Secret(bad)); picket.CodeOf(err) != picket.CodeValidation {
			t.Errorf("%q may be a target: %v", bad, err)
		}
		if d := s.Send(t.Context(), aTarget(bad), anEvent); d.Outcome != picket.WebhookFailed {
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
	dns := rig.ServeNames(t, map[string][]string{"rebind.test": {"93.184.216.34", "127.0.0.1"}})
	s := sender(t, notify.SenderConfig{Resolver: dns.Resolver()})
	url := "http://rebind.test:" + port + "/"
	if err := s.Check(t.Context(), picket.Secret(url)); err != nil {
		t.Fatalf("while it is outside: %v", err)
	}
	if d := s.Send(t.Context(), aTarget(url), anEvent); d.Outcome != picket.WebhookFailed || hits.Load() != 0 {
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
		case "reset", "garbage":
			conn, rw, _ := w.(http.Hijacker).Hijack()
			if r.URL.Path == "/T0/garbage" {
				_, _ = rw.WriteString("HTTP/1.1 " + r.URL.String() + " it says\r\n\r\n")
				_ = rw.Flush()
			} else {
				_ = conn.(*net.TCPConn).SetLinger(0)
			}
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
	way := sender(t, notify.SenderConfig{Allow: []string{s.Listener.Addr().String(), "127.0.0.1:1"}, Timeout: 500 * time.Millisecond})
	for path, want := range map[string]struct {
		outcome picket.WebhookOutcome
		status  int
		says    string
	}{
		"ok": {picket.WebhookTaken, 200, ""}, "endless": {picket.WebhookTaken, 200, ""}, "gone": {picket.WebhookGone, 410, "410"}, "broken": {picket.WebhookFailed, 500, "HTTP 500"},
		"redirect": {picket.WebhookFailed, 307, "not followed"}, "reset": {picket.WebhookFailed, 0, ""}, "garbage": {picket.WebhookFailed, 0, "malformed"},
		"hang": {picket.WebhookFailed, 0, "no answer within 500ms"},
	} {
		before := requests.Load()
		d := way.Send(t.Context(), aTarget(s.URL+"/T0/"+path+"?token=abc"), anEvent)
		if d.Outcome != want.outcome || d.Status != want.status || !strings.Contains(d.Error, want.says) {
			t.Errorf("%s: %+v", path, d)
		}
		if strings.Contains(d.Error, "/T0/") || strings.Contains(d.Error, "abc") || strings.Contains(d.Error, "whsec") {
			t.Errorf("%s says a secret: %s", path, d.Error)
		}
		if n := requests.Load() - before; n != 1 {
			t.Errorf("%s: %d requests", path, n)
		}
	}
	if d := way.Send(t.Context(), aTarget("http://127.0.0.1:1/T0/x?token=abc"), anEvent); d.Outcome != picket.WebhookFailed || !strings.Contains(d.Error, "refused") || strings.Contains(d.Error, "token") {
		t.Errorf("nobody there: %+v", d)
	}
	tried := way.Test(t.Context(), aTarget(s.URL+"/T0/ok"))
	if !tried.Delivered || tried.Status != 200 || tried.WebhookID != anID || tried.Error != "" {
		t.Errorf("a test notice: %+v", tried)
	}
}
