package a2a_test

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/a2a"
)

// answer is what the server answers to a request of the client within a moment, so that a request which waits ends.
func (f *fixture) answer(method, path, query string, body []byte) *httptest.ResponseRecorder {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, "http://localhost/", bytes.NewReader(body))
	r.URL.Path, r.URL.RawQuery = path, query // any bytes
	r.Header.Set("X-API-Key", f.client)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	f.server.ServeHTTP(w, r)
	return w
}

// FuzzRPC sends any body to the JSON-RPC binding: each answer is a result or an error of JSON-RPC, and none is an
// unexpected failure.
func FuzzRPC(f *testing.F) {
	store, stop := rig.Memory()
	f.Cleanup(stop)
	p := newFixture(f, store)
	for _, seed := range []string{`{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}`, `[]`, `{`, `null`,
		`{"jsonrpc":"2.0","id":"a","method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"t"}]},"configuration":{"returnImmediately":true}}}`,
		`{"jsonrpc":"2.0","id":1.5,"method":"SubscribeToTask","params":{"id":""}}`,
		`{"jsonrpc":"2.0","id":null,"method":"ListTasks","params":{"page_size":5,"status":"TASK_STATE_WORKING"}}`,
		`{"jsonrpc":"2.0","id":{},"method":"CancelTask"}`, `{"jsonrpc":"1.0","id":1,"method":1}`,
		`{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{"message":{"messageId":"n","role":"ROLE_USER","parts":[{"raw":"AA=="},{"data":1e999},null]}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		w := p.answer("POST", "/agents/builder/a2a", "", body)
		answers := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
		if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
			return
		}
		var answer struct {
			Version string             `json:"jsonrpc"`
			Result  stdjson.RawMessage `json:"result"`
			Error   *struct {
				Code int `json:"code"`
			} `json:"error"`
		}
		if w.Code != 200 || stdjson.Unmarshal([]byte(answers[0]), &answer) != nil || answer.Version != "2.0" ||
			(answer.Result == nil) == (answer.Error == nil) {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if answer.Error != nil && answer.Error.Code == -32603 {
			t.Fatalf("unexpected: %s", w.Body)
		}
	})
}

// FuzzREST sends any request to what is below an endpoint: no answer is an unexpected failure, and each is JSON.
func FuzzREST(f *testing.F) {
	store, stop := rig.Memory()
	f.Cleanup(stop)
	p := newFixture(f, store)
	for _, path := range []string{"message:send", "message:stream", "tasks", "tasks/x", "tasks/x:cancel",
		"tasks/x:subscribe",
		"tasks/x/pushNotificationConfigs/y", "extendedAgentCard", "health", "", "tasks/../tasks", "tasks/task_%00"} {
		f.Add(uint8(0), path, "pageSize=1&historyLength=-1", []byte(`{"title":"t"}`))
		f.Add(uint8(1), path, "status=x", []byte(`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"t"}]}}`))
		f.Add(uint8(2), path, "", []byte(nil))
	}
	f.Fuzz(func(t *testing.T, method uint8, path, query string, body []byte) {
		if _, err := url.ParseQuery(query); err != nil {
			t.Skip()
		}
		w := p.answer([]string{"GET", "POST", "DELETE"}[method%3], "/agents/builder/a2a/"+path, query, body)
		if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
			return // its time can be over before the first event
		}
		// 503 is the answer to a request that waited when its time was over.
		if w.Code >= 500 && w.Code != 503 || w.Code == 200 && w.Body.Len() == 0 {
			t.Fatalf("%d %q?%s: %d %s", method%3, path, query, w.Code, w.Body)
		}
	})
}

// FuzzCard asks for cards with any headers and any name of an instance: each answer is a card, an error in JSON, or
// nothing when the client has the card already.
func FuzzCard(f *testing.F) {
	store, stop := rig.Memory()
	f.Cleanup(stop)
	p := newFixture(f, store, func(c *a2a.Config) { c.PublicCards = true })
	_, err := p.Register(f.Context(), operator, picket.Registration{AgentID: "one", RoleID: "builder"})
	must(f, err)
	f.Add(true, "one", "application/vnd.picket.agent-card+json", `"x", W/"y"`, "localhost")
	f.Add(false, "", "*/*;q=0", "*", "evil.example")
	f.Add(true, "a/../b", "text/html", "", "[::1]:80")
	f.Fuzz(func(t *testing.T, withKey bool, instance, accept, match, host string) {
		r := httptest.NewRequest("GET", "http://localhost/", nil)
		r.URL.Path = "/agents/builder/.well-known/agent-card.json"
		if instance != "" {
			r.URL.Path = "/agents/builder/instances/" + instance + "/.well-known/agent-card.json"
		}
		r.Header = http.Header{"Accept": {accept}, "If-None-Match": {match}}
		r.Host = host
		if withKey {
			r.Header.Set("X-API-Key", p.client)
		}
		w := httptest.NewRecorder()
		p.server.ServeHTTP(w, r)
		if w.Code == http.StatusNotModified && w.Body.Len() == 0 {
			return
		}
		var answer map[string]any
		if w.Code >= 500 || stdjson.Unmarshal(w.Body.Bytes(), &answer) != nil {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if w.Code == http.StatusOK && (answer["name"] == nil || !withKey && answer["capabilities"] == nil) {
			t.Fatalf("not a card: %s", w.Body)
		}
	})
}
