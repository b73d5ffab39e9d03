package model

import (
	"fmt"
	"strings"

	"github.com/picket-dev/picket"
)

// The model's messages: what people write to tasks, and what the runs of these read; and looks for
// other agents, which are a call of a tool like these.

// modelMessages is what a run has read last.
type modelMessages struct {
	readBy string // the request
	readAs []string
}

// tell puts a message into the inbox of a task that is open.
func (m *model) tell(id, body string) picket.Code {
	t := m.tasks[id]
	switch {
	case t == nil:
		return picket.CodeNotFound
	case t.state.Terminal(), m.cancelledAbove(t):
		return picket.CodeTaskClosed
	}
	m.messages++
	t.inbox = append(t.inbox, body)
	m.emit(picket.EventMessageSent, id)
	return ""
}

// maxModelRead is how many messages a call of the machine reads.
const maxModelRead = 3

// readMessages takes the oldest messages out of the inbox of a task. The same request gets the same.
func (m *model) readMessages(h modelCredential, request string, at int64) (read []string, left int, nudge int64,
	code picket.Code) {
	t, r, code := m.admits(h)
	if code != "" {
		return nil, 0, 0, code
	}
	m.confirm(t, r)
	if r.readBy == request {
		return r.readAs, len(t.inbox), r.toldWith(""), ""
	}
	read = t.inbox[:min(maxModelRead, len(t.inbox))]
	call := "read_messages"
	if len(read) > 0 {
		call += " " + read[0]
	}
	if nudge, code = m.acted(t, r, call, "", "", at); code != "" {
		return nil, 0, 0, code
	}
	if len(read) > 0 {
		t.inbox = t.inbox[len(read):]
		r.readBy, r.readAs = request, read
	}
	return read, len(t.inbox), nudge, ""
}

func (m *model) findAgents(h modelCredential, request string, at int64) (nudge int64, code picket.Code) {
	t, r, code := m.admits(h)
	if code != "" {
		return 0, code
	}
	m.confirm(t, r)
	return m.acted(t, r, "find_agents", "", request, at)
}

// tell writes to a task, as somebody else each time: nobody is refused for the rate.
func (x *machine) tell() {
	id := x.task(picket.TaskQueued, picket.TaskLeased, picket.TaskHandoff, picket.TaskReview)
	body := fmt.Sprintf("message %d", x.m.messages)
	by := picket.Caller{Actor: fmt.Sprintf("key_sender%d", x.m.messages)}
	_, err := x.e.Tell(x.ctx, by, id, picket.MessageRequest{Body: body})
	x.agree(err, x.m.tell(id, body), "tell %s", id)
}

// readMessages reads up to three times, also under an earlier request.
func (x *machine) readMessages() {
	h, mh := x.holder()
	for range 1 + x.below(3, "reads") {
		request := oneOf(x, "read", "r1", "r2", fmt.Sprintf("r%d", x.below(1000, "request")))
		got, err := x.e.ReadMessages(x.ctx, h, request, picket.ReadMessages{Max: maxModelRead}, 0)
		want, left, nudge, code := x.m.readMessages(mh, request, x.lookedAt(h))
		if x.agree(err, code, "read_messages %+v", mh) {
			var bodies []string
			for _, message := range got.Messages {
				bodies = append(bodies, message.Body)
			}
			x.same("read_messages", strings.Join(bodies, ","), strings.Join(want, ","))
			x.same("read_messages: unread", got.Unread, left)
			x.nudged("read_messages", got.Nudge, nudge)
		}
		x.refused(h, err, "read_messages")
	}
}

func (x *machine) findAgents() {
	h, mh := x.holder()
	request := oneOf(x, "look", "", "f1")
	got, err := x.e.FindAgents(x.ctx, h, request, picket.AgentSearch{})
	nudge, code := x.m.findAgents(mh, request, x.lookedAt(h))
	if x.agree(err, code, "find_agents %+v", mh) {
		x.nudged("find_agents", got.Nudge, nudge)
	}
	x.refused(h, err, "find_agents")
}
