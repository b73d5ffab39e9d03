package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// newAnsweringClient is a client of a server that answers every request the same.
func newAnsweringClient(t *testing.T, h http.HandlerFunc, change ...func(*Options)) *Client {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	o := Options{HTTP: &http.Client{Transport: transport}}
	for _, c := range change {
		c(&o)
	}
	return New(srv.URL+"/", "pkk_secret", o)
}

func TestRefusalsBecomeErrors(t *testing.T) {
	for _, tt := range []struct {
		name        string
		contentType string
		body        string
		status      int
		want        picket.Code
		unknown     bool
	}{
		{"stale fence", "application/problem+json",
			`{"code":"stale_fence","message":"token 17 was superseded by 18","remedy":"Stop.","status":412,"presented":17,"current":18}`, 412, picket.CodeStaleFence, false},
		{"unavailable", "application/problem+json", `{"code":"orchestrator_unavailable","detail":"away"}`, 503,
			picket.CodeUnavailable, false},
		{"a code of tomorrow", "application/problem+json", `{"code":"too_sunny","message":"m"}`, 409, "too_sunny",
			false},
		{"a load balancer", "text/html", `<html>bad gateway</html>`, 502, picket.CodeUnavailable, true},
		{"somebody else's JSON", "application/json", `{"error":"x"}`, 500, picket.CodeUnavailable, true},
		{"somebody else's 404", "text/plain", `no`, 404, picket.CodeNotFound, false},
		{"somebody else's 401", "text/plain", `no`, 401, picket.CodeUnauthenticated, false},
		{"a redirect", "text/plain", ``, 302, picket.CodeInternal, false},
		{"broken JSON", "application/problem+json", `{"code":`, 412, picket.CodeInternal, false},
	} {
		c := newAnsweringClient(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", tt.contentType)
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(tt.status)
			io.WriteString(w, tt.body)
		})
		err := c.Call(t.Context(), "GET", "/x", nil, nil)
		if got := picket.CodeOf(err); got != tt.want || errors.Is(err, picket.ErrUnknown) != tt.unknown {
			t.Errorf("%s: %v (%s)", tt.name, err, got)
		}
		var e *picket.Error
		if !errors.As(err, &e) || e.RetryAfter != 7*time.Second {
			t.Errorf("%s: Retry-After is lost", tt.name)
		}
		if tt.name == "stale fence" &&
			(e.Facts["current"] != 18.0 || e.Remedy != "Stop." || len(e.Facts) != 2 || !e.Code.Fenced()) {
			t.Errorf("facts %v, remedy %q", e.Facts, e.Remedy)
		}
	}
}

func TestNoAnswerIsUnknown(t *testing.T) {
	dead := newAnsweringClient(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	cut := newAnsweringClient(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, `{"leases":`)
	})
	nobody := New("http://127.0.0.1:1", "pkk_secret", Options{})
	for name, c := range map[string]*Client{"dead": dead, "cut": cut, "nobody": nobody} {
		err := c.Call(t.Context(), "POST", "/x", struct{}{}, &struct{}{})
		if !errors.Is(err, picket.CodeUnavailable) || !errors.Is(err, picket.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(fmt.Sprintf("%v %+v", err, errors.Unwrap(err)), "pkk_secret") {
			t.Errorf("%s: the key is in the error", name)
		}
	}
}

// A relative path of a socket is meant from where the client was made.
func TestUnixSocket(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"title":%q}`, r.Host+r.URL.Path+" "+r.Header.Get("Authorization"))
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close() })
	t.Chdir(dir)
	c := New("unix:api.sock", "pkk_secret", Options{})
	t.Chdir(t.TempDir())
	if want := "unix:" + filepath.Join(dir, "api.sock"); c.URL() != want {
		t.Errorf("URL() = %q, want %q", c.URL(), want)
	}
	var out struct {
		Title string `json:"title"`
	}
	if err := c.Call(t.Context(), "GET", "/api/v1/tasks/x", nil, &out); err != nil ||
		out.Title != "localhost/api/v1/tasks/x Bearer pkk_secret" {
		t.Errorf("%+v, %v", out, err)
	}
	absent := New("unix:"+filepath.Join(dir, "absent"), "", Options{})
	if err := absent.Call(t.Context(), "GET", "/x", nil, nil); !errors.Is(err, picket.ErrUnknown) {
		t.Errorf("a server that is not there: %v", err)
	}
	long := New("unix:/"+strings.Repeat("x", 107), "", Options{})
	if err := long.Call(t.Context(), "GET", "/x", nil, nil); !errors.Is(err, picket.CodeValidation) ||
		!strings.Contains(err.Error(), "at most 107") {
		t.Errorf("a path that is too long: %v", err)
	}
}

func TestCallerGivesUp(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	c := newAnsweringClient(t, hang)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Call(ctx, "GET", "/x", nil, nil); !errors.Is(err, context.Canceled) ||
		!errors.Is(err, picket.CodeUnavailable) {
		t.Errorf("%v", err)
	}
	c = newAnsweringClient(t, hang, func(o *Options) { o.Timeout = time.Millisecond })
	if err := c.Call(t.Context(), "GET", "/x", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestAnswerIsBounded(t *testing.T) {
	long := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat(" ", 1001)) }
	c := newAnsweringClient(t, long, func(o *Options) { o.MaxResponse = 1000 })
	if err := c.Call(t.Context(), "GET", "/x", nil, nil); !errors.Is(err, picket.CodeTooLarge) {
		t.Errorf("%v", err)
	}
	c = newAnsweringClient(t, long, func(o *Options) { o.MaxResponse = 1001 })
	var raw []byte
	if err := c.Call(t.Context(), "GET", "/x", nil, nil, WithBody(&raw)); err != nil || len(raw) != 1001 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
}

func TestWhatIsSent(t *testing.T) {
	var got *http.Request
	var body string
	c := newAnsweringClient(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, body = r, string(b)
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusCreated)
	})
	var status int
	var header http.Header
	in := picket.TaskSpec{Title: "t"}
	err := c.Call(t.Context(), "POST", "/api/v1/tasks?x=1", in, nil, WithIdempotencyKey("k"), WithStatus(&status),
		WithResponseHeader(&header))
	if err != nil || status != 201 || header.Get("X-Answer") != "yes" {
		t.Fatal(err, status, header)
	}
	if got.URL.String() != "/api/v1/tasks?x=1" || got.Header.Get("Authorization") != "Bearer pkk_secret" ||
		got.Header.Get("Idempotency-Key") != "k" {
		t.Errorf("%s %v", got.URL, got.Header)
	}
	if body != `{"title":"t"}` || got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("body %s", body)
	}
	if err := c.Call(t.Context(), "POST", "/x", Text("hi"), nil, WithQuery(url.Values{"n": {"1"}})); err != nil {
		t.Fatal(err)
	}
	if body != "hi" || got.URL.String() != "/x?n=1" ||
		!strings.HasPrefix(got.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("body %s, %s, %v", body, got.URL, got.Header)
	}
	if err := c.Call(t.Context(), "DELETE", "/x", nil, nil); err != nil || body != "" ||
		got.Header.Get("Content-Type") != "" {
		t.Errorf("%v, body %q, %v", err, body, got.Header)
	}
}

func TestStream(t *testing.T) {
	c := newAnsweringClient(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(404)
			return
		}
		fmt.Fprintf(w, "%s %s", r.Header.Get("Accept"), r.Header.Get("Last-Event-ID"))
	})
	body, err := c.Stream(t.Context(), "/events", WithHeader("Accept", "text/event-stream"),
		WithHeader("Last-Event-ID", "7"))
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if b, _ := io.ReadAll(body); string(b) != "text/event-stream 7" {
		t.Errorf("%s", b)
	}
	if _, err := c.Stream(t.Context(), "/no"); !errors.Is(err, picket.CodeNotFound) {
		t.Error(err)
	}
}

func FuzzProblem(f *testing.F) {
	f.Add(412, "application/problem+json", `{"code":"stale_fence","current":18}`)
	f.Add(503, "text/html", `<html>`)
	f.Fuzz(func(t *testing.T, status int, contentType, body string) {
		req := httptest.NewRequest("GET", "/x", nil)
		err := decodeProblem(&http.Response{
			StatusCode: status,
			Header:     http.Header{"Content-Type": {contentType}},
			Body:       io.NopCloser(strings.NewReader(body)),
			Request:    req,
		})
		if err == nil || picket.CodeOf(err) == "" {
			t.Fatalf("no code in %v", err)
		}
	})
}
