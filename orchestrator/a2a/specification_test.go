package a2a_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/a2a"
)

// onMemory runs a test with a server whose state is in memory.
func onMemory(t *testing.T, change ...func(*a2a.Config)) *fixture {
	t.Helper()
	store, stop := rig.Memory()
	t.Cleanup(stop)
	return newFixture(t, store, change...)
}

// ask sends a request to the pool builder with a key and further headers: name, value, … It answers status, header and
// body.
func (f *fixture) ask(key, method, path, body string, headers ...string) (int, http.Header, string) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.url+"/agents/builder"+path, strings.NewReader(body))
	must(f.t, err)
	req.Header.Set("X-API-Key", key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := f.http.Do(req)
	must(f.t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	must(f.t, err)
	return res.StatusCode, res.Header, string(raw)
}

// rawRPC calls a method of JSON-RPC with params as they are, and answers the body.
func (f *fixture) rawRPC(key, method, params string, headers ...string) string {
	f.t.Helper()
	_, _, body := f.ask(key, "POST", "/a2a", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`,
		headers...)
	return body
}

// The patch number of a version does not count. Other versions are refused.
func TestPatchNumbersOfVersionsDoNotCount(t *testing.T) {
	f := onMemory(t)
	for version, accepted := range map[string]bool{"": true, "1.0": true, "1.0.0": true, "1.0.12": true, "1.0.": false,
		"1.0.x": false, "1.1": false, "1.1.0": false, "1": false, "1.00": false, "0.3": false} {
		body := f.rawRPC(f.client, "ListTasks", "{}", "A2A-Version", version)
		if strings.Contains(body, "-32009") == accepted || strings.Contains(body, `"result"`) != accepted {
			t.Errorf("version %q: %s", version, body)
		}
	}
}

// A page of no tasks cannot be asked for, over both bindings.
func TestAPageHasAtLeastOneTask(t *testing.T) {
	f := onMemory(t)
	for _, size := range []string{"0", "-1", "101"} {
		if body := f.rawRPC(f.client, "ListTasks", `{"pageSize":`+size+`}`); !strings.Contains(body, "-32602") {
			t.Errorf("JSON-RPC, %s: %s", size, body)
		}
		if status, _, body := f.ask(f.client, "GET", "/a2a/tasks?pageSize="+size, ""); status != http.StatusBadRequest {
			t.Errorf("HTTP+JSON, %s: %d %s", size, status, body)
		}
	}
	if body := f.rawRPC(f.client, "ListTasks", `{"page_size":1}`); !strings.Contains(body, `"pageSize":1`) {
		t.Errorf("page_size 1: %s", body)
	}
}

// The card of a pool whose agents have no described skills names one, because the array must have an element.
func TestACardHasASkill(t *testing.T) {
	f := onMemory(t, func(c *a2a.Config) { c.Pools[0].Skills = nil })
	_, _, raw := f.ask(f.client, "GET", "/.well-known/agent-card.json", "")
	if !strings.Contains(raw, `"skills":[{"description":"Build things.","id":"builder","name":"Builders","tags":["builder"]}]`) {
		t.Error(raw)
	}
}

// Answers of HTTP+JSON are of the type that the specification has for them, except for clients that ask for other
// types alone.
func TestTheTypeOfHTTPAndJSON(t *testing.T) {
	f := onMemory(t)
	for accept, want := range map[string]string{"": "application/a2a+json", "*/*": "application/a2a+json",
		"application/json": "application/json", "text/event-stream": "application/json",
		"application/json, application/a2a+json": "application/a2a+json"} {
		for _, path := range []string{"/a2a/tasks", "/a2a/tasks/none"} {
			_, header, _ := f.ask(f.client, "GET", path, "", "Accept", accept)
			if got := header.Get("Content-Type"); got != want {
				t.Errorf("%s with Accept %q is %s, want %s", path, accept, got, want)
			}
		}
	}
}

// A request of another media type than JSON has the status that the specification has for the error.
func TestAnotherMediaTypeIsABadRequest(t *testing.T) {
	f := onMemory(t)
	for _, path := range []string{"/a2a/message:send", "/a2a/message:stream"} {
		status, _, body := f.ask(f.client, "POST", path, `{"message":{}}`, "Content-Type", "text/plain")
		if status != 400 || !strings.Contains(body, `"code":400`) ||
			!strings.Contains(body, "CONTENT_TYPE_NOT_SUPPORTED") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}
