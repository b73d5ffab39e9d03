package toolproxy_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/toolproxy"
	"github.com/picket-dev/picket/toolproxy/tools"
)

// newHTTPProxy is a proxy where http_request costs a cent and a nano-dollar a byte.
func newHTTPProxy(t testing.TB, configure func(*tools.HTTPConfig)) *toolproxy.Proxy {
	t.Helper()
	var tool tools.HTTPConfig
	configure(&tool)
	p, err := toolproxy.New(toolproxy.Config{
		Sealer:  newSealer(t),
		Backend: func(string) toolproxy.Backend { return nil },
		Parts:   []toolproxy.Part{tools.HTTP(tool)},
		Log:     slog.New(slog.DiscardHandler),
		Prices: priceList(t, map[string]budget.Price{
			"http_request": {Call: cent, PerUnit: map[budget.Unit]budget.Money{budget.UnitByte: 1}, Max: 2 * cent},
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// externalTools are the parts exec and http_request, which may call these addresses.
func externalTools(allow ...string) []toolproxy.Part {
	return []toolproxy.Part{tools.Exec(), tools.HTTP(tools.HTTPConfig{Allow: allow})}
}

// recordingServer is a server that http_request may call; it notes what came.
type recordingServer struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
	body []string
}

func serveRecording(t testing.TB, answer http.HandlerFunc) *recordingServer {
	t.Helper()
	u := &recordingServer{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		u.mu.Lock()
		u.seen, u.body = append(u.seen, r), append(u.body, string(body))
		u.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(u.Close)
	return u
}

func (u *recordingServer) at() string { return u.Listener.Addr().String() }

func (u *recordingServer) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.seen)
}

func get(t testing.TB, p *toolproxy.Proxy, door toolproxy.Backend, args string) (map[string]any, error) {
	t.Helper()
	raw, err := p.Invoke(t.Context(), door, aHeld, "http_request", []byte(args), "")
	if err != nil {
		return nil, err
	}
	return decode(t, string(raw)), nil
}

func TestHTTPRequest(t *testing.T) {
	u := serveRecording(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Answer", "42")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "hello")
	})
	p, door := newHTTPProxy(t, func(c *tools.HTTPConfig) { c.Allow = []string{u.at()} }), newFakeEnvelope(100*cent)
	a, err := get(t, p, door,
		`{"method":"post","url":"http://`+u.at()+
			`/a?b=c","headers":{"X-Api-Key":"k"},"body":{"n":12345678901234567890}}`)
	if err != nil {
		t.Fatal(err)
	}
	headers, _ := a["headers"].(map[string]any)
	if a["status"] != 201.0 || a["body"] != "hello" || headers["X-Answer"] != "42" || a["truncated"] != false {
		t.Errorf("%v", a)
	}
	if cost, _ := a["cost"].(map[string]any); fmt.Sprint(cost["usd"]) != "0.010000005" {
		t.Errorf("cost is %v", a["cost"])
	}
	r := u.seen[0]
	if r.Method != "POST" || r.RequestURI != "/a?b=c" || u.body[0] != `{"n":12345678901234567890}` ||
		r.Header.Get("Content-Type") != "application/json" ||
		r.Header.Get("X-Api-Key") != "k" || r.Header.Get("X-Fencing-Token") != "17" {
		t.Errorf("sent %s %s %q %v", r.Method, r.RequestURI, u.body[0], r.Header)
	}
	for name := range r.Header {
		if !slices.Contains([]string{"Content-Type", "Content-Length", "X-Api-Key", "X-Fencing-Token", "User-Agent",
			"Accept-Encoding"}, name) {
			t.Errorf("the header %s was sent", name)
		}
	}
	door.expectSettled(t, cent+5)
}

// Which methods the next holder of the task has to wait for.
func TestReadsAreNoEffects(t *testing.T) {
	u := serveRecording(t, func(http.ResponseWriter, *http.Request) {})
	p := newHTTPProxy(t, func(c *tools.HTTPConfig) { c.Allow = []string{u.at()}; c.Timeout = 20 * time.Second })
	for method, want := range map[string]picket.Effects{
		"":        "none",
		"GET":     "none",
		"HEAD":    "none",
		"POST":    "external",
		"OPTIONS": "external",
		"DELETE":  "external",
	} {
		door := &requestRecorder{fakeEnvelope: newFakeEnvelope(100 * cent)}
		if _, err := get(t, p, door,
			`{"method":"`+method+`","url":"http://`+u.at()+`","timeoutSeconds":120}`); err != nil {
			t.Fatal(err)
		}
		if door.req.Effects != want || door.req.TimeoutMs != 20_000 || door.req.Reserve.USD != 2*cent {
			t.Errorf("%s: %+v", method, door.req)
		}
	}
}

// requestRecorder keeps what was asked of the envelope last.
type requestRecorder struct {
	*fakeEnvelope
	req picket.CallRequest
}

func (n *requestRecorder) Reserve(ctx context.Context, held picket.LeaseCredential,
	req picket.CallRequest) (picket.Reservation, error) {
	n.req = req
	return n.fakeEnvelope.Reserve(ctx, held, req)
}

func TestBadRequestsReserveNothing(t *testing.T) {
	p, door := newHTTPProxy(t, func(*tools.HTTPConfig) {}), newFakeEnvelope(100*cent)
	url := `"url":"https://127.0.0.1:1/"`
	lease := newSealer(t).LeaseToken(aHeld.Namespace, aHeld.TaskID, aHeld.RunID).Reveal()
	for args, want := range map[string]struct {
		code  picket.Code
		field string
	}{
		`{}`:                                {"validation_failed", "/url"},
		`{"url":"ftp://example.com/"}`:      {"validation_failed", "/url"},
		`{"url":"file:///etc/passwd"}`:      {"validation_failed", "/url"},
		`{"url":"gopher://example.com/"}`:   {"validation_failed", "/url"},
		`{"url":"/relative"}`:               {"validation_failed", "/url"},
		`{"url":"http://u:p@example.com/"}`: {"validation_failed", "/url"},
		`{"url":"http://a b/"}`:             {"validation_failed", "/url"},
		`{"method":"CONNECT",` + url + `}`: {"validation_failed",
			"/method"},
		`{"method":"TRACE",` + url + `}`: {"validation_failed",
			"/method"},
		`{"timeoutSeconds":0,` + url + `}`: {"validation_failed",
			"/timeoutSeconds"},
		`{"timeoutSeconds":121,` + url + `}`: {"validation_failed",
			"/timeoutSeconds"},
		`{"extra":1,` + url + `}`: {"validation_failed",
			"/extra"},
		`{"headers":{"Host":"x"},` + url + `}`: {"validation_failed",
			"/headers/Host"},
		`{"headers":{"x-fencing-token":"1"},` + url + `}`: {"validation_failed",
			"/headers/x-fencing-token"},
		`{"headers":{"Transfer-Encoding":"chunked"},` + url + `}`: {"validation_failed",
			"/headers/Transfer-Encoding"},
		`{"headers":{"A b":"x"},` + url + `}`: {"validation_failed",
			"/headers/A b"},
		`{"headers":{"A":"x\r\nB: y"},` + url + `}`: {"validation_failed",
			"/headers/A"},
		`{"headers":{"A":"` + strings.Repeat("x", 20_000) + `"},` + url + `}`:         {"too_large", "/headers"},
		`{"method":"POST","body":"` + strings.Repeat("x", 300_000) + `",` + url + `}`: {"too_large", "/body"},
		`{"url":"http://example.com/` + strings.Repeat("x", 9000) + `"}`:              {"too_large", "/url"},
		`{"headers":{"Authorization":"Bearer ` + lease + `"},` + url + `}`:            {"validation_failed", ""},
		`{"url":"https://127.0.0.1:1/?t=` + lease + `"}`:                              {"validation_failed", ""},
		`{"headers":{"X-A":"1","x-a":"2"},` + url + `}`:                               {"validation_failed", ""},
		`{"headers":{` + strings.TrimSuffix(manyHeaders(65), ",") + `},` + url + `}`:  {"too_large", "/headers"},
		`{"method":"POST","body":"x","headers":{"Content-Length":"100"},` + url + `}`: {"validation_failed",
			"/headers/Content-Length"},
		`{"headers":{"Proxy-Authorization":"x"},` + url + `}`: {"validation_failed",
			"/headers/Proxy-Authorization"},
		`{"headers":{"Connection":"close"},"method":"GET","url":"https://127.0.0.1:1/"}`: {"validation_failed",
			"/headers/Connection"},
	} {
		_, err := get(t, p, door, args)
		var refusal *picket.Error
		if !errors.As(err, &refusal) || refusal.Code != want.code || refusal.Remedy == "" {
			t.Errorf("%.120s: %v", args, err)
			continue
		}
		if field, _ := refusal.Facts["field"].(string); want.field != "" && field != want.field {
			t.Errorf("%.120s: the field is %q, want %q", args, field, want.field)
		}
	}
	if door.asks != 0 {
		t.Errorf("%d reservations were asked for", door.asks)
	}
}

func manyHeaders(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"X-%d":"v",`, i)
	}
	return b.String()
}

func TestAnswersAreCapped(t *testing.T) {
	const limit = 1000
	body := map[string]func(io.Writer){
		"/exact": func(w io.Writer) { _, _ = io.WriteString(w, strings.Repeat("x", limit)) },
		"/more":  func(w io.Writer) { _, _ = io.WriteString(w, strings.Repeat("x", limit+1)) },
		"/rune":  func(w io.Writer) { _, _ = io.WriteString(w, strings.Repeat("x", limit-1)+"éé") },
		"/endless": func(w io.Writer) {
			for chunk := make([]byte, 64<<10); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		},
		"/binary": func(w io.Writer) { _, _ = w.Write([]byte{0xff, 0xfe, 0}) },
	}
	u := serveRecording(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bomb" {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(make([]byte, 64<<20))
			_ = z.Close()
			return
		}
		body[r.URL.Path](w)
	})
	p := newHTTPProxy(t, func(c *tools.HTTPConfig) { c.Allow = []string{u.at()}; c.MaxBytes = limit })
	for path, want := range map[string]struct {
		length    int
		truncated bool
		encoded   string
	}{
		"/exact":   {limit, false, ""},
		"/more":    {limit, true, ""},
		"/rune":    {limit - 1, true, ""},
		"/binary":  {0, false, "//4A"},
		"/bomb":    {limit, true, ""},
		"/endless": {limit, true, ""},
	} {
		a, err := get(t, p, newFakeEnvelope(100*cent), `{"url":"http://`+u.at()+path+`"}`)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if len(text(a["body"])) != want.length || a["truncated"] != want.truncated ||
			text(a["bodyBase64"]) != want.encoded {
			t.Errorf("%s: %d bytes, truncated %v, %v", path, len(text(a["body"])), a["truncated"], a["bodyBase64"])
		}
	}
}

// What the other side did not get costs nothing; what it may have got does.
func TestDeadAndSlowServers(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	entered, leave := make(chan struct{}, 8), make(chan struct{})
	u := serveRecording(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/reset":
			conn, _, _ := http.NewResponseController(w).Hijack()
			_ = conn.Close()
		case "/slow":
			entered <- struct{}{}
			<-leave
		case "/half":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
		}
	})
	defer close(leave)
	for _, c := range []struct {
		url     string
		code    picket.Code
		charged budget.Money
	}{
		{"http://" + dead.Addr().String(), picket.CodeUpstream, 0},
		{"https://" + u.at(), picket.CodeUpstream, 0}, // speaks no TLS
		{"http://" + u.at() + "/reset", picket.CodeUpstream, 2 * cent},
		{"http://" + u.at() + "/half", picket.CodeUpstream, 2 * cent},
		{"http://" + u.at() + "/slow", picket.CodeUpstreamTimeout, 2 * cent},
	} {
		door := newFakeEnvelope(100 * cent)
		p := newHTTPProxy(t, func(c *tools.HTTPConfig) {
			c.Allow = []string{u.at(), dead.Addr().String()}
			c.Timeout = 300 * time.Millisecond
		})
		if _, err := get(t, p, door, `{"method":"POST","url":"`+c.url+`","body":"x"}`); picket.CodeOf(err) != c.code ||
			picket.CodeOf(err).Retryable() {
			t.Errorf("%s: %v", c.url, err)
		}
		door.expectSettled(t, c.charged)
	}
	select {
	case <-entered:
	default:
		t.Error("the slow server was not called")
	}
}
