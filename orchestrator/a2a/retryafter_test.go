package a2a_test

import (
	stdjson "encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/a2a"
)

// retryDelay is the delay of the detail RetryInfo in an error of JSON-RPC or of HTTP+JSON.
func retryDelay(t *testing.T, body string) string {
	t.Helper()
	type detail struct {
		Type  string `json:"@type"`
		Delay string `json:"retryDelay"`
	}
	var answer struct {
		Error struct {
			Data    []detail `json:"data"`
			Details []detail `json:"details"`
		} `json:"error"`
	}
	if err := stdjson.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, d := range append(answer.Error.Data, answer.Error.Details...) {
		if strings.HasSuffix(d.Type, "google.rpc.RetryInfo") {
			return d.Delay
		}
	}
	return ""
}

// A client that sends too many requests is told when to send the next one: in the header, and in an error of JSON-RPC
// also in its data.
func TestAClientIsToldWhenToRepeat(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	rates := web.NewRates(0, 0)
	f := newFixture(t, store, func(c *a2a.Config) {
		admit := c.Admit
		c.Admit = func(r echo.Context) (*orchestrator.Engine, picket.Principal, error) {
			e, who, err := admit(r)
			if err == nil {
				err = rates.TakeKey(who)
			}
			return e, who, err
		}
	})
	routes := []string{"POST /a2a", "POST /a2a/", "GET /a2a/tasks", "POST /a2a/tasks", "POST /a2a/message:send"}
	for _, at := range routes {
		method, path, _ := strings.Cut(at, " ")
		key := f.newKey(picket.KeyRequest{Name: "slow", Scopes: []picket.Scope{picket.ScopeClient},
			Client: &picket.ClientLimits{Roles: []string{"builder"}, RatePerMinute: 2}})
		var status int
		var header http.Header
		var body string
		for range 10 {
			status, header, body = f.ask(key, method, path, `{"jsonrpc":"2.0","id":1,"method":"ListTasks"}`)
			if status == http.StatusTooManyRequests {
				break
			}
		}
		after, err := strconv.Atoi(header.Get("Retry-After"))
		if status != http.StatusTooManyRequests || err != nil || after != 30 {
			t.Errorf("%s: %d, Retry-After %q: %s", at, status, header.Get("Retry-After"), body)
		}
		isRPC := path == "/a2a" || path == "/a2a/"
		if !isRPC {
			continue
		}
		if got := retryDelay(t, body); got != "30s" || !strings.Contains(body, `"RATE_LIMITED"`) ||
			!strings.Contains(body, `"id":null`) {
			t.Errorf("%s: the delay is %q: %s", at, got, body)
		}
	}
}

// A refusal of an operation that helps to repeat it tells when, over both bindings. Another one tells nothing.
func TestARefusedOperationIsToldWhenToRepeat(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	f := newFixture(t, store, func(c *a2a.Config) { c.StreamsPerKey = 1 })
	const message = `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"work"}]},` +
		`"configuration":{"returnImmediately":true}}`
	_, _, made := f.ask(f.client, "POST", "/a2a/message:send", message)
	var answer struct {
		Task struct {
			ID string `json:"id"`
		} `json:"task"`
	}
	must(t, stdjson.Unmarshal([]byte(made), &answer))
	stream := f.url + "/agents/builder/a2a/tasks/" + answer.Task.ID + ":subscribe"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, stream, nil)
	must(t, err)
	req.Header.Set("X-API-Key", f.client)
	res, err := f.http.Do(req) // takes the only stream of the key
	must(t, err)
	defer res.Body.Close()
	for _, call := range [][3]string{
		{"200", "/a2a", `{"jsonrpc":"2.0","id":1,"method":"SubscribeToTask","params":{"id":"` + answer.Task.ID + `"}}`},
		{"429", "/a2a/tasks/" + answer.Task.ID + ":subscribe", ""},
	} {
		status, header, body := f.ask(f.client, "POST", call[1], call[2])
		if strconv.Itoa(status) != call[0] || header.Get("Retry-After") == "" ||
			retryDelay(t, body) != header.Get("Retry-After")+"s" {
			t.Errorf("%s: %d, Retry-After %q: %s", call[1], status, header.Get("Retry-After"), body)
		}
	}
	_, header, body := f.ask(f.client, "POST", "/a2a", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}`)
	if header.Get("Retry-After") != "" || retryDelay(t, body) != "" {
		t.Errorf("a task that does not exist: %v: %s", header, body)
	}
}
