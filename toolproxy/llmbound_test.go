package toolproxy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// Agents that try to think more than their envelope has.

// However many answers are asked for, and however long: the product is not a small
// number.
func TestOutputBoundDoesNotOverflow(t *testing.T) {
	for _, c := range [][2]int64{{1 << 32, 1 << 32}, {1 << 52, 1 << 12}, {1<<53 - 1, 1<<53 - 1}} {
		w := newRichEnvelope(100)
		m := newFakeModel(t, answersJSON(200, `{"choices":[{}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`))
		b := newLLMEnv(t, m, w)
		status, text, _ := b.get("POST", "/llm/openai/v1/chat/completions",
			fmt.Sprintf(`{"model":"gpt-x","n":%d,"max_completion_tokens":%d,"messages":[]}`, c[0], c[1]))
		if status == 200 || m.calls() != 0 {
			body, _, _ := m.last(t)
			t.Errorf("n %d of %d tokens: %d %s, sent %s", c[0], c[1], status, text, body)
		}
	}
}

// reservedFor is what the envelope was asked for a prompt.
func reservedFor(t *testing.T, path, ask string) int64 {
	t.Helper()
	asked := &needRecorder{fakeEnvelope: newRichEnvelope(100_000)}
	b := newLLMEnv(t, newFakeModel(t, answersJSON(500, `{}`)), asked)
	if status, text, _ := b.get("POST", path, ask); status != 500 {
		t.Fatalf("%d %s", status, text)
	}
	return asked.need.Tokens
}

// needRecorder notes what is reserved.
type needRecorder struct {
	*fakeEnvelope
	need budget.Envelope
}

func (a *needRecorder) Reserve(ctx context.Context, held picket.LeaseCredential,
	req picket.CallRequest) (picket.Reservation, error) {
	a.need = req.Reserve
	return a.fakeEnvelope.Reserve(ctx, held, req)
}

// A picture of few bytes has as many tokens as any other, and a text that looks
// like a picture has as many as any text.
func TestImageTokensDoNotDependOnBytes(t *testing.T) {
	long := strings.Repeat("a", 1_000_000)
	for name, c := range map[string]struct {
		path  string
		part  string
		least int64
		most  int64
	}{
		"small picture": {"anthropic/v1/messages",
			`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGg"}}`, 50_000, 60_000},
		"small picture, chat": {"openai/v1/chat/completions",
			`{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGg"}}`, 50_000, 60_000},
		"large picture": {"anthropic/v1/messages",
			`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0K` + long + `"}}`,
			50_000, 60_000},
		"picture of a tool": {"anthropic/v1/messages",
			`{"type":"tool_result","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0K` + long + `"}}]}`, 50_000, 60_000},
		"text": {"anthropic/v1/messages", `{"type":"text","text":"data:image/png;base64,` + long + `"}`,
			1_000_000, 1_100_000},
		"document": {"anthropic/v1/messages",
			`{"type":"document","source":{"type":"text","media_type":"text/plain","data":"iVBORw0K` + long + `"}}`,
			1_000_000, 1_100_000},
		"arguments": {"anthropic/v1/messages", `{"type":"tool_use","input":{"data":"iVBORw0K` + long + `"}}`,
			1_000_000, 1_100_000},
		"packed document": {"anthropic/v1/messages",
			`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0"}}`, 200_000,
			210_000},
		"packed file": {"openai/v1/chat/completions",
			`{"type":"file","file":{"file_data":"data:application/pdf;base64,JVBERi0"}}`, 200_000, 210_000},
	} {
		got := reservedFor(t, "/llm/"+c.path,
			`{"model":"`+map[bool]string{true: "claude", false: "gpt"}[strings.HasPrefix(c.path, "anthropic")]+
				`-x","max_tokens":300,"messages":[{"role":"user","content":[`+c.part+`]}]}`)
		if got < c.least || got > c.most {
			t.Errorf("%s: %d tokens reserved, want %d to %d", name, got, c.least, c.most)
		}
	}
}

// What costs more than the prices by token say, or would be read in place of
// what was looked at, does not leave.
func TestUnpriceableRequestsAreRefused(t *testing.T) {
	for body, want := range map[string]int{
		`{"model":"gpt-x","messages":[],"service_tier":"priority"}`:                403,
		`{"model":"gpt-x","messages":[],"speed":"fast"}`:                           403,
		`{"model":"gpt-x","messages":[],"modalities":["audio"]}`:                   403,
		`{"model":"gpt-x","messages":[],"modalities":["text","audio"]}`:            403,
		`{"model":"gpt-x","messages":[],"audio":{"voice":"a","format":"wav"}}`:     403,
		`{"model":"gpt-x","messages":[],"Audio":{"voice":"a","format":"wav"}}`:     400,
		`{"model":"gpt-x:online","messages":[]}`:                                   403,
		`{"model":"gpt-x","messages":[],"modalities":["text"],"audio":null}`:       200,
		`{"model":"gpt-x","messages":[],"Model":"dear"}`:                           400,
		`{"model":"gpt-x","messages":[],"max_tokens":5,"MAX_TOKENS":5000000}`:      400,
		`{"model":"gpt-x","messages":[],"\u017ftream":true}`:                       400,
		`{"model":"gpt-x","messages":[],"service_tier":"flex","user":"x","Own":1}`: 200,
	} {
		m := newFakeModel(t, answersJSON(200, `{"choices":[{}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`))
		status, text, _ := newLLMEnv(t, m, newRichEnvelope(100)).get("POST", "/llm/openai/v1/chat/completions", body)
		if status != want || m.calls() != 0 && want != 200 {
			t.Errorf("%s: %d %s, %d calls", body, status, text, m.calls())
		}
	}
}

// The upstream is asked what was looked at, and nothing else.
func TestOverrideHeadersAreDropped(t *testing.T) {
	m := newFakeModel(t, answersJSON(200, `{}`))
	b := newLLMEnv(t, m, newRichEnvelope(100))
	head := []string{"X-HTTP-Method-Override", "POST", "X-Original-URL", "/v1/files", "X-Rewrite-URL", "/v1/files",
		"X-Method-Override", "POST", "X-HTTP-Method", "POST"}
	if status, text, _ := b.get("GET", "/llm/openai/v1/models/gpt-x", "", head...); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	_, sent, _ := m.last(t)
	for i := 0; i < len(head); i += 2 {
		if sent.Get(head[i]) != "" {
			t.Errorf("the upstream got %s: %s", head[i], sent.Get(head[i]))
		}
	}
	for _, path := range []string{"/llm/openai/v1/models/..%2ffiles", "/llm/openai/v1/models/%2e%2e/files",
		"/llm/openai/v1/models/x%252f..", "/llm/openai/v1/models/../batches",
		"/llm/openai/v1/batches", "/llm/anthropic/v1/messages/batches", "/llm/openai/v1/chat/completions/",
		"/llm/openai//v1/chat/completions"} {
		before := m.calls()
		if status, text, _ := b.get("GET", path, ""); status == 200 || m.calls() != before {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}
