package console

import (
	"strings"

	"github.com/picket-dev/picket"
)

// maxMessagesShown bounds the conversation on a page.
const maxMessagesShown = 30

// conversation is the messages from and to a task or an agent, with the form that sends one.
type conversation struct {
	Of       string // id of the task or agent
	Kind     string // task or agent
	Rows     []messageRow
	Unread   int
	Older    int64  // the cursor of the messages before these; 0: there are none
	Open     bool   // it takes messages
	FormName string // the route of the form
}

// messageRow is one message in a conversation.
type messageRow struct {
	picket.Message
	Out  bool // the agent of the conversation has sent it
	Wait bool // nobody has read it, and somebody should
}

func (v *request) conversation(kind, id string, open bool) (conversation, error) {
	who := v.login.Principal
	by := picket.Caller{Actor: who.KeyID, Operator: who.May(picket.ScopeOperator)}
	page, err := v.backend.Messages.Messages(v.ctx(), by, id, picket.MessageQuery{Limit: maxMessagesShown})
	c := conversation{Of: id, Kind: kind, Unread: page.Unread, Older: page.Before, Open: open, FormName: kind + ".tell"}
	for _, m := range page.Messages {
		c.Rows = append(c.Rows, messageRow{
			Message: m,
			Out:     m.From.ID == id || m.From.TaskID == id,
			Wait:    m.ReadAt == nil && m.Incoming(m.To),
		})
	}
	return c, err
}

func tellTask(v *request, by picket.Caller, _ string) (string, error) {
	return withFlash(taskPath(v.Param("id")), "told", ""), v.tell(by)
}

func tellAgent(v *request, by picket.Caller, _ string) (string, error) {
	return v.agentFlash("told"), v.tell(by)
}

// tell sends what the person wrote to the task or agent in the address.
func (v *request) tell(by picket.Caller) error {
	body := strings.ReplaceAll(v.formValue("message"), "\r\n", "\n")
	_, err := v.backend.Messages.Tell(v.ctx(), by, v.Param("id"), picket.MessageRequest{Body: body})
	return err
}
