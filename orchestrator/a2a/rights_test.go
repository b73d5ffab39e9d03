package a2a_test

import (
	stdjson "encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
)

// rights are the statuses that the owner of a task gets for each route below an endpoint. The owner may do all of them.
var rights = map[string]int{
	"GET /.well-known/agent-card.json": 200,
	"POST /a2a":                        200,
	"POST /a2a/":                       200,
	"POST /a2a/message:send":           200,
	"POST /a2a/message:stream":         200,
	"GET /a2a/tasks":                   200,
	"POST /a2a/tasks":                  202,
	"GET /a2a/tasks/:id":               200,
	"POST /a2a/tasks/:id:cancel":       200,
	"GET /a2a/tasks/:id:subscribe":     200,
	"POST /a2a/tasks/:id:subscribe":    200,
	"POST /a2a/messages":               202,

	"GET /a2a/tasks/:id/pushNotificationConfigs":            200,
	"POST /a2a/tasks/:id/pushNotificationConfigs":           200,
	"GET /a2a/tasks/:id/pushNotificationConfigs/:config":    200,
	"DELETE /a2a/tasks/:id/pushNotificationConfigs/:config": 200,

	"GET /a2a/health":            200,
	"GET /a2a/extendedAgentCard": 400, // cards are not public, so there is none
}

// aboutTask reports whether a route is about one task.
func aboutTask(route string) bool {
	return strings.Contains(route, ":id") || strings.HasSuffix(route, " /a2a") || strings.HasSuffix(route, " /a2a/")
}

// aboutPush reports whether a route is about push notifications, which no peer gets.
func aboutPush(route string) bool { return strings.Contains(route, "/pushNotificationConfigs") }

// ownRights are what a client that may use the pool gets: as much as the owner of the task, except for that task. The
// agent runs no task of its own.
func ownRights(route string, owners int) int {
	switch {
	case aboutTask(route):
		return 404
	case route == "POST /a2a/messages":
		return 409
	}
	return owners
}

// Each route of each endpoint, with each credential. A client of another pool and a key of another namespace do not
// learn that the endpoint exists. A peer sees its own subtasks, while its lease holds.
func TestAuthMatrixOfEndpoints(t *testing.T) {
	f, routes := withRoutes(t)
	f.register(t, "one", "builder")
	key := func(scope picket.Scope) string {
		return "X-API-Key: " + f.newKey(picket.KeyRequest{Name: string(scope), Scopes: []picket.Scope{scope}})
	}
	other, err := f.store.Engine("other").CreateKey(t.Context(), operator,
		picket.KeyRequest{Name: "other", Scopes: []picket.Scope{picket.ScopeOperator}})
	must(t, err)
	task := f.clientTask(t, "one") // which the agent one runs
	f.heldBy(t, "one")
	_, err = f.PutPushConfig(t.Context(), operator, picket.PushConfig{TaskID: task, ID: "c1",
		URL: "https://hooks.example.com/a"})
	must(t, err)
	live, superseded := f.peers(t)
	held, err := rig.Sealer().OpenLeaseToken(live)
	must(t, err)
	adapters := rig.Sealer().LeaseTokenFor(picket.SideAdapter, "default", held.TaskID, held.RunID).Reveal()
	always := func(status int) func(string, int, bool) int { return func(string, int, bool) int { return status } }
	asOwner := func(_ string, owners int, _ bool) int { return owners }
	credentials := map[string]struct {
		header string
		want   func(route string, owners int, ofServer bool) int
	}{
		"nobody":            {"", always(401)},
		"an unknown key":    {"X-API-Key: pkk_default_" + strings.Repeat("a", 43), always(401)},
		"a malformed key":   {"X-API-Key: hunter2", always(401)},
		"an agent":          {key(picket.ScopeAgent), always(403)},
		"a reviewer":        {key(picket.ScopeReviewer), always(403)},
		"an operator":       {key(picket.ScopeOperator), asOwner},
		"an admin":          {key(picket.ScopeAdmin), asOwner},
		"the owner":         {"X-API-Key: " + f.client, asOwner},
		"another namespace": {"X-API-Key: " + other.Key.Reveal(), always(404)},
		"another client": {"X-API-Key: " + f.clientKey("builder"), func(route string, owners int, _ bool) int {
			return ownRights(route, owners)
		}},
		"a client of testers": {"X-API-Key: " + f.clientKey("tester"), func(route string, owners int,
			ofServer bool) int {
			switch {
			case !ofServer || aboutTask(route) || route == "POST /a2a/messages":
				return 404
			case strings.HasPrefix(route, "POST "): // with the role builder
				return 400
			}
			return owners
		}},
		"a peer": {"Authorization: Bearer " + live, func(route string, owners int, _ bool) int {
			switch {
			case aboutPush(route):
				return 400
			case aboutTask(route):
				return 404
			}
			return owners
		}},
		"a superseded peer": {"Authorization: Bearer " + superseded, always(412)},
		"a forged lease":    {"Authorization: Bearer " + live[:len(live)-2] + "AA", always(401)},
		"an adapter":        {"Authorization: Bearer " + adapters, always(403)},
		"an agent session": {"Authorization: Bearer " + picket.SessionCapabilityPrefix + "default." +
			ulid.Make().String() + ".x", always(403)},
	}
	checked := 0
	for _, r := range routes {
		method, path, _ := strings.Cut(r, " ")
		at := addressOf.FindString(path)
		route := method + " " + path[len(at):]
		owners, known := rights[route]
		if !known {
			t.Errorf("%s has no row", route)
		}
		for name, c := range credentials {
			want := c.want(route, owners, !strings.Contains(at, ":role"))
			of := task
			if want == 200 && strings.HasSuffix(route, ":cancel") {
				of = f.clientTask(t, "one")
			}
			if got, said := f.tryRoute(t, at, route, of, c.header); got != want {
				t.Errorf("%s %s%s for %s: %d, want %d: %s", method, at, path[len(at):], name, got, want, said)
			}
			checked++
		}
	}
	if checked < 6*len(rights)*len(credentials) {
		t.Errorf("only %d cells", checked)
	}
}

// A peer whose lease is superseded learns that, and not whether there is a task, an agent or a pool.
func TestASupersededPeerLearnsNothingElse(t *testing.T) {
	f, _ := withRoutes(t)
	f.register(t, "one", "builder")
	exists := f.clientTask(t, "one")
	live, superseded := f.peers(t)
	for _, id := range []string{exists, "task_" + ulid.Make().String(), "no id at all"} {
		for _, at := range []string{"", "/agents/builder", "/agents/none", "/agents/tester", "/n/other", "/n/none",
			"/agents/builder/instances/one", "/agents/builder/instances/none"} {
			for route := range rights {
				got, said := f.tryRoute(t, at, route, strings.ReplaceAll(id, " ", "%20"),
					"Authorization: Bearer "+superseded)
				if got != http.StatusPreconditionFailed {
					t.Errorf("%s at %q about %q: %d, want 412: %s", route, at, id, got, said)
				}
			}
		}
	}
	for _, at := range []string{"/agents/none", "/n/other", "/agents/builder/instances/none"} {
		if got, said := f.tryRoute(t, at, "GET /a2a/tasks", "", "Authorization: Bearer "+live); got != 404 {
			t.Errorf("a live peer at %s: %d %s", at, got, said)
		}
	}
}

// clientTask makes a task of the client for an instance.
func (f *fixture) clientTask(t *testing.T, agent string) string {
	t.Helper()
	a, _, err := f.Agent(t.Context(), agent)
	must(t, err)
	who, err := f.Authenticate(t.Context(), picket.Secret(f.client))
	must(t, err)
	task, err := f.Submit(t.Context(), picket.Caller{Actor: who.KeyID, Key: who.KeyID}, picket.TaskSpec{Title: "work",
		Role: "builder", Review: picket.ReviewByNone, Client: &picket.ClientTask{Role: "builder", ContextID: "c",
			MessageID: ulid.Make().String(), AgentID: agent, Incarnation: a.Incarnation}})
	must(t, err)
	return task.TaskID
}

// peers are the tokens of two runs, of which one is superseded.
func (f *fixture) peers(t *testing.T) (live, superseded string) {
	t.Helper()
	for _, token := range []*string{&superseded, &live} {
		_, err := f.Submit(t.Context(), operator, picket.TaskSpec{Title: "root", Role: "builder",
			BudgetEnvelope: &budget.Envelope{Tokens: 1 << 40, USD: budget.Money(1 << 50)}})
		must(t, err)
		t1, held := f.leaseToken(t)
		if *token = t1; token == &superseded {
			_, err := f.Expire(t.Context(), operator, held.TaskID, "try again")
			must(t, err)
			f.leaseToken(t)
		}
	}
	return live, superseded
}

// tryRoute asks for a route with a credential, and answers the status. An error of JSON-RPC stands for its status. A
// task that it makes is cancelled.
func (f *fixture) tryRoute(t *testing.T, at, route, id, credential string) (status int, said string) {
	t.Helper()
	made := ulid.Make().String()
	const role = `"metadata":{"role":"builder"}`
	body := map[string]string{
		"POST /a2a":  `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"` + id + `"}}`,
		"POST /a2a/": `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"` + id + `"}}`,
		"POST /a2a/message:send": `{"configuration":{"returnImmediately":true},"message":{"messageId":"` + made +
			`","role":"ROLE_USER","parts":[{"text":"work"}],` + role + `}}`,
		"POST /a2a/message:stream": `{"message":{"messageId":"` + made + `","role":"ROLE_USER","parts":[{"text":"work"}],` +
			role + `}}`,
		"POST /a2a/tasks":                             `{"title":"work",` + role + `}`,
		"POST /a2a/messages":                          `{"toAgentId":"one","type":"hint","payload":"x"}`,
		"POST /a2a/tasks/:id/pushNotificationConfigs": `{"id":"c1","url":"https://hooks.example.com/a"}`,
	}[route]
	method, path, _ := strings.Cut(route, " ")
	config := "c1"
	if method == http.MethodDelete { // the others need theirs again
		config = "c2"
	}
	at = strings.NewReplacer(":namespace", "default", ":role", "builder", ":agent", "one").Replace(at)
	path = strings.NewReplacer(":id", id, ":config", config).Replace(path)
	req, err := http.NewRequestWithContext(t.Context(), method, f.url+at+path, strings.NewReader(body))
	must(t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if name, value, ok := strings.Cut(credential, ": "); ok {
		req.Header.Set(name, value)
	}
	res, err := f.http.Do(req)
	must(t, err)
	defer res.Body.Close()
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		raw, err := io.ReadAll(res.Body)
		must(t, err)
		said = string(raw)
	}
	if method == http.MethodPost && res.StatusCode < 300 {
		f.cancelOpen(t)
	}
	return statusOf(res.StatusCode, said), said
}

// statusOf is the status of an answer, or the one that its error of JSON-RPC has in the other binding.
func statusOf(status int, body string) int {
	var answer struct {
		Error struct {
			Code int
			Data []struct{ Reason string }
		}
	}
	if status != 200 || stdjson.Unmarshal([]byte(body), &answer) != nil || answer.Error.Code == 0 {
		return status
	}
	switch reason := fmt.Sprint(answer.Error.Data); {
	case strings.Contains(reason, "TASK_NOT_FOUND"):
		return 404
	case strings.Contains(reason, "STALE_FENCE"), strings.Contains(reason, "LEASE_"):
		return 412
	}
	return 400
}

// cancelOpen cancels the tasks of clients that wait, so that no limit is reached.
func (f *fixture) cancelOpen(t *testing.T) {
	t.Helper()
	page, err := f.ClientTasks(t.Context(), picket.ClientTaskQuery{States: []picket.TaskState{picket.TaskQueued}})
	must(t, err)
	for _, task := range page.Tasks {
		_, err := f.Cancel(t.Context(), operator, task.TaskID, "over")
		must(t, err)
	}
}
