package console_test

import (
	"testing"

	"github.com/picket-dev/picket"
)

// A person writes to a task and to an agent, sees what was written and answered, and sends nothing twice.
func TestConversationsOnPages(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		reviewer, operator := o.signedIn(picket.ScopeReviewer), o.signedIn(picket.ScopeOperator)
		id, h := o.startRun(picket.TaskSpec{Title: "x"})
		page := "/console/tasks/" + id
		reviewer.mustGet(page).wantText(t, "No messages.", "Message to the agent that works on this task")
		form := reviewer.mustGet(page).hidden(page + "/tell")
		form = append(form, "message", "first line\r\nsecond <b>line</b>")
		for range 2 { // the second press of the button is the same message
			reviewer.follow(reviewer.post(page+"/tell", form...)).wantText(t, "Sent. The message waits",
				"1 not read yet", "second &lt;b&gt;line&lt;/b&gt;")
		}
		_, err := o.SendMessage(t.Context(), h, "", picket.AgentMessage{
			MessageRequest: picket.MessageRequest{Body: "understood", Type: "answer", Data: picket.RawJSON(`{"n":1}`)}})
		must(t, err)
		read, err := o.ReadMessages(t.Context(), h, "r", picket.ReadMessages{}, 0)
		must(t, err)
		if len(read.Messages) != 1 || read.Messages[0].Body != "first line\nsecond <b>line</b>" {
			t.Errorf("the agent read %+v", read.Messages)
		}
		p := reviewer.mustGet(page)
		p.wantText(t, "understood", "answer", "a1")
		p.wantNoText(t, "not read yet")
		if p := reviewer.submit(page, page+"/tell", "message", "  "); p.status != 400 {
			t.Errorf("an empty message: %d", p.status)
		}
		o.registerAgent("a7", "coder", 1)
		agent := "/console/agents/a7"
		operator.follow(operator.submit(agent, agent+"/tell", "message", "good morning")).
			wantText(t, "Sent. The message waits", "good morning", "1 not read yet")
		operator.follow(operator.submit(page, page+"/cancel", "reason", "no"))
		operator.mustGet(page).wantNoText(t, "Message to the agent that works")
		if p := operator.post(page+"/tell", form...); p.status != 403 && p.status != 409 {
			t.Errorf("a message to a task that has ended: %d", p.status)
		}
	})
}
