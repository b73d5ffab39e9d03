package api

import (
	"net/http"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// route is one line of the control plane. A route without scopes is public;
// scope admin passes everywhere.
type route struct {
	method string
	path   string // echo's form: /api/v1/tasks/:id
	scopes []picket.Scope
	handle handler
}

// The scopes of routes: "operator may all that reviewer may" is spelled out, so that one
// look at a line tells everything.
var (
	publicScopes   []picket.Scope
	readerScopes   = []picket.Scope{picket.ScopeAgent, picket.ScopeReviewer, picket.ScopeOperator}
	personScopes   = []picket.Scope{picket.ScopeReviewer, picket.ScopeOperator}
	agentScopes    = []picket.Scope{picket.ScopeAgent, picket.ScopeOperator}
	operatorScopes = []picket.Scope{picket.ScopeOperator}
	adminScopes    = []picket.Scope{picket.ScopeAdmin}
)

const (
	get   = http.MethodGet
	post  = http.MethodPost
	patch = http.MethodPatch
	del   = http.MethodDelete
	put   = http.MethodPut
)

// routes is the whole control plane.
func (a *API) routes() []route {
	return append([]route{
		{post, tasksPath, operatorScopes, creates(tasksPath, submitTask)},
		{post, tasksPath + "/batch", operatorScopes, a.submitTasks},
		{get, "/api/v1/tasks", readerScopes, readsPage(taskQuery, (*orchestrator.Engine).Tasks)},
		{get, "/api/v1/tasks/:id", readerScopes, reads("task", (*orchestrator.Engine).Task)},
		{post, "/api/v1/tasks/:id/cancel", operatorScopes, changesWithReason("task", (*orchestrator.Engine).Cancel)},
		{post, "/api/v1/tasks/:id/retry", operatorScopes, changesWithReason("task", (*orchestrator.Engine).Retry)},
		{get, "/api/v1/tasks/:id/explain", readerScopes, reads("task", (*orchestrator.Engine).Explain)},
		{get, "/api/v1/tasks/:id/logs", readerScopes, taskLogs},
		{get, "/api/v1/tasks/:id/reports", readerScopes, reads("task", taskReports)},
		{get, "/api/v1/tasks/:id/evidence", readerScopes, taskEvidence},
		{get, "/api/v1/tasks/:id/bundle", readerScopes, reads("task", (*orchestrator.Engine).Bundle)},
		{get, "/api/v1/tasks/:id/bundle/:digest/:piece", readerScopes, taskBundlePiece},
		{post, "/api/v1/tasks/:id/messages", personScopes, sendsMessage("task")},
		{get, "/api/v1/tasks/:id/messages", personScopes, listsMessages("task")},

		{post, "/api/v1/leases", agentScopes, acquireLeases},
		{post, "/api/v1/leases/advance", agentScopes, advanceLease},
		{get, "/api/v1/leases", personScopes, readsPage(leaseQuery, (*orchestrator.Engine).FindLeases)},
		{post, "/api/v1/leases/:task/expire", operatorScopes, changes("task", expireLease)},

		{post, "/api/v1/agents", agentScopes, creates("/api/v1/agents", registerAgent)},
		{get, "/api/v1/agents", agentScopes, listAgents},
		{get, "/api/v1/agents/:id", agentScopes, getAgent},
		{del, "/api/v1/agents/:id", agentScopes, deregisterAgent},
		{patch, "/api/v1/agents/:id/status", agentScopes, changeAgentStatus},
		{post, "/api/v1/agents/:id/heartbeat", agentScopes, changes("agent", heartbeat)},
		{post, "/api/v1/agents/:id/commands", operatorScopes, commandAgent},
		{post, "/api/v1/agents/:id/messages", agentScopes, sendsMessage("agent")},
		{get, "/api/v1/agents/:id/messages", agentScopes, listsMessages("agent")},
		{put, "/api/v1/agents/:id/sessions", agentScopes, changes("agent", reportSessions)},
		{get, "/api/v1/agents/:id/commands/pending", agentScopes, a.pendingCommands},
		{post, "/api/v1/agents/:id/commands/:command/result", agentScopes, changes("agent", commandResult)},
		{get, "/api/v1/pools", agentScopes, a.listPools},
		{get, "/api/v1/pools/:role", agentScopes, a.getPool},

		{get, "/api/v1/agent-sessions", personScopes, readsPage(sessionQuery, (*orchestrator.Engine).AgentSessions)},
		{get, "/api/v1/agent-sessions/:id", personScopes, reads("asession", (*orchestrator.Engine).AgentSession)},
		{post, "/api/v1/agent-sessions/:id/stop", operatorScopes, changes("asession", stopSession)},
		{post, "/api/v1/agent-sessions/:id/prompts", operatorScopes, promptSession},
		{get, "/api/v1/agent-sessions/:id/prompts", personScopes, listPrompts},
		{get, "/api/v1/agent-sessions/:id/prompts/:prompt", personScopes, getPrompt},

		{get, "/api/agents/:name/heartbeat", readerScopes, getPolicy},
		{put, "/api/agents/:name/heartbeat", operatorScopes, writePolicy},
		{del, "/api/agents/:name/heartbeat", operatorScopes, deletePolicy},
		{post, "/api/agents/:name/heartbeat/validate", personScopes, validatePolicy},
		{post, "/api/agents/:name/heartbeat/rollback", operatorScopes, rollBackPolicy},
		{get, "/api/agents/:name/heartbeat/history", readerScopes, policyHistory},
		{get, "/api/agents/:name/heartbeat/status", readerScopes, policyStatus},
		{post, "/api/agents/:name/heartbeat/wake", agentScopes, wakeSession},
		{get, "/api/agents/:name/heartbeat/wakes", readerScopes, listWakes},

		{get, "/api/v1/handoffs", personScopes, readsPage(handoffQuery, (*orchestrator.Engine).Handoffs)},
		{get, "/api/v1/handoffs/:id", personScopes, reads("handoff", (*orchestrator.Engine).Handoff)},
		{post, "/api/v1/handoffs/:id/claim", personScopes, changes("handoff", claimHandoff)},
		{post, "/api/v1/handoffs/:id/answer", personScopes, changes("handoff", answerHandoff)},
		{post, "/api/v1/handoffs/:id/finish", personScopes, changes("handoff", finishHandoff)},
		{post, "/api/v1/handoffs/:id/cancel", personScopes,
			changesWithReason("handoff", (*orchestrator.Engine).CancelHandoff)},

		{get, "/api/v1/reviews", personScopes, readsPage(reviewQuery, (*orchestrator.Engine).Reviews)},
		{post, "/api/v1/reviews/approve", personScopes, changes("", approveReviews)},
		{post, "/api/v1/reviews/:task/approve", personScopes, changes("task", approveReview)},
		{post, "/api/v1/reviews/:task/reject", personScopes, changes("task", rejectReview)},

		{get, "/api/v1/envelopes/:id", personScopes, getEnvelope},
		{post, "/api/v1/envelopes/:id/top-up", operatorScopes, changes("", topUp)},
		{get, "/api/v1/ledger", personScopes, readsPage(ledgerQuery, (*orchestrator.Engine).Ledger)},
		{get, "/api/v1/spending", personScopes, readsPage(spendingQuery, (*orchestrator.Engine).Spending)},
		{get, "/api/v1/prices", personScopes, a.listPrices},

		{get, "/api/v1/events", personScopes, a.events},
		{get, "/api/v1/audit", operatorScopes, audit},

		{post, "/api/v1/webhooks", operatorScopes, creates("/api/v1/webhooks", a.createWebhook)},
		{get, "/api/v1/webhooks", operatorScopes, readsAll("webhooks", (*orchestrator.Engine).Webhooks)},
		{get, "/api/v1/webhooks/:id", operatorScopes, reads("webhook", (*orchestrator.Engine).Webhook)},
		{del, "/api/v1/webhooks/:id", operatorScopes, changes("webhook", deleteWebhook)},
		{post, "/api/v1/webhooks/:id/revive", operatorScopes, changes("webhook", reviveWebhook)},
		{post, "/api/v1/webhooks/:id/test", operatorScopes, changes("webhook", a.testWebhook)},

		{post, "/api/v1/pause", operatorScopes, changes("", pause)},
		{post, "/api/v1/resume", operatorScopes, changes("", resume)},
		{get, "/api/v1/stats", personScopes, stats},
		{post, "/api/v1/invariants", operatorScopes, changes("", inspect)},

		{post, "/api/v1/keys", adminScopes, creates("/api/v1/keys", createKey)},
		{get, "/api/v1/keys", adminScopes, readsAll("keys", (*orchestrator.Engine).Keys)},
		{get, "/api/v1/keys/:id", adminScopes, reads("key", (*orchestrator.Engine).Key)},
		{del, "/api/v1/keys/:id", adminScopes, changes("key", revokeKey)},

		{post, "/api/v1/run-keys", operatorScopes, creates("/api/v1/keys", createRunKey)},
		{post, "/api/v1/run-keys/renew", agentScopes, changes("", renewRunKey)},
		{del, "/api/v1/run-keys", agentScopes, endRunKey},

		{get, "/openapi.yaml", publicScopes, openapi},
	}, append(a.leaseRoutes(), a.opsRoutes()...)...)
}

// renewalsPath is beside the routes of the tool proxy, where a lease is renewed.
const renewalsPath = "/v1/leases/renew"

// leaseRoutes are what a process with a tool proxy answers to the key that has acquired leases.
func (a *API) leaseRoutes() []route {
	return []route{{post, renewalsPath, agentScopes, a.renewLeases}}
}

// rateExempt are the routes without a rate limit. Without them an agent would
// be judged dead, or a person could not stop something.
var rateExempt = map[string]bool{
	post + " " + renewalsPath:              true,
	post + " /api/v1/agents/:id/heartbeat": true,
	del + " /api/v1/agents/:id":            true,
	del + " /api/v1/keys/:id":              true,
	post + " /api/v1/tasks/:id/cancel":     true,
	post + " /api/v1/leases/:task/expire":  true,
	post + " /api/v1/pause":                true,
}

// Permissions returns the scopes of each route, by method and path. Public routes have
// none, and admin keys may use all routes. Tests compare the console with it.
func (a *API) Permissions() map[string][]picket.Scope {
	rights := map[string][]picket.Scope{}
	for _, r := range a.routes() {
		rights[r.method+" "+r.path] = r.scopes
	}
	return rights
}

// opsRoutes are what every server process answers, whatever its role.
func (a *API) opsRoutes() []route {
	return []route{
		{get, "/healthz", publicScopes, healthz},
		{get, "/readyz", publicScopes, a.readyz},
		{get, "/metrics", publicScopes, a.metrics.serve},
	}
}

func (r route) isPublic() bool { return len(r.scopes) == 0 }

// permit refuses a key that has none of the route's scopes.
func (r route) permit(who picket.Principal) error {
	if who.May(r.scopes...) || who.IsRunKey() && r.method+" "+r.path == runKeyEvents {
		return nil
	}
	names := make([]string, len(r.scopes))
	for i, s := range r.scopes {
		names[i] = string(s)
	}
	need := strings.Join(names, " or ")
	return picket.Refuse(picket.CodeForbidden, "Use a key with scope "+need+".",
		"this key may not do this: it needs scope %s", need).With("needs", names).With("has", who.Scopes)
}
