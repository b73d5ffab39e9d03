package api_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/api"
)

// auditedAction is one way in which a person changes something over a route: how to get there, what
// to send, and the events that must record it.
type auditedAction struct {
	route  string
	param  func(p *fixture) string // what stands for the parameter of the path
	body   func(p *fixture) string
	events []string
}

func constant(s string) func(*fixture) string { return func(*fixture) string { return s } }

// auditedActions has every route by which people change something, with one row for each kind of
// event that a route writes.
var auditedActions = []auditedAction{
	{"POST /api/v1/tasks", constant(""), constant(`{"title":"x"}`), []string{picket.EventTaskSubmitted}},
	{"POST /api/v1/tasks/batch", constant(""), constant(`{"tasks":[{"title":"x"},{"title":""},{"title":"y"}]}`),
		[]string{picket.EventTaskSubmitted, picket.EventTaskSubmitted}},
	{"POST /api/v1/tasks/:id/cancel", func(p *fixture) string { return p.submit(`{"title":"x"}`) },
		constant(`{"reason":"r"}`), []string{picket.EventTaskCancelled}},
	{"POST /api/v1/tasks/:id/cancel", (*fixture).toReview, constant(`{"reason":"r"}`),
		[]string{picket.EventTaskCancelled}},
	{"POST /api/v1/tasks/:id/retry", escalatedTask, constant(`{"reason":"r"}`), []string{picket.EventTaskRetried}},
	{"POST /api/v1/tasks/:id/retry", rejectedTask, constant(`{"reason":"r"}`),
		[]string{picket.EventTaskRetried, picket.EventTaskSubmitted}},
	{"POST /api/v1/leases/:task/expire", leasedTask, constant(`{"reason":"r"}`), []string{picket.EventLeaseExpired}},
	{"DELETE /api/v1/agents/:id", registeredAgent, constant(""), []string{picket.EventAgentLifecycle}},
	{"PATCH /api/v1/agents/:id/status", registeredAgent, constant(`{"status":"draining"}`),
		[]string{picket.EventAgentLifecycle}},
	{"POST /api/v1/agents/:id/commands", registeredAgent, constant(`{"command":"ping"}`),
		[]string{picket.EventAgentCommand}},
	{"POST /api/v1/agents/:id/commands", agentToldToDrain, constant(`{"command":"drain","reason":"once more"}`),
		[]string{picket.EventAgentCommand}},
	{"POST /api/v1/tasks/:id/messages", leasedTask, constant(`{"body":"hello"}`), []string{picket.EventMessageSent}},
	{"POST /api/v1/agents/:id/messages", registeredAgent, constant(`{"body":"hello"}`),
		[]string{picket.EventMessageSent}},
	{"POST /api/v1/agent-sessions/:id/prompts", reportedSession, constant(`{"text":"hello"}`),
		[]string{picket.EventSessionPrompted}},
	{"POST /api/v1/agent-sessions/:id/stop", reportedSession, constant(""), []string{picket.EventSessionStopping}},
	{"PUT /api/agents/:name/heartbeat", constant("ann"), constant(`{"body":"x"}`), []string{picket.EventPolicyWritten}},
	{"DELETE /api/agents/:name/heartbeat", writtenPolicy, expectedPolicy, []string{picket.EventPolicyDeleted}},
	{"POST /api/agents/:name/heartbeat/rollback", deletedPolicy, func(p *fixture) string {
		rows := p.want(200, "GET", "/api/agents/ann/heartbeat/history", "operator", "").body["revisions"].([]any)
		return `{"revision_id":"` + rows[1].(map[string]any)["revision_id"].(string) + `"}`
	},
		[]string{picket.EventPolicyRolledBack}},
	{"POST /api/v1/handoffs/:id/claim", openHandoff, constant(`{}`), []string{picket.EventHandoffClaimed}},
	{"POST /api/v1/handoffs/:id/claim", claimedByAnother, constant(`{"takeOver":true}`),
		[]string{picket.EventHandoffClaimed}},
	{"POST /api/v1/handoffs/:id/answer", openHandoff, constant(`{"answer":"yes","input":{"n":1}}`),
		[]string{picket.EventTaskAnswered}},
	{"POST /api/v1/handoffs/:id/finish", openHandoff, constant(`{"output":"done"}`),
		[]string{picket.EventTaskFinished}},
	{"POST /api/v1/handoffs/:id/cancel", openHandoff, constant(`{"reason":"r"}`), []string{picket.EventTaskCancelled}},
	{"POST /api/v1/reviews/approve", constant(""), func(p *fixture) string {
		return `{"filter":{"taskIds":["` + p.toReview() + `","` + p.toReview() + `"]},"count":2,"note":"n"}`
	}, []string{picket.EventTaskApproved, picket.EventTaskApproved}},
	{"POST /api/v1/reviews/:task/approve", (*fixture).toReview, constant(`{"note":"n"}`),
		[]string{picket.EventTaskApproved}},
	{"POST /api/v1/reviews/:task/reject", (*fixture).toReview, constant(`{"note":"n"}`),
		[]string{picket.EventTaskRejected}},
	{"POST /api/v1/reviews/:task/reject", (*fixture).toReview, constant(`{"note":"n","fix":{"title":"y"}}`),
		[]string{picket.EventTaskRejected, picket.EventTaskSubmitted}},
	{"POST /api/v1/envelopes/:id/top-up", func(p *fixture) string { return p.submit(`{"title":"x"}`) },
		constant(`{"usd":1,"reason":"r"}`), []string{picket.EventBudgetToppedUp}},
	{"POST /api/v1/pause", constant(""), constant(`{"reason":"r"}`), []string{picket.EventPaused}},
	{"POST /api/v1/pause", pausedNamespace, constant(`{"reason":"r","hard":true}`), []string{picket.EventPaused}},
	{"POST /api/v1/pause", leasedTask, constant(`{"reason":"r","hard":true}`),
		[]string{picket.EventPaused, picket.EventLeaseReleased}},
	{"POST /api/v1/resume", pausedNamespace, constant(`{"reason":"r"}`), []string{picket.EventResumed}},
	{"POST /api/v1/webhooks", constant(""), constant(`{"name":"ops","url":"https://hooks.example.test/x"}`),
		[]string{picket.EventWebhookCreated}},
	{"DELETE /api/v1/webhooks/:id", newWebhook, constant(""), []string{picket.EventWebhookDeleted}},
	{"POST /api/v1/webhooks/:id/revive", goneWebhook, constant(`{}`), []string{picket.EventWebhookRevived}},
	{"POST /api/v1/keys", constant(""), constant(`{"name":"k","scopes":["agent"]}`), []string{picket.EventKeyCreated}},
	{"POST /api/v1/run-keys", constant(""), constant(`{"agentId":"r1"}`), []string{picket.EventKeyCreated}},
	{"DELETE /api/v1/keys/:id", func(p *fixture) string { return p.keyID("agent") }, constant(""),
		[]string{picket.EventKeyRevoked}},
}

// unauditedRoutes are the routes that change something and are not actions of a person.
var unauditedRoutes = map[string]string{
	"POST /api/v1/leases":               "a worker's",
	"POST /api/v1/run-keys/renew":       "a run key's own",
	"DELETE /api/v1/run-keys":           "a run key's own",
	"POST /api/v1/leases/advance":       "a worker's",
	"POST /v1/leases/renew":             "a worker's: renewals are counted, not logged",
	"POST /api/v1/agents":               "an agent's own: agent.lifecycle tells it",
	"POST /api/v1/agents/:id/heartbeat": "an agent's own",
	"PUT /api/v1/agents/:id/sessions":   "an agent's own: agent_session.started and so on tell it",
	"POST /api/v1/invariants":           "looks; what it repairs is told as invariant.repaired, which has its reason and stands in the audit log",
	"POST /api/v1/webhooks/:id/test":    "changes nothing",

	"POST /api/v1/agents/:id/commands/:command/result": "an agent's own",

	"POST /api/agents/:name/heartbeat/validate": "changes nothing",
	"POST /api/agents/:name/heartbeat/wake":     "agent_session.waking and woken tell it; wakes name no actor",
}

func openHandoff(p *fixture) string {
	_, hid := p.toHandoff()
	return hid
}

// reportedSession is a session that an agent has reported.
func reportedSession(p *fixture) string {
	agent, id := registeredAgent(p), "asession_"+aULID
	incarnation := p.want(200, "GET", "/api/v1/agents/"+agent, "operator", "").body["incarnation"].(float64)
	p.want(200, "PUT", "/api/v1/agents/"+agent+"/sessions", "agent", fmt.Sprintf(`{"incarnation":%.0f,"sessions":[`+
		`{"sessionId":%q,"kind":"resumable","preset":"claude","state":"idle","idleMs":null}]}`, incarnation, id))
	return id
}

func writtenPolicy(p *fixture) string {
	p.want(200, "PUT", "/api/agents/ann/heartbeat", "operator", `{"body":"x"}`)
	return "ann"
}

// expectedPolicy is a body that expects the policy of ann.
func expectedPolicy(p *fixture) string {
	digest := p.want(200, "GET", "/api/agents/ann/heartbeat", "operator", "").text("digest")
	return `{"expected_digest":"` + digest + `"}`
}

func deletedPolicy(p *fixture) string {
	name := writtenPolicy(p)
	p.want(200, "DELETE", "/api/agents/ann/heartbeat", "operator", expectedPolicy(p))
	return name
}

func claimedByAnother(p *fixture) string {
	hid := openHandoff(p)
	p.want(200, "POST", "/api/v1/handoffs/"+hid+"/claim", "reviewer", "{}")
	return hid
}

func leasedTask(p *fixture) string {
	id := p.submit(`{"title":"x"}`)
	p.lease()
	return id
}

func escalatedTask(p *fixture) string {
	id := p.submit(`{"title":"x"}`)
	_, held := p.lease()
	_, err := p.Fail(p.t.Context(), held, "no way", false)
	must(p.t, err)
	return id
}

func rejectedTask(p *fixture) string {
	id := p.toReview()
	p.want(200, "POST", "/api/v1/reviews/"+id+"/reject", "reviewer", `{"note":"n"}`)
	return id
}

func registeredAgent(p *fixture) string {
	p.want(201, "POST", "/api/v1/agents", "agent", `{"agent_id":"m1","role_id":"coder"}`)
	return "m1"
}

func agentToldToDrain(p *fixture) string {
	id := registeredAgent(p)
	p.want(202, "POST", "/api/v1/agents/"+id+"/commands", "operator", `{"command":"drain","reason":"first"}`)
	return id
}

func pausedNamespace(p *fixture) string {
	p.want(200, "POST", "/api/v1/pause", "operator", `{"reason":"r"}`)
	return ""
}

func newWebhook(p *fixture) string {
	return p.want(201, "POST", "/api/v1/webhooks", "operator",
		`{"name":"ops","url":"https://hooks.example.test/x","types":["task.review"]}`).text("webhookId")
}

// goneWebhook has a target that wants nothing any more.
func goneWebhook(p *fixture) string {
	id := newWebhook(p)
	p.toReview()
	turn, err := p.TakeWebhookTurn(p.t.Context(), "c1")
	must(p.t, err)
	if turn.WebhookID != id {
		p.t.Fatalf("the turn is %+v", turn)
	}
	at, err := strconv.ParseInt(turn.Cursor, 10, 64)
	must(p.t, err)
	_, err = p.AdvanceWebhook(p.t.Context(),
		picket.WebhookStep{
			WebhookID: id,
			TurnID:    turn.TurnID,
			From:      at,
			To:        at,
			Outcome:   picket.WebhookGone,
			Status:    410,
		})
	must(p.t, err)
	return id
}

// Every action of a person is in the log, with the person and the values before and after. The
// actions come from the list of routes, so a new route cannot be forgotten.
func TestEveryActionOfAPersonIsAudited(t *testing.T) {
	rig.SkipShort(t)
	done := map[string]bool{}
	for _, d := range auditedActions {
		done[d.route] = true
		t.Run(strings.NewReplacer("/", "_", " ", "").Replace(d.route), func(t *testing.T) {
			store, stop := rig.Memory()
			t.Cleanup(stop)
			p := newFixture(t, store, api.Config{Webhooks: &fakeWebhookTester{}})
			p.checkAudited(d)
		})
	}
	for _, l := range routeList(t) {
		at := l.Method + " " + l.Path
		if l.Method == "GET" || done[at] && unauditedRoutes[at] == "" || unauditedRoutes[at] != "" && !done[at] {
			continue
		}
		t.Errorf("%s: an action of a person that is tested, or none: it has to be one of the two", at)
	}
}

// checkAudited does an action and checks its events in the log.
func (p *fixture) checkAudited(d auditedAction) {
	t := p.t
	t.Helper()
	id, body := d.param(p), d.body(p)
	last, err := p.LastSeq(t.Context())
	must(t, err)
	method, path, _ := strings.Cut(d.route, " ")
	var headers []string
	if path != batchPath { // where it is refused
		headers = append(headers, "Idempotency-Key", "deed")
	}
	if !strings.HasPrefix(path, "/api/agents/") { // where it is refused
		headers = append(headers, "If-Match", "*")
	}
	a := p.call(method, echoParameter.ReplaceAllString(path, id), "admin", body, headers...)
	if a.status >= 300 {
		t.Fatalf("%s: %d %s", d.route, a.status, a.raw)
	}
	page, err := p.Events(t.Context(), picket.EventQuery{After: last})
	must(t, err)
	var told []string
	for _, ev := range page.Events {
		if ev.Actor != p.keyID("admin") {
			t.Errorf("%s: %s is by %q", d.route, ev.Type, ev.Actor)
		}
		told = append(told, ev.Type)
		var data map[string]any
		must(t, json.Unmarshal(ev.Data, &data))
		before, hadBefore := data["before"]
		after, hasAfter := data["after"]
		if !hadBefore || !hasAfter || sameJSON(before, after) {
			t.Errorf("%s: %s does not tell before and after: %s", d.route, ev.Type, ev.Data)
		}
	}
	if !slices.Equal(told, d.events) {
		t.Errorf("%s: the log tells %v, want %v", d.route, told, d.events)
	}
}

func sameJSON(a, b any) bool {
	x, err := json.Marshal(a, json.Deterministic(true))
	y, err2 := json.Marshal(b, json.Deterministic(true))
	return err != nil || err2 != nil || string(x) == string(y)
}
