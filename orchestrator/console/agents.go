package console

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

const agentsPath = "/console/agents"

func agentPath(id string) string { return agentsPath + "/" + id }

func agentRoutes() []route {
	command := []string{"POST /api/v1/agents/:id/commands"}
	return []route{
		show("agents", agentsPath, operatorScopes, listAgents,
			"GET /api/v1/agents", "GET /api/v1/pools").inNav("Agents"),
		show("agent", agentsPath+"/:id", operatorScopes, showAgent, "GET /api/v1/agents/:id"),
		act("agent.drain", agentsPath+"/:id/drain", operatorScopes, drainAgent, "PATCH /api/v1/agents/:id/status"),
		act("agent.deregister", agentsPath+"/:id/deregister", operatorScopes, deregisterAgent,
			"DELETE /api/v1/agents/:id"),
		act("agent.ping", agentsPath+"/:id/ping", operatorScopes, pingAgent, command...),
		act("agent.stop", agentsPath+"/:id/stop-task", operatorScopes, stopTask, command...),
	}
}

// agentList is what the page shows.
type agentList struct {
	Tabs      []tab
	Status    string
	Role      string
	Rows      []agentListRow
	Total     int
	Next      string
	Pools     []poolRow
	MorePools int
}

type agentListRow struct {
	picket.AgentRow
	Path   string
	Load   bar
	Silent bool // the server has noticed its silence
}

type poolRow struct {
	picket.Pool
	Path    string
	Members []memberCount
	Load    bar
}

type memberCount struct {
	Status picket.AgentStatus
	N      int
}

// views of the registry: those who take part come first.
var agentViews = []struct {
	name     string
	statuses []picket.AgentStatus
}{
	{"", []picket.AgentStatus{picket.AgentActive, picket.AgentUnhealthy, picket.AgentDraining}},
	{"active", []picket.AgentStatus{picket.AgentActive}},
	{"unhealthy", []picket.AgentStatus{picket.AgentUnhealthy}},
	{"draining", []picket.AgentStatus{picket.AgentDraining}},
	{"dead", []picket.AgentStatus{picket.AgentDead}},
	{"deregistered", []picket.AgentStatus{picket.AgentDeregistered}},
}

func listAgents(v *request) error {
	if err := v.loadStats(); err != nil {
		return err
	}
	list := agentList{Status: v.parameter("status"), Role: v.parameter("role")}
	q := picket.AgentQuery{Role: list.Role, Limit: pageRows, Cursor: v.parameter("cursor")}
	for _, view := range agentViews {
		t := tab{
			Label:   view.name,
			Path:    queryPath(agentsPath, "status", view.name, "role", list.Role),
			Counted: true,
			Current: view.name == list.Status,
		}
		if view.name == "" {
			t.Label = "registered"
		}
		for _, s := range view.statuses {
			t.Count += v.stats.Agents[s]
		}
		if t.Current {
			q.Statuses = view.statuses
		}
		list.Tabs = append(list.Tabs, t)
	}
	if q.Statuses == nil {
		q.Statuses = []picket.AgentStatus{picket.AgentStatus(list.Status)} // the engine says what it may be
	}
	err := v.fillAgents(&list, q)
	return v.render(page{
		name:    "agents",
		title:   "Agents",
		topics:  []string{"agent.", "task.leased", "lease.", "namespace."},
		body:    list,
		problem: err,
	})
}

func (v *request) fillAgents(list *agentList, q picket.AgentQuery) error {
	found, err := v.backend.Agents.Agents(v.ctx(), q)
	if err != nil {
		return err
	}
	list.Total = found.Total
	for _, a := range found.Agents {
		list.Rows = append(list.Rows,
			agentListRow{a, agentPath(a.AgentID), capacityBar(a.Capacity),
				a.Status == picket.AgentUnhealthy || a.Status == picket.AgentDead})
	}
	if found.NextCursor != "" {
		list.Next = queryPath(agentsPath, "status", list.Status, "role", list.Role, "cursor", found.NextCursor)
	}
	pools, err := v.backend.Agents.Pools(v.ctx(), "", "")
	list.MorePools = max(len(pools)-pageRows, 0)
	for _, p := range pools[:min(len(pools), pageRows)] {
		row := poolRow{
			Pool: p,
			Path: queryPath(agentsPath, "role", p.RoleID),
			Load: ratioBar(p.CurrentLoad, p.MaxConcurrentTasks),
		}
		for _, s := range picket.AgentStatuses {
			if n := p.Members[s]; n > 0 && !s.Gone() {
				row.Members = append(row.Members, memberCount{s, n})
			}
		}
		list.Pools = append(list.Pools, row)
	}
	return err
}

// capacityBar is how full an agent is; nothing where it declares no maximum.
func capacityBar(c picket.Capacity) bar {
	if c.MaxConcurrentTasks == nil {
		return bar{}
	}
	return ratioBar(c.CurrentLoad, *c.MaxConcurrentTasks)
}

func ratioBar(n, of int) bar { return newBar(int64(of), int64(n), 0, 0) }

// agentView is what the page of an agent shows.
type agentView struct {
	picket.Agent
	Path      string
	Owner     string
	Load      bar
	SilenceAt picket.Instant // when silence makes it unhealthy, or dead where it is unhealthy already
	Metadata  excerpt
	Leases    []leaseRow
	More      int // leases that are not shown
	Events    []eventRow
	Form      formInput
	Gone      bool
	MayDrain  bool
}

func showAgent(v *request) error { return v.agentPage(formInput{}, nil) }

func (v *request) agentPage(typed formInput, problem error) error {
	if err := v.loadStats(); err != nil {
		return err
	}
	a := agentView{Path: agentPath(v.Param("id")), Form: typed}
	var err error
	if a.Agent, a.Owner, err = v.backend.Agents.Agent(v.ctx(), v.Param("id")); err != nil {
		return agentNotFound(err)
	}
	a.Load, a.Gone = capacityBar(a.Capacity), a.Status.Gone()
	a.MayDrain = a.Status == picket.AgentActive || a.Status == picket.AgentUnhealthy
	if string(a.Agent.Metadata) != "{}" {
		a.Metadata = newExcerpt(indentJSON(a.Agent.Metadata), maxExcerpt)
	}
	after := a.Heartbeat.UnhealthyAfterSeconds
	if a.Status != picket.AgentActive {
		after = a.Heartbeat.DeadAfterSeconds
	}
	if !a.Gone {
		a.SilenceAt = a.LastHeartbeatAt + picket.Instant((time.Duration(after) * time.Second).Milliseconds())
	}
	if err := v.loadAgentWork(&a); err != nil {
		return err
	}
	return v.render(page{
		name:    "agent",
		title:   "Agent " + a.AgentID,
		nav:     "agents",
		topics:  []string{a.AgentID, "namespace."},
		body:    a,
		problem: problem,
	})
}

// agentNotFound explains to a person that there is no record of an agent. A worker that takes
// leases has a name even if it is not registered.
func agentNotFound(err error) error {
	if !errors.Is(err, picket.CodeNotFound) {
		return err
	}
	return picket.Refuse(picket.CodeNotFound,
		"It may work without having registered: look for its name among the leases and events. Agents that are gone are deleted after the retention time.",
		"there is no such agent")
}

// loadAgentWork is what the agent holds and what it did last.
func (v *request) loadAgentWork(a *agentView) error {
	all, err := v.backend.Leases.Leases(v.ctx())
	if err != nil {
		return err
	}
	mine := slices.DeleteFunc(all, func(l picket.LiveLease) bool { return l.AgentID != a.AgentID })
	a.More = max(len(mine)-pageRows, 0)
	a.Leases = v.leaseRows(mine[:min(len(mine), pageRows)], nil)
	page, err := v.backend.Events.Events(v.ctx(),
		picket.EventQuery{Agent: a.AgentID, NewestFirst: true, Limit: maxEventsShown})
	a.Events = v.eventRows(page.Events)
	return err
}

// handleAgentForm does what a form of the page asks for.
func (v *request) handleAgentForm(form, did string, verb func(by picket.Caller, id, reason string) error) error {
	typed := formInput{Open: form, Reason: v.formValue("reason"), Task: v.formValue("task")}
	if err := v.decide(func(by picket.Caller, reason string) error {
		return verb(by, v.Param("id"), reason)
	}); err != nil {
		return v.agentPage(typed, err)
	}
	return v.redirectWithFlash(agentPath(v.Param("id")), did, "")
}

// changeAgent is about the registration that the person saw: of one made since
// then nothing is asked.
func (v *request) changeAgent(by picket.Caller, id string, to picket.AgentStatus) error {
	_, err := v.backend.Agents.ChangeAgent(v.ctx(), by, id, nil,
		picket.AgentStatusChange{Status: to, Incarnation: parseNumber(v.formValue("incarnation"))})
	if refusal, ok := picket.RefusalOf(err); ok && refusal.Code == picket.CodeAgentGone {
		// The engine tells the agent what to do.
		return picket.Refuse(picket.CodeAgentGone, "Look at it as it is now, then decide again.",
			"the agent has registered again, or has gone, since this page was opened")
	}
	return err
}

func drainAgent(v *request) error {
	return v.handleAgentForm("drain", "draining", func(by picket.Caller, id, _ string) error {
		return v.changeAgent(by, id, picket.AgentDraining)
	})
}

func deregisterAgent(v *request) error {
	return v.handleAgentForm("deregister", "deregistered", func(by picket.Caller, id, _ string) error {
		return v.changeAgent(by, id, picket.AgentDeregistered)
	})
}

func pingAgent(v *request) error {
	return v.handleAgentForm("ping", "pinged", func(by picket.Caller, id, reason string) error {
		_, err := v.backend.Agents.CommandAgent(v.ctx(), by, id,
			picket.AgentCommand{Command: picket.CommandPing, Reason: reason})
		return err
	})
}

func stopTask(v *request) error {
	return v.handleAgentForm("stop", "stopping", func(by picket.Caller, id, reason string) error {
		_, err := v.backend.Agents.CommandAgent(v.ctx(), by, id,
			picket.AgentCommand{
				Command: picket.CommandStopTask,
				TaskID:  strings.TrimSpace(v.formValue("task")),
				Reason:  reason,
			})
		return err
	})
}
