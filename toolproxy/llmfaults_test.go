package toolproxy_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/toolproxy/llm"
)

// A vendor's own errors are the agent's to see, and cost nothing.
func TestErrorsOfAVendorPassAndCostNothing(t *testing.T) {
	for _, status := range []int{400, 429, 500, 529, 302} {
		w := newRichEnvelope(100)
		m := newFakeModel(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Retry-After", "7")
			rw.Header().Set("Location", "http://elsewhere.invalid/")
			answersJSON(status, `{"type":"error","error":{"type":"overloaded_error"}}`)(rw, nil)
		})
		b := newLLMEnv(t, m, w)
		b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		got, text, head := b.get("POST", "/llm/anthropic/v1/messages", claudeAsk)
		if got != status || text != `{"type":"error","error":{"type":"overloaded_error"}}` ||
			head.Get("Retry-After") != "7" || m.calls() != 1 {
			t.Errorf("%d became %d %s %v after %d calls", status, got, text, head, m.calls())
		}
		expect(t, w, picket.CallFailed, 0, 0)
	}
}

const overloaded = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"

// uncertain says that a call was settled at what it had reserved.
func uncertain(t *testing.T, w *fakeEnvelope) {
	t.Helper()
	s := settlement(t, w)
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.Outcome != picket.CallUncertain || len(w.holds) != 0 || w.charged.USD < 1000*15_000 || w.charged != s.Cost {
		t.Errorf("settled %s at %+v, charged %+v, %d holds", s.Outcome, s.Cost, w.charged, len(w.holds))
	}
}

// abort breaks the connection of an answer.
func abort() { panic(http.ErrAbortHandler) }

func TestAStreamThatBreaksOff(t *testing.T) {
	for name, text := range map[string]string{
		"after an event":                      start + textDelta,
		"within one":                          start + textDelta[:30],
		"after figures that are not the last": start + textDelta + delta1,
		"before the first":                    "",
	} {
		w := newRichEnvelope(100)
		m := newFakeModel(t, func(rw http.ResponseWriter, r *http.Request) {
			streaming(text)(rw, r)
			http.NewResponseController(rw).Flush()
			abort()
		})
		b := newLLMEnv(t, m, w)
		status, got, _ := b.get("POST", "/llm/anthropic/v1/messages", claudeAsk)
		if status != 200 || !strings.HasPrefix(got, text) || !strings.Contains(got, "\n\nevent: error\ndata: {") ||
			!strings.Contains(got, `"code":"upstream_failed"`) {
			t.Errorf("%s: %d %q", name, status, got)
		}
		uncertain(t, w)
	}
	// What was told before it broke off, to the last figure, is true.
	w := newRichEnvelope(100)
	b := newLLMEnv(t, newFakeModel(t, func(rw http.ResponseWriter, r *http.Request) {
		streaming(claudeAll)(rw, r)
		http.NewResponseController(rw).Flush()
		abort()
	}), w)
	if _, got, _ := b.get("POST", "/llm/anthropic/v1/messages", claudeAsk); got != claudeAll {
		t.Errorf("%q", got)
	}
	expect(t, w, picket.CallDone, 1130, claudeCost)
}

// An answer without any usage is handed on, and costs what was reserved.
func TestAnAnswerWithoutUsage(t *testing.T) {
	for name, play := range map[string]func(http.ResponseWriter, *http.Request){
		"JSON":                   answersJSON(200, `{"type":"message"}`),
		"a start and an end":     streaming(start + stopped),
		"not JSON":               answersJSON(200, "no json"),
		"a stream of nothing":    streaming(""),
		"a comment":              streaming(": hi\n\n"),
		"not events":             streaming("hello"),
		"events of another API":  streaming("data: [DONE]\n\n"),
		"a ping":                 streaming(pinged),
		"a start and an error":   streaming(start + overloaded),
		"an error and an answer": streaming(overloaded + start),
	} {
		w := newRichEnvelope(100)
		b := newLLMEnv(t, newFakeModel(t, play), w)
		if status, got, _ := b.get("POST", "/llm/anthropic/v1/messages", claudeAsk); status != 200 ||
			strings.Contains(got, "upstream_failed") {
			t.Errorf("%s: %d %q", name, status, got)
		}
		uncertain(t, w)
	}
}

// An answer whose lines end with CR is read like any other.
func TestAnAnswerWithCRIsMetered(t *testing.T) {
	text := strings.ReplaceAll(strings.ReplaceAll(claudeAll, "\r\n", "\n"), "\n", "\r")
	w := newRichEnvelope(100)
	b := newLLMEnv(t, newFakeModel(t, streaming(text)), w)
	if _, got, _ := b.get("POST", "/llm/anthropic/v1/messages", claudeAsk); got != text {
		t.Errorf("%q", got)
	}
	expect(t, w, picket.CallDone, 1130, claudeCost)
}

// A stream that reports only an error of the vendor is free.
func TestAStreamOfAnErrorIsFree(t *testing.T) {
	for path, text := range map[string]string{
		"anthropic/v1/messages":      overloaded,
		"openai/v1/chat/completions": "data: {\"error\":{\"message\":\"x\"}}\n\ndata: [DONE]\n\n",
		"openai/v1/responses":        "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"usage\":null}}\n\n",
		"openai/responses":           "event: error\ndata: {\"type\":\"error\",\"message\":\"x\"}\n\n",
	} {
		w := newRichEnvelope(100)
		b := newLLMEnv(t, newFakeModel(t, streaming(text)), w)
		ask := claudeAsk
		if strings.HasPrefix(path, "openai") {
			ask = `{"model":"gpt-x","stream":true}`
		}
		if status, got, _ := b.get("POST", "/llm/"+path, ask); status != 200 || got != text {
			t.Errorf("%s: %d %q", path, status, got)
		}
		expect(t, w, picket.CallFailed, 0, 0)
	}
}

func TestUnreachableVendor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nowhere := l.Addr().String()
	l.Close()
	w := newRichEnvelope(100)
	m := newFakeModel(t, nil)
	b := newLLMEnv(t, m, w, func(c *llm.Config) {
		c.Anthropic = &llm.Upstream{URL: "http://" + nowhere}
	})
	status, got, _ := b.get("POST", "/llm/anthropic/v1/messages", claudeAsk)
	if status != 502 || !strings.Contains(got, `"type":"api_error"`) ||
		!strings.Contains(got, `"outcome":"undispatched"`) {
		t.Errorf("%d %s", status, got)
	}
	expect(t, w, picket.CallUndispatched, 0, 0)

	// It took the request and went away: nobody knows what it has done.
	w = newRichEnvelope(100)
	m = newFakeModel(t, func(http.ResponseWriter, *http.Request) { abort() })
	b = newLLMEnv(t, m, w)
	if status, got, _ := b.get("POST", "/llm/openai/v1/responses",
		`{"model":"gpt-x","max_output_tokens":2000}`); status != 502 ||
		!strings.Contains(got, `"type":"server_error"`) {
		t.Errorf("%d %s", status, got)
	}
	uncertain(t, w)

	// It does not answer in time.
	w = newRichEnvelope(100)
	m = newFakeModel(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	b = newLLMEnv(t, m, w, func(c *llm.Config) { c.Timeout = 50 * time.Millisecond })
	if status, got, _ := b.get("POST", "/llm/anthropic/v1/messages", claudeAsk); status != 504 ||
		!strings.Contains(got, `"type":"timeout_error"`) {
		t.Errorf("%d %s", status, got)
	}
	uncertain(t, w)
}

// An agent that goes away does not change what its call costs: the rest of the
// answer is read for its usage, but not for ever.
func TestClientDisconnectsDuringAStream(t *testing.T) {
	for name, drain := range map[string]time.Duration{"drained": time.Minute, "given up": 20 * time.Millisecond} {
		gone := make(chan struct{})
		w := newRichEnvelope(100)
		m := newFakeModel(t, func(rw http.ResponseWriter, r *http.Request) {
			streaming(start+textDelta)(rw, r)
			http.NewResponseController(rw).Flush()
			<-gone
			if name == "given up" {
				<-r.Context().Done()
				return
			}
			streaming(delta2+stopped)(rw, r)
		})
		b := newLLMEnv(t, m, w, func(c *llm.Config) { c.Drain = drain })
		ctx, leave := context.WithCancel(t.Context())
		resp, err := b.ask(ctx, "POST", "/llm/anthropic/v1/messages", claudeAsk)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, len(start))); err != nil {
			t.Fatal(err)
		}
		leave()
		resp.Body.Close()
		<-b.gone
		close(gone)
		if name == "drained" {
			expect(t, w, picket.CallDone, 1130, claudeCost)
		} else {
			uncertain(t, w)
		}
	}
}

func zipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, text)
	z.Close()
	return b.String()
}

// What cannot be bounded is not passed on.
func TestBodiesThatAreRefused(t *testing.T) {
	rig.SkipShort(t)
	m := newFakeModel(t, streaming(claudeAll))
	w := newRichEnvelope(100)
	b := newLLMEnv(t, m, w)
	for name, c := range map[string]struct {
		body     string
		encoding string
		status   int
	}{
		"a zip bomb":     {zipped(strings.Repeat(" ", 40<<20)), "gzip", 413},
		"no gzip":        {"{}", "gzip", 400},
		"half a gzip":    {zipped(claudeAsk)[:40], "gzip", 400},
		"brotli":         {"x", "br", 415},
		"no JSON":        {"hello", "", 400},
		"an array":       {"[]", "", 400},
		"two objects":    {claudeAsk + claudeAsk, "", 400},
		"no model":       {`{"max_tokens":5}`, "", 400},
		"a name twice":   {`{"model":"claude-x","max_tokens":5,"max_tokens":50000}`, "", 400},
		"less than 1":    {`{"model":"claude-x","max_tokens":0}`, "", 400},
		"a fraction":     {`{"model":"claude-x","max_tokens":1e9}`, "", 400},
		"beyond numbers": {`{"model":"claude-x","max_tokens":99999999999999999999}`, "", 400},
		"no price":       {`{"model":"mistral","max_tokens":5}`, "", 403},
		"too large":      {`{"model":"` + strings.Repeat("x", 33<<20) + `"}`, "", 413},
	} {
		status, got, _ := b.get("POST", "/llm/anthropic/v1/messages", c.body, "Content-Encoding", c.encoding)
		if status != c.status || !strings.Contains(got, `"type":"error"`) || !strings.Contains(got, `"remedy":"`) {
			t.Errorf("%s: %d %.300s", name, status, got)
		}
		if c.status == 403 && (!strings.Contains(got, "unpriced_tool") ||
			!strings.Contains(got, "tools.models.mistral")) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if m.calls() != 0 {
		t.Errorf("%d calls arrived", m.calls())
	}
	if status, got, _ := b.get("POST", "/llm/anthropic/v1/messages", zipped(claudeAsk), "Content-Encoding",
		"gzip"); status != 200 || got != claudeAll {
		t.Errorf("gzip: %d %s", status, got)
	}
	if body, head, _ := m.last(t); body != claudeAsk || head.Get("Content-Encoding") != "" {
		t.Errorf("gzip arrived as %q %v", body, head)
	}
	expect(t, w, picket.CallDone, 1130, claudeCost)
}

// An answer that was compressed without being asked for is read all the same.
func TestAnAnswerThatIsCompressed(t *testing.T) {
	w := newRichEnvelope(100)
	b := newLLMEnv(t, newFakeModel(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Encoding", "gzip")
		streaming(zipped(claudeAll))(rw, r)
	}), w)
	if status, got, head := b.get("POST", "/llm/anthropic/v1/messages", claudeAsk, "Accept-Encoding",
		"gzip"); status != 200 || got != claudeAll || head.Get("Content-Encoding") != "" {
		t.Errorf("%d %q %v", status, got, head)
	}
	expect(t, w, picket.CallDone, 1130, claudeCost)
}
