package toolproxy_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/toolproxy"
	"github.com/picket-dev/picket/toolproxy/llm"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

func TestReportsKeepTheirIdempotencyKey(t *testing.T) {
	d := &fakeBackend{}
	f := newProxyEnv(t, d)
	for _, key := range []string{"a", "a", "b", "", ""} {
		r := goodRequests["report_progress"].with(f.token(), "")
		if key != "" {
			r.header = map[string]string{"Idempotency-Key": key}
		}
		if a := f.call(t, r); a.status != 200 {
			t.Fatalf("key %q: %d %s", key, a.status, a.raw)
		}
	}
	if d.keys[0] != d.keys[1] || d.keys[0] == d.keys[2] || d.keys[3] == d.keys[4] || slices.Contains(d.keys, "") {
		t.Fatalf("request ids: %q", d.keys)
	}
	r := goodRequests["report_progress"].with(f.token(), "")
	r.header = map[string]string{"Idempotency-Key": strings.Repeat("k", 256)}
	if a := f.call(t, r); a.status != 400 || a.field() != "Idempotency-Key" {
		t.Fatalf("%d %s", a.status, a.raw)
	}
}

func TestToolsAreListedAndTheListIsTrue(t *testing.T) {
	d := &fakeBackend{}
	f := newProxyEnv(t, d)
	a := f.call(t, request{method: "GET", path: "/v1/tools", bearer: f.token()})
	list, _ := a.body["tools"].([]any)
	if a.status != 200 || len(list) != len(toolproxy.Tools()) || len(list) != 16 {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	for _, tool := range toolproxy.Tools() {
		call, ok := goodRequests[tool.Name]
		if !ok {
			t.Errorf("%s is listed without a test", tool.Name)
			continue
		}
		if a := f.call(t, call.with(f.token(), "")); a.status != 200 {
			t.Errorf("%s is listed but answers %d", tool.Name, a.status)
		}
		if len(tool.Description) < 60 {
			t.Errorf("%s: a model cannot use it by %q", tool.Name, tool.Description)
		}
	}
}

func TestSchemasAgreeWithTheDecoders(t *testing.T) {
	f := newProxyEnv(t, &fakeBackend{})
	for _, tool := range toolproxy.Tools() {
		var schema struct {
			Type                 string                    `json:"type"`
			Properties           map[string]jsontext.Value `json:"properties"`
			Required             []string                  `json:"required"`
			AdditionalProperties bool                      `json:"additionalProperties"`
		}
		if err := json.Unmarshal(tool.InputSchema, &schema); err != nil || schema.Type != "object" ||
			schema.AdditionalProperties {
			t.Errorf("%s: not the schema of a strict object: %v", tool.Name, err)
		}
		call := goodRequests[tool.Name].with(f.token(), "")
		for property := range schema.Properties {
			call.body = `{"` + property + `":null}`
			if a := f.call(t, call); strings.Contains(a.raw, "not a known field") {
				t.Errorf("%s: the schema has %s, the decoder does not", tool.Name, property)
			}
		}
		var sent map[string]jsontext.Value
		if err := json.Unmarshal([]byte(goodRequests[tool.Name].body), &sent); err != nil {
			t.Fatal(err)
		}
		for property := range sent {
			if _, ok := schema.Properties[property]; !ok {
				t.Errorf("%s: the decoder takes %s, the schema does not have it", tool.Name, property)
			}
		}
		for _, property := range schema.Required {
			without := maps.Clone(sent)
			delete(without, property)
			body, err := json.Marshal(without)
			if err != nil {
				t.Fatal(err)
			}
			call.body = string(body)
			if a := f.call(t, call); a.status != 400 || a.field() != "/"+property {
				t.Errorf("%s: %s is required by the schema, but without it: %d %s", tool.Name, property, a.status,
					a.raw)
			}
		}
	}
}

func TestEveryRouteIsDescribed(t *testing.T) {
	f := newProxyEnv(t, &fakeBackend{})
	var mounted, described []string
	for _, r := range f.e.Routes() {
		path := regexp.MustCompile(`:(\w+)`).ReplaceAllString(r.Path, "{$1}")
		if path == "/v1/tools/{name}" {
			for _, tool := range everyTool() {
				mounted = append(mounted, r.Method+" /v1/tools/"+tool.Name)
			}
		} else if path != mcppart.Path && !strings.HasPrefix(path, llm.Path) { // which others describe
			mounted = append(mounted, r.Method+" "+path)
		}
	}
	for _, r := range f.doc.Routes() {
		if r == "POST /v1/leases/renew" { // of keys: the control plane's package answers it
			continue
		}
		if _, path, _ := strings.Cut(r, " "); strings.HasPrefix(path, "/v1/") || path == "/agent/context" {
			described = append(described, r)
		}
	}
	for _, name := range []string{"http_request", "sql"} { // listed where they are configured
		mounted = append(mounted, "POST /v1/tools/"+name)
	}
	slices.Sort(mounted)
	slices.Sort(described)
	if !slices.Equal(mounted, described) {
		t.Errorf("mounted are\n%v\ndescribed are\n%v", mounted, described)
	}
}

func TestUnknownTools(t *testing.T) {
	d := &fakeBackend{}
	f := newProxyEnv(t, d)
	a := f.call(t, request{path: "/v1/tools/rm_rf", bearer: f.token(), body: `{"whatever":1}`})
	if a.status != 404 || a.code() != "not_found" || !strings.Contains(a.remedy(), "report_progress") {
		t.Errorf("unknown tool: %d %s", a.status, a.raw)
	}
	if tools, _ := a.body["tools"].([]any); len(tools) != 16 {
		t.Errorf("the tools are not listed: %s", a.raw)
	}
	if d.count() != 0 {
		t.Errorf("reached %v", d.asked)
	}
}

// wireWord is a word of the wire, such as the name of a tool or a code.
var wireWord = regexp.MustCompile(`[a-z]+(?:_[a-z]+)+`)

// The prompt of coding agents names tools and codes as they are, and each free tool except
// those that it can do without.
func TestThePromptNamesToolsAndCodes(t *testing.T) {
	prompt, err := os.ReadFile(filepath.Join("..", "adapter", "agents", "testdata", "prompt.golden"))
	if err != nil {
		t.Fatal(err)
	}
	named := wireWord.FindAllString(string(prompt), -1)
	words := regexp.MustCompile(`[a-z_]+`).FindAllString(string(prompt), -1)
	var tools []string
	for _, tool := range toolproxy.Tools() {
		tools = append(tools, tool.Name)
		if !slices.Contains([]string{"find_agents", "get_context"}, tool.Name) && !slices.Contains(words, tool.Name) {
			t.Errorf("the prompt does not name %s", tool.Name)
		}
	}
	for _, word := range named {
		if !slices.Contains(tools, word) && !slices.Contains(picket.Codes(), picket.Code(word)) {
			t.Errorf("the prompt names %s, which is neither a tool nor a code", word)
		}
	}
	for _, code := range []picket.Code{picket.CodeBudgetExceeded, picket.CodeCallRepeated, picket.CodeStaleFence} {
		if !slices.Contains(named, string(code)) {
			t.Errorf("the prompt does not name %s", code)
		}
	}
}
