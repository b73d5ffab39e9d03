package toolproxy_test

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// dollarsAsked is what is reserved of the dollars of an envelope.
func dollarsAsked(t *testing.T, ask string) budget.Money {
	t.Helper()
	asked := &needRecorder{fakeEnvelope: newRichEnvelope(100_000)}
	if status, text, _ := newLLMEnv(t, newFakeModel(t, answersJSON(500, `{}`)), asked).
		get("POST", messages, ask); status != 500 {
		t.Fatalf("%d %s", status, text)
	}
	return asked.need.USD
}

// What is kept in the cache for an hour costs twice what goes in: so much is
// reserved, and so much is booked.
func TestAnHourInTheCacheCostsTwice(t *testing.T) {
	ask := func(mark string) string {
		return `{"model":"claude-x","max_tokens":300,"messages":[{"role":"user","content":[{"type":"text","text":"` +
			strings.Repeat("a", 9000) + `"` + mark + `}]}]}`
	}
	usual := dollarsAsked(t, ask(`,"cache_control":{"type":"ephemeral","ttl":"5m"}`))
	for name, body := range map[string]string{
		"of a block": ask(`,"cache_control":{"type":"ephemeral","ttl":"1h"}`),
		"escaped":    ask(`,"cache\u005fcontrol":{"ttl":"\u0031h"}`),
		"of the whole": strings.Replace(ask(""), `{"model"`, `{"cache_control":{"type":"ephemeral","ttl":"1h"},"model"`,
			1),
	} {
		// 3 instead of 3.75 dollars a million, and as much again, of 11,000 tokens or more
		if got := dollarsAsked(t, body); got < usual+11_000*2_250 {
			t.Errorf("%s: $%s reserved, $%s with the usual mark", name, got, usual)
		}
	}
	hour := strings.Replace(start, `"cache_read`,
		`"cache_creation":{"ephemeral_5m_input_tokens":40,"ephemeral_1h_input_tokens":60},"cache_read`, 1)
	w := newRichEnvelope(100)
	b := newLLMEnv(t, newFakeModel(t, streaming(hour+delta2+stopped)), w)
	b.mustCall(t, claudeAsk)
	expect(t, w, picket.CallDone, 1130, claudeCost+60*(6_000-3_750))
}

// A mark for the cache is not part of a prompt that is known; what is longer than
// one is.
func TestContentIsNoMarkForTheCache(t *testing.T) {
	door := &needRecorder{fakeEnvelope: newRichEnvelope(10_000)}
	b := newLLMEnv(t, newFakeModel(t,
		answersJSON(200, `{"type":"message","usage":{"input_tokens":40,"output_tokens":2}}`)), door)
	ask := `{"model":"claude-x","max_tokens":300,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":{"cache_control":"%"}}]}]}`
	b.mustCall(t, strings.Replace(ask, "%", "", 1))
	b.mustCall(t, strings.Replace(ask, "%", strings.Repeat("word ", 20_000), 1))
	if got := door.need.Tokens; got < 100_000 {
		t.Errorf("%d tokens are reserved for a text of 100,000 bytes", got)
	}
}

// mustCall has a call answered.
func (b *llmEnv) mustCall(t *testing.T, ask string) {
	t.Helper()
	if status, text, _ := b.get("POST", messages, ask); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
}

// A conversation that was shortened had more tokens than its usage says, so that
// the next call reserves no less for it.
func TestAShortenedPromptIsNotKnown(t *testing.T) {
	door := &needRecorder{fakeEnvelope: newRichEnvelope(10_000)}
	b := newLLMEnv(t, newFakeModel(t,
		answersJSON(200,
			`{"type":"message","usage":{"input_tokens":40,"output_tokens":2,"iterations":[{"type":"compaction","input_tokens":9000,"output_tokens":50},{"type":"message","input_tokens":40,"output_tokens":2}]}}`)), door)
	ask := `{"model":"claude-x","max_tokens":300,"context_management":{"edits":[{"type":"compact_20260112"}]},"messages":[{"role":"user","content":"` + strings.Repeat("word ", 8_000) + `"}]}`
	b.mustCall(t, ask)
	first := door.need.Tokens
	b.mustCall(t, ask)
	if second := door.need.Tokens; second < first {
		t.Errorf("%d tokens are reserved, %d the first time", second, first)
	}
}
