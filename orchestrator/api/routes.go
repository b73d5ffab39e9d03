package api

import (
	"net/http"
	"strings"

	"github.com/picket-dev/picket"
)

// route is one line of the control plane. A route without scopes is public;
// scope admin passes everywhere.
type route struct {
	method string
	path   string // echo's form: /api/v1/tasks/:id
	scopes []picket.Scope
	handle func(request) error
}

// Who may: "operator may all that reviewer may" is spelled out, so that one
// look at a line tells everything.
var (
	public    []picket.Scope
	readers   = []picket.Scope{picket.ScopeAgent, picket.ScopeReviewer, picket.ScopeOperator}
	people    = []picket.Scope{picket.ScopeReviewer, picket.ScopeOperator}
	workers   = []picket.Scope{picket.ScopeAgent, picket.ScopeOperator}
	operators = []picket.Scope{picket.ScopeOperator}
	admins    = []picket.Scope{picket.ScopeAdmin}
)

const (
	get   = http.MethodGet
	post  = http.MethodPost
	patch = http.MethodPatch
	del   = http.MethodDelete
)

// routes is the whole control plane.
func (a *API) routes() []route {
	return append([]route{
		{post, "/api/v1/tasks", operators, submitTask},
		{get, "/api/v1/tasks", readers, listTasks},
		{get, "/api/v1/tasks/:id", readers, getTask},
		{post, "/api/v1/tasks/:id/cancel", operators, cancelTask},
		{post, "/api/v1/tasks/:id/retry", operators, retryTask},
		{get, "/api/v1/tasks/:id/explain", readers, explainTask},
		{get, "/api/v1/tasks/:id/logs", readers, taskLogs},
		{get, "/api/v1/tasks/:id/reports", readers, taskReports},
		{get, "/api/v1/tasks/:id/evidence", readers, taskEvidence},

		{post, "/api/v1/leases", workers, acquireLeases},
		{post, "/api/v1/leases/advance", workers, advanceLease},
		{get, "/api/v1/leases", people, listLeases},
		{post, "/api/v1/leases/:task/expire", operators, expireLease},

		{post, "/api/v1/agents", workers, registerAgent},
		{get, "/api/v1/agents", workers, listAgents},
		{get, "/api/v1/agents/:id", workers, getAgent},
		{del, "/api/v1/agents/:id", workers, deregisterAgent},
		{patch, "/api/v1/agents/:id/status", workers, changeAgentStatus},
		{post, "/api/v1/agents/:id/heartbeat", workers, heartbeat},
		{post, "/api/v1/agents/:id/commands", operators, commandAgent},
		{get, "/api/v1/pools", workers, a.listPools},
		{get, "/api/v1/pools/:role", workers, a.getPool},

		{get, "/api/v1/handoffs", people, listHandoffs},
		{get, "/api/v1/handoffs/:id", people, getHandoff},
		{post, "/api/v1/handoffs/:id/claim", people, claimHandoff},
		{post, "/api/v1/handoffs/:id/answer", people, answerHandoff},
		{post, "/api/v1/handoffs/:id/finish", people, finishHandoff},
		{post, "/api/v1/handoffs/:id/cancel", people, cancelHandoff},

		{get, "/api/v1/reviews", people, listReviews},
		{post, "/api/v1/reviews/approve", people, approveReviews},
		{post, "/api/v1/reviews/:task/approve", people, approveReview},
		{post, "/api/v1/reviews/:task/reject", people, rejectReview},

		{get, "/api/v1/envelopes/:id", people, getEnvelope},
		{post, "/api/v1/envelopes/:id/top-up", operators, topUp},
		{get, "/api/v1/ledger", people, ledger},
		{get, "/api/v1/prices", people, a.listPrices},

		{get, "/api/v1/events", people, a.events},
		{get, "/api/v1/audit", operators, audit},

		{post, "/api/v1/webhooks", operators, a.createWebhook},
		{get, "/api/v1/webhooks", operators, listWebhooks},
		{get, "/api/v1/webhooks/:id", operators, getWebhook},
		{del, "/api/v1/webhooks/:id", operators, deleteWebhook},
		{post, "/api/v1/webhooks/:id/revive", operators, reviveWebhook},
		{post, "/api/v1/webhooks/:id/test", operators, a.testWebhook},

		{post, "/api/v1/pause", operators, pause},
		{post, "/api/v1/resume", operators, resume},
		{get, "/api/v1/stats", people, stats},
		{post, "/api/v1/invariants", operators, inspect},

		{post, "/api/v1/keys", admins, createKey},
		{get, "/api/v1/keys", admins, listKeys},
		{get, "/api/v1/keys/:id", admins, getKey},
		{del, "/api/v1/keys/:id", admins, revokeKey},

		{post, "/api/v1/run-keys", operators, createRunKey},
		{post, "/api/v1/run-keys/renew", workers, renewRunKey},
		{del, "/api/v1/run-keys", workers, endRunKey},

		{get, "/openapi.yaml", public, openapi},
	}, a.opsRoutes()...)
}

// neverLimited are the routes without a rate limit. Without them an agent would
// be judged dead, or a person could not stop something.
var neverLimited = map[string]bool{
	post + " /api/v1/agents/:id/heartbeat": true,
	del + " /api/v1/agents/:id":            true,
	del + " /api/v1/keys/:id":              true,
	post + " /api/v1/tasks/:id/cancel":     true,
	post + " /api/v1/leases/:task/expire":  true,
	post + " /api/v1/pause":                true,
}

// Rights is who may use each route, by method and path, beside admin; public
// routes have none. Other faces of the control plane are held against it.
func (a *API) Rights() map[string][]picket.Scope {
	rights := map[string][]picket.Scope{}
	for _, r := range a.routes() {
		rights[r.method+" "+r.path] = r.scopes
	}
	return rights
}

// opsRoutes are what every server process answers, whatever its role.
func (a *API) opsRoutes() []route {
	return []route{
		{get, "/healthz", public, healthz},
		{get, "/readyz", public, a.readyz},
		{get, "/metrics", public, a.metrics.serve},
	}
}

func (r route) public() bool { return len(r.scopes) == 0 }

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
