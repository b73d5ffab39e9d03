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
	// as are the routes of the API that do the same: who may is the same there,
	// and a test holds it so.
	as     []string
	handle func(*visit) error
	// nav is the label of the page in the navigation; empty for the others.
	nav string
}

// Who may. An agent's key is for programs: it opens no page.
var (
	people    = []picket.Scope{picket.ScopeReviewer, picket.ScopeOperator}
	operators = []picket.Scope{picket.ScopeOperator}
)

const (
	get  = http.MethodGet
	post = http.MethodPost

	home      = "/console/"
	loginPath = "/console/login"
	enterPath = "/console/enter"
)

// routes is the whole console, in the order of the navigation. Each page's
// file has its own lines.
func routes() []route {
	return slices.Concat(
		entrance(),
		overviewPages(),
		handoffPages(),
		reviewPages(),
		taskListPages(),
		submitPages(),
		taskPages(),
		textPages(),
		agentPages(),
		leasePages(),
		budgetPages(),
		eventPages(),
		stopPages(),
		liveRoutes(),
	)
}

func (r route) open() bool { return len(r.scopes) == 0 }

// Right is who may use a route of the console, beside admin.
type Right struct {
	Route  string // method and path
	Scopes []picket.Scope
	As     []string // the routes of the API that do the same
}

// Rights are those of all routes, to be held against those of the API.
func Rights() []Right {
	var all []Right
	for _, r := range routes() {
		all = append(all, Right{r.method + " " + r.path, r.scopes, r.as})
	}
	return all
}
