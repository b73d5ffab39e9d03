package toolproxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/toolproxy"
)

// The calls of the free tools while messages wait. SUBTASK stands for a subtask that was handed in.
var (
	// runCalls has each tool of a run that does not end it.
	runCalls = map[string]string{
		"get_task":         `{}`,
		"get_context":      `{}`,
		"report_progress":  `{"summary":"half way"}`,
		"emit":             `{"parts":[{"text":"half"}]}`,
		"emit_status":      `{"message":"half way"}`,
		"find_agents":      `{}`,
		"delegate_subtask": `{"title":"a part"}`,
		"await_subtask":    `{"taskId":"SUBTASK","waitSeconds":0}`,
		"review_subtask":   `{"taskId":"SUBTASK","decision":"approve"}`,
		"await_top_up":     `{"waitSeconds":0}`,
		"send_message":     `{"body":"it goes on"}`,
		"read_messages":    `{"peek":true}`,
	}
	// sessionCalls has each tool of a session.
	sessionCalls = map[string]string{
		"get_context":   `{}`,
		"next_task":     `{}`,
		"send_message":  `{"to":"listener","body":"it goes on"}`,
		"read_messages": `{"peek":true}`,
	}
)

// closingTools end the run, which reads nothing any more.
var closingTools = map[string]bool{"mark_complete": true, "reply": true, "mark_failed": true,
	"request_human_help": true}

// Every answer of a free tool says how many messages wait, also if the call is repeated.
func TestFreeToolsSayWhatIsUnread(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		person := picket.Caller{Actor: "key_person", Operator: true}
		tell := func(to string) {
			for range 2 {
				_, err := h.Tell(h.ctx, person, to, picket.MessageRequest{Body: "how is it going?"})
				h.ok(err)
			}
		}
		task := h.submit()
		lease := h.lease()
		subtask := h.handedIn(t, lease)
		tell(task.TaskID)
		check := func(tools []toolproxy.Tool, calls map[string]string, bearer string) {
			t.Helper()
			for _, tool := range tools {
				body, ok := calls[tool.Name]
				switch {
				case ok:
					h.saysUnread(t, tool.Name, strings.ReplaceAll(body, "SUBTASK", subtask), bearer)
				case !closingTools[tool.Name]:
					t.Errorf("%s is not checked", tool.Name)
				}
			}
		}
		check(toolproxy.Tools(), runCalls, lease.LeaseToken.Reveal())
		p := h.openPrompt()
		tell(p.agent)
		check(toolproxy.SessionTools(), sessionCalls, p.secret.Reveal())
	})
}

func (h *engineEnv) saysUnread(t *testing.T, name, body, bearer string) {
	t.Helper()
	for range 2 {
		a := h.call(t, request{path: "/v1/tools/" + name, body: body, bearer: bearer,
			header: map[string]string{"Idempotency-Key": "once for " + name}})
		unread := a.body["unread"]
		if all, ok := unread.(map[string]any); ok && name == "get_context" {
			unread = all["messages"]
		}
		if a.status != http.StatusOK || unread != 2.0 {
			t.Errorf("%s says that %v messages wait, want 2: %d %s", name, unread, a.status, a.raw)
		}
	}
}
