package toolproxy_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// What vendors run themselves, and take a fee for beside the tokens.

const (
	messages  = "/llm/anthropic/v1/messages"
	chats     = "/llm/openai/v1/chat/completions"
	responses = "/llm/openai/v1/responses"
)

// hostedTools are tools that vendors run, by the names of their prices, and
// requests that offer them.
var hostedTools = []struct {
	name string
	path string
	ask  string
}{
	{"llm_web_search", messages,
		`{"model":"claude-x","max_tokens":300,"messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"}]}`},
	{"llm_web_search", messages,
		`{"model":"claude-x","max_tokens":300,"messages":[],"tools":[{"name":"a","input_schema":{}},{"name":"web_search","type":"web_search_20990101"}]}`},
	{"llm_web_fetch", messages,
		`{"model":"claude-x","max_tokens":300,"messages":[],"tools":[{"type":"web_fetch_20260318","name":"web_fetch","max_uses":3}]}`},
	{"llm_code_execution", messages,
		`{"model":"claude-x","max_tokens":300,"messages":[],"tools":[{"type":"code_execution_20260521","name":"code_execution"}]}`},
	{"llm_advisor", messages,
		`{"model":"claude-x","max_tokens":300,"messages":[],"tools":[{"type":"advisor_20260301","name":"advisor","model":"claude-y"}]}`},
	{"llm_crystal_ball", messages,
		`{"model":"claude-x","max_tokens":300,"messages":[],"tools":[{"type":"crystal_ball_20280101","name":"ball"}]}`},
	{"llm_mcp", messages,
		`{"model":"claude-x","max_tokens":300,"messages":[],"tools":[{"type":"mcp_toolset","mcp_server_name":"a"}]}`},
	{"llm_mcp", messages,
		`{"model":"claude-x","max_tokens":300,"messages":[],"mcp_servers":[{"type":"url","url":"https://a.example","name":"a"}]}`},
	{"llm_web_search", messages,
		`{"model":"claude-x","max_tokens":300,"messages":[{"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"web_search_20250305","name":"web_search"}}}]}]}`},
	{"llm_web_search", messages,
		`{"model":"claude-x","max_tokens":300,"messages":[{"role":"user","content":[{"type":"compaction","tool_changes":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"web_search_20250305","name":"web_search"}}}]}]}]}`},
	{"llm_web_search", chats, `{"model":"gpt-x","messages":[],"web_search_options":{}}`},
	{"llm_web_search", chats, `{"model":"gpt-4o-search-preview","messages":[]}`},
	{"llm_web_search", chats, `{"messages":[],"model":"gpt-5-search-api-2025-10-14"}`},
	{"llm_gateway:search", chats, `{"model":"gpt-x","messages":[],"tools":[{"type":"gateway:search"}]}`},
	{"llm_web_search", responses,
		`{"model":"gpt-x","input":"hi","tools":[{"type":"function","name":"f"},{"type":"web_search","external_web_access":true}]}`},
	{"llm_web_search", responses, `{"model":"gpt-x","input":"hi","tools":[{"type":"web_search_2025_08_26"}]}`},
	{"llm_web_search", responses, `{"model":"gpt-x","input":"hi","tools":[{"type":"web_search_preview_2025_03_11"}]}`},
	{"llm_file_search", responses,
		`{"model":"gpt-x","input":"hi","tools":[{"type":"file_search","vector_store_ids":["a"]}]}`},
	{"llm_code_interpreter", responses,
		`{"model":"gpt-x","input":"hi","tools":[{"type":"code_interpreter","container":{"type":"auto"}}]}`},
	{"llm_image_generation", responses, `{"model":"gpt-x","input":"hi","tools":[{"type":"image_generation"}]}`},
	{"llm_mcp", responses, `{"model":"gpt-x","input":"hi","tools":[{"type":"mcp","server_url":"https://a.example"}]}`},
	{"llm_shell", responses,
		`{"model":"gpt-x","input":"hi","tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`},
	{"llm_web_search", responses,
		`{"model":"gpt-x","input":"hi","tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}]}`},
	{"llm_web_search", responses,
		`{"model":"gpt-x","input":[{"type":"additional_tools","role":"developer","tools":[{"type":"web_search"}]}]}`},
	{"llm_web_search", responses,
		`{"model":"gpt-x","input":[{"type":"tool_search_output","tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}]}]}`},
}

// answersAll is what a model says to each of the ways to ask.
func answersAll(w http.ResponseWriter, r *http.Request) {
	answersJSON(200,
		`{"object":"response","type":"message","choices":[{}],"usage":{"input_tokens":100,"output_tokens":20,"prompt_tokens":100,"completion_tokens":20}}`)(w, r)
}

// tokenCost is what the tokens of answers come to.
const tokenCost = budget.Money(100*3000 + 20*15000)

var inRemedy = regexp.MustCompile(`tools\.prices\.(llm_\S+): (\{.*?\})`)

// A tool whose fee has no price is not passed to the vendor. The price that the refusal suggests
// lets it through.
func TestAToolOfTheVendorsNeedsAPrice(t *testing.T) {
	for _, c := range hostedTools {
		m := newFakeModel(t, answersAll)
		status, text, head := newLLMEnv(t, m, newRichEnvelope(10_000)).get("POST", c.path, c.ask)
		told := inRemedy.FindStringSubmatch(text)
		if status != 403 || m.calls() != 0 || told == nil || told[1] != c.name ||
			head.Get("X-Should-Retry") != "false" ||
			!strings.Contains(text, `"code":"unpriced_tool"`) || !strings.Contains(text, `"tool":"`+c.name+`"`) {
			t.Errorf("%s\n%d %s, %d calls", c.ask, status, text, m.calls())
			continue
		}
		for _, line := range []string{told[0], strings.Replace(told[0], told[2], "{call: 0}", 1)} {
			var price struct{ Call string }
			if err := yaml.Unmarshal([]byte(inRemedy.FindStringSubmatch(line)[2]), &price); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			usd, err := budget.ParseMoney(price.Call)
			if err != nil {
				t.Fatal(err)
			}
			w := newRichEnvelope(10_000)
			b := newLLMEnvPriced(t, m, newSealer(t), w, map[string]budget.Price{told[1]: {Call: usd}})
			if status, text, _ = b.get("POST", c.path, c.ask); usd > 0 &&
				strings.Contains(text, "nothing limits how often") {
				continue // there is no limit it could have: the refusal says what to do
			}
			if status != 200 {
				t.Errorf("%s\nwith %s: %d %s", c.ask, line, status, text)
				continue
			}
			s := settlement(t, w)
			if most := usd; s.Outcome != picket.CallDone || s.Cost.USD != tokenCost && s.Cost.USD != tokenCost+most {
				t.Errorf("%s\nwith %s: settled %+v", c.ask, line, s)
			}
		}
	}
}

// Tools that the agent runs itself need no price.
func TestToolsOfTheAgentsNeedNone(t *testing.T) {
	for _, c := range []struct {
		path string
		ask  string
	}{
		{messages,
			`{"model":"claude-x","max_tokens":300,"messages":[{"role":"user","content":[{"type":"tool_use","input":{"type":"tool_addition","tool":{"definition":{"type":"web_search_20250305"}}}}]}],` +
				`"tools":[{"name":"a"},{"name":"b","type":"custom"},{"type":"bash_20250124","name":"bash"},{"type":"text_editor_20250728","name":"e"},{"type":"memory_20250818","name":"m"},` +
				`{"type":"computer_20251124","name":"c"},{"type":"computer_toolset_20260801"},{"type":"browser_toolset_20260801"},{"type":"tool_search_tool_bm25_20251119","name":"s"},{"type":"tool_search_tool_regex","name":"r"}],"mcp_servers":[]}`},
		{chats,
			`{"model":"gpt-x","messages":[],"tools":[{"type":"function","function":{"name":"a"}},{"type":"custom","custom":{"name":"b"}}],"web_search_options":null}`},
		{responses,
			`{"model":"gpt-x","input":[{"type":"additional_tools","tools":[{"type":"namespace","name":"n","tools":[{"type":"custom","name":"exec"}]}]}],"tools":[{"type":"function","name":"a"},{"type":"custom","name":"b"},` +
				`{"type":"local_shell"},{"type":"shell","environment":{"type":"local"}},{"type":"apply_patch"},{"type":"computer"},{"type":"computer_use_preview"},{"type":"tool_search","execution":"client"},{"type":"namespace","name":"x","tools":[{"type":"function","name":"y"}]}]}`},
		{responses, `{"model":"gpt-x","input":"hi","tools":null,"max_tool_calls":null}`},
	} {
		w := newRichEnvelope(10_000)
		m := newFakeModel(t, answersAll)
		if status, text, _ := newLLMEnv(t, m, w).get("POST", c.path, c.ask); status != 200 {
			t.Errorf("%s\n%d %s", c.ask, status, text)
			continue
		}
		if s := settlement(t, w); s.Cost.USD != tokenCost {
			t.Errorf("%s\nsettled %+v", c.ask, s)
		}
	}
}

// What cannot be read as a tool is refused. It might be one.
func TestToolsThatCannotBeRead(t *testing.T) {
	m := newFakeModel(t, answersAll)
	b := newLLMEnvPriced(t, m, newSealer(t), newRichEnvelope(10_000), map[string]budget.Price{"*": {}})
	for _, tools := range []string{`{}`, `"web_search"`, `["web_search"]`, `[{}]`, `[{"web_search":{}}]`,
		`[{"type":7}]`, `[{"type":"Web Search"}]`, `[{"type":"function","name":"a","TYPE":"web_search"}]`,
		`[{"type":"web_search","Max_Uses":1}]`, `[{"type":"web_search","max_uses":0}]`,
		`[{"type":"web_search","max_uses":-1}]`, `[{"type":"web_search","max_uses":1e3}]`,
		`[{"type":"web_search","max_uses":9e99}]`,
		`[{"type":"function","type":"web_search"}]`} {
		for path, rest := range map[string]string{
			messages:  `"model":"claude-x","max_tokens":300,"messages":[]`,
			responses: `"model":"gpt-x","input":"hi"`,
			chats:     `"model":"gpt-x","messages":[]`,
		} {
			if status, text, _ := b.get("POST", path, `{"tools":`+tools+`,`+rest+`}`); status != 400 {
				t.Errorf("%s %s: %d %s", path, tools, status, text)
			}
		}
	}
	for _, body := range []string{`{"model":"gpt-x","input":"hi","Tools":[]}`,
		`{"model":"gpt-x","input":"hi","max_tool_calls":0}`, `{"model":"gpt-x","input":"hi","max_tool_calls":1.5}`,
		`{"model":"gpt-x","input":"hi","MAX_TOOL_CALLS":3}`} {
		if status, text, _ := b.get("POST", responses, body); status != 400 {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	if m.calls() != 0 {
		t.Errorf("%d calls arrived", m.calls())
	}
}
