package toolproxy_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/toolproxy"
)

// expect compares a settlement with what a call must have come to.
func expect(t *testing.T, w *fakeEnvelope, outcome picket.CallOutcome, tokens int64, usd budget.Money) {
	t.Helper()
	s := settlement(t, w)
	if s.Outcome != outcome || s.Cost != (budget.Envelope{Tokens: tokens, USD: usd}) {
		t.Errorf("settled %s at %+v, want %s at %d tokens and $%s", s.Outcome, s.Cost, outcome, tokens, usd)
	}
	w.expectSettled(t, usd)
}

func TestAStreamPassesAsItIs(t *testing.T) {
	w := newRichEnvelope(100)
	m := newFakeModel(t, streaming(claudeAll))
	b := newLLMEnv(t, m, w)
	status, got, head := b.get("POST", "/llm/anthropic/v1/messages?beta=true", claudeAsk, "Anthropic-Version",
		"2023-06-01", "Anthropic-Beta", "a,b",
		"Authorization", "Bearer something-else", toolproxy.FenceHeader, "17", "Cookie", "a=b", "Connection", "X-Hop",
		"X-Hop", "1")
	if status != 200 || got != claudeAll || head.Get("Request-Id") != "req_7" ||
		!strings.HasPrefix(head.Get("Content-Type"), "text/event-stream") {
		t.Errorf("answered %d %q %v", status, got, head)
	}
	body, sent, path := m.last(t)
	if body != claudeAsk || path != "POST /base/v1/messages?beta=true" {
		t.Errorf("upstream got %s\n%s", path, body)
	}
	if sent.Get("X-Api-Key") != "sk-real" || sent.Get("Authorization") != "Bearer sk-real" ||
		sent.Get("Anthropic-Version") != "2023-06-01" || sent.Get("Anthropic-Beta") != "a,b" {
		t.Errorf("upstream got the headers %v", sent)
	}
	for name, values := range sent {
		if text := strings.Join(values,
			" "); strings.Contains(text, picket.LeaseTokenPrefix) || name == toolproxy.FenceHeader ||
			name == "Cookie" || name == "X-Hop" {
			t.Errorf("upstream got %s: %s", name, text)
		}
	}
	expect(t, w, picket.CallDone, 1130, claudeCost)
}

// An event is there before the next one is made.
func TestAStreamIsFlushed(t *testing.T) {
	read := make(chan struct{})
	m := newFakeModel(t, nil)
	m.play = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range []string{start, textDelta, delta2} {
			io.WriteString(w, event)
			http.NewResponseController(w).Flush()
			select {
			case <-read:
			case <-r.Context().Done():
				return
			}
		}
	}
	w := newRichEnvelope(100)
	b := newLLMEnv(t, m, w)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	resp, err := b.ask(ctx, "POST", "/llm/anthropic/v1/messages", claudeAsk)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for _, event := range []string{start, textDelta, delta2} {
		got := make([]byte, len(event))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != event {
			t.Fatalf("got %q, %v", got, err)
		}
		read <- struct{}{}
	}
}

const (
	chunk     = `data: {"id":"c","choices":[{"index":0,"delta":{"content":"hi"}}],"usage":null}` + "\n\n"
	lastChunk = `data: {"id":"c","choices":[],"usage":{"prompt_tokens":1100,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":1000}}}` + "\n\n"
	done      = "data: [DONE]\n\n"
	gptCost   = budget.Money(100*3000 + 1000*300 + 20*15000)

	responsesAll = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"object\":\"response\",\"usage\":null}}\n\n" +
		"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"object\":\"response\",\"usage\":{\"input_tokens\":1100,\"input_tokens_details\":{\"cached_tokens\":1000},\"output_tokens\":20}}}\n\n"
)

func TestEachLLMRouteIsMetered(t *testing.T) {
	const whole = `"usage":{"prompt_tokens":1100,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":1000}}}`
	for name, c := range map[string]struct {
		path   string
		ask    string
		sent   string
		play   func(http.ResponseWriter, *http.Request)
		want   string
		tokens int64
		usd    budget.Money
	}{
		"chat, streaming": {"/llm/openai/v1/chat/completions",
			`{"model":"gpt-x","max_tokens":500,"stream":true,"messages":[]}`,
			`{"stream_options":{"include_usage":true},"model":"gpt-x","max_tokens":500,"stream":true,"messages":[]}`,
			streaming(chunk + lastChunk + done), chunk + done, 1120, gptCost},
		"chat, streaming, with other options": {"/llm/openai/chat/completions",
			`{"model":"gpt-x","max_completion_tokens":500,"stream":true,"stream_options":{"b":1},"messages":[]}`,
			`{"model":"gpt-x","max_completion_tokens":500,"stream":true,"stream_options":{"b":1,"include_usage":true},"messages":[]}`,
			streaming(chunk + lastChunk + done), chunk + done, 1120, gptCost},
		"chat, streaming, usage asked for": {"/llm/openai/v1/chat/completions",
			`{"model":"gpt-x","max_tokens":500,"stream":true,"stream_options":{"include_usage":true}}`,
			`{"model":"gpt-x","max_tokens":500,"stream":true,"stream_options":{"include_usage":true}}`,
			streaming(chunk + lastChunk + done), chunk + lastChunk + done, 1120, gptCost},
		"chat, whole, no limit": {"/llm/openai/v1/chat/completions", `{"model":"gpt-x","messages":[]}`,
			`{"max_completion_tokens":32768,"model":"gpt-x","messages":[]}`,
			answersJSON(200, `{"choices":[{}],`+whole), `{"choices":[{}],` + whole, 1120, gptCost},
		"responses, streaming": {"/llm/openai/v1/responses",
			`{"model":"gpt-x","max_output_tokens":500,"stream":true,"input":"hi"}`,
			`{"model":"gpt-x","max_output_tokens":500,"stream":true,"input":"hi"}`, streaming(responsesAll),
			responsesAll, 1120, gptCost},
		"responses, whole": {"/llm/openai/v1/responses", `{"model":"gpt-x","max_output_tokens":null,"input":"hi"}`,
			`{"model":"gpt-x","max_output_tokens":32768,"input":"hi"}`,
			answersJSON(200, `{"object":"response","usage":{"input_tokens":100,"output_tokens":20}}`),
			`{"object":"response","usage":{"input_tokens":100,"output_tokens":20}}`, 120, 600_000},
		"messages, whole": {"/llm/anthropic/messages", `{"model":"claude-x","max_tokens":500,"messages":[]}`,
			`{"model":"claude-x","max_tokens":500,"messages":[]}`,
			answersJSON(200, `{"type":"message","usage":{"input_tokens":100,"output_tokens":20}}`),
			`{"type":"message","usage":{"input_tokens":100,"output_tokens":20}}`, 120, 600_000},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRichEnvelope(100)
			m := newFakeModel(t, c.play)
			b := newLLMEnv(t, m, w)
			status, got, _ := b.get("POST", c.path, c.ask, "X-Api-Key", "", "Authorization", "Bearer "+b.token)
			if status != 200 || got != c.want {
				t.Errorf("answered %d\n%s\nwant\n%s", status, got, c.want)
			}
			if body, head, _ := m.last(t); body != c.sent || head.Get("Authorization") != "Bearer sk-real" {
				t.Errorf("upstream got %v\n%s\nwant\n%s", head, body, c.sent)
			}
			expect(t, w, picket.CallDone, c.tokens, c.usd)
		})
	}
}

// What an answer may cost at most is what the envelope has: the rest of the
// request keeps its bytes.
func TestAnAnswerIsLimitedToTheEnvelope(t *testing.T) {
	w := newRichEnvelope(2) // 2000 hidden tokens at $3.75 leave room for about 800 of answer
	m := newFakeModel(t, streaming(claudeAll))
	b := newLLMEnv(t, m, w)
	if status, got, _ := b.get("POST", "/llm/anthropic/v1/messages", claudeAsk); status != 200 {
		t.Fatalf("answered %d %s", status, got)
	}
	body, _, _ := m.last(t)
	before, after, _ := strings.Cut(claudeAsk, "1000")
	limit, ok := strings.CutPrefix(body, before)
	limit, ok2 := strings.CutSuffix(limit, after)
	if !ok || !ok2 || len(limit) != 3 || limit < "700" || limit > "850" {
		t.Errorf("upstream got\n%s", body)
	}
	expect(t, w, picket.CallDone, 1130, claudeCost)
}

// Too little for any answer reaches nobody, and reports it in the vendor's words.
func TestAnEmptyEnvelopeReachesNoModel(t *testing.T) {
	for path, want := range map[string][]string{
		"/llm/anthropic/v1/messages": {`"type":"error"`, `"type":"billing_error"`, `"message":"budget_exceeded: `,
			`Top up.`, `"code":"budget_exceeded"`, `"remedy":"Top up."`},
		"/llm/openai/v1/responses": {`"type":"insufficient_quota"`, `"message":"budget_exceeded: `,
			`"param":null`, `"code":"budget_exceeded"`},
		"/llm/openai/v1/chat/completions": {`"type":"insufficient_quota"`},
	} {
		for name, w := range map[string]*fakeEnvelope{
			"too little": half(newRichEnvelope(1)),
			"tokens":     newFakeEnvelope(dollarsOf(100)),
			"nothing":    newRichEnvelope(0),
			"less":       newRichEnvelope(-5),
		} {
			m := newFakeModel(t, streaming(claudeAll))
			b := newLLMEnv(t, m, w)
			before := w.available
			status, got, head := b.get("POST", path,
				strings.Replace(claudeAsk, "claude-x",
					map[bool]string{true: "claude-x", false: "gpt-x"}[strings.Contains(path, "anthropic")], 1))
			if status != 402 || head.Get("X-Should-Retry") != "false" {
				t.Errorf("%s, %s: %d %s %v", path, name, status, got, head)
			}
			for _, part := range want {
				if !strings.Contains(got, part) {
					t.Errorf("%s, %s: %s is not in %s", path, name, part, got)
				}
			}
			if m.calls() != 0 || w.available != before {
				t.Errorf("%s, %s: %d calls arrived, available %+v, was %+v", path, name, m.calls(), w.available, before)
			}
		}
	}
}

func half(w *fakeEnvelope) *fakeEnvelope {
	w.available.USD /= 2
	return w
}

func dollarsOf(n int64) budget.Money { return budget.Money(n) * 100 * cent }

// A limit below what thinking may take would only be refused by the vendor.
func TestThinkingBudgetMustFitTheEnvelope(t *testing.T) {
	w := newRichEnvelope(2)
	m := newFakeModel(t, streaming(claudeAll))
	b := newLLMEnv(t, m, w)
	ask := `{"model":"claude-x","max_tokens":4000,"stream":true,"thinking":{"type":"enabled","budget_tokens":2048},"messages":[]}`
	if status, got, _ := b.get("POST", "/llm/anthropic/v1/messages", ask); status != 402 || m.calls() != 0 {
		t.Errorf("%d %s, %d calls arrived", status, got, m.calls())
	}
}

// A conversation is sent again with every call. What was counted before is
// known, and only what is new is bounded by its bytes.
func TestAPromptThatIsKnownReservesLess(t *testing.T) {
	first := `{"model":"claude-x","max_tokens":300,"messages":[{"role":"user","content":[{"type":"text","text":"` +
		strings.Repeat("long ago ", 2000) + `","cache_control":{"type":"ephemeral"}}]}`
	w := newRichEnvelope(1000)
	m := newFakeModel(t, answersJSON(200, `{"type":"message","usage":{"input_tokens":4000,"output_tokens":20}}`))
	b := newLLMEnv(t, m, w)
	var reserved []int64
	for _, ask := range []string{first + `]}`,
		strings.Replace(first, `,"cache_control":{"type":"ephemeral"}`, "", 1) +
			`,{"role":"assistant","content":"yes"},{"role":"user","content":"go on"}]}`,
		strings.Replace(first, "long ago", "LONG AGO", 1) + `]}`} {
		w.mu.Lock()
		w.available.USD = dollarsOf(10)
		before := w.available
		w.mu.Unlock()
		m.play = func(rw http.ResponseWriter, r *http.Request) {
			w.mu.Lock()
			reserved = append(reserved, before.Tokens-w.available.Tokens)
			w.mu.Unlock()
			answersJSON(200, `{"type":"message","usage":{"input_tokens":4000,"output_tokens":20}}`)(rw, r)
		}
		if status, got, _ := b.get("POST", "/llm/anthropic/v1/messages", ask); status != 200 {
			t.Fatalf("%d %s", status, got)
		}
	}
	if reserved[0] < 18_000 || reserved[1] > 4_700 || reserved[1] < 4_300 || reserved[2] < 18_000 {
		t.Errorf("reserved %v tokens", reserved)
	}
}
