package toolproxy_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/toolproxy"
	"github.com/picket-dev/picket/toolproxy/llm"
)

// fakeModel is an upstream that a test scripts, and what it was asked.
type fakeModel struct {
	*httptest.Server
	play func(w http.ResponseWriter, r *http.Request)

	mu     sync.Mutex
	bodies []string
	heads  []http.Header
	paths  []string
}

func newFakeModel(t *testing.T, play func(w http.ResponseWriter, r *http.Request)) *fakeModel {
	t.Helper()
	m := &fakeModel{play: play}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m.mu.Lock()
		m.bodies, m.heads, m.paths = append(m.bodies, string(body)), append(m.heads, r.Header.Clone()),
			append(m.paths, r.Method+" "+r.URL.RequestURI())
		m.mu.Unlock()
		m.play(w, r)
	}))
	t.Cleanup(func() {
		m.CloseClientConnections()
		m.Close()
	})
	return m
}

func (m *fakeModel) calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.bodies)
}

// last is what the upstream was asked last.
func (m *fakeModel) last(t *testing.T) (body string, head http.Header, path string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.bodies) == 0 {
		t.Fatal("nothing reached the upstream")
	}
	n := len(m.bodies) - 1
	return m.bodies[n], m.heads[n], m.paths[n]
}

// llmEnv is a proxy before a scripted upstream.
type llmEnv struct {
	*httptest.Server
	t      *testing.T
	token  string
	client *http.Client
	gone   chan struct{} // called for each request whose client has gone away or was answered
}

// models are prices a million tokens: input $3, output $15, cache $0.30 and $3.75.
var models = map[string]budget.TokenPrice{
	"claude-*": {Input: 3_000_000_000, Output: 15_000_000_000, CacheRead: 300_000_000, CacheWrite: 3_750_000_000},
	"gpt-*":    {Input: 3_000_000_000, Output: 15_000_000_000, CacheRead: 300_000_000},
}

func newLLMEnv(t *testing.T, m *fakeModel, door toolproxy.Backend, change ...func(*llm.Config)) *llmEnv {
	t.Helper()
	return newLLMEnvOf(t, m, newSealer(t), door, change...)
}

func newLLMEnvOf(t *testing.T, m *fakeModel, sealer *seal.Sealer, door toolproxy.Backend,
	change ...func(*llm.Config)) *llmEnv {
	t.Helper()
	return newLLMEnvPriced(t, m, sealer, door, nil, change...)
}

// newLLMEnvPriced is a mind with prices for tools.
func newLLMEnvPriced(t *testing.T, m *fakeModel, sealer *seal.Sealer, door toolproxy.Backend,
	tools map[string]budget.Price,
	change ...func(*llm.Config)) *llmEnv {
	t.Helper()
	list, err := budget.NewPriceList(tools, models)
	if err != nil {
		t.Fatal(err)
	}
	up := &llm.Upstream{URL: m.URL + "/base/v1/", Key: "sk-real"}
	cfg := llm.Config{Anthropic: up, OpenAI: up}
	for _, f := range change {
		f(&cfg)
	}
	p, err := toolproxy.New(toolproxy.Config{
		Sealer:  sealer,
		Log:     slog.New(slog.DiscardHandler),
		Backend: func(string) toolproxy.Backend { return door },
		Prices:  func() *budget.PriceList { return list },
		Parts:   []toolproxy.Part{llm.New(cfg)},
	})
	if err != nil {
		t.Fatal(err)
	}
	e := web.New(slog.New(slog.DiscardHandler))
	p.Mount(e)
	b := &llmEnv{
		t:      t,
		token:  sealer.LeaseToken("default", aTask, aRun).Reveal(),
		client: &http.Client{Transport: &http.Transport{}},
		gone:   make(chan struct{}, 100),
	}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		context.AfterFunc(r.Context(), func() { b.gone <- struct{}{} })
		e.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		b.client.CloseIdleConnections()
		b.CloseClientConnections()
		b.Close() // waits for what is under way
		p.Close()
	})
	return b
}

// ask sends a request as a program of the vendor does.
func (b *llmEnv) ask(ctx context.Context, method, path, body string, head ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, b.URL+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("X-Api-Key", b.token)
	for i := 0; i+1 < len(head); i += 2 {
		if head[i+1] == "" {
			req.Header.Del(head[i])
		} else {
			req.Header.Set(head[i], head[i+1])
		}
	}
	return b.client.Do(req)
}

// get asks and reads the whole answer.
func (b *llmEnv) get(method, path, body string, head ...string) (status int, text string, header http.Header) {
	b.t.Helper()
	resp, err := b.ask(b.t.Context(), method, path, body, head...)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatalf("read the answer: %v after %q", err, raw)
	}
	return resp.StatusCode, string(raw), resp.Header
}

// settlement waits for the one settlement of an envelope.
func settlement(t *testing.T, p *fakeEnvelope) picket.Settlement {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		p.mu.Lock()
		for _, s := range p.settled {
			p.mu.Unlock()
			return s
		}
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			t.Fatal("nothing was settled")
		case <-time.After(time.Millisecond):
		}
	}
}

const (
	claudeAsk = ` {"model":"claude-x", "max_tokens" : 1000,"stream":true,"messages":[{"role":"user","content":"hi \u00e9"}], "metadata":{"n":12345678901234567890}}`
	start     = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\"cache_creation_input_tokens\":100,\"cache_read_input_tokens\":1000,\"output_tokens\":1}}}\n\n"
	pinged    = "event: ping\r\ndata: {\"type\": \"ping\"}\r\n\r\n"
	textDelta = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"h\\u00e9\"}}\n\n"
	delta1    = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":5}}\n\n"
	delta2    = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":20}}\n\n"
	stopped   = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	claudeAll = start + pinged + textDelta + delta1 + delta2 + stopped
	// 10 x 3000 + 100 x 3750 + 1000 x 300 + 20 x 15000 nano-dollars
	claudeCost = budget.Money(30_000 + 375_000 + 300_000 + 300_000)
)

// streaming answers with a stream.
func streaming(text string) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.Header().Set("Request-Id", "req_7")
		io.WriteString(w, text)
	}
}

// answersJSON answers with JSON.
func answersJSON(status int, text string) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, text)
	}
}

// newRichEnvelope is an envelope of so many cents and tokens enough.
func newRichEnvelope(cents int64) *fakeEnvelope {
	p := newFakeEnvelope(budget.Money(cents) * cent)
	p.available.Tokens = 10_000_000
	return p
}
