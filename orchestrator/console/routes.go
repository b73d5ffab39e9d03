package console

import (
	"net/http"

	"github.com/picket-dev/picket"
)

// route is one line of the console: a page or a decision. Keys with one of its scopes
// may use it, and admin keys. Without scopes it is open to everybody, signed in or
// not. What a key may not do is not shown to it (see [view.May]), and is refused if
// it is requested anyway.
type route struct {
	name   string // what templates ask for: {{if $.May "handoff.answer"}}
	method string
	path   string // echo's form: /console/handoffs/:id
	scopes []picket.Scope
	// apiRoutes are the routes of the API that do the same. A test compares their scopes.
	apiRoutes []string
	handle    func(*request) error
	// nav is the label of the page in the navigation; empty for the others.
	nav string
	// letter goes to the page after g. It is the first letter of name, unless another page has that.
	letter string
}

// The scopes of pages. The key of an agent is for programs and opens no page.
var (
	personScopes   = []picket.Scope{picket.ScopeReviewer, picket.ScopeOperator}
	operatorScopes = []picket.Scope{picket.ScopeOperator}
)

const (
	get  = http.MethodGet
	post = http.MethodPost

	homePath      = "/console/"
	loginPath     = "/console/login"
	enterPath     = "/console/enter"
	handoffsPath  = "/console/handoffs"
	reviewsPath   = "/console/reviews"
	tasksPath     = "/console/tasks"
	agentsPath    = "/console/agents"
	endpointsPath = "/console/endpoints"
	leasesPath    = "/console/leases"
	sessionsPath  = "/console/sessions"
	policiesPath  = "/console/policies"
	budgetsPath   = "/console/budgets"
	ledgerPath    = "/console/ledger"
	spendingPath  = "/console/spending"
	eventsPath    = "/console/events"
	stopPath      = "/console/stop"
)

func handoffPath(id string) string  { return handoffsPath + "/" + id }
func reviewPath(task string) string { return reviewsPath + "/" + task }
func taskPath(id string) string     { return tasksPath + "/" + id }
func agentPath(id string) string    { return agentsPath + "/" + id }
func sessionPath(id string) string  { return sessionsPath + "/" + id }
func policyPath(name string) string { return policiesPath + "/" + name }
func budgetPath(id string) string   { return budgetsPath + "/" + id }

// routes is the whole console, in the order of the navigation.
func routes() []route {
	const (
		handoff, review, task = handoffsPath + "/:id", reviewsPath + "/:task", tasksPath + "/:id"
		agent, budget         = agentsPath + "/:id", budgetsPath + "/:id"
		session, prompt       = sessionsPath + "/:id", sessionsPath + "/:id/prompts/:prompt"

		readHandoff  = "GET /api/v1/handoffs/:id"
		readTask     = "GET /api/v1/tasks/:id"
		readEvidence = "GET /api/v1/tasks/:id/evidence"
		readReports  = "GET /api/v1/tasks/:id/reports"
		readLogs     = "GET /api/v1/tasks/:id/logs"
		readLedger   = "GET /api/v1/ledger"
		readSpending = "GET /api/v1/spending"
		readEnvelope = "GET /api/v1/envelopes/:id"
		readEvents   = "GET /api/v1/events"
		submit       = "POST /api/v1/tasks"
		retry        = "POST /api/v1/tasks/:id/retry"
		topUp        = "POST /api/v1/envelopes/:id/top-up"
		expire       = "POST /api/v1/leases/:task/expire"
		reject       = "POST /api/v1/reviews/:task/reject"
		command      = "POST /api/v1/agents/:id/commands"
		readSessions = "GET /api/v1/agent-sessions"
		policy       = policiesPath + "/:id"
		policyRoute  = "/api/agents/:name/heartbeat"
		readPrompt   = "GET /api/v1/agent-sessions/:id/prompts/:prompt"
	)
	return []route{
		direct("login", get, loginPath, nil, showLogin),
		direct("login.send", post, loginPath, nil, signIn),
		direct("enter", get, enterPath, nil, redeemCode),
		direct("logout", post, "/console/logout", nil, signOut),
		direct("theme", post, "/console/theme", nil, chooseTheme),

		show("overview", homePath, personScopes, showOverview,
			"GET /api/v1/stats", "GET /api/v1/handoffs", "GET /api/v1/reviews").inNav("Overview"),

		show("handoffs", handoffsPath, personScopes, listHandoffs, "GET /api/v1/handoffs").inNav("Hand-offs"),
		show("handoff", handoff, personScopes, showHandoff, readHandoff, readTask),
		direct("handoff.full", get, handoff+"/full/:part", personScopes, showHandoffText, readHandoff, readTask),
		act("handoff.claim", handoff+"/claim", personScopes, showHandoff, claimHandoff,
			"POST /api/v1/handoffs/:id/claim"),
		act("handoff.answer", handoff+"/answer", personScopes, showHandoff, answerHandoff,
			"POST /api/v1/handoffs/:id/answer"),
		act("handoff.finish", handoff+"/finish", personScopes, showHandoff, finishHandoff,
			"POST /api/v1/handoffs/:id/finish"),
		act("handoff.cancel", handoff+"/cancel", personScopes, showHandoff, cancelHandoff,
			"POST /api/v1/handoffs/:id/cancel"),
		act("handoff.retry", handoff+"/retry", operatorScopes, showHandoff, retryHandoff, retry),
		act("handoff.topup", handoff+"/top-up", operatorScopes, showHandoff, topUpHandoff, topUp),

		show("reviews", reviewsPath, personScopes, listReviews, "GET /api/v1/reviews").inNav("Reviews"),
		show("reviews.choose", reviewsPath+"/approve", personScopes, showApprovalForm, "GET /api/v1/reviews"),
		direct("reviews.approve", post, reviewsPath+"/approve", personScopes, approveReviews,
			"POST /api/v1/reviews/approve"),
		show("review", review, personScopes, showReview, readTask, readEvidence, readReports, readLogs, readLedger),
		direct("review.full", get, review+"/full/:part", personScopes, showReviewText,
			readTask, readEvidence, readReports, readLogs, readLedger),
		act("review.approve", review+"/approve", personScopes, showReview, approveReview,
			"POST /api/v1/reviews/:task/approve"),
		act("review.reject", review+"/reject", personScopes, showRefusedReject, rejectReview, reject),
		direct("review.fix", post, review+"/fix", personScopes, func(v *request) error { return v.show(showFixForm) },
			reject),

		direct("tasks", get, tasksPath, personScopes, listTasks, "GET /api/v1/tasks").inNav("Tasks"),
		show("task.new", tasksPath+"/new", operatorScopes, showTaskForm, submit),
		act("task.submit", tasksPath, operatorScopes, showTaskForm, submitTask, submit),
		show("task", task, personScopes, showTask,
			readTask, "GET /api/v1/tasks/:id/explain", readReports, readEvidence, readLogs,
			"GET /api/v1/tasks/:id/messages"),
		act("task.cancel", task+"/cancel", operatorScopes, showTask, cancelTask, "POST /api/v1/tasks/:id/cancel"),
		act("task.retry", task+"/retry", operatorScopes, showTask, retryTask, retry),
		act("task.expire", task+"/expire", operatorScopes, showTask, expireTask, expire),
		act("task.tell", task+"/tell", personScopes, showTask, tellTask, "POST /api/v1/tasks/:id/messages"),
		act("task.topup", task+"/top-up", operatorScopes, showTask, topUpTask, topUp),
		show("task.log", task+"/log", personScopes, showLog, readLogs),
		direct("task.raw", get, task+"/log/raw", personScopes, showRawLog, readLogs),
		show("task.reports", task+"/reports", personScopes, showReports, readReports),
		show("task.diff", task+"/diff", personScopes, showDiff, readEvidence),
		show("task.input", task+"/input", personScopes, showInput, readTask),
		show("task.output", task+"/output", personScopes, showOutput, readTask),

		show("agents", agentsPath, operatorScopes, listAgents, "GET /api/v1/agents", "GET /api/v1/pools").
			inNav("Agents"),
		show("agent", agent, operatorScopes, showAgent, "GET /api/v1/agents/:id", "GET /api/v1/agents/:id/messages",
			readSessions),
		act("agent.tell", agent+"/tell", operatorScopes, showAgent, tellAgent, "POST /api/v1/agents/:id/messages"),
		act("agent.drain", agent+"/drain", operatorScopes, showAgent, drainAgent, "PATCH /api/v1/agents/:id/status"),
		act("agent.deregister", agent+"/deregister", operatorScopes, showAgent, deregisterAgent,
			"DELETE /api/v1/agents/:id"),
		act("agent.ping", agent+"/ping", operatorScopes, showAgent, pingAgent, command),
		act("agent.stop", agent+"/stop-task", operatorScopes, showAgent, stopTask, command),

		show("endpoints", endpointsPath, operatorScopes, listEndpoints, "GET /api/v1/agents", "GET /api/v1/tasks").
			inNav("Endpoints").at("n"),

		show("sessions", sessionsPath, personScopes, listSessions, readSessions).inNav("Sessions"),
		show("session", session, personScopes, showSession, "GET /api/v1/agent-sessions/:id",
			"GET /api/v1/agent-sessions/:id/prompts"),
		act("session.prompt", session+"/prompts", operatorScopes, showSession, promptSession,
			"POST /api/v1/agent-sessions/:id/prompts"),
		act("session.stop", session+"/stop", operatorScopes, showSession, stopSession,
			"POST /api/v1/agent-sessions/:id/stop"),
		act("session.wake", session+"/wake", operatorScopes, showSession, wakeSession, "POST "+policyRoute+"/wake"),
		direct("prompt.full", get, prompt+"/full/:part", personScopes, showPromptText, readPrompt),
		direct("prompt.answer", get, prompt+"/answer", personScopes, showRawAnswer, readPrompt),

		direct("policies", get, policiesPath, personScopes, listPolicies, "GET "+policyRoute).inNav("Wake policies"),
		show("policy", policy, personScopes, showPolicy, "GET "+policyRoute, "GET "+policyRoute+"/status",
			"GET "+policyRoute+"/wakes"),
		act("policy.write", policy, operatorScopes, showPolicy, writePolicy, "PUT "+policyRoute),
		direct("policy.check", post, policy+"/check", personScopes, checkPolicy, "POST "+policyRoute+"/validate"),
		act("policy.choose", policy+"/choose", operatorScopes, showPolicy, choosePolicy, "PUT "+policyRoute),
		act("policy.delete", policy+"/delete", operatorScopes, showPolicy, deletePolicy, "DELETE "+policyRoute),
		show("policy.history", policy+"/history", personScopes, showPolicyHistory, "GET "+policyRoute+"/history"),
		act("policy.rollback", policy+"/rollback", operatorScopes, showPolicyHistory, rollBackPolicy,
			"POST "+policyRoute+"/rollback"),

		show("leases", leasesPath, personScopes, listLeases, "GET /api/v1/leases").inNav("Leases"),
		act("lease.expire", leasesPath+"/:id/expire", operatorScopes, listLeases, expireLease, expire),

		show("budgets", budgetsPath, personScopes, showBudgets, readEnvelope, "GET /api/v1/tasks").inNav("Budgets"),
		show("budget", budget, personScopes, showBudget, readEnvelope, readLedger),
		act("budget.topup", budget+"/top-up", operatorScopes, showBudget, topUpBudget, topUp),
		show("ledger", ledgerPath, personScopes, showLedger, readLedger),
		show("spending", spendingPath, personScopes, showSpending, readSpending),
		direct("spending.csv", get, spendingPath+"/csv", personScopes, saveSpending, readSpending),

		show("events", eventsPath, personScopes, listEvents, readEvents).inNav("Events"),
		direct("events.export", get, eventsPath+"/export", personScopes, exportEvents, readEvents),
		direct("live", get, "/console/live", personScopes, streamEvents, readEvents),

		show("stop", stopPath, operatorScopes, showStop, "POST /api/v1/pause"),
		act("pause", "/console/pause", operatorScopes, showStop, pause, "POST /api/v1/pause"),
		act("resume", "/console/resume", operatorScopes, showStop, resume, "POST /api/v1/resume"),
	}
}

// direct is a route whose handler answers the request itself.
func direct(name, method, path string, scopes []picket.Scope, handle func(*request) error, apiRoutes ...string) route {
	return route{name: name, method: method, path: path, scopes: scopes, handle: handle, apiRoutes: apiRoutes}
}

// show is the route of a page.
func show(name, path string, scopes []picket.Scope, build pageBuilder, apiRoutes ...string) route {
	return direct(name, get, path, scopes, func(v *request) error { return v.show(build) }, apiRoutes...)
}

// act is the route of a form that changes something. If do refuses, the page of again
// is shown with the problem and with what the person has typed.
func act(name, path string, scopes []picket.Scope, again pageBuilder, do decision, apiRoutes ...string) route {
	return direct(name, post, path, scopes, func(v *request) error { return v.decide(again, do) }, apiRoutes...)
}

// inNav gives the page an entry in the navigation.
func (r route) inNav(label string) route {
	r.nav, r.letter = label, r.name[:1]
	return r
}

// at gives the page another letter than the first one of its name.
func (r route) at(letter string) route {
	r.letter = letter
	return r
}

func (r route) isPublic() bool { return len(r.scopes) == 0 }

// Permission is who may use a route of the console, beside admin.
type Permission struct {
	Route     string // method and path
	Scopes    []picket.Scope
	APIRoutes []string // the routes of the API that do the same
}

// Permissions are those of all routes, to be held against those of the API.
func Permissions() []Permission {
	var all []Permission
	for _, r := range routes() {
		all = append(all, Permission{r.method + " " + r.path, r.scopes, r.apiRoutes})
	}
	return all
}
