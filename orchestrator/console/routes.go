package console

import (
	"net/http"
	"slices"

	"github.com/picket-dev/picket"
)

// route is one line of the console: a page or a decision. Its scopes are who
// may, beside admin; without scopes it is open to everybody, signed in or not.
// Anything a key may not do is not shown to it (see [view.May]) and refused
// when asked for all the same.
type route struct {
	name   string // what templates ask for: {{if $.May "handoff.answer"}}
	method string
	path   string // echo's form: /console/handoffs/:id
	scopes []picket.Scope
	// apiRoutes are the routes of the API that do the same: who may is the same there,
	// and a test holds it so.
	apiRoutes []string
	handle    func(*request) error
	// nav is the label of the page in the navigation; empty for the others.
	nav string
}

// The scopes of pages. An agent's key is for programs: it opens no page.
var (
	personScopes   = []picket.Scope{picket.ScopeReviewer, picket.ScopeOperator}
	operatorScopes = []picket.Scope{picket.ScopeOperator}
)

const (
	get  = http.MethodGet
	post = http.MethodPost

	homePath  = "/console/"
	loginPath = "/console/login"
	enterPath = "/console/enter"
)

// routes is the whole console, in the order of the navigation. Each page's
// file has its own lines.
func routes() []route {
	return slices.Concat(
		loginRoutes(),
		overviewRoutes(),
		handoffRoutes(),
		reviewRoutes(),
		taskListRoutes(),
		submitRoutes(),
		taskRoutes(),
		textRoutes(),
		agentRoutes(),
		leaseRoutes(),
		budgetRoutes(),
		eventRoutes(),
		stopRoutes(),
		liveRoutes(),
	)
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
