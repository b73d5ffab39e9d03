package web_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"
	"go.uber.org/goleak"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type body struct {
	Name  string             `json:"name"`
	Count *int               `json:"count,omitempty"`
	When  picket.Instant     `json:"when,omitempty"`
	Raw   picket.RawJSON     `json:"raw,omitempty"`
	Tags  []string           `json:"tags,omitempty"`
	Inner struct{ Deep int } `json:"inner,omitzero"`
}

func newTestServer(log *slog.Logger) *echo.Echo {
	e := web.New(log)
	e.POST("/thing", func(c echo.Context) error {
		b, _, err := web.Decode[body](c, 1000)
		if err != nil {
			return err
		}
		return web.JSON(c, 200, b)
	})
	e.GET("/refuse", func(echo.Context) error {
		return picket.Refuse(picket.CodeStaleFence, "Stop.", "token %d was superseded by %d", 17, 18).
			With("presented", 17).With("current", 18).With("status", 200).With("bad", make(chan int))
	})
	e.GET("/away", func(echo.Context) error { return picket.CodeUnavailable })
	e.GET("/plain", func(echo.Context) error { return errors.New("secret: hunter2") })
	e.GET("/panic", func(echo.Context) error { panic("secret: hunter2") })
	return e
}

func do(e *echo.Echo, method, path, contentType, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}

type testProblem struct {
	Type      string
	Title     string
	Detail    string
	Code      string
	Message   string
	Remedy    string
	RequestID string
	Field     string
	Status    int
	Retryable bool
}

func parse(t *testing.T, w *httptest.ResponseRecorder) testProblem {
	t.Helper()
	if ct := w.Header().Get("Content-Type"); ct != web.MIMEProblem {
		t.Fatalf("Content-Type is %q: %s", ct, w.Body)
	}
	var p testProblem
	if err := json.Unmarshal(w.Body.Bytes(), &p, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if p.Status != w.Code || p.RequestID == "" || p.RequestID != w.Header().Get("X-Request-Id") ||
		p.Remedy == "" && p.Code != string(picket.CodeUnavailable) {
		t.Errorf("incomplete problem: %s", w.Body)
	}
	return p
}

func TestDecodeRefusesWhatIsNotExact(t *testing.T) {
	e := newTestServer(nil)
	deep := strings.Repeat(`[`, 10_000) + strings.Repeat(`]`, 10_000)
	for _, tt := range []struct {
		name        string
		contentType string
		body        string
		status      int
		field       string
	}{
		{"good", "application/json; charset=utf-8", `{"name":"x","raw":{"n":1.00000000000000000001}}`, 200, ""},
		{"empty", "", ``, 200, ""},
		{"unknown", "application/json", `{"nmae":"x"}`, 400, "/nmae"},
		{"wrong case", "application/json", `{"Name":"x"}`, 400, "/Name"},
		{"duplicate", "application/json", `{"name":"x","name":"y"}`, 400, "/name"},
		{"duplicate inside raw", "application/json", `{"raw":{"a":1,"a":2}}`, 400, "/raw/a"},
		{"wrong type", "application/json", `{"name":1}`, 400, "/name"},
		{"wrong item", "application/json", `{"tags":["a",1]}`, 400, "/tags/1"},
		{"fraction", "application/json", `{"count":1.5}`, 400, "/count"},
		{"overflow", "application/json", `{"count":99999999999999999999}`, 400, "/count"},
		{"bad time", "application/json", `{"when":"tomorrow"}`, 400, "/when"},
		{"bad UTF-8", "application/json", "{\"name\":\"\xff\"}", 400, "/name"},
		{"lone surrogate", "application/json", `{"name":"\ud800"}`, 400, "/name"},
		{"raw NUL", "application/json", "{\"name\":\"\x00\"}", 400, "/name"},
		{"array", "application/json", `[]`, 400, ""},
		{"null", "application/json", `null`, 400, ""},
		{"two values", "application/json", `{}{}`, 400, ""},
		{"cut off", "application/json", `{"name":"x"`, 400, ""},
		{"10k deep", "application/json", `{"raw":1}`, 200, ""},
		{"too deep", "application/json", `{"raw":` + strings.Repeat(`[`, 200) + strings.Repeat(`]`, 200) + `}`, 400,
			""},
		{"oversize", "application/json", `{"name":"` + strings.Repeat("x", 1000) + `"}`, 413, ""},
		{"no content type", "", `{}`, 415, ""},
		{"wrong content type", "text/plain", `{}`, 415, ""},
		{"wrong charset", "application/json; charset=latin1", `{}`, 415, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := do(e, "POST", "/thing", tt.contentType, tt.body)
			if w.Code != tt.status {
				t.Fatalf("status %d, want %d: %s", w.Code, tt.status, w.Body)
			}
			if tt.status == 200 {
				return
			}
			if p := parse(t, w); p.Field != tt.field {
				t.Errorf("field %q, want %q: %s", p.Field, tt.field, w.Body)
			}
		})
	}
	if err := web.Unmarshal([]byte(`{"raw":`+deep+`}`), &body{}); !errors.Is(err, picket.CodeValidation) {
		t.Errorf("10k deep: %v", err)
	}
}

func TestEveryErrorIsAProblem(t *testing.T) {
	var logged bytes.Buffer
	e := newTestServer(slog.New(slog.NewTextHandler(&logged, nil)))
	for _, tt := range []struct {
		method string
		path   string
		code   string
		status int
		header string
		value  string
	}{
		{"GET", "/refuse", "stale_fence", 412, "Cache-Control", "no-store"},
		{"GET", "/away", "orchestrator_unavailable", 503, "Retry-After", "1"},
		{"GET", "/plain", "internal", 500, "", ""},
		{"GET", "/panic", "internal", 500, "", ""},
		{"GET", "/nowhere", "not_found", 404, "", ""},
		{"DELETE", "/thing", "method_not_allowed", 405, "Allow", "OPTIONS, POST"},
	} {
		w := do(e, tt.method, tt.path, "", "")
		p := parse(t, w)
		if p.Code != tt.code || w.Code != tt.status || w.Header().Get(tt.header) != tt.value {
			t.Errorf("%s %s: %d %s, header %q", tt.method, tt.path, w.Code, w.Body, w.Header().Get(tt.header))
		}
		if strings.Contains(w.Body.String(), "hunter2") {
			t.Errorf("%s leaks the cause: %s", tt.path, w.Body)
		}
	}
	if n := strings.Count(logged.String(), "hunter2"); n < 2 || !strings.Contains(logged.String(), "requestId=req_") {
		t.Errorf("internal errors are not logged with their request id: %s", &logged)
	}
	if w := do(e, "GET", "/refuse", "", ""); !strings.HasSuffix(w.Body.String(), `"current":18,"presented":17}`) {
		t.Errorf("facts: %s", w.Body)
	}
}

// An error of one of several parts is the same object as that of a whole request, and is logged as that is.
func TestTheErrorOfAPartIsAProblem(t *testing.T) {
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	e := newTestServer(log)
	refusal := picket.Refuse(picket.CodeStaleFence, "Stop.", "token %d was superseded", 17).With("current", 18)
	parts := []error{refusal, errors.New("secret: hunter2"), web.Panicked("secret"), picket.CodeUnavailable}
	e.GET("/whole/:n", func(c echo.Context) error { return parts[c.Param("n")[0]-'0'] })
	e.GET("/parts", func(c echo.Context) error {
		answer := make([]picket.RawJSON, len(parts))
		for i, err := range parts {
			answer[i] = picket.RawJSON(web.ProblemOf(c, log, err).Body)
		}
		return web.JSON(c, 200, answer)
	})
	var whole []string
	for i := range parts {
		whole = append(whole, askAs(e, fmt.Sprint("/whole/", i), "same"))
	}
	lines := strings.Count(logged.String(), "level=")
	if got, want := askAs(e, "/parts", "same"), "["+strings.Join(whole, ",")+"]"; got != want {
		t.Errorf("the parts are\n%s, and alone they are\n%s", got, want)
	}
	if got := strings.Count(logged.String(), "level=") - lines; got != lines ||
		strings.Count(logged.String(), "requestId=same") != 2*lines {
		t.Errorf("%d lines are logged for the parts, and %d for each alone:\n%s", got, lines, &logged)
	}
}

// askAs reads the answer to a request with a request id.
func askAs(e *echo.Echo, path, id string) string {
	r := httptest.NewRequest("GET", path, nil)
	r.Header.Set("X-Request-Id", id)
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w.Body.String()
}

func TestRequestIDIsKeptWhenSane(t *testing.T) {
	e := newTestServer(nil)
	for sent, kept := range map[string]bool{"abc-1": true, "a b": false, strings.Repeat("x", 65): false, "": false} {
		r := httptest.NewRequest("GET", "/refuse", nil)
		r.Header.Set("X-Request-Id", sent)
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		if got := w.Header().Get("X-Request-Id"); got == "" || (got == sent) != kept {
			t.Errorf("sent %q, answered %q", sent, got)
		}
	}
}

func TestServeEndsWaitsWhenItStops(t *testing.T) {
	e := web.New(nil)
	waiting := make(chan struct{})
	e.GET("/wait", func(c echo.Context) error {
		ctx, cancel := web.WaitContext(c)
		defer cancel()
		close(waiting)
		<-ctx.Done()
		if !web.Stopping(c) {
			return errors.New("the wait ended for another reason")
		}
		return web.StoppingError()
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- web.Serve(ctx, l, e, nil) }()
	answered := make(chan int, 1)
	client := &http.Client{Timeout: 20 * time.Second}
	go func() {
		resp, err := client.Get("http://" + l.Addr().String() + "/wait")
		if err != nil {
			answered <- 0
			return
		}
		resp.Body.Close()
		answered <- resp.StatusCode
	}()
	<-waiting
	stop()
	if status := <-answered; status != 503 {
		t.Errorf("status %d, want 503", status)
	}
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
	client.CloseIdleConnections()
}

func TestServeTakesAnEndlessBodyForTooLarge(t *testing.T) {
	e := newTestServer(nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- web.Serve(ctx, l, e, nil) }()
	client := &http.Client{Timeout: 20 * time.Second}
	resp, err := client.Post("http://"+l.Addr().String()+"/thing", "application/json", endlessReader{})
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Errorf("status %d, want 413", resp.StatusCode)
		}
	}
	client.CloseIdleConnections()
	stop()
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
}

type endlessReader struct{}

func (endlessReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func FuzzUnmarshal(f *testing.F) {
	for _, s := range []string{`{}`, `{"name":"x"}`, `{"raw":{"a":[1,2,{"b":null}]}}`, `{"Name":1}`,
		`{"name":"\ud800"}`, "{\"\xff\":1}", `[[[[`, `"`, `\`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := web.Unmarshal(raw, &body{})
		var refusal *picket.Error
		if err != nil && (!errors.As(err, &refusal) || refusal.Remedy == "") {
			t.Errorf("not a refusal with a remedy: %v", err)
		}
	})
}

// A client that connected and asked nothing does not hold up the stop.
func TestUnusedConnectionsDoNotDelayTheStop(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- web.Serve(ctx, l, web.New(slog.New(slog.DiscardHandler)), nil) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// A request on a second connection: the server has accepted the first by then.
	r, err := http.Get("http://" + l.Addr().String() + "/nothing")
	if err != nil || r.StatusCode != 404 {
		t.Fatal(r, err)
	}
	r.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	stop()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("the silent connection was answered")
	}
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(4 * time.Second):
		t.Fatal("the stop waits for a silent connection")
	}
}
