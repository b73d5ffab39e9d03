package a2a_test

import (
	"testing"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"

	"github.com/picket-dev/picket"
)

// A client that subscribes after its answer does not see the question again, although another stream of the task has
// not shown the answer yet.
func TestAStreamBeginsAfterWhatItsClientHasDone(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		c := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
		for range 10 {
			first := follow(t, c.SendStreamingMessage(t.Context(), send("work")))
			task := next(t, first).(*protocol.Task)
			held := f.lease(t)
			_, err := f.RequestHelp(t.Context(), held, picket.HelpRequest{Question: "Which?"})
			must(t, err)
			awaitUpdate(t, first, protocol.TaskStateInputRequired)
			answer := atOnce(send("this"))
			answer.Message.TaskID = task.ID
			sendTo(t, c, answer)
			f.wantFirst(t, c, task.ID, protocol.TaskStateSubmitted)
			f.complete(t, f.lease(t), `"done"`)
			awaitUpdate(t, first, protocol.TaskStateCompleted)
			for range first { // to its end
			}
		}
	})
}

// An answer that waits for the task does not take the question for what it waits for.
func TestAnAnswerWaitsForWhatComesAfterIt(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		c := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
		for range 10 {
			first := follow(t, c.SendStreamingMessage(t.Context(), send("work")))
			task := next(t, first).(*protocol.Task)
			_, err := f.RequestHelp(t.Context(), f.lease(t), picket.HelpRequest{Question: "Which?"})
			must(t, err)
			awaitUpdate(t, first, protocol.TaskStateInputRequired)
			worked := make(chan *protocol.Task, 1)
			go func() {
				defer close(worked)
				answer := send("this")
				answer.Message.TaskID = task.ID
				result, err := c.SendMessage(t.Context(), answer)
				if after, ok := result.(*protocol.Task); ok && err == nil {
					worked <- after
				}
			}()
			f.complete(t, f.lease(t), `"done"`)
			if after := <-worked; after == nil || after.Status.State != protocol.TaskStateCompleted {
				t.Fatalf("the answer: %+v", after)
			}
			for range first { // to its end
			}
		}
	})
}

// awaitUpdate reads a stream up to a state.
func awaitUpdate(t *testing.T, events <-chan protocol.Event, want protocol.TaskState) {
	t.Helper()
	for {
		if u, ok := next(t, events).(*protocol.TaskStatusUpdateEvent); ok && u.Status.State == want {
			return
		}
	}
}

// wantFirst checks the state of a task with which a new stream begins.
func (f *fixture) wantFirst(t *testing.T, c *a2aclient.Client, id protocol.TaskID, want protocol.TaskState) {
	t.Helper()
	for ev, err := range c.SubscribeToTask(t.Context(), &protocol.SubscribeToTaskRequest{ID: id}) {
		must(t, err)
		if now, ok := ev.(*protocol.Task); !ok || now.Status.State != want {
			t.Fatalf("the stream begins with %+v, want state %s", ev, want)
		}
		return
	}
	t.Fatal("the stream is empty")
}
