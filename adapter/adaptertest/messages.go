package adaptertest

import (
	"net/http"

	"github.com/picket-dev/picket"
)

// Tell puts a message of a person into the inbox of a task. The adapter of its run, if there is one,
// learns of it by a command.
func (s *Server) Tell(taskID, body string) picket.Message {
	s.mu.Lock()
	m := picket.Message{MessageID: newID("message"), To: taskID, Body: body, SentAt: picket.InstantOf(s.now()),
		From: picket.MessageSender{Kind: picket.SenderPerson, ID: "key_person"}}
	t := s.tasks[taskID]
	t.messages = append(t.messages, m)
	number := int64(len(t.messages))
	s.mu.Unlock()
	s.Command(taskID, picket.Command{Command: "messages", Number: number})
	return m
}

// waitingMessages answers GET /v1/run/messages. No message is ever read here.
func waitingMessages(s *Server, l *lease, _ *http.Request, _ []byte) (any, error) {
	all := l.task.messages
	return picket.MessagesWaiting{Messages: append([]picket.Message{}, all...), Unread: len(all),
		Newest: int64(len(all)), History: append([]picket.Message{}, all...)}, nil
}
