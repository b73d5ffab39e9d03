package a2a_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"

	"github.com/picket-dev/picket"
)

// A client gives work to a pool, answers the question of the agent, and gets the result. The task is an ordinary one,
// which a worker leases like any other.
func TestAClientGivesWorkToAPool(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.onBothBindings(t, func(t *testing.T, c *a2aclient.Client) {
			req := atOnce(send("Build it.\nThen test it."))
			task := sendTo(t, c, req)
			if task.Status.State != protocol.TaskStateSubmitted || task.ContextID == "" || len(task.History) != 1 ||
				task.History[0].ID != req.Message.ID || task.Status.Timestamp.IsZero() {
				t.Fatalf("submitted: %+v", task)
			}
			if again := sendTo(t, c, req); again.ID != task.ID || again.ContextID != task.ContextID {
				t.Errorf("the same message made %s and %s", task.ID, again.ID)
			}
			held := f.lease(t)
			if held.TaskID != string(task.ID) {
				t.Fatalf("leased %s, want %s", held.TaskID, task.ID)
			}
			own, err := f.Task(t.Context(), held.TaskID)
			must(t, err)
			if own.Title != "Build it. Then test it." || string(own.Input) != `"Build it.\nThen test it."` {
				t.Errorf("the agent gets %q and %s", own.Title, own.Input)
			}
			wantState(t, c, task.ID, protocol.TaskStateWorking)

			_, err = f.RequestHelp(t.Context(), held,
				picket.HelpRequest{Question: "Which color?", Options: []string{"red", "blue"}})
			must(t, err)
			asked := wantState(t, c, task.ID, protocol.TaskStateInputRequired)
			if said := asked.Status.Message; said == nil || said.Parts[0].Text() != "Which color?" ||
				said.Role != protocol.MessageRoleAgent {
				t.Errorf("asked: %+v", said)
			}
			answer := atOnce(send("red"))
			answer.Message.TaskID = task.ID
			sendTo(t, c, answer)
			held = f.lease(t)
			own, err = f.Task(t.Context(), held.TaskID)
			must(t, err)
			if len(own.Answers) != 1 || string(own.Answers[0].Answer) != `"red"` {
				t.Errorf("answers: %+v", own.Answers)
			}
			f.complete(t, held, `{"parts":[{"text":"built"},{"data":{"n":1}}]}`)
			done := wantState(t, c, task.ID, protocol.TaskStateCompleted)
			if len(done.Artifacts) != 1 || len(done.Artifacts[0].Parts) != 2 ||
				done.Artifacts[0].Parts[0].Text() != "built" {
				t.Errorf("artifacts: %+v", done.Artifacts)
			}
			var said []string
			for _, m := range done.History {
				role := strings.TrimPrefix(string(m.Role), "ROLE_")
				said = append(said, fmt.Sprintf("%s %s", role, m.Parts[0].Text()))
			}
			want := []string{"USER Build it.\nThen test it.", "AGENT Which color?", "USER red"}
			if !slices.Equal(said, want) {
				t.Errorf("history: %q, want %q", said, want)
			}
			late := atOnce(send("more"))
			late.Message.TaskID = task.ID
			_, err = c.SendMessage(t.Context(), late)
			wantErr(t, err, protocol.ErrUnsupportedOperation)
		})
	})
}

// sendTo sends a message, and returns its task.
func sendTo(t *testing.T, c *a2aclient.Client, req *protocol.SendMessageRequest) *protocol.Task {
	t.Helper()
	result, err := c.SendMessage(t.Context(), req)
	return taskOf(t, result, err)
}

func wantState(t *testing.T, c *a2aclient.Client, id protocol.TaskID, want protocol.TaskState) *protocol.Task {
	t.Helper()
	task, err := c.GetTask(t.Context(), &protocol.GetTaskRequest{ID: id})
	must(t, err)
	if task.Status.State != want {
		t.Fatalf("%s is %s, want %s", id, task.Status.State, want)
	}
	return task
}

// A stream begins with the task, tells each change once, and ends with the task. A second reader that comes later sees
// the same changes from then on.
func TestAStreamTellsEachChange(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.onBothBindings(t, func(t *testing.T, c *a2aclient.Client) {
			events := follow(t, c.SendStreamingMessage(t.Context(), send("work")))
			task, ok := next(t, events).(*protocol.Task)
			if !ok || task.Status.State != protocol.TaskStateSubmitted {
				t.Fatalf("first: %+v", task)
			}
			held := f.lease(t)
			wantUpdate(t, events, protocol.TaskStateWorking)
			second := follow(t, c.SubscribeToTask(t.Context(), &protocol.SubscribeToTaskRequest{ID: task.ID}))
			if first, ok := next(t, second).(*protocol.Task); !ok || first.Status.State != protocol.TaskStateWorking {
				t.Errorf("second: %+v", first)
			}
			_, err := f.RequestHelp(t.Context(), held, picket.HelpRequest{Question: "Which?"})
			must(t, err)
			for _, reader := range []<-chan protocol.Event{events, second} {
				wantUpdate(t, reader, protocol.TaskStateInputRequired)
			}
			answer := atOnce(send("this"))
			answer.Message.TaskID = task.ID
			sendTo(t, c, answer)
			for _, reader := range []<-chan protocol.Event{events, second} {
				wantUpdate(t, reader, protocol.TaskStateSubmitted)
			}
			held = f.lease(t)
			for _, reader := range []<-chan protocol.Event{events, second} {
				wantUpdate(t, reader, protocol.TaskStateWorking)
			}
			f.complete(t, held, `"result"`)
			for _, reader := range []<-chan protocol.Event{events, second} {
				a, ok := next(t, reader).(*protocol.TaskArtifactUpdateEvent)
				if !ok || a.Artifact.Parts[0].Text() != "result" {
					t.Errorf("artifact: %+v", a)
				}
				wantUpdate(t, reader, protocol.TaskStateCompleted)
				if ev := next(t, reader); ev != nil {
					t.Errorf("after the end: %+v", ev)
				}
			}
			for _, err := range c.SubscribeToTask(t.Context(), &protocol.SubscribeToTaskRequest{ID: task.ID}) {
				wantErr(t, err, protocol.ErrUnsupportedOperation)
			}
		})
	})
}

func wantUpdate(t *testing.T, events <-chan protocol.Event, want protocol.TaskState) {
	t.Helper()
	ev := next(t, events)
	if u, ok := ev.(*protocol.TaskStatusUpdateEvent); !ok || u.Status.State != want {
		t.Fatalf("%T %+v, want %s", ev, ev, want)
	}
}

// A send waits until the task has ended or asks something, unless it is told not to.
func TestASendWaitsForTheTask(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.onBothBindings(t, func(t *testing.T, c *a2aclient.Client) {
			worked := make(chan struct{})
			go func() {
				defer close(worked)
				f.complete(t, f.lease(t), `{"n":12345678901234567890}`)
			}()
			task := sendTo(t, c, send("work"))
			<-worked
			if task.Status.State != protocol.TaskStateCompleted || len(task.Artifacts) != 1 ||
				task.Status.Message.Parts[0].Text() != "done" {
				t.Errorf("%+v", task)
			}
		})
	})
}

// A client sees, answers and cancels its own tasks, at the endpoint where it submitted them.
func TestAClientSeesItsOwnTasks(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		binding := protocol.TransportProtocolJSONRPC
		own := f.newClient(t, "builder", f.client, binding)
		stranger := f.newClient(t, "builder", f.other, binding)
		elsewhere := f.newClient(t, "tester", f.other, binding)
		person := f.newClient(t, "builder", f.person, binding)
		task := sendTo(t, own, atOnce(send("mine")))
		theirs := sendTo(t, stranger, atOnce(send("theirs")))
		for name, c := range map[string]*a2aclient.Client{"stranger": stranger, "elsewhere": elsewhere} {
			_, err := c.GetTask(t.Context(), &protocol.GetTaskRequest{ID: task.ID})
			if name == "stranger" || err == nil {
				wantErr(t, err, protocol.ErrTaskNotFound)
			}
			_, err = c.CancelTask(t.Context(), &protocol.CancelTaskRequest{ID: task.ID})
			wantErr(t, err, protocol.ErrTaskNotFound)
			answer := atOnce(send("no"))
			answer.Message.TaskID = task.ID
			_, err = c.SendMessage(t.Context(), answer)
			wantErr(t, err, protocol.ErrTaskNotFound)
			for _, err := range c.SubscribeToTask(t.Context(), &protocol.SubscribeToTaskRequest{ID: task.ID}) {
				wantErr(t, err, protocol.ErrTaskNotFound)
			}
		}
		listed := func(c *a2aclient.Client) (ids []protocol.TaskID) {
			list, err := c.ListTasks(t.Context(), &protocol.ListTasksRequest{})
			must(t, err)
			for _, task := range list.Tasks {
				if task.Artifacts != nil || task.History != nil {
					t.Errorf("a list shows %+v", task)
				}
				ids = append(ids, task.ID)
			}
			return ids
		}
		if got := listed(own); !slices.Equal(got, []protocol.TaskID{task.ID}) {
			t.Errorf("own: %v", got)
		}
		if got := listed(person); len(got) != 2 {
			t.Errorf("a person sees %v", got)
		}
		if got := listed(elsewhere); len(got) != 0 {
			t.Errorf("at another endpoint: %v", got)
		}
		done, err := person.CancelTask(t.Context(), &protocol.CancelTaskRequest{ID: theirs.ID})
		must(t, err)
		if done.Status.State != protocol.TaskStateCanceled {
			t.Errorf("cancelled: %s", done.Status.State)
		}
		_, err = person.CancelTask(t.Context(), &protocol.CancelTaskRequest{ID: theirs.ID})
		wantErr(t, err, protocol.ErrTaskNotCancelable)
	})
}
