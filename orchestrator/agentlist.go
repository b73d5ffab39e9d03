package orchestrator

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Agents pages through the registry: by status in the order asked for, then by
// role where the key sees only its own pools, then by id.
func (e *Engine) Agents(ctx context.Context, q picket.AgentQuery) (picket.AgentPage, error) {
	w, err := newAgentWalk(&q)
	if err != nil {
		return picket.AgentPage{}, err
	}
	page := picket.AgentPage{Agents: []picket.AgentRow{}}
	last := "" // cursor of the last row of the page
	for {
		// One row more than the page holds tells whether there is another page.
		rows, _, err := e.nextAgents(ctx, &w, q.Limit+1-len(page.Agents))
		if err != nil {
			return picket.AgentPage{}, err
		}
		for _, row := range rows {
			if len(page.Agents) == q.Limit {
				page.NextCursor = last
				break
			}
			page.Agents = append(page.Agents, row.AgentRow)
			last = row.Roster + ":" + row.AgentID
		}
		if w.done || page.NextCursor != "" {
			break
		}
	}
	if page.Total = len(page.Agents); q.Cursor == "" && page.NextCursor == "" {
		return page, nil
	}
	page.Total, err = e.countAgents(ctx, q)
	return page, err
}

// Pools sums up the agents of each role, by name: of one role, or with role ""
// of all. With an owner, a key id, they are those in which that key has
// registered an agent. What the workflow file says of a pool is not filled in.
func (e *Engine) Pools(ctx context.Context, role, owner string) ([]picket.Pool, error) {
	if err := picket.CheckOptionalName("role_id", role); err != nil {
		return nil, err
	}
	pools := []picket.Pool{}
	for from, after := "", ""; ; {
		r := e.run(ctx, "pools", role, owner, from, after)
		var v struct {
			From  string     `reply:"from"`  // the role to go on with
			After string     `reply:"after"` // the agent to go on after
			Pools []poolView `reply:"pools"`
		}
		r.Decode(&v)
		for _, p := range v.Pools {
			pools = p.addTo(pools)
		}
		if from, after = v.From, v.After; r.Err != nil || from == "" {
			return pools, r.Err
		}
	}
}

// poolView is what the script pools found out about a pool, or about a part of it.
type poolView struct {
	Role    string            `reply:"role"`
	Max     int64             `reply:"max"`
	Load    int64             `reply:"load"`
	Members map[string]string `reply:"members"` // by status, in the first part
}

// addTo adds the pool to the last one, or begins with a new one.
func (v poolView) addTo(pools []picket.Pool) []picket.Pool {
	if n := len(pools); n == 0 || pools[n-1].RoleID != v.Role {
		pools = append(pools, picket.Pool{RoleID: v.Role, Members: map[picket.AgentStatus]int{}})
	}
	p := &pools[len(pools)-1]
	p.MaxConcurrentTasks += int(v.Max)
	p.CurrentLoad += int(v.Load)
	p.AvailableCapacity = p.MaxConcurrentTasks - p.CurrentLoad
	for status, n := range v.Members {
		p.Members[picket.AgentStatus(status)] = int(store.ParseInt(n))
	}
	return pools
}

func (e *Engine) countAgents(ctx context.Context, q picket.AgentQuery) (total int, err error) {
	q.Cursor = ""
	w, err := newAgentWalk(&q)
	for err == nil && !w.done {
		var n int
		_, n, err = e.nextAgents(ctx, &w, 0)
		total += n
	}
	return total, err
}

// agentWalk is how far a walk over the registry has come.
type agentWalk struct {
	filter []any // arguments of the script that stay
	roster string
	after  string
	done   bool
}

// agentRow is an agent as the script agents shows it.
type agentRow struct {
	picket.AgentRow
	Roster string `reply:"roster"`
	Tags   string `reply:"tags"` // capabilities
	Max    string `reply:"max"`
	Load   string `reply:"load"`
}

// maxAgentPage is how many agents a page holds at most.
const maxAgentPage = 1000

// newAgentWalk checks a query, fills in its defaults and begins where its cursor says.
func newAgentWalk(q *picket.AgentQuery) (agentWalk, error) {
	var err error
	if q.Limit, err = pageLimit(q.Limit, maxAgentPage, maxAgentPage); err != nil {
		return agentWalk{}, err
	}
	if q.MinAvailable != nil && *q.MinAvailable < 0 {
		return agentWalk{}, picket.Invalid("min_available_capacity", "Send 0 or more.", "min_available_capacity is %d",
			*q.MinAvailable)
	}
	caps, err := picket.NormalizeCapabilities("capabilities", q.Capabilities)
	if err := cmp.Or(picket.CheckOptionalName("role_id", q.Role), err); err != nil {
		return agentWalk{}, err
	}
	any1 := ""
	if len(caps) > 0 {
		any1 = "," + strings.Join(caps, ",") + ","
	}
	if len(q.Statuses) == 0 {
		q.Statuses = []picket.AgentStatus{picket.AgentActive}
	}
	w := agentWalk{filter: []any{q.Role, q.Owner, optionalIntArg(q.MinAvailable), any1}}
	for i, s := range q.Statuses {
		if !s.Valid() {
			return agentWalk{}, picket.Invalid("status",
				"Send active, unhealthy, draining, dead, deregistered, or * for all of them.",
				"%.40q is not a status of an agent", s)
		}
		if !slices.Contains(q.Statuses[:i], s) {
			w.filter = append(w.filter, string(s))
		}
	}
	if q.Cursor == "" {
		return w, nil
	}
	var found bool
	w.roster, w.after, found = strings.Cut(q.Cursor, ":")
	status, _, _ := strings.Cut(w.roster, "|")
	if !found || !picket.AgentStatus(status).Valid() || picket.CheckName("cursor", w.after) != nil {
		return agentWalk{}, badCursor("next_cursor")
	}
	return w, nil
}

// nextAgents takes up to limit agents more, or counts where limit is 0.
func (e *Engine) nextAgents(ctx context.Context, w *agentWalk, limit int) (rows []agentRow, n int, err error) {
	r := e.run(ctx, "agents", append([]any{limit, w.roster, w.after}, w.filter...)...)
	var page struct {
		Roster string     `reply:"roster"` // to go on in
		After  string     `reply:"after"`  // the id to go on after
		Found  int64      `reply:"found"`
		Rows   []agentRow `reply:"rows"`
	}
	r.Decode(&page)
	w.roster, w.after, w.done = page.Roster, page.After, page.Roster == ""
	for i, row := range page.Rows {
		page.Rows[i].Capabilities, page.Rows[i].Capacity = splitTags(row.Tags), capacity(row.Max, row.Load)
	}
	return page.Rows, int(page.Found), r.Err
}
