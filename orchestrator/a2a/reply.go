package a2a

import (
	"context"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
)

// A client that waits for the answer to SendMessage takes a message as well as a task, as the protocol has it. One that
// streams has to ask for a message in the metadata, because its stream shows nothing of the task until the agent
// replies. Then an agent can answer with the tool reply, and the client gets the message instead of the task.

// answerTo is how a client gets the answer to its request.
type answerTo int

const (
	answerAtOnce   answerTo = iota // the task as it is
	answerWhenDone                 // one answer, when the client can do something again
	answerStreamed                 // each change of the task
)

// replyKey is the member of the metadata of a message that says what its client takes as the answer.
const replyKey = "reply"

// The values of that member.
const (
	replyMessage = "message"
	replyTask    = "task"
)

// takesMessage reports whether the client takes a message as the answer to a request. It refuses a request that shows
// its task anyway.
func takesMessage(req *protocol.SendMessageRequest, to answerTo) (bool, error) {
	value, said := req.Message.Metadata[replyKey]
	switch {
	case !said:
		return to == answerWhenDone && req.Message.TaskID == "", nil
	case value == replyTask:
		return false, nil
	case value != replyMessage:
		return false, picket.Invalid("/message/metadata/reply", `Send "message" or "task", or leave it out.`,
			`reply is neither "message" nor "task"`)
	case req.Message.TaskID != "":
		return false, picket.Invalid("/message/metadata/reply", "Leave it out: the answer is the task.",
			"a message to a task is not answered with a message")
	case to == answerAtOnce:
		return false, picket.Invalid("/message/metadata/reply", "Leave it out, or wait for the answer.",
			"a request with returnImmediately is not answered with a message")
	}
	return true, nil
}

// resultFor is what answers a request that has waited: the message that the agent has replied, or the task. A message
// can be sent again by a request that wants the task.
func (x *exchange) resultFor(ctx context.Context, req *protocol.SendMessageRequest,
	t picket.Task) (protocol.SendMessageResult, error) {
	if wanted, _ := takesMessage(req, answerWhenDone); wanted && t.Reply {
		return replyOf(t), nil
	}
	return x.withHistory(ctx, t, sendConfig(req).HistoryLength)
}

// replyOf is the message that an agent has replied. It names no task.
func replyOf(t picket.Task) *protocol.Message {
	m := agentMessage(t, statusMessageID(t), partsOf(t.Output))
	m.TaskID = ""
	return m
}

// awaitsReply reports whether the agent of a task can still reply: the task has shown its client nothing.
func awaitsReply(t picket.Task) bool {
	return t.Client != nil && t.Client.TakesMessage && (t.State == picket.TaskQueued || t.State == picket.TaskLeased) &&
		len(t.Emitted) == 0
}

// unseen looks ahead in the updates of a task whose agent can reply, until there is something to show of the task or
// ctx ends. It returns the message that the agent has replied, or nil.
func unseen(ctx context.Context, u *update) *protocol.Message {
	for ; u != nil; u = u.next {
		select {
		case <-u.ready:
		case <-ctx.Done():
			return nil
		}
		if u.reply != nil {
			return u.reply
		}
		if u.err != nil || u.event != nil && !onlyWorks(u.event) {
			return nil
		}
	}
	return nil
}

// onlyWorks reports whether an event says nothing but that a task waits for an agent, or that one works on it.
func onlyWorks(ev protocol.Event) bool {
	s, ok := ev.(*protocol.TaskStatusUpdateEvent)
	return ok && s.Status.Message == nil &&
		(s.Status.State == protocol.TaskStateSubmitted || s.Status.State == protocol.TaskStateWorking)
}
