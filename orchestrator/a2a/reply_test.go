package a2a_test

import (
	"errors"
	"strings"
	"testing"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"

	"github.com/picket-dev/picket"
)

// forMessage is a message whose client takes a message as the answer.
func forMessage(text string) *protocol.SendMessageRequest {
	req := send(text)
	req.Message.Metadata = map[string]any{"reply": "message"}
	return req
}

// message is what an agent replies.
func message(text string) picket.Reply { return picket.Reply{Parts: []picket.Part{{Text: &text}}} }

// A client that takes a message gets what the agent replies, and no task, also if it asks again. Operators see an
// ordinary task.
func TestAnAgentReplies(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.onBothBindings(t, func(t *testing.T, c *a2aclient.Client) {
			req := forMessage("how are you?")
			answers := make(chan protocol.SendMessageResult, 1)
			go func() {
				answer, _ := c.SendMessage(t.Context(), req) // nil after an error
				answers <- answer
			}()
			held := f.lease(t)
			for range 2 { // the answer can be lost
				_, err := f.Reply(t.Context(), held, message("fine, thanks"))
				must(t, err)
			}
			check := func(result any) {
				t.Helper()
				m, ok := result.(*protocol.Message)
				if !ok || m.Parts[0].Text() != "fine, thanks" || m.Role != protocol.MessageRoleAgent || m.ID == "" ||
					m.TaskID != "" || m.ContextID == "" {
					t.Errorf("the answer is %+v", result)
				}
			}
			check(<-answers)
			again, err := c.SendMessage(t.Context(), req)
			must(t, err)
			check(again)
			check(streamed(t, c, req))
			task, err := f.Task(t.Context(), held.TaskID)
			must(t, err)
			if task.State != picket.TaskCompleted || !task.Reply || len(task.Runs) != 1 || task.FencingToken != 1 {
				t.Errorf("the task: %+v", task)
			}
			shown, err := c.GetTask(t.Context(), &protocol.GetTaskRequest{ID: protocol.TaskID(held.TaskID)})
			must(t, err)
			if shown.Status.Message.Parts[0].Text() != "fine, thanks" || len(shown.Artifacts) != 0 {
				t.Errorf("the task shows %+v", shown)
			}
		})
	})
}

// streamed is the only event of a stream.
func streamed(t *testing.T, c *a2aclient.Client, req *protocol.SendMessageRequest) protocol.Event {
	t.Helper()
	events := follow(t, c.SendStreamingMessage(t.Context(), req))
	only := next(t, events)
	if ev := next(t, events); ev != nil {
		t.Errorf("after the message: %+v", ev)
	}
	return only
}

// all are the events of a stream up to its end.
func all(events <-chan protocol.Event) (list []protocol.Event) {
	for ev := range events {
		list = append(list, ev)
	}
	return list
}

// A client that waits for the answer takes a message, unless it asks for the task.
func TestAClientThatWaitsTakesAMessage(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.onBothBindings(t, func(t *testing.T, c *a2aclient.Client) {
			var sent *protocol.SendMessageRequest
			ask := func(metadata map[string]any) (<-chan protocol.SendMessageResult, picket.LeaseCredential) {
				req, answers := send("how are you?"), make(chan protocol.SendMessageResult, 1)
				req.Message.Metadata, sent = metadata, req
				go func() {
					got, _ := c.SendMessage(t.Context(), req) // nil after an error
					answers <- got
				}()
				return answers, f.lease(t)
			}
			answer, held := ask(nil)
			_, err := f.Reply(t.Context(), held, message("fine"))
			must(t, err)
			got := <-answer
			if m, ok := got.(*protocol.Message); !ok || m.Parts[0].Text() != "fine" {
				t.Errorf("the answer is %+v", got)
			}
			again := atOnce(send("how are you?"))
			again.Message.ID = sent.Message.ID
			task := sendTo(t, c, again)
			if string(task.ID) != held.TaskID || task.Status.State != protocol.TaskStateCompleted {
				t.Errorf("the task of the message is %+v", task)
			}
			answer, held = ask(map[string]any{"reply": "task"})
			_, err = f.Reply(t.Context(), held, message("fine"))
			wantErr(t, err, picket.CodeStateConflict)
			f.complete(t, held, `"done"`)
			got = <-answer
			if task, ok := got.(*protocol.Task); !ok || task.Status.State != protocol.TaskStateCompleted {
				t.Errorf("the answer is %+v", got)
			}
		})
	})
}

// A stream whose agent replies is one message, whatever became of the lease before. Once the task has shown something,
// the stream is that of the task.
func TestAStreamWaitsForTheReply(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.onBothBindings(t, func(t *testing.T, c *a2aclient.Client) {
			events := follow(t, c.SendStreamingMessage(t.Context(), forMessage("how are you?")))
			held := f.lease(t)
			_, err := f.Expire(t.Context(), operator, held.TaskID, "try again")
			must(t, err)
			held = f.lease(t)
			_, err = f.Reply(t.Context(), held, message("fine"))
			must(t, err)
			if m, ok := next(t, events).(*protocol.Message); !ok || m.Parts[0].Text() != "fine" {
				t.Errorf("the stream begins with %+v", m)
			}
			if ev := next(t, events); ev != nil {
				t.Errorf("after the message: %+v", ev)
			}

			events = follow(t, c.SendStreamingMessage(t.Context(), forMessage("and this?")))
			held = f.lease(t)
			_, err = f.EmitStatus(t.Context(), held, "", picket.StatusMessage{Message: "I think"})
			must(t, err)
			if first, ok := next(t, events).(*protocol.Task); !ok || string(first.ID) != held.TaskID {
				t.Errorf("the stream begins with %+v", first)
			}
			_, err = f.Reply(t.Context(), held, message("too late"))
			wantErr(t, err, picket.CodeStateConflict)
			f.complete(t, held, `"done"`)
			rest := all(events)
			if s, ok := rest[len(rest)-1].(*protocol.TaskStatusUpdateEvent); !ok ||
				s.Status.State != protocol.TaskStateCompleted {
				t.Errorf("the stream ends with %+v", rest)
			}
		})
	})
}

// An agent that has asked a question can reply after the answer: its client knows the task, and sees the message there.
func TestAReplyAfterAQuestion(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		c := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
		events := follow(t, c.SendStreamingMessage(t.Context(), forMessage("paint it")))
		held := f.lease(t)
		_, err := f.RequestHelp(t.Context(), held, picket.HelpRequest{Question: "Which colour?"})
		must(t, err)
		if first, ok := next(t, events).(*protocol.Task); !ok || string(first.ID) != held.TaskID {
			t.Fatalf("the stream begins with %+v", first)
		}
		answer := atOnce(send("red"))
		answer.Message.TaskID = protocol.TaskID(held.TaskID)
		sendTo(t, c, answer)
		held = f.lease(t)
		_, err = f.Reply(t.Context(), held, message("it is red"))
		must(t, err)
		rest := all(events)
		last := rest[len(rest)-1]
		if s, ok := last.(*protocol.TaskStatusUpdateEvent); !ok || s.Status.State != protocol.TaskStateCompleted ||
			s.Status.Message.Parts[0].Text() != "it is red" {
			t.Errorf("the stream ends with %+v", last)
		}
	})
}

// Without a client that takes a message an agent cannot reply, and neither can a superseded one.
func TestAReplyNeedsAClientThatTakesIt(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		c := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
		sendTo(t, c, atOnce(send("work")))
		held := f.lease(t)
		_, err := f.Reply(t.Context(), held, message("hello"))
		wantErr(t, err, picket.CodeStateConflict)
		var no *picket.Error
		if !errors.As(err, &no) || !strings.Contains(no.Remedy, "mark_complete") {
			t.Errorf("%v", err)
		}
		f.complete(t, held, `"done"`)

		events := follow(t, c.SendStreamingMessage(t.Context(), forMessage("work")))
		held = f.lease(t)
		_, err = f.Expire(t.Context(), operator, held.TaskID, "try again")
		must(t, err)
		now := f.lease(t)
		if _, err = f.Reply(t.Context(), held, message("I am late")); !picket.CodeOf(err).Fenced() {
			t.Errorf("a superseded agent: %v", err)
		}
		_, err = f.Reply(t.Context(), now, message("here"))
		must(t, err)
		if m, ok := next(t, events).(*protocol.Message); !ok || m.Parts[0].Text() != "here" {
			t.Errorf("the stream begins with %+v", m)
		}

		reviewed, err := f.Submit(t.Context(), operator, picket.TaskSpec{Title: "t", Role: "builder",
			Review: picket.ReviewByHuman, Client: &picket.ClientTask{Role: "builder", ContextID: "c", MessageID: "m",
				TakesMessage: true}})
		must(t, err)
		held = f.lease(t)
		_, err = f.Reply(t.Context(), held, message("unseen"))
		wantErr(t, err, picket.CodeStateConflict)
		if task, err := f.Task(t.Context(), reviewed.TaskID); err != nil || task.State != picket.TaskLeased {
			t.Errorf("after the refusal: %s %v", task.State, err)
		}

		task := sendTo(t, c, atOnce(send("more")))
		for _, change := range []func(*protocol.SendMessageRequest){
			func(req *protocol.SendMessageRequest) { atOnce(req) },
			func(req *protocol.SendMessageRequest) { req.Message.TaskID = task.ID },
			func(req *protocol.SendMessageRequest) { req.Message.Metadata["reply"] = true },
		} {
			req := forMessage("x")
			change(req)
			_, err := c.SendMessage(t.Context(), req)
			wantErr(t, err, protocol.ErrInvalidParams)
		}
		status, _, body := f.ask(f.client, "POST", "/a2a/tasks", `{"title":"x","metadata":{"reply":"message"}}`)
		if status != 400 {
			t.Errorf("RFC-001: %d %s", status, body)
		}
	})
}
