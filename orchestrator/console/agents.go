package console

import (
	"errors"
	"slices"
	"time"

	"github.com/picket-dev/picket"
)

// agentList is what the page shows.
type agentList struct {
	Tabs      []tab
	Filter    filter
	Rows      []picket.AgentRow
	Total     int
	Next      string
	Running   *runningView
	Pools     []picket.Pool
	MorePools int
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

func listAgents(v *request) (page, error) {
	f := v.filter("status", "role", "cursor")
	list := agentList{Filter: f}
	q := picket.AgentQuery{Role: f["role"], Limit: pageRows, Cursor: f["cursor"], Attached: true}
	for _, view := range agentViews {
		t := tab{
			Label:   view.name,
			Path:    f.with("cursor", "").with("status", view.name).link(agentsPath),
			Counted: true,
			Current: view.name == f["status"],
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
		q.Statuses = []picket.AgentStatus{picket.AgentStatus(f["status"])} // the engine says what it may be
	}
	err := v.fillAgents(&list, q)
	if err == nil {
		list.Running, err = v.running()
	}
	return page{
		name:    "agents",
		title:   "Agents",
		topics:  []string{"agent.", "task.", "lease.", "run.", "namespace."},
		body:    list,
		problem: err,
	}, nil
}

func (v *request) fillAgents(list *agentList, q picket.AgentQuery) error {
	found, err := v.backend.Agents.Agents(v.ctx(), q)
	if err != nil {
		return err
	}
	list.Rows, list.Total = found.Agents, found.Total
	if found.NextCursor != "" {
		list.Next = list.Filter.with("cursor", found.NextCursor).link(agentsPath)
	}
	pools, err := v.backend.Agents.Pools(v.ctx(), "", "")
	living := slices.DeleteFunc(pools, func(p picket.Pool) bool { return p.Living() == 0 })
	list.Pools, list.MorePools = firstRows(living, pageRows)
	return err
}

// memberCounts are how many members of a pool have which status, without those that are gone.
func memberCounts(p picket.Pool) (counts []figure) {
	for _, s := range picket.AgentStatuses {
		if n := p.Members[s]; n > 0 && !s.Gone() {
			counts = append(counts, figure{Name: string(s), Count: int64(n)})
		}
	}
	return counts
}

// agentView is what the page of an agent shows.
type agentView struct {
	picket.Agent
	Owner     string
	SilenceAt picket.Instant // when silence makes it unhealthy, or dead where it is unhealthy already
	Metadata  excerpt
	Leases    []picket.LiveLease
	More      int // leases that are not shown
	Events    []picket.Event
	Messages  conversation
	Sessions  sessionRows
}

func showAgent(v *request) (page, error) {
	var a agentView
	var err error
	if a.Agent, a.Owner, err = v.backend.Agents.Agent(v.ctx(), v.Param("id")); err != nil {
		return page{}, agentNotFound(err)
	}
	if string(a.Agent.Metadata) != "{}" {
		a.Metadata = newExcerpt(indentJSON(a.Agent.Metadata), maxExcerpt)
	}
	after := a.Heartbeat.UnhealthyAfterSeconds
	if a.Status != picket.AgentActive {
		after = a.Heartbeat.DeadAfterSeconds
	}
	if !a.Status.Gone() {
		a.SilenceAt = a.LastHeartbeatAt + picket.Instant((time.Duration(after) * time.Second).Milliseconds())
	}
	return page{
		name:   "agent",
		title:  "Agent " + a.AgentID,
		topics: []string{a.AgentID, "namespace."},
		body:   &a,
	}, v.loadAgentWork(&a)
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
	held, err := v.backend.Leases.FindLeases(v.ctx(), picket.LeaseQuery{AgentID: a.AgentID, Limit: pageRows})
	if err != nil {
		return err
	}
	a.Leases, a.More = held.Leases, int(held.Total)-len(held.Leases)
	page, err := v.backend.Events.Events(v.ctx(),
		picket.EventQuery{Agent: a.AgentID, NewestFirst: true, Limit: maxEventsShown})
	if a.Events = page.Events; err != nil {
		return err
	}
	if a.Messages, err = v.conversation("agent", a.AgentID, !a.Status.Gone()); err != nil {
		return err
	}
	a.Sessions, err = v.agentSessions(picket.AgentSessionQuery{AgentID: a.AgentID, Limit: maxSessionsOfAgent})
	return err
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

func drainAgent(v *request, by picket.Caller, _ string) (string, error) {
	return v.agentFlash("draining"), v.changeAgent(by, v.Param("id"), picket.AgentDraining)
}

func deregisterAgent(v *request, by picket.Caller, _ string) (string, error) {
	return v.agentFlash("deregistered"), v.changeAgent(by, v.Param("id"), picket.AgentDeregistered)
}

func pingAgent(v *request, by picket.Caller, reason string) (string, error) {
	_, err := v.backend.Agents.CommandAgent(v.ctx(), by, v.Param("id"),
		picket.AgentCommand{Command: picket.CommandPing, Reason: reason})
	return v.agentFlash("pinged"), err
}

func stopTask(v *request, by picket.Caller, reason string) (string, error) {
	_, err := v.backend.Agents.CommandAgent(v.ctx(), by, v.Param("id"), picket.AgentCommand{
		Command: picket.CommandStopTask,
		TaskID:  v.formWord("task"),
		Reason:  reason,
	})
	return v.agentFlash("stopping"), err
}

// agentFlash is the page of the agent in the address, which reports what was done.
func (v *request) agentFlash(code string) string {
	return withFlash(agentPath(v.Param("id")), code, "")
}
