package toolproxy_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/toolproxy"
)

// endingTools end the run, so nobody is left to be told.
var endingTools = map[string]bool{"mark_complete": true, "reply": true, "mark_failed": true,
	"request_human_help": true}

// nudgedArgs are arguments with which each free tool answers; CHILD is a subtask that was handed in.
var nudgedArgs = map[string]string{
	"get_task":         `{}`,
	"report_progress":  `{"summary":"half of it"}`,
	"emit":             `{"parts":[{"text":"half of it"}]}`,
	"emit_status":      `{"message":"half of it"}`,
	"delegate_subtask": `{"title":"a part"}`,
	"await_subtask":    `{"taskId":"CHILD","waitSeconds":0}`,
	"review_subtask":   `{"taskId":"CHILD","decision":"approve"}`,
	"await_top_up":     `{"waitSeconds":0}`,
	"find_agents":      `{}`,
	"send_message":     `{"body":"hello"}`,
	"read_messages":    `{}`,
}

// Every free tool after which the run goes on tells the nudge in its answer, over HTTP and over
// both wires of MCP.
func TestEveryFreeToolTellsTheNudge(t *testing.T) {
	h, leave := newEngineEnv(t, rig.Real(t))
	defer leave()
	url := listenMCP(t, h.proxyEnv)
	ways := map[string]func(t *testing.T, l picket.Lease, tool, args string) map[string]any{
		"HTTP": func(t *testing.T, l picket.Lease, tool, args string) map[string]any {
			a := h.call(t, request{
				method: "POST", path: "/v1/tools/" + tool, bearer: l.LeaseToken.Reveal(), body: args})
			if a.status != 200 {
				t.Fatalf("%d %s", a.status, a.raw)
			}
			return a.body
		},
	}
	for _, wire := range protocolVersions {
		ways["MCP "+wire] = func(t *testing.T, l picket.Lease, tool, args string) map[string]any {
			var given map[string]any
			if err := json.Unmarshal([]byte(args), &given); err != nil {
				t.Fatal(err)
			}
			s := connect(t, url, l.LeaseToken.Reveal(), wire, nil)
			r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: given})
			if err != nil || r.IsError {
				t.Fatalf("%v %+v", err, r)
			}
			return object(t, r)
		}
	}
	for _, tool := range toolproxy.Tools() {
		if endingTools[tool.Name] || tool.Name == "get_context" { // which does not count as a call
			continue
		}
		args, known := nudgedArgs[tool.Name]
		if !known {
			t.Errorf("%s is a free tool without a row here", tool.Name)
			continue
		}
		for way, call := range ways {
			t.Run(tool.Name+" over "+way, func(t *testing.T) {
				l, args := h.submitAndLease(), args
				if strings.Contains(args, "CHILD") {
					args = strings.ReplaceAll(args, "CHILD", h.handedIn(t, l))
				}
				idle := 60.0
				h.ok(h.RunEvents(h.ctx, h.held(l),
					[]picket.RunEvent{{Type: picket.EventRunStalled, ID: "e1", IdleSeconds: &idle}}))
				nudge, _ := call(t, l, tool.Name, args)["nudge"].(map[string]any)
				if nudge["cause"] != picket.NudgeSilent || nudge["number"] != 1.0 {
					t.Errorf("the nudge is %v", nudge)
				}
				_, err := h.Complete(h.ctx, h.held(l), picket.Completion{Children: picket.ChildrenCancel})
				h.ok(err)
			})
		}
	}
}

// handedIn is a subtask that waits for the review of its parent.
func (h *engineEnv) handedIn(t *testing.T, l picket.Lease) string {
	t.Helper()
	d, err := h.Delegate(h.ctx, h.held(l), "", picket.Subtask{Title: "a part"})
	h.ok(err)
	child := h.lease()
	if child.TaskID != d.TaskID {
		t.Fatalf("leased %s, want the subtask %s", child.TaskID, d.TaskID)
	}
	_, err = h.Complete(h.ctx, h.held(child), picket.Completion{})
	h.ok(err)
	return d.TaskID
}
