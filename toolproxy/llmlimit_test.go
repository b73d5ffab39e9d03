package toolproxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/toolproxy/llm"
)

// rawServer answers each request with a text of its own, such as a status that
// no server of this language would send.
func rawServer(t *testing.T, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(c, answer)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return "http://" + l.Addr().String()
}

// A status that ends no call is the vendor's failure, whatever comes with it.
func TestInvalidVendorStatus(t *testing.T) {
	const body = `{"type":"message","usage":{"input_tokens":10,"output_tokens":20}}`
	for status, want := range map[string]int{
		"000 x":                   502,
		"042 x":                   502,
		"099":                     502,
		"101 Switching Protocols": 502,
		"600 x":                   502,
		"777 x":                   502,
		"999 x":                   502,
		"599 x":                   599,
		"200 OK":                  200,
	} {
		url := rawServer(t,
			fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, len(body), body))
		w := newRichEnvelope(100)
		b := newLLMEnv(t, newFakeModel(t, nil), w,
			func(c *llm.Config) { c.Anthropic = &llm.Upstream{URL: url} })
		got, text, _ := b.get("POST", messages, `{"model":"claude-x","max_tokens":300}`)
		if got != want || want == 502 &&
			(!strings.Contains(text, `"code":"upstream_failed"`) || !strings.Contains(text, `"type":"api_error"`)) {
			t.Errorf("%s: %d %s", status, got, text)
		}
		if s := settlement(t, w); want != 200 && (s.Outcome != picket.CallFailed || !s.Cost.IsZero()) {
			t.Errorf("%s: settled %+v", status, s)
		}
		if got, text, _ := b.get("GET", "/llm/anthropic/v1/models", ""); got != want {
			t.Errorf("%s, free: %d %s", status, got, text)
		}
	}
}

// blockedModel is an upstream that has read a prompt and shown an event, and waits.
type blockedModel struct {
	*httptest.Server
	begun chan struct{}
	end   chan struct{}
}

func newBlockedModel(t *testing.T, event string) *blockedModel {
	h := &blockedModel{begun: make(chan struct{}, 100), end: make(chan struct{})}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, event)
		_ = http.NewResponseController(w).Flush()
		h.begun <- struct{}{}
		select {
		case <-h.end:
			_, _ = io.WriteString(w, delta2+stopped)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return h
}

// wait is a signal that a test cannot do without.
func wait(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatal("nobody has come")
	}
}

// A run has so many calls of models at once; others have their own.
func TestConcurrentCallsPerRunAreLimited(t *testing.T) {
	const most = 8
	h := newBlockedModel(t, start)
	sealer := newSealer(t)
	b := newLLMEnvOf(t, newFakeModel(t, nil), sealer, newRichEnvelope(100_000),
		func(c *llm.Config) { c.Anthropic = &llm.Upstream{URL: h.URL} })
	b.client.Timeout = time.Minute // one too many that is let in would wait for ever
	ask := func(token string) *http.Response {
		resp, err := b.ask(t.Context(), "POST", messages, `{"model":"claude-x","max_tokens":300,"stream":true}`,
			"X-Api-Key", token)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	var open []*http.Response
	for range most {
		open = append(open, ask(b.token))
		wait(t, h.begun)
	}
	for _, path := range []string{messages, messages + "/count_tokens"} {
		status, text, head := b.get("POST", path, `{"model":"claude-x","max_tokens":300}`)
		if status != 429 || head.Get("Retry-After") != "1" || head.Get("X-Should-Retry") != "true" ||
			!strings.Contains(text, `"code":"rate_limited"`) || !strings.Contains(text, `"type":"rate_limit_error"`) {
			t.Errorf("%s, one too many: %d %s %v", path, status, text, head)
		}
	}
	other := ask(sealer.LeaseToken("default", aTask, "run_01JZZZZZZZZZZZZZZZZZZZZZZC").Reveal())
	wait(t, h.begun)
	if other.StatusCode != 200 {
		t.Errorf("another run: %d", other.StatusCode)
	}
	close(h.end)
	for _, resp := range append(open, other) {
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
			t.Errorf("%d %v", resp.StatusCode, err)
		}
	}
	for range 2 * most { // an answer ends when its call is out: there is room again
		if again := ask(b.token); again.StatusCode != 200 {
			t.Fatalf("after their end: %d", again.StatusCode)
		} else if _, err := io.Copy(io.Discard, again.Body); err != nil {
			t.Fatal(err)
		}
	}
}

// Streams hold neither their prompts nor an event that was handed on.
func TestStreamsReleaseTheirMemory(t *testing.T) {
	rig.SkipShort(t)
	const streams, size = 8, 8 << 20
	h := newBlockedModel(t, start+
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\""+
		strings.Repeat("a", size/2)+"\"}}\n\n")
	w := newRichEnvelope(10_000_000)
	w.available.Tokens = 1_000_000_000
	b := newLLMEnv(t, newFakeModel(t, nil), w,
		func(c *llm.Config) { c.Anthropic = &llm.Upstream{URL: h.URL} })
	prompt := `{"model":"claude-x","max_tokens":300,"stream":true,"messages":[{"role":"user","content":"` +
		strings.Repeat("b", size) + `"}]}`
	var open []io.Reader
	before := heap()
	for range streams {
		resp, err := b.ask(t.Context(), "POST", messages, prompt)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.CopyN(io.Discard, resp.Body, int64(len(start)+size/2)); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%d %v", resp.StatusCode, err)
		}
		wait(t, h.begun)
		open = append(open, resp.Body)
	}
	if more := heap() - before; more > streams*size/4 {
		t.Errorf("%d streams hold %d MiB", streams, more>>20)
	}
	close(h.end)
	for _, body := range open {
		if rest, err := io.ReadAll(body); err != nil || !strings.HasSuffix(string(rest), stopped) {
			t.Errorf("%v after %q", err, rest)
		}
	}
}

// heap is what is in use, in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what a pool keeps goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
