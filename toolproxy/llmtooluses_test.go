package toolproxy_test

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// searchPrices are what uses of vendors' tools cost.
var searchPrices = map[string]budget.Price{
	"llm_web_search":       {Call: cent},
	"llm_web_fetch":        {},
	"llm_code_interpreter": {Call: 3 * cent},
	"llm_mcp":              {},
	"llm_shell":            {Call: cent},
	"llm_advisor":          {PerUnit: map[budget.Unit]budget.Money{budget.UnitSecond: 1}, Max: 5 * cent},
}

const (
	searchAsk  = `{"model":"claude-x","max_tokens":300,"stream":true,"messages":[],"tools":[{ "type" : "web_search_20250305", "name":"web_search"%s},{"type":"web_fetch_20260318","name":"web_fetch"}]}`
	usedBlock  = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"server_tool_use\",\"name\":\"%s\",\"input\":{}}}\n\n"
	usedDelta  = "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":20,\"server_tool_use\":%s}}\n\n"
	gptUsage   = `"usage":{"input_tokens":100,"output_tokens":20}`
	searchItem = `{"type":"web_search_call","status":"completed","action":{"type":"search","query":"a"}}`
	openItem   = `{"type":"web_search_call","status":"completed","action":{"type":"open_page"}}`
)

// itemDone and completed are events of a streamed response.
func itemDone(item string) string {
	return "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"item\":" + item + "}\n\n"
}

func completed(items string) string {
	return "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"object\":\"response\",\"output\":[" + items + "]," + gptUsage + "}}\n\n"
}

// What was used is what is charged, by the vendor's own count.
func TestUsesAreCharged(t *testing.T) {
	claude := start + fmt.Sprintf(usedBlock, "web_search") + fmt.Sprintf(usedBlock, "web_search")
	for name, c := range map[string]struct {
		path string
		ask  string
		play func(http.ResponseWriter, *http.Request)
		fee  budget.Money
	}{
		"messages, by the usage": {messages, searchAsk,
			streaming(claude + fmt.Sprintf(usedDelta, `{"web_search_requests":1}`) +
				fmt.Sprintf(usedDelta, `{"web_search_requests":3,"web_fetch_requests":9}`) + stopped), 3 * cent},
		"messages, one that failed": {messages, searchAsk,
			streaming(claude + fmt.Sprintf(usedDelta, `{"web_search_requests":0}`) + stopped), 0},
		"messages, usage without": {messages, searchAsk,
			streaming(claude + fmt.Sprintf(usedDelta, `null`) + stopped), 2 * cent},
		"messages, usage unlike it": {messages, searchAsk,
			streaming(claude + fmt.Sprintf(usedDelta, `{"web_search_requests":null,"else":{"a":1}}`) + stopped),
			2 * cent},
		"messages, none": {messages, searchAsk, streaming(claudeAll), 0},
		"messages, parts of a tool": {messages, searchAsk,
			streaming(start + fmt.Sprintf(usedBlock, "advisor") + fmt.Sprintf(usedBlock, "tool_search_tool_bm25") +
				fmt.Sprintf(usedBlock, "bash_code_execution") + delta2 + stopped), 5 * cent},
		"messages, more than it said": {messages, searchAsk,
			streaming(claude + fmt.Sprintf(usedDelta, `{"web_search_requests":50}`) + stopped), 50 * cent},
		"messages, less than none": {messages, searchAsk,
			streaming(claude + fmt.Sprintf(usedDelta, `{"web_search_requests":-5}`) + stopped), 0},
		"messages, beyond numbers": {messages, searchAsk,
			streaming(claude + fmt.Sprintf(usedDelta,
				fmt.Sprintf(`{"web_search_requests":%d}`, int64(picket.MaxNumber))) + stopped), budget.MaxMoney},
		"messages, whole": {messages, searchAsk,
			answersJSON(200,
				`{"type":"message","content":[{"type":"server_tool_use","name":"web_search"},{"type":"text","text":"a"}],"usage":{"input_tokens":10,"output_tokens":20,"server_tool_use":{"web_search_requests":2}}}`), 2 * cent},
		"responses, stream": {responses, `{"model":"gpt-x","tools":[{"type":"web_search"}]}`,
			streaming(itemDone(searchItem) + itemDone(openItem) + itemDone(searchItem) +
				completed(searchItem+","+openItem+","+searchItem)), 2 * cent},
		"responses, only in the end": {responses, `{"model":"gpt-x","tools":[{"type":"web_search"}]}`,
			streaming(completed(searchItem + "," + searchItem + "," + searchItem)), 3 * cent},
		"responses, only on the way": {responses, `{"model":"gpt-x","tools":[{"type":"web_search"}]}`,
			streaming(itemDone(searchItem) + itemDone(searchItem) + completed("")), 2 * cent},
		"responses, an action unknown": {responses, `{"model":"gpt-x","tools":[{"type":"web_search"}]}`,
			streaming(itemDone(`{"type":"web_search_call","action":["a"]}`) + completed("")), cent},
		"responses, whole": {responses,
			`{"model":"gpt-x","tools":[{"type":"web_search_preview"},{"type":"code_interpreter"}]}`,
			answersJSON(200, `{"object":"response","output":[`+searchItem+
				`,{"type":"code_interpreter_call"},{"type":"function_call"},{"type":"message"}],`+gptUsage+`}`),
			4 * cent},
		"responses, brought by another": {responses, `{"model":"gpt-x","previous_response_id":"r"}`,
			answersJSON(200, `{"object":"response","output":[`+searchItem+
				`,{"type":"shell_call"},{"type":"local_shell_call","action":{"type":"exec"}}],`+gptUsage+`}`), cent},
		"chat, with each answer": {chats, `{"model":"gpt-x","n":3,"messages":[],"web_search_options":{}}`, answersAll,
			3 * cent},
		"chat, by the model": {chats, `{"model":"gpt-4o-search-preview","web_search_options":{},"messages":[]}`,
			answersAll, cent},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRichEnvelope(1000)
			b := newLLMEnvPriced(t, newFakeModel(t, c.play), newSealer(t), w, searchPrices)
			ask := c.ask
			if strings.Contains(ask, "%s") {
				ask = fmt.Sprintf(ask, "")
			}
			if status, text, _ := b.get("POST", c.path, ask); status != 200 {
				t.Fatalf("%d %s", status, text)
			}
			s := settlement(t, w)
			fee := s.Cost.USD - tokensOf(s.Detail)
			if want := c.fee; s.Outcome != picket.CallDone || fee != want && s.Cost.USD != budget.MaxMoney {
				t.Errorf("a fee of $%s, want $%s: %+v", fee, want, s)
			}
			if c.fee > 0 && !strings.Contains(s.Detail, "web_search ") && !strings.Contains(s.Detail, "advisor ") {
				t.Errorf("the ledger says %q", s.Detail)
			}
		})
	}
}

// tokensOf is the cost of the tokens in a row of the ledger.
func tokensOf(detail string) budget.Money {
	var status, in, out, read, write int64
	_, after, _ := strings.Cut(detail, " HTTP ")
	if _, err := fmt.Sscanf(after, "%d in %d out %d cache read %d write %d", &status, &in, &out, &read,
		&write); err != nil {
		return math.MinInt64
	}
	return budget.Money(in*3000 + out*15000 + read*300 + write*3750)
}

// A tool of the vendor's is limited where its request does not say, and what
// it may come to is reserved; nothing else is changed.
func TestUsesAreLimitedAndReserved(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		ask  string
		sent string
		fee  budget.Money
	}{
		"messages, put in": {messages, fmt.Sprintf(searchAsk, ""),
			strings.Replace(fmt.Sprintf(searchAsk, ""), `{ "type" : "web`, `{"max_uses":8, "type" : "web`, 1),
			8 * cent},
		"messages, said": {messages, fmt.Sprintf(searchAsk, `,"max_uses":3`), fmt.Sprintf(searchAsk, `,"max_uses":3`),
			3 * cent},
		"messages, two": {messages,
			`{"model":"claude-x","max_tokens":300,"tools":[{"type":"web_search_20250305","max_uses":2},{"type":"advisor_20260301"}]}`, `{"model":"claude-x","max_tokens":300,"tools":[{"type":"web_search_20250305","max_uses":2},{"max_uses":8,"type":"advisor_20260301"}]}`, 42 * cent},
		"messages, free": {messages,
			`{"model":"claude-x","max_tokens":300,"tools":[{"type":"web_fetch_20260318"}],"mcp_servers":[{}]}`,
			`{"model":"claude-x","max_tokens":300,"tools":[{"type":"web_fetch_20260318"}],"mcp_servers":[{}]}`, 0},
		"responses, put in": {responses,
			`{"model":"gpt-x","max_output_tokens":300,"tools":[{"type":"web_search"},{"type":"mcp"}]}`,
			`{"max_tool_calls":8,"model":"gpt-x","max_output_tokens":300,"tools":[{"type":"web_search"},{"type":"mcp"}]}`, 8 * cent},
		"responses, nothing said": {responses,
			`{"model":"gpt-x","max_output_tokens":300,"max_tool_calls": null,"tools":[{"type":"web_search"}]}`,
			`{"model":"gpt-x","max_output_tokens":300,"max_tool_calls": 8,"tools":[{"type":"web_search"}]}`, 8 * cent},
		"responses, said, the dearest": {responses,
			`{"model":"gpt-x","max_output_tokens":300,"tools":[{"type":"web_search"},{"type":"code_interpreter"}],"max_tool_calls":5}`,
			`{"model":"gpt-x","max_output_tokens":300,"tools":[{"type":"web_search"},{"type":"code_interpreter"}],"max_tool_calls":5}`, 15 * cent},
		"responses, the dearest first": {responses,
			`{"model":"gpt-x","max_output_tokens":300,"max_tool_calls":5,"tools":[{"type":"code_interpreter"},{"type":"web_search"}]}`,
			`{"model":"gpt-x","max_output_tokens":300,"max_tool_calls":5,"tools":[{"type":"code_interpreter"},{"type":"web_search"}]}`, 15 * cent},
		"responses, free": {responses, `{"model":"gpt-x","max_output_tokens":300,"tools":[{"type":"mcp"}]}`,
			`{"model":"gpt-x","max_output_tokens":300,"tools":[{"type":"mcp"}]}`, 0},
		"chat": {chats, `{"model":"gpt-x","max_tokens":300,"n":2,"web_search_options":{}}`,
			`{"model":"gpt-x","max_tokens":300,"n":2,"web_search_options":{}}`, 2 * cent},
	} {
		asked := &needRecorder{fakeEnvelope: newRichEnvelope(100_000)}
		m := newFakeModel(t, answersJSON(500, `{}`))
		if status, text, _ := newLLMEnvPriced(t, m, newSealer(t), asked, searchPrices).
			get("POST", c.path, c.ask); status != 500 {
			t.Errorf("%s: %d %s", name, status, text)
			continue
		}
		withFee := asked.need.USD
		if body, _, _ := m.last(t); body != c.sent {
			t.Errorf("%s: the upstream got\n%s\nwant\n%s", name, body, c.sent)
		}
		free := map[string]budget.Price{"*": {}}
		if status, text, _ := newLLMEnvPriced(t, m, newSealer(t), asked, free).
			get("POST", c.path, c.ask); status != 500 {
			t.Errorf("%s: %d %s", name, status, text)
		}
		if withFee-asked.need.USD != c.fee {
			t.Errorf("%s: $%s were reserved for uses, want $%s", name, withFee-asked.need.USD, c.fee)
		}
	}
}

// Where uses have no end, a fee for each has no bound either.
func TestUnlimitedToolUsesAreRefused(t *testing.T) {
	const nested = `{"model":"claude-x","max_tokens":300,"messages":[{"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"web_search_20250305"%s}}}]}]}`
	prices := map[string]budget.Price{"llm_*": {Call: cent}}
	for ask, remedy := range map[string]string{
		`{"model":"claude-x","max_tokens":300,"tools":[{"type":"code_execution_20260521","name":"code_execution"}]}`: "tools.prices.llm_code_execution: {call: 0}",
		`{"model":"claude-x","max_tokens":300,"mcp_servers":[{}]}`:                                                   "tools.prices.llm_mcp: {call: 0}",
		`{"model":"claude-x","max_tokens":300,"tools":[{"type":"web_search_20250305","max_uses":null}]}`:             "Give it max_uses.",
		fmt.Sprintf(nested, ""): "Give it max_uses.",
	} {
		m := newFakeModel(t, answersAll)
		status, text, _ := newLLMEnvPriced(t, m, newSealer(t), newRichEnvelope(10_000), prices).
			get("POST", messages, ask)
		if status != 403 || m.calls() != 0 || !strings.Contains(text, remedy) ||
			!strings.Contains(text, "unpriced_tool") {
			t.Errorf("%s\n%d %s", ask, status, text)
		}
	}
	m := newFakeModel(t, answersAll)
	if status, text, _ := newLLMEnvPriced(t, m, newSealer(t), newRichEnvelope(10_000), prices).
		get("POST", messages, fmt.Sprintf(nested, `,"max_uses":2`)); status != 200 {
		t.Errorf("with max_uses: %d %s", status, text)
	}
}

// However often and however dear: the product is not a small number, and nothing
// is called on it.
func TestToolFeesDoNotOverflow(t *testing.T) {
	for _, price := range []budget.Money{cent, budget.MaxMoney} {
		for path, ask := range map[string]string{
			messages: fmt.Sprintf(`{"model":"claude-x","max_tokens":300,"tools":[{"type":"web_search_20250305","max_uses":%d},{"type":"web_search_20250305","max_uses":%[1]d}]}`, int64(picket.MaxNumber)),
			responses: fmt.Sprintf(`{"model":"gpt-x","tools":[{"type":"web_search"}],"max_tool_calls":%d}`,
				int64(picket.MaxNumber)),
			chats: fmt.Sprintf(`{"model":"gpt-x","n":%d,"web_search_options":{}}`, int64(picket.MaxNumber)),
		} {
			m := newFakeModel(t, answersAll)
			status, text, _ := newLLMEnvPriced(t, m, newSealer(t), newRichEnvelope(100_000),
				map[string]budget.Price{"llm_*": {Call: price}}).get("POST", path, ask)
			if status != 402 || m.calls() != 0 {
				t.Errorf("%s at $%s: %d %s, %d calls", path, price, status, text, m.calls())
			}
		}
	}
}

// What it takes to shorten a conversation is left out of the vendor's totals.
func TestShorteningIsCharged(t *testing.T) {
	w := newRichEnvelope(1000)
	b := newLLMEnv(t, newFakeModel(t,
		answersJSON(200,
			`{"type":"message","usage":{"input_tokens":10,"output_tokens":20,"iterations":[{"type":"message","input_tokens":10,"output_tokens":20},{"type":"compaction","input_tokens":1000,"output_tokens":100,"cache_read_input_tokens":5}]}}`)), w)
	if status, text, _ := b.get("POST", messages, `{"model":"claude-x","max_tokens":300}`); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	expect(t, w, picket.CallDone, 1135, 1010*3000+120*15000+5*300)

	plain := `{"model":"claude-x","max_tokens":300,"messages":[{"role":"user","content":"a"}]%s}`
	once := reservedFor(t, messages,
		fmt.Sprintf(plain, `,"context_management":{"edits":[{"type":"clear_thinking_20251015"}]}`))
	if twice := reservedFor(t, messages,
		fmt.Sprintf(plain, `,"context_management":{"edits":[{"type":"compact_20260112"}]}`)); twice < 2*once-100 {
		t.Errorf("%d tokens are reserved, and %d where it may be shortened", once, twice)
	}
}
