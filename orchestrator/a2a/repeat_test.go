package a2a_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/a2a"
)

// A client that sends a message again, because the reply was lost, has sent it once: what was left for the agent to
// read answers no later question, and an answer is not left for the agent to read. The same id with other words is
// refused.
func TestAMessageToATaskCountsOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		own := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
		task := sendTo(t, own, atOnce(send("work")))
		held := f.lease(t)
		said := func(text string) *protocol.SendMessageRequest {
			req := atOnce(send(text))
			req.Message.TaskID = task.ID
			return req
		}
		hint, answer := said("be quick"), said("red")
		again := func(answers int) {
			t.Helper()
			sendTo(t, own, hint)
			if answers > 0 {
				sendTo(t, own, answer)
			}
			now, err := f.Task(t.Context(), string(task.ID))
			must(t, err)
			page, err := f.Messages(t.Context(), operator, string(task.ID), picket.MessageQuery{})
			must(t, err)
			if len(now.Answers) != answers || len(page.Messages) != 1 {
				t.Errorf("%s: %d answers and %d messages, want %d and 1", now.State, len(now.Answers), len(page.Messages),
					answers)
			}
		}
		ask := func() {
			_, err := f.RequestHelp(t.Context(), held, picket.HelpRequest{Question: "Which?"})
			must(t, err)
		}
		again(0)
		ask()
		again(0)
		sendTo(t, own, answer)
		again(1)
		held = f.lease(t)
		again(1)
		ask()
		again(1)
		sendTo(t, own, said("blue"))
		held = f.lease(t)
		again(2)
		f.complete(t, held, `"done"`)
		again(2)

		for _, req := range []*protocol.SendMessageRequest{hint, answer} {
			other := said("other words")
			other.Message.ID = req.Message.ID
			_, err := own.SendMessage(t.Context(), other)
			wantErr(t, err, protocol.ErrInvalidParams)
		}
		_, err := own.SendMessage(t.Context(), said("more"))
		wantErr(t, err, protocol.ErrUnsupportedOperation)
	})
}

// Two messages with one id are told apart by their content: the second one is refused, and the client is told why.
func TestAMessageIDNamesOneMessage(t *testing.T) {
	f := onMemory(t)
	send := func(text string) string {
		return f.rawRPC(f.client, "SendMessage", `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"`+text+
			`"}]},"configuration":{"returnImmediately":true}}`)
	}
	if body := send("one"); !strings.Contains(body, `"result"`) {
		t.Fatal(body)
	}
	body := send("two")
	for _, part := range []string{"-32602", "another message was sent with this messageId before",
		"Give each message an id of its own.", `"field":"/message/messageId"`} {
		if !strings.Contains(body, part) {
			t.Errorf("%s is not in %s", part, body)
		}
	}
}

// In a pool whose clients reuse the ids of messages, each message without a task is a new task. A message to a task
// still counts once.
func TestClientsMayReuseTheIDsOfMessages(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		own := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
		req := atOnce(send("work"))
		first := sendTo(t, own, req)
		if second := sendTo(t, own, req); second.ID == first.ID {
			t.Error("the same message again is the same task")
		}
		other := atOnce(send("other words"))
		other.Message.ID = req.Message.ID
		sendTo(t, own, other)
		held := f.lease(t)
		_, err := f.RequestHelp(t.Context(), held, picket.HelpRequest{Question: "Which?"})
		must(t, err)
		answer := atOnce(send("red"))
		answer.Message.TaskID = protocol.TaskID(held.TaskID)
		sendTo(t, own, answer)
		sendTo(t, own, answer)
		now, err := f.Task(t.Context(), held.TaskID)
		must(t, err)
		page, err := f.Messages(t.Context(), operator, held.TaskID, picket.MessageQuery{})
		must(t, err)
		if len(now.Answers) != 1 || len(page.Messages) != 0 {
			t.Errorf("%d answers and %d messages, want 1 and 0", len(now.Answers), len(page.Messages))
		}
	}, func(c *a2a.Config) { c.Pools[0].ReusedMessageIDs = true })
}

// A list shows a bounded part of what was said about its tasks, however much that is.
func TestAListIsBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		own := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
		const tasks, messages = 4, 20
		for range tasks {
			sendTo(t, own, atOnce(send("work")))
			held := f.lease(t)
			for i := range messages {
				_, err := f.SendMessage(t.Context(), held, "", picket.AgentMessage{
					MessageRequest: picket.MessageRequest{Body: strconv.Itoa(i) + strings.Repeat("x", 60_000)}})
				must(t, err)
			}
		}
		list, err := own.ListTasks(t.Context(), &protocol.ListTasksRequest{HistoryLength: new(100)})
		must(t, err)
		var shown []int
		for _, task := range list.Tasks {
			shown = append(shown, len(task.History))
		}
		// Two tasks have more than the bound together.
		if want := []int{1 + messages, 1 + messages, 0, 0}; !slices.Equal(shown, want) {
			t.Errorf("the list shows %d messages, want %d", shown, want)
		}
	})
}

// A client may give its task any id, also one that looks like an id of the server or is that of another client's task.
func TestAClientNamesItsTask(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for _, id := range []string{"mine", "a/b", "task_" + strings.Repeat("0", 26), string(f.submitted(t))} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/agents/builder/a2a/tasks",
				strings.NewReader(`{"title":"named","taskId":"`+id+`"}`))
			must(t, err)
			req.Header = http.Header{"X-Api-Key": {f.other}, "Content-Type": {"application/json"}}
			res, err := f.http.Do(req)
			must(t, err)
			must(t, res.Body.Close())
			got := f.rpc(t, f.other, "GetTask", map[string]any{"id": id})
			location := res.Header.Get("Location")
			made := location[strings.LastIndex(location, "/")+1:]
			if res.StatusCode != http.StatusAccepted || !strings.Contains(got, `"id":"`+made+`"`) {
				t.Errorf("the task %s is %s, and is shown as %.200s", id, made, got)
			}
			// The id is the client's at every endpoint, so the orchestrator knows it too.
			shown := f.rpcAt(t, "", f.other, "GetTask", map[string]any{"id": id})
			if !strings.Contains(shown, `"id":"`+made+`"`) {
				t.Errorf("the orchestrator shows the task %s as %.200s", id, shown)
			}
		}
	})
}

// A task that a client sends again under its id of it is the same task. Another task under that id is a conflict.
func TestAnIDOfAClientIsOneTask(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		submit := func(title string, want int) string {
			status, header, body := f.ask(f.client, http.MethodPost, "/a2a/tasks",
				`{"taskId":"mine","title":"`+title+`"}`)
			if status != want {
				t.Errorf("%s: %d %s, want %d", title, status, body, want)
			}
			return header.Get("Location")
		}
		if first, again := submit("one", 202), submit("one", 202); first != again {
			t.Errorf("%s, then %s", first, again)
		}
		submit("two", 409)
	})
}
