package llmstub

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

var play = Play(
	Turn{Call: "report_progress", Args: map[string]any{"summary": "half way"}, In: 7, Out: 3},
	Turn{Say: "All done.", In: 9, Out: 4},
)

// codecs are questions as clients ask them: one with a tool offered, the same
// after its result came back, and one without tools.
var codecs = []struct {
	api      API
	path     string
	first    string
	second   string
	toolless string
	tool     string // as the client calls it
	called   []string
	said     []string // what the answer has in it
}{
	{
		api:      Anthropic,
		path:     "/v1/messages?beta=true",
		tool:     "mcp__picket__report_progress",
		first:    `{"model":"m","stream":STREAM,"system":[{"type":"text","text":"be kind"}],"tools":[{"name":"mcp__picket__report_progress"}],"messages":[{"role":"user","content":"old"},{"role":"assistant","content":"x"},{"role":"user","content":"do it"}]}`,
		second:   `{"model":"m","stream":STREAM,"tools":[{"name":"mcp__picket__report_progress"}],"messages":[{"role":"user","content":"do it"},{"role":"assistant","content":[]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"seq 1"}]}]}]}`,
		toolless: `{"model":"m","stream":STREAM,"messages":[{"role":"user","content":"a title"}]}`,
		called:   []string{`"tool_use"`, `half way`, `"input_tokens":7`, `"output_tokens":3`},
		said:     []string{"All done.", `"end_turn"`, `"output_tokens":4`},
	},
	{
		api:      Chat,
		path:     "/v1/chat/completions",
		tool:     "picket_report_progress",
		first:    `{"model":"m","stream":STREAM,"tools":[{"type":"function","function":{"name":"picket_report_progress"}}],"messages":[{"role":"system","content":"be kind"},{"role":"user","content":"do it"}]}`,
		second:   `{"model":"m","stream":STREAM,"tools":[{"type":"function","function":{"name":"picket_report_progress"}}],"messages":[{"role":"user","content":"do it"},{"role":"assistant","content":null},{"role":"tool","content":"seq 1"}]}`,
		toolless: `{"model":"m","stream":STREAM,"messages":[{"role":"user","content":"a title"}]}`,
		called:   []string{`"tool_calls"`, `half way`, `"total_tokens":10`},
		said:     []string{"All done.", `"stop"`, `"total_tokens":13`},
	},
	{
		api:      Responses,
		path:     "/v1/responses",
		tool:     "report_progress",
		first:    `{"model":"m","stream":STREAM,"instructions":"be kind","tools":[{"type":"namespace","name":"mcp__picket","tools":[{"name":"report_progress"}]}],"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"do it"}]}]}`,
		second:   `{"model":"m","stream":STREAM,"tools":[{"type":"function","name":"report_progress"}],"input":[{"role":"user","content":"do it"},{"type":"function_call"},{"type":"function_call_output","output":"seq 1"}]}`,
		toolless: `{"model":"m","stream":STREAM,"input":"a title"}`,
		called:   []string{`"function_call"`, `half way`, `"namespace":"mcp__picket"`, `"total_tokens":10`},
		said:     []string{"All done.", `"output_text"`, `"total_tokens":13`},
	},
	{
		api:      Gemini,
		path:     "/v1beta/models/m:",
		tool:     "mcp_picket_report_progress",
		first:    `{"systemInstruction":{"parts":[{"text":"be kind"}]},"tools":[{"functionDeclarations":[{"name":"mcp_picket_report_progress"}]}],"contents":[{"role":"user","parts":[{"text":"do it"}]}]}`,
		second:   `{"tools":[{"functionDeclarations":[{"name":"mcp_picket_report_progress"}]}],"contents":[{"role":"user","parts":[{"text":"do it"}]},{"role":"model","parts":[]},{"role":"user","parts":[{"functionResponse":{"response":{"output":"seq 1"}}}]}]}`,
		toolless: `{"contents":[{"role":"user","parts":[{"text":"a title"}]}]}`,
		called:   []string{`"functionCall"`, `half way`, `"totalTokenCount":10`},
		said:     []string{"All done.", `"totalTokenCount":13`},
	},
}

func TestEveryAPIPlaysTheScript(t *testing.T) {
	for _, wire := range codecs {
		for _, stream := range []bool{true, false} {
			name := string(wire.api) + map[bool]string{true: " streamed", false: " whole"}[stream]
			t.Run(name, func(t *testing.T) {
				stub := New(play)
				server := httptest.NewServer(stub)
				defer server.Close()
				ask := func(question string) string {
					t.Helper()
					path := wire.path
					if wire.api == Gemini {
						path += map[bool]string{true: "streamGenerateContent?alt=sse", false: "generateContent"}[stream]
					}
					question = strings.ReplaceAll(question, "STREAM",
						map[bool]string{true: "true", false: "false"}[stream])
					return post(t, server.URL+path, question, stream)
				}
				expectContains(t, ask(wire.first), append(wire.called, `"name":"`+wire.tool+`"`)...)
				expectContains(t, ask(wire.second), wire.said...)
				expectContains(t, ask(wire.toolless), "stub")

				seen := stub.Requests()
				if len(seen) != 3 {
					t.Fatalf("%d requests were noted, want 3", len(seen))
				}
				if r := seen[0]; r.API != wire.api || r.Prompt != "do it" || r.Step != 0 || r.System != "be kind" ||
					r.Key != "sk-1" || r.Model != "m" || r.Stream != stream {
					t.Errorf("the first request was read as %+v", r)
				}
				if r := seen[1]; r.Step != 1 || !strings.Contains(r.Result, "seq 1") {
					t.Errorf("the second request was read as %+v", r)
				}
			})
		}
	}
}

func TestUnexpectedRequestsAreRefused(t *testing.T) {
	stub := New(play)
	server := httptest.NewServer(stub)
	defer server.Close()
	res, err := http.Get(server.URL + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusNotFound || len(stub.Requests()) != 0 || len(stub.Unexpected()) != 1 {
		t.Errorf("status %d, requests %v, strays %v", res.StatusCode, stub.Requests(), stub.Unexpected())
	}
}

func TestCallOfUnofferedToolIsReported(t *testing.T) {
	server := httptest.NewServer(New(func(Request) Turn { return Turn{Call: "mark_complete"} }))
	defer server.Close()
	expectContains(t, post(t, server.URL+"/v1/messages", `{"messages":[{"role":"user","content":"x"}]}`, false),
		"mark_complete, which is not offered")
}

func post(t *testing.T, url, body string, stream bool) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer sk-1")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %s", res.StatusCode, err, text)
	}
	if kind := res.Header.Get("Content-Type"); strings.HasPrefix(kind, "text/event-stream") != stream {
		t.Errorf("the content type is %s, streamed: %v", kind, stream)
	}
	return string(text)
}

func expectContains(t *testing.T, text string, all ...string) {
	t.Helper()
	for _, s := range all {
		if !strings.Contains(text, s) {
			t.Errorf("the answer has no %s: %s", s, text)
		}
	}
}

// Searches are reported as each vendor does, to clients that offer them.
func TestVendorSearches(t *testing.T) {
	server := httptest.NewServer(New(Play(Turn{Say: "Found.", Searches: 2})))
	defer server.Close()
	for path, c := range map[string]struct {
		offer string
		rest  string
		want  string
	}{
		"/v1/messages": {`[{"type":"web_search_20250305","name":"web_search"}]`, `"messages":[]`,
			`"web_search_requests":2`},
		"/v1/responses": {`[{"type":"web_search"}]`, `"input":"a"`, `"type":"web_search_call"`},
	} {
		for _, stream := range []bool{true, false} {
			ask := fmt.Sprintf(`{"model":"m","stream":%t,"tools":%s,%s}`, stream, c.offer, c.rest)
			expectContains(t, post(t, server.URL+path, ask, stream), c.want, "Found.")
			if got := post(t, server.URL+path, strings.Replace(ask, c.offer, "[]", 1), stream); strings.Contains(got,
				"web_search") {
				t.Errorf("%s, not offered: %s", path, got)
			}
		}
	}
}
