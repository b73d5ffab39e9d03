package a2a_test

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// instance is the official client of one agent of the pool builder.
func (f *fixture) instance(t *testing.T, id string) *a2aclient.Client {
	t.Helper()
	at := []*protocol.AgentInterface{protocol.NewAgentInterface(f.url+"/agents/builder/instances/"+id+"/a2a",
		protocol.TransportProtocolJSONRPC)}
	c, err := a2aclient.NewFromEndpoints(t.Context(), at, a2aclient.WithJSONRPCTransport(f.http),
		a2aclient.WithCallInterceptors(&keyInterceptor{key: f.client}))
	must(t, err)
	return c
}

func (f *fixture) register(t *testing.T, id, role string) picket.Agent {
	t.Helper()
	a, err := f.Register(t.Context(), operator, picket.Registration{AgentID: id, RoleID: role,
		Metadata: picket.RawJSON(`{"containment":"cgroup"}`)})
	must(t, err)
	return a
}

// leaseAs acquires a task as an agent of the pool builder. It does not wait.
func (f *fixture) leaseAs(t *testing.T, id string) []picket.Lease {
	t.Helper()
	a, _, err := f.Agent(t.Context(), id)
	must(t, err)
	leases, err := f.Acquire(t.Context(), operator, picket.AcquireRequest{AgentID: id, Role: "builder",
		Incarnation: a.Incarnation})
	must(t, err)
	return leases
}

// A task that is sent to an instance is kept for it while it lives. When it is gone, another agent of the pool runs the
// task under a larger token, and what the first run says late is refused.
func TestATaskOfAnInstance(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.register(t, "one", "builder")
		f.register(t, "two", "builder")
		f.register(t, "three", "tester")
		own := f.instance(t, "one")
		task := sendTo(t, own, atOnce(send("for one")))
		if got := f.leaseAs(t, "two"); len(got) != 0 {
			t.Fatalf("another agent got %s", got[0].TaskID)
		}
		first := f.leaseAs(t, "one")
		if len(first) != 1 || first[0].TaskID != string(task.ID) {
			t.Fatalf("one got %+v", first)
		}
		// Its lease is taken away: the task is still for that instance.
		_, err := f.Expire(t.Context(), operator, string(task.ID), "try again")
		must(t, err)
		if got := f.leaseAs(t, "two"); len(got) != 0 {
			t.Fatalf("another agent got %s", got[0].TaskID)
		}
		again := f.leaseAs(t, "one")
		if len(again) != 1 || again[0].FencingToken <= first[0].FencingToken {
			t.Fatalf("one got %+v", again)
		}
		waiting := sendTo(t, own, atOnce(send("also for one")))
		f.deregister(t, "one")
		for range 2 {
			got := f.leaseAs(t, "two")
			if len(got) != 1 {
				t.Fatalf("two got %d tasks after the end of one", len(got))
			}
			if id := got[0].TaskID; id != string(task.ID) && id != string(waiting.ID) ||
				id == string(task.ID) && got[0].FencingToken <= again[0].FencingToken {
				t.Errorf("two got %s with token %d", id, got[0].FencingToken)
			}
		}
		wantState(t, own, task.ID, protocol.TaskStateWorking) // what is there can be read

		_, err = own.SendMessage(t.Context(), atOnce(send("too late")))
		if err == nil || !strings.Contains(err.Error(), "deregistered") {
			t.Errorf("a task for an agent that has left: %v", err)
		}
		pool := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
		wantState(t, pool, task.ID, protocol.TaskStateWorking)
		_, err = f.instance(t, "two").GetTask(t.Context(), &protocol.GetTaskRequest{ID: task.ID})
		wantErr(t, err, protocol.ErrTaskNotFound)
		list, err := own.ListTasks(t.Context(), &protocol.ListTasksRequest{})
		must(t, err)
		if len(list.Tasks) != 2 {
			t.Errorf("%d tasks of one", len(list.Tasks))
		}
	})
}

// deregister ends an agent.
func (f *fixture) deregister(t *testing.T, id string) {
	t.Helper()
	_, err := f.Deregister(t.Context(), operator, id, nil)
	must(t, err)
}

// An instance says how it is. One that drains takes no new tasks, and an agent of another pool is not found.
func TestTheHealthOfAnInstance(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		a := f.register(t, "one", "builder")
		f.register(t, "three", "tester")
		health := func(id string) int {
			res, _ := f.get(t, "/agents/builder/instances/"+id+"/a2a/health", f.client, nil)
			return res.StatusCode
		}
		if got := health("one"); got != 200 {
			t.Errorf("active: %d", got)
		}
		for _, id := range []string{"three", "nobody", "a%20b"} {
			if got := health(id); got != 404 {
				t.Errorf("%s: %d", id, got)
			}
		}
		res, body := f.get(t, "/agents/builder/instances/one/.well-known/agent-card.json", f.client,
			http.Header{"Accept": {"application/vnd.picket.agent-card+json"}})
		if res.StatusCode != 200 || !strings.Contains(body, `"agentId":"one/`) ||
			!strings.Contains(body, `"sandboxLevel":3`) {
			t.Errorf("card: %d %s", res.StatusCode, body)
		}
		_, err := f.ChangeAgent(t.Context(), operator, a.AgentID, nil,
			picket.AgentStatusChange{Status: picket.AgentDraining})
		must(t, err)
		_, err = f.instance(t, "one").SendMessage(t.Context(), atOnce(send("work")))
		if err == nil || !strings.Contains(err.Error(), "drains") || errors.Is(err, context.Canceled) {
			t.Errorf("a task for an agent that drains: %v", err)
		}
		f.deregister(t, "one")
		if got := health("one"); got != 410 {
			t.Errorf("deregistered: %d", got)
		}
	})
}

// A request that is repeated, because its answer was lost, gets its task after the instance has begun to drain or has
// left. A new one is refused.
func TestALostAnswerOfAnInstanceThatLeaves(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, err := f.Submit(t.Context(), operator, picket.TaskSpec{Title: "root", Role: "builder",
			BudgetEnvelope: &budget.Envelope{Tokens: 1000, USD: budget.Money(1_000_000_000)}})
		must(t, err)
		lease, _ := f.leaseToken(t)
		a := f.register(t, "one", "builder")
		const at = "/agents/builder/instances/one"
		say := func(key, id string) string {
			return f.rpcAt(t, at, key, "SendMessage", map[string]any{"configuration": map[string]any{
				"returnImmediately": true}, "message": map[string]any{"messageId": id, "role": "ROLE_USER",
				"parts": []map[string]any{{"text": "work"}}}})
		}
		made := map[string]string{}
		for _, key := range []string{f.client, lease} {
			if made[key] = taskIDIn.FindString(say(key, "m1")); made[key] == "" {
				t.Fatalf("no task: %s", say(key, "m1"))
			}
		}
		for _, word := range []string{"drains", "deregistered"} {
			if word == "deregistered" {
				f.deregister(t, "one")
			} else {
				_, err := f.ChangeAgent(t.Context(), operator, a.AgentID, nil,
					picket.AgentStatusChange{Status: picket.AgentDraining})
				must(t, err)
			}
			for _, key := range []string{f.client, lease} {
				if got := taskIDIn.FindString(say(key, "m1")); got != made[key] {
					t.Errorf("%s: the repeated request gets %q, want %s", word, got, made[key])
				}
				got := say(key, "new "+word)
				if !strings.Contains(got, word) || !strings.Contains(got, "Send it to the pool") {
					t.Errorf("%s: a new request gets %s", word, got)
				}
			}
		}
	})
}

var taskIDIn = regexp.MustCompile(`"id":"task_[0-9A-Z]{26}"`)
