package console

import (
	"net/http"
	"slices"

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
}

// The scopes of pages. The key of an agent is for programs and opens no page.
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

// show is the route of a page, and act that of a form that changes something.
// Without scopes a route is open to everybody.
func show(name, path string, scopes []picket.Scope, handle func(*request) error, apiRoutes ...string) route {
	return route{name: name, method: get, path: path, scopes: scopes, handle: handle, apiRoutes: apiRoutes}
}

func act(name, path string, scopes []picket.Scope, handle func(*request) error, apiRoutes ...string) route {
	return route{name: name, method: post, path: path, scopes: scopes, handle: handle, apiRoutes: apiRoutes}
}

// inNav gives the page an entry in the navigation.
func (r route) inNav(label string) route {
	r.nav = label
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
