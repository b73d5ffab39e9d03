package console

import (
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

// Endpoints are the A2A endpoints of a namespace.
type Endpoints struct {
	URL string // of the endpoint of the orchestrator, without a slash at its end
	// PublicCards is set if cards of the orchestrator and of pools can be read without a key.
	PublicCards bool
	Pools       []PoolEndpoint
}

// PoolEndpoint is the endpoint of one pool.
type PoolEndpoint struct {
	Role        string
	Name        string
	Description string
	URL         string // without a slash at its end
	Skills      []EndpointSkill
	MaxQueue    int          // tasks that may wait for the pool
	Reviewed    bool         // people review results before clients see them
	Budget      budget.Money // what one task of a client may cost
}

// EndpointSkill is a skill that a card describes.
type EndpointSkill struct {
	ID          string
	Name        string
	Description string
}

const (
	// maxPoolEndpoints is how many pools the page of endpoints shows.
	maxPoolEndpoints = 20
	// maxInstances is how many agents it shows of each.
	maxInstances = 10
	cardPath     = "/.well-known/agent-card.json"
)

// endpointList is what the page of endpoints shows. It is empty if no pool has an endpoint.
type endpointList struct {
	URL         string
	Card        string
	PublicCards bool
	Commands    string
	Pools       []poolEndpointView
	More        int // pools that are not shown
}

// poolEndpointView is the endpoint of a pool with the agents that live and the tasks of clients.
type poolEndpointView struct {
	PoolEndpoint
	Card      string
	Waiting   int64 // tasks of clients in the queue
	Open      int64 // all tasks of clients that have not ended
	Instances []instanceView
	Living    int
	Commands  string
}

// Unseen is how many living agents the page leaves out.
func (p poolEndpointView) Unseen() int { return p.Living - len(p.Instances) }

// instanceView is an agent of a pool with the address of its own endpoint.
type instanceView struct {
	picket.AgentRow
	URL string
}

func listEndpoints(v *request) (page, error) {
	list := endpointList{}
	// Not "task.": counting the tasks of clients reads up to 2,000 of them for each pool.
	p := page{name: "endpoints", title: "Endpoints", topics: []string{"agent.", "namespace."}, body: &list}
	if v.console.cfg.Endpoints == nil {
		return p, nil
	}
	all, err := v.console.cfg.Endpoints(v.ctx(), v.login.Principal.Namespace)
	if err != nil || all == nil || len(all.Pools) == 0 {
		return p, err
	}
	list.URL, list.Card, list.PublicCards = all.URL+"/a2a", all.URL+cardPath, all.PublicCards
	list.Commands = keyCommand("*") + "\n" + cardCommand(all.URL)
	shown, more := firstRows(all.Pools, maxPoolEndpoints)
	list.More = more
	for _, pool := range shown {
		view, err := v.viewEndpoint(pool)
		if err != nil {
			return page{}, err
		}
		list.Pools = append(list.Pools, view)
	}
	return p, nil
}

// viewEndpoint asks who lives in a pool and what clients have given it.
func (v *request) viewEndpoint(pool PoolEndpoint) (poolEndpointView, error) {
	view := poolEndpointView{PoolEndpoint: pool, Card: pool.URL + cardPath, Commands: endpointCommands(pool)}
	living, err := v.backend.Agents.Agents(v.ctx(), picket.AgentQuery{
		Role:     pool.Role,
		Statuses: []picket.AgentStatus{picket.AgentActive, picket.AgentUnhealthy, picket.AgentDraining},
		Limit:    maxInstances,
	})
	if err != nil {
		return view, err
	}
	view.Living = living.Total
	for _, a := range living.Agents {
		view.Instances = append(view.Instances, instanceView{a, pool.URL + "/instances/" + a.AgentID})
	}
	view.URL += "/a2a"
	queued := []picket.TaskState{picket.TaskQueued}
	if view.Waiting, err = v.countClientTasks(picket.ClientTaskQuery{Role: pool.Role, States: queued}); err != nil {
		return view, err
	}
	view.Open, err = v.countClientTasks(picket.ClientTaskQuery{Role: pool.Role, Handoffs: picket.HandoffKinds,
		States: []picket.TaskState{picket.TaskQueued, picket.TaskLeased, picket.TaskReview}})
	return view, err
}

func (v *request) countClientTasks(q picket.ClientTaskQuery) (int64, error) {
	q.Limit = 1
	found, err := v.backend.Endpoints.ClientTasks(v.ctx(), q)
	return found.Total, err
}

// endpointCommands make a key for a client, show the card of a pool to it, and send a task.
func endpointCommands(pool PoolEndpoint) string {
	return strings.Join([]string{keyCommand(pool.Role), cardCommand(pool.URL),
		"picket a2a send " + shellWord(pool.URL) + ` "Say hello." --token-env PARTNER`}, "\n")
}

func keyCommand(role string) string {
	return "export PARTNER=$(picket key create partner --scope client --role " + shellWord(role) + ")"
}

func cardCommand(url string) string {
	return "picket a2a card " + shellWord(url) + " --token-env PARTNER"
}

var plainShellWord = lazyregexp.New(`^[A-Za-z0-9._:/@%+,-]+$`)

// shellWord is a text as one word of a shell command.
func shellWord(s string) string {
	if plainShellWord().MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
