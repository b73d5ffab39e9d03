package toolproxy_test

import (
	"net/http"
	"strings"
	"testing"
)

// agentHeaders are what the agents that are known send beside their key.
var agentHeaders = map[string][]string{
	messages: {"Accept", "application/json", "Content-Type", "application/json", "User-Agent", "claude-cli/2.1",
		"X-Claude-Code-Session-Id", "a",
		"X-Stainless-Arch", "x64", "X-Stainless-Retry-Count", "0", "X-Stainless-Timeout", "600", "Anthropic-Beta",
		"claude-code-20250219,interleaved-thinking-2025-05-14",
		"Anthropic-Dangerous-Direct-Browser-Access", "true", "Anthropic-Version", "2023-06-01", "X-App", "cli",
		"X-Session-Affinity", "s", "X-Session-Id", "s"},
	responses: {"Accept", "text/event-stream", "Content-Type", "application/json", "User-Agent", "codex_exec/0.169.0",
		"X-Codex-Beta-Features", "remote_compaction_v2", "X-Codex-Window-Id", "w",
		"X-Codex-Turn-Metadata", "{}", "X-Openai-Internal-Codex-Responses-Lite", "true", "X-Client-Request-Id", "r",
		"Session-Id", "s", "Session_id", "s", "Thread-Id", "t", "Originator", "codex_exec", "Openai-Beta", "b"},
	chats: {"Accept", "application/json", "Content-Type", "application/json", "User-Agent", "opencode", "X-Session-Id",
		"s", "X-Stainless-Lang", "js"},
}

// strayHeaders lead a call to another model, account or address, or to another
// call than the one that was looked at.
var strayHeaders = []string{"Openai-Organization", "Openai-Project", "Anthropic-User-Profile-Id", "Chatgpt-Account-Id",
	"X-Portkey-Config", "X-Portkey-Provider", "X-Portkey-Custom-Host", "Helicone-Target-Url", "Helicone-Auth",
	"Helicone-Model-Override", "Cf-Aig-Authorization", "Cf-Aig-Cost",
	"X-Litellm-Api-Base", "X-Bf-Vk", "X-Model", "X-Provider", "X-Api-Base", "X-Goog-Api-Key", "Api-Key", "X-Amz-Target",
	"X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "Referer", "Origin",
	"X-HTTP-Method-Override", "X-Original-URL", "X-Rewrite-URL", "X-Method-Override", "X-HTTP-Method", "X-Anything",
	"Idempotency-Key", "X-Idempotency-Key", "X-Stainless", "Anthropic-Priority", "Prefer", "Range"}

func TestOnlyHeadersThatAreNeededArePassed(t *testing.T) {
	for path, head := range agentHeaders {
		m := newFakeModel(t, answersAll)
		b := newLLMEnv(t, m, newRichEnvelope(1000))
		all := append([]string(nil), head...)
		for _, name := range strayHeaders {
			all = append(all, name, "stray")
		}
		model := map[bool]string{true: "claude-x", false: "gpt-x"}[path == messages]
		for _, ask := range []string{path,
			strings.Replace(path, map[string]string{
				messages:  "messages",
				chats:     "chat/completions",
				responses: "responses",
			}[path], "models", 1)} {
			method, body := "POST", `{"model":"`+model+`"}`
			if ask != path {
				method, body = "GET", ""
			}
			if status, text, _ := b.get(method, ask, body, all...); status != 200 {
				t.Fatalf("%s: %d %s", ask, status, text)
			}
			_, sent, _ := m.last(t)
			for i := 0; i < len(head); i += 2 {
				if sent.Get(head[i]) != head[i+1] {
					t.Errorf("%s: %s arrived as %q, want %q", ask, head[i], sent.Get(head[i]), head[i+1])
				}
			}
			for _, name := range strayHeaders {
				if sent.Get(name) != "" {
					t.Errorf("%s: %s arrived", ask, name)
				}
			}
		}
	}
}

// A long context at twice the price is not to be had, wherever it is asked for.
func TestPricierLongContextIsRefused(t *testing.T) {
	const ask, plain = `{"model":"claude-x","max_tokens":300}`, "claude-code-20250219"
	for name, c := range map[string]struct {
		betas []string
		body  string
		want  int
	}{
		"alone":           {[]string{"context-1m-2025-08-07"}, ask, 403},
		"among others":    {[]string{plain + ", Context-1M-2027-01-01 ,b"}, ask, 403},
		"in a second one": {[]string{plain, "context-1m-2025-08-07"}, ask, 403},
		"in the body": {nil, `{"model":"claude-x","max_tokens":300,"anthropic_beta":["context-1m-2025-08-07"]}`,
			403},
		"as betas": {nil, `{"model":"claude-x","max_tokens":300,"betas":["a","context-1m-2025-08-07"]}`, 403},
		"another":  {[]string{plain}, `{"model":"claude-x","max_tokens":300,"betas":["a"]}`, 200},
	} {
		m := newFakeModel(t, answersAll)
		b := newLLMEnv(t, m, newRichEnvelope(1000))
		req, err := http.NewRequestWithContext(t.Context(), "POST", b.URL+messages, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{
			"Content-Type":   {"application/json"},
			"X-Api-Key":      {b.token},
			"Anthropic-Beta": c.betas,
		}
		resp, err := b.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want || m.calls() != map[int]int{200: 1}[c.want] {
			t.Errorf("%s: %d, %d calls", name, resp.StatusCode, m.calls())
		}
	}
}

// What a vendor charges more for is on no list of values that are usual.
func TestUnpriceableValuesAreRefused(t *testing.T) {
	for path, model := range map[string]string{messages: "claude-x", chats: "gpt-x", responses: "gpt-x"} {
		for member, want := range map[string]int{
			`"service_tier":"priority"`:      403,
			`"service_tier":"fast"`:          403,
			`"service_tier":"PRIORITY"`:      403,
			`"service_tier":7`:               403,
			`"service_tier":["priority"]`:    403,
			`"speed":"fast"`:                 403,
			`"inference_geo":"us"`:           403,
			`"fallbacks":"default"`:          403,
			`"fallbacks":[{"model":"dear"}]`: 403,
			`"models":["dear"]`:              403,
			`"plugins":[{"id":"web"}]`:       403,
			`"Service_Tier":"priority"`:      400,
			`"FALLBACKS":"default"`:          400,
			`"Inference_geo":"us"`:           400,
			`"service_tier":"auto"`:          200,
			`"service_tier":"default"`:       200,
			`"service_tier":"flex"`:          200,
			`"service_tier":"standard_only"`: 200,
			`"service_tier":null`:            200,
			`"speed":"standard"`:             200,
			`"speed":null`:                   200,
			`"inference_geo":"global"`:       200,
			`"inference_geo":null`:           200,
			`"fallbacks":null`:               200,
			`"fallbacks":[]`:                 200,
		} {
			m := newFakeModel(t, answersAll)
			status, text, _ := newLLMEnv(t, m, newRichEnvelope(1000)).
				get("POST", path, `{"model":"`+model+`",`+member+`}`)
			if status != want || m.calls() != map[int]int{200: 1}[want] {
				t.Errorf("%s %s: %d %s, %d calls", path, member, status, text, m.calls())
			}
		}
	}
	m := newFakeModel(t, answersAll)
	if status, text, _ := newLLMEnv(t, m, newRichEnvelope(1000)).
		get("POST", responses, `{"model":"gpt-x","prompt":{"id":"p"}}`); status != 403 || m.calls() != 0 {
		t.Errorf("a prompt of the vendor's: %d %s", status, text)
	}
}
