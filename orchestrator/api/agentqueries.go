package api

import (
	"cmp"
	"slices"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// anyStatus is the value of ?status= that leaves the filter out.
const anyStatus = "*"

// visibleOwner is the key whose share of the registry may be seen; "" is all
// of it. Listing it tells who can do what, so an agent sees its own pools only.
func (r request) visibleOwner() string {
	if r.who.May(picket.ScopeOperator) {
		return ""
	}
	return r.owner()
}

func listAgents(r request) error {
	want, err := r.agentQuery()
	if err != nil {
		return err
	}
	if len(want.Statuses) == 0 { // of those asked for, no record can have any
		return r.respond(picket.AgentPage{}, nil)
	}
	page, err := r.engine.Agents(r.ctx(), want)
	if err == nil && page.Total == 0 && want.Role != "" {
		// Nothing is there, or nothing that this key may see: it is told which.
		if sees, err := r.seesPool(want.Role); err != nil || !sees {
			return cmp.Or(err, poolForbidden(want.Role))
		}
	}
	return r.respond(page, asParameter(err))
}

// agentQuery reads the parameters of RFC-0016 section 6.2.
func (r request) agentQuery() (want picket.AgentQuery, err error) {
	q := r.query("capabilities", "status", "role_id", "min_available_capacity", "attached", "limit",
		"cursor")
	want = picket.AgentQuery{
		Owner:        r.visibleOwner(),
		Capabilities: q.tags("capabilities"),
		Statuses:     q.statuses("status"),
		Role:         q.name("role_id"),
		Attached:     q.boolean("attached"),
	}
	if q.values.Get("min_available_capacity") != "" {
		n := int(q.number("min_available_capacity", 0, 0, maxCapacity))
		want.MinAvailable = &n
	}
	want.Limit = int(q.number("limit", maxAgents, 1, maxAgents))
	want.Cursor = q.cursor(maxAgentCursor, "next_cursor")
	return want, q.err
}

const (
	maxAgents       = 1000
	maxCapabilities = 32
	maxCapacity     = 1_000_000
	maxAgentCursor  = 512
)

// tags reads capabilities, separated by commas.
func (q *query) tags(name string) []string {
	all := q.list(name)
	for _, t := range all {
		q.fail(picket.CheckCapability("?"+name, t))
	}
	if len(all) > maxCapabilities {
		q.fail(web.BadParameter(name, "Ask for fewer.", "%s has %d values, at most %d are allowed", name, len(all),
			maxCapabilities))
	}
	return all
}

// statuses reads statuses, separated by commas: active unless others are named,
// * for all. The RFC knows registering, too, but no record stays in it, so it
// finds nothing: what is answered can be empty.
func (q *query) statuses(name string) []picket.AgentStatus {
	sent := q.list(name)
	if len(sent) == 0 {
		return []picket.AgentStatus{picket.AgentActive}
	}
	known := append([]picket.AgentStatus{anyStatus, picket.AgentRegistering}, picket.AgentStatuses...)
	var all []picket.AgentStatus
	for _, s := range sent {
		all = append(all, oneOf(q, name, s, known))
	}
	if slices.Contains(all, anyStatus) {
		return picket.AgentStatuses
	}
	return slices.DeleteFunc(all, func(s picket.AgentStatus) bool { return s == picket.AgentRegistering })
}

// getAgent shows a record to operators, to anyone who registered it and to the
// members of its pool.
func getAgent(r request) error {
	if err := r.noQuery(); err != nil {
		return err
	}
	id, err := r.id("agent")
	if err != nil {
		return err
	}
	agent, owner, err := r.engine.Agent(r.ctx(), id)
	if err != nil {
		return err
	}
	if owner == r.owner() {
		return r.respond(r.tagged(agent, nil))
	}
	sees, err := r.seesPool(agent.RoleID)
	if err == nil && !sees {
		err = picket.Refuse(picket.CodeForbidden,
			"Ask for an agent that this key has registered or that is in its pools, or use an operator's key.",
			"the agent was registered by another key and is in none of this key's pools")
	}
	return r.respond(r.tagged(agent, err))
}
