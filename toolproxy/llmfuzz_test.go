package toolproxy_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/toolproxy"
)

// FuzzPrompt: whatever is passed on is JSON with the members it came with, but
// for limits, and each of the vendor's tools in it has one.
func FuzzPrompt(f *testing.F) {
	for _, c := range hostedTools {
		f.Add([]byte(c.ask), c.path == messages)
	}
	f.Add([]byte(" {\"tools\" :[ {\n\"type\":\"web_search_20250305\"} ,{ \"a\\u0062\":\"\u00e9\",\"type\":\"web_fetch_20250910\",\"max_uses\":1}],\"max_tokens\":null}"), true)
	f.Add([]byte(`{"max_tool_calls": null,"input":"\ud83d\ude00","tools":[{"type":"web_search"}],"max_output_tokens":99999}`), false)
	list, err := budget.NewPriceList(map[string]budget.Price{"llm_*": {Call: cent}}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte, anthropic bool) {
		sent, err := toolproxy.Rewritten(body, anthropic, list)
		if err != nil {
			return
		}
		var before, after map[string]any
		if json.Unmarshal(body, &before) != nil {
			return // more lenient with what is no text
		}
		if err := json.Unmarshal(sent, &after); err != nil {
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
