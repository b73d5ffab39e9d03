package a2a_test

import (
	"bytes"
	stdjson "encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/a2a"
)

// rpc calls a method at the endpoint of the pool builder, and returns the answer.
func (f *fixture) rpc(t *testing.T, key, method string, params any) string {
	t.Helper()
	return f.rpcAt(t, "/agents/builder", key, method, params)
}

// rpcAt calls a method of JSON-RPC at an endpoint, and returns the body of the answer.
func (f *fixture) rpcAt(t *testing.T, endpoint, key, method string, params any) string {
	t.Helper()
	body, err := stdjson.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	must(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+endpoint+"/a2a",
		bytes.NewReader(body))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := f.http.Do(req)
	must(t, err)
	said, err := io.ReadAll(res.Body)
	must(t, err)
	must(t, res.Body.Close())
	return string(said)
}

// submitted is a task that the client has sent to the pool builder.
func (f *fixture) submitted(t *testing.T) protocol.TaskID {
	t.Helper()
	c := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
	return sendTo(t, c, atOnce(send("work"))).ID
}

// A client gets the same answer about the task of another client as about a task that does not exist.
func TestATaskOfAnotherClientDoesNotExist(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id := string(f.submitted(t))
		none := "task_" + strings.Repeat("0", 26)
		message := func(id string) map[string]any {
			return map[string]any{"message": map[string]any{"role": "ROLE_USER", "messageId": "m", "taskId": id,
				"parts": []any{map[string]any{"text": "hello"}}}}
		}
		byID := func(id string) map[string]any { return map[string]any{"id": id} }
		for method, params := range map[string]func(string) map[string]any{
			"GetTask": byID, "CancelTask": byID, "SubscribeToTask": byID,
			"SendMessage": message, "SendStreamingMessage": message,
		} {
			is, isNot := f.rpc(t, f.other, method, params(id)), f.rpc(t, f.other, method, params(none))
			if is != isNot {
				t.Errorf("%s tells %s from %s", method, is, isNot)
			}
		}
		for _, path := range []string{"/tasks/TASK", "/tasks/TASK:subscribe"} {
			at := "/agents/builder/a2a" + path
			_, is := f.get(t, strings.ReplaceAll(at, "TASK", id), f.other, nil)
			_, isNot := f.get(t, strings.ReplaceAll(at, "TASK", none), f.other, nil)
			if is != isNot {
				t.Errorf("GET %s tells %s from %s", path, is, isNot)
			}
		}
		shown := f.rpc(t, f.client, "GetTask", byID(id))
		if !strings.Contains(shown, `"state":"TASK_STATE_SUBMITTED"`) {
			t.Errorf("its own client gets %s", shown)
		}
	})
}

// A client learns that an operator has cancelled its task, and not why.
func TestTheReasonOfAnOperatorIsPrivate(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id := f.submitted(t)
		own := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
		events := follow(t, own.SubscribeToTask(t.Context(), &protocol.SubscribeToTaskRequest{ID: id}))
		next(t, events)
		_, err := f.Cancel(t.Context(), operator, string(id), "see /srv/private")
		must(t, err)
		wantUpdate(t, events, protocol.TaskStateCanceled)
		shown := f.rpc(t, f.client, "GetTask", map[string]any{"id": id})
		if strings.Contains(shown, "private") || !strings.Contains(shown, "The task was cancelled.") {
			t.Errorf("the client gets %s", shown)
		}
		again := f.rpc(t, f.client, "CancelTask", map[string]any{"id": id})
		if strings.Contains(again, "private") || strings.Contains(again, operator.Actor) {
			t.Errorf("the client that cancels it again gets %s", again)
		}
	})
}

// A client reads what the agent of its task says to those who follow the task. What the agent says to other agents is
// not for it.
func TestMessagesBetweenAgentsArePrivate(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, err := f.Register(t.Context(), operator, picket.Registration{AgentID: "colleague", RoleID: "tester"})
		must(t, err)
		id := f.submitted(t)
		held := f.lease(t)
		part, err := f.Delegate(t.Context(), held, "", picket.Subtask{Title: "a part", Role: "tester"})
		must(t, err)
		for to, body := range map[string]string{"": "half done", "colleague": "a secret", part.TaskID: "a secret"} {
			_, err = f.SendMessage(t.Context(), held, "", picket.AgentMessage{To: to,
				MessageRequest: picket.MessageRequest{Body: body}})
			must(t, err)
		}
		shown := f.rpc(t, f.client, "GetTask", map[string]any{"id": id})
		if strings.Contains(shown, "a secret") || !strings.Contains(shown, "half done") {
			t.Errorf("the client gets %s", shown)
		}
	})
}

// A client learns that there is no money for its task, and not what the installation has spent.
func TestTheBudgetOfTheDayIsPrivate(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.store.SetBudgets(&budget.Envelope{Tokens: 10, USD: 12_345}, nil)
		const at = "/agents/builder/a2a/tasks"
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+at,
			strings.NewReader(`{"title":"x"}`))
		must(t, err)
		req.Header = http.Header{"X-Api-Key": {f.client}, "Content-Type": {"application/json"}}
		res, err := f.http.Do(req)
		must(t, err)
		said, err := io.ReadAll(res.Body)
		must(t, err)
		must(t, res.Body.Close())
		if res.StatusCode != http.StatusPaymentRequired {
			t.Errorf("POST %s: %d", at, res.StatusCode)
		}
		message := map[string]any{"role": "ROLE_USER", "messageId": "m", "parts": []any{map[string]any{"text": "x"}}}
		rpc := f.rpc(t, f.client, "SendMessage", map[string]any{"message": message})
		for _, said := range []string{string(said), rpc} {
			if !strings.Contains(said, "no money") || strings.Contains(said, "available") ||
				strings.Contains(said, "top") {
				t.Errorf("the client gets %s", said)
			}
		}
	})
}

// No cache keeps what a client reads of its tasks.
func TestNoCacheKeepsTasks(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id := string(f.submitted(t))
		for _, path := range []string{"/tasks", "/tasks/" + id, "/tasks/" + id[:8], "/health", "/extendedAgentCard"} {
			res, _ := f.get(t, "/agents/builder/a2a"+path, f.client, nil)
			if got := res.Header.Get("Cache-Control"); got != "no-store" {
				t.Errorf("GET %s: %d with Cache-Control %q", path, res.StatusCode, got)
			}
		}
	})
}

// Public cards tell nobody which agents a pool has: the card of an agent needs a key, and so does the answer that there
// is no such agent.
func TestPublicCardsHideAgents(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	f := newFixture(t, store, func(cfg *a2a.Config) { cfg.PublicCards = true })
	_, err := f.Register(t.Context(), operator, picket.Registration{AgentID: "one", RoleID: "builder"})
	must(t, err)
	for path, want := range map[string]int{"": 200, "/instances/one": 401, "/instances/none": 401} {
		res, body := f.get(t, "/agents/builder"+path+"/.well-known/agent-card.json", "", nil)
		if res.StatusCode != want {
			t.Errorf("%q without a key: %d %s", path, res.StatusCode, body)
		}
	}
	res, _ := f.get(t, "/agents/builder/instances/one/.well-known/agent-card.json", f.client, nil)
	if res.StatusCode != 200 {
		t.Errorf("with a key: %d", res.StatusCode)
	}
}

// A client sees what its own task has spent, which another Picket books.
func TestAClientSeesWhatItsTaskHasSpent(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.onBothBindings(t, func(t *testing.T, own *a2aclient.Client) {
			task := sendTo(t, own, atOnce(send("work")))
			held := f.lease(t)
			_, err := f.ReportUsage(t.Context(), held,
				picket.UsageReport{Source: "claude", Session: "s", Tokens: 12, USD: 20_000_000})
			must(t, err)
			now, err := own.GetTask(t.Context(), &protocol.GetTaskRequest{ID: task.ID})
			must(t, err)
			raw, err := stdjson.Marshal(now.Metadata["picket"])
			must(t, err)
			if !strings.Contains(string(raw), `"spent":{"tokens":12,"usd":0.02}`) {
				t.Errorf("the metadata is %s", raw)
			}
			f.complete(t, held, `"done"`)
		})
	})
}
