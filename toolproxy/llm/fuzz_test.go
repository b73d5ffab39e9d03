package llm_test

import (
	stdjson "encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/toolproxy/llm"
)

// FuzzPrompt: what is passed on is JSON with the members it came with, except limits, and each of
// the vendor's tools in it has a limit.
func FuzzPrompt(f *testing.F) {
	for _, body := range hostedByAnthropic {
		f.Add([]byte(body), true)
	}
	for _, body := range hostedByOpenAI {
		f.Add([]byte(body), false)
	}
	f.Add([]byte(" {\"tools\" :[ {\n\"type\":\"web_search_20250305\"} ,{ \"a\\u0062\":\"\u00e9\",\"type\":\"web_fetch_20250910\",\"max_uses\":1}],\"max_tokens\":null}"), true)
	f.Add([]byte(`{"max_tool_calls": null,"input":"\ud83d\ude00","tools":[{"type":"web_search"}],"max_output_tokens":99999}`), false)
	list, err := budget.NewPriceList(map[string]budget.Price{"llm_*": {Call: 10_000_000}}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte, anthropic bool) {
		sent, err := llm.Rewritten(body, anthropic, list)
		if err != nil {
			return
		}
		var before, after map[string]any
		if stdjson.Unmarshal(body, &before) != nil {
			return // more lenient with what is not text
		}
		if err := stdjson.Unmarshal(sent, &after); err != nil {
			t.Fatalf("%q became %q: %v", body, sent, err)
		}
		limitedTools(t, after, anthropic)
		for _, members := range []map[string]any{before, after} {
			maps.DeleteFunc(members, func(name string, _ any) bool {
				return slices.Contains([]string{"max_tokens", "max_output_tokens", "max_tool_calls"}, name)
			})
			tools, _ := members["tools"].([]any)
			for _, tool := range tools {
				if definition, ok := tool.(map[string]any); ok {
					delete(definition, "max_uses")
				}
			}
		}
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%q became %q", body, sent)
		}
	})
}

// limitedTools fails where a vendor's tool may be used without end.
func limitedTools(t *testing.T, sent map[string]any, anthropic bool) {
	t.Helper()
	tools, _ := sent["tools"].([]any)
	for _, tool := range tools {
		definition, _ := tool.(map[string]any)
		kind, _ := definition["type"].(string)
		if anthropic && (kind == "web_search_20250305" || kind == "web_fetch_20250910") &&
			definition["max_uses"] == nil ||
			!anthropic && (kind == "web_search" || kind == "file_search") && sent["max_tool_calls"] == nil {
			t.Fatalf("%v has no limit", sent)
		}
	}
}

// hostedByAnthropic are requests that offer tools which the vendor runs.
var hostedByAnthropic = []string{
	`{"model":"claude-x","max_tokens":300,"messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"}]}`,
	`{"model":"claude-x","max_tokens":300,"messages":[],"tools":[{"name":"a","input_schema":{}},{"name":"web_search","type":"web_search_20990101"}]}`,
	`{"model":"claude-x","max_tokens":300,"messages":[],"tools":[{"type":"web_fetch_20260318","name":"web_fetch","max_uses":3}]}`,
	`{"model":"claude-x","max_tokens":300,"messages":[],"tools":[{"type":"code_execution_20260521","name":"code_execution"}]}`,
	`{"model":"claude-x","max_tokens":300,"messages":[],"tools":[{"type":"advisor_20260301","name":"advisor","model":"claude-y"}]}`,
	`{"model":"claude-x","max_tokens":300,"messages":[],"tools":[{"type":"crystal_ball_20280101","name":"ball"}]}`,
	`{"model":"claude-x","max_tokens":300,"messages":[],"tools":[{"type":"mcp_toolset","mcp_server_name":"a"}]}`,
	`{"model":"claude-x","max_tokens":300,"messages":[],"mcp_servers":[{"type":"url","url":"https://a.example","name":"a"}]}`,
	`{"model":"claude-x","max_tokens":300,"messages":[{"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"web_search_20250305","name":"web_search"}}}]}]}`,
	`{"model":"claude-x","max_tokens":300,"messages":[{"role":"user","content":[{"type":"compaction","tool_changes":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"web_search_20250305","name":"web_search"}}}]}]}]}`,
}

// hostedByOpenAI are such requests, too.
var hostedByOpenAI = []string{
	`{"model":"gpt-x","messages":[],"web_search_options":{}}`,
	`{"model":"gpt-4o-search-preview","messages":[]}`,
	`{"messages":[],"model":"gpt-5-search-api-2025-10-14"}`,
	`{"model":"gpt-x","messages":[],"tools":[{"type":"gateway:search"}]}`,
	`{"model":"gpt-x","input":"hi","tools":[{"type":"function","name":"f"},{"type":"web_search","external_web_access":true}]}`,
	`{"model":"gpt-x","input":"hi","tools":[{"type":"web_search_2025_08_26"}]}`,
	`{"model":"gpt-x","input":"hi","tools":[{"type":"web_search_preview_2025_03_11"}]}`,
	`{"model":"gpt-x","input":"hi","tools":[{"type":"file_search","vector_store_ids":["a"]}]}`,
	`{"model":"gpt-x","input":"hi","tools":[{"type":"code_interpreter","container":{"type":"auto"}}]}`,
	`{"model":"gpt-x","input":"hi","tools":[{"type":"image_generation"}]}`,
	`{"model":"gpt-x","input":"hi","tools":[{"type":"mcp","server_url":"https://a.example"}]}`,
	`{"model":"gpt-x","input":"hi","tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`,
	`{"model":"gpt-x","input":"hi","tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}]}`,
	`{"model":"gpt-x","input":[{"type":"additional_tools","role":"developer","tools":[{"type":"web_search"}]}]}`,
	`{"model":"gpt-x","input":[{"type":"tool_search_output","tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}]}]}`,
}
