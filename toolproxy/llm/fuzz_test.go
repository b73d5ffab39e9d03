package llm_test

import (
	stdjson "encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
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

// FuzzPicture: a picture has the same bound, or a higher one, however it is spelled and
// however deep it stands.
func FuzzPicture(f *testing.F) {
	f.Add([]byte("\x00"), uint8(0), "AAAA")
	f.Add([]byte("\x01\x02\x03\x07"), uint8(5), "iVBORw0KGgo=")
	f.Add([]byte("\x04\x00\x05"), uint8(10), "no base64")
	f.Fuzz(func(t *testing.T, spelling []byte, shape uint8, data string) {
		text, err := stdjson.Marshal(data)
		if err != nil || string(text) != `"`+data+`"` {
			return // the data has escapes of its own
		}
		dialect, part := picturesOf(data, int(shape))
		depth := len(spelling) % 4
		around := []string{`{"type":"tool_result","content":[%]}`, `{"type":"tool_use","input":{"a":%}}`,
			`{"type":"document","source":{"type":"content","content":[%]}}`}[int(shape)/16%3]
		spelled := respelled(part, spelling)
		for range depth {
			spelled = strings.Replace(around, "%", spelled, 1)
		}
		plain, err := llm.Prompts(dialect, 0, bodyOf(dialect, part))
		if err != nil {
			return // not a request at all
		}
		got, err := llm.Prompts(dialect, 0, bodyOf(dialect, spelled))
		if err != nil || got < plain || got < 50_000 {
			t.Fatalf("%s has at most %d tokens, and %s %d: %v", part, plain, spelled, got, err)
		}
	})
}

// picturesOf returns one of the forms of a picture, and the API that takes it.
func picturesOf(data string, form int) (dialect, part string) {
	url := `"data:image/png;base64,` + data + `"`
	switch form % 4 {
	case 0:
		return "messages", `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + data + `"}}`
	case 1:
		return "chat", `{"type":"image_url","image_url":{"url":` + url + `,"detail":"high"}}`
	case 2:
		return "responses", `{"role":"user","content":[{"type":"input_image","image_url":` + url + `}]}`
	}
	return "responses", `{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":` + url + `}}`
}

// respelled changes the case of letters, and writes some of them as escapes.
func respelled(part string, spelling []byte) string {
	var b strings.Builder
	inside := false
	for i, c := range []byte(part) {
		switch {
		case c == '"':
			inside = !inside
		case inside && len(spelling) > 0 && c < 128:
			how := spelling[i%len(spelling)]
			if letter := c | 0x20; how&1 != 0 && 'a' <= letter && letter <= 'z' {
				c ^= 0x20
			}
			if how&2 != 0 {
				fmt.Fprintf(&b, "\\u%04x", c)
				continue
			}
		}
		b.WriteByte(c)
	}
	return b.String()
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
