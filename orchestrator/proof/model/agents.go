package model

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The model's agents: what time, the agent itself and people make of one, and
// what that does to its leases.

// Thresholds that end ten seconds before a multiple of half a minute. The model's time passes in steps of half a
// minute. The store's time is a little faster, and a second ahead when its clock jumps.
const (
	heartbeatInterval = 15_000
	unhealthyAfter    = 50_000
	deadAfter         = 110_000
)

// modelAgent is the record of an agent.
type modelAgent struct {
	id          string
	role        string
	owner       string
	status      picket.AgentStatus
	reason      picket.LifecycleReason
	incarnation int64
	version     int64
	beat        int64
	drain       int // registered drain timeout in seconds, -1 for none
	drainUntil  int64
	drainDue    int64
	load        int
	commands    map[string]picket.AgentCommand
	order       string // the drain that is pending
}

// modelCaller is who asks.
type modelCaller struct {
	key      string
	operator bool
}

// serverActor is the actor of what time does.
const serverActor = "server"

// actor is how the log names who acts for an agent.
func (by modelCaller) actor(a *modelAgent) string {
	if a.owner == by.key && !by.operator {
		return a.id
	}
	return by.key
}

func (m *model) move(a *modelAgent, to picket.AgentStatus, why picket.LifecycleReason, actor string) {
	m.emit(picket.EventAgentLifecycle, fmt.Sprint(a.id, " ", a.status, " ", to, " ", why, " by ", actor))
	a.status, a.reason = to, why
	a.version++
	if to.Gone() {
		m.loseSessionLater(a.id, why)
	}
	for _, t := range m.tasks {
		if !m.takesTasks(a.id) && t.state == picket.TaskQueued && t.pin == a.id && t.where == "agent:"+a.id &&
			t.where != t.lane {
			t.unpin()
		}
	}
}

// holding lists the leases of an agent's incarnation, the first granted first.
func (m *model) holding(id string, incarnation int64) []*modelRun {
	var out []*modelRun
	for _, rid := range m.rids {
		if r := m.runs[rid]; r.state == picket.RunRunning && r.agent == id && r.incarnation == incarnation &&
			incarnation > 0 {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *modelRun) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.task, b.task))
	})
	return out
}

// serves tells whether the agent of a lease still takes part, as it did when it
// got it.
func (m *model) serves(r *modelRun) bool {
	if r.incarnation == 0 {
		return true
	}
	a := m.agents[r.agent]
	return a.incarnation == r.incarnation && !a.status.Gone()
}

// removeAgent ends the part of an agent, and then its leases: those that one step
// does not end are a chore.
func (m *model) removeAgent(a *modelAgent, to picket.AgentStatus, why picket.LifecycleReason, cause, actor string) {
	m.move(a, to, why, actor)
	if m.endLeasesOf(a.id, a.incarnation, cause, m.batch) == m.batch && len(m.holding(a.id, a.incarnation)) > 0 {
		id, incarnation := a.id, a.incarnation
		m.pendingChores[fmt.Sprintf("dead:%s:%d:%s", id, incarnation, cause)] = func() int {
			return m.endLeasesOf(id, incarnation, cause, 100)
		}
	}
}

func (m *model) endLeasesOf(id string, incarnation int64, cause string, limit int) int {
	held, a := m.holding(id, incarnation), m.agents[id]
	held = held[:min(limit, len(held))]
	class, dark := picket.ExitReleased, int64(math.MaxInt64)
	switch {
	case cause == "agent_dead":
		class, dark = picket.ExitAgentDead, m.now
	case a.incarnation == incarnation:
		dark = a.beat + deadAfter
	}
	for _, r := range held {
		// An adapter has killed what it runs when its agent may be dead of silence.
		m.tasks[r.task].deadline = min(m.tasks[r.task].deadline, dark)
		m.expire(r, class)
	}
	return len(held)
}

// takesTasks tells whether a registered agent may be given one.
func (m *model) takesTasks(id string) bool {
	a := m.agents[id]
	return a != nil && (a.status == picket.AgentActive || a.status == picket.AgentUnhealthy)
}

// due tells whether time has changed what an agent is.
func (m *model) due(a *modelAgent) bool {
	silent := m.now - a.beat
	switch a.status {
	case picket.AgentActive:
		return silent > unhealthyAfter
	case picket.AgentUnhealthy:
		return silent > deadAfter
	case picket.AgentDraining:
		return silent > deadAfter || m.now >= a.drainDue
	}
	return false
}

// judge writes that down, as often as it takes.
func (m *model) judge(a *modelAgent) (judged bool) {
	for m.due(a) {
		judged = true
		silent := a.beat + deadAfter + 1 // the first instant that is beyond
		switch {
		case a.status == picket.AgentActive:
			m.move(a, picket.AgentUnhealthy, picket.ReasonHeartbeatTimeout, serverActor)
		case a.status == picket.AgentUnhealthy || silent < a.drainDue:
			m.removeAgent(a, picket.AgentDead, picket.ReasonHeartbeatTimeout, "agent_dead", serverActor)
		case len(m.holding(a.id, a.incarnation)) == 0:
			m.move(a, picket.AgentDeregistered, picket.ReasonDrainCompleted, serverActor)
		default:
			m.emit(picket.EventAgentDrainOverdue, a.id)
			m.removeAgent(a, picket.AgentDead, picket.ReasonDrainTimeout, "drain_timeout", serverActor)
		}
	}
	return judged
}

func (m *model) judgeAll() (n int) {
	for _, id := range slices.Sorted(maps.Keys(m.agents)) {
		if m.judge(m.agents[id]) {
			n++
		}
	}
	return n
}

// endDrain ends a drain with the last lease.
func (m *model) endDrain(r *modelRun) {
	a := m.agents[r.agent]
	if r.incarnation > 0 && a.incarnation == r.incarnation && a.status == picket.AgentDraining &&
		len(m.holding(a.id, a.incarnation)) == 0 {
		m.move(a, picket.AgentDeregistered, picket.ReasonDrainCompleted, serverActor)
	}
}

// authorize is who may act for an agent, after time has been taken into account.
func (m *model) authorize(by modelCaller, id string) (*modelAgent, picket.Code) {
	a := m.agents[id]
	switch {
	case a == nil:
		return nil, picket.CodeNotFound
	case a.owner != by.key && !by.operator:
		return nil, picket.CodeForbidden
	}
	m.judge(a)
	return a, ""
}

func (m *model) register(o requestID, by modelCaller, id, role string, drain int) picket.Code {
	a := m.agents[id]
	if was, code, again := m.once(o); again {
		if code == "" && was[1] != fmt.Sprint(a.incarnation) {
			return picket.CodeAgentGone
		}
		return code
	}
	if a != nil && !a.status.Gone() {
		if m.judge(a); !a.status.Gone() {
			return picket.CodeStateConflict
		}
	}
	if a != nil && a.owner != by.key {
		return picket.CodeForbidden
	}
	why := picket.ReasonReRegistered
	if a == nil {
		why, a = picket.ReasonRegistered, &modelAgent{id: id, status: picket.AgentRegistering}
		m.agents[id] = a
	}
	m.incarnations = max(m.incarnations, m.floor) + 1
	*a = modelAgent{
		id:          id,
		role:        role,
		owner:       by.key,
		status:      a.status,
		incarnation: m.incarnations,
		beat:        m.now,
		drain:       drain,
		commands:    map[string]picket.AgentCommand{},
	}
	m.move(a, picket.AgentActive, why, id)
	m.remember(o, day, id, fmt.Sprint(a.incarnation))
	return ""
}

func (m *model) heartbeat(by modelCaller, id string, hb picket.Heartbeat) (*modelAgent, picket.Code) {
	a, code := m.authorize(by, id)
	if code != "" {
		return nil, code
	}
	if a.status.Gone() || hb.Incarnation > 0 && hb.Incarnation < a.incarnation {
		return nil, picket.CodeAgentGone
	}
	own := modelCaller{key: by.key}.actor(a) // a heartbeat is the agent's own, whatever its key may do
	a.beat = m.now
	if hb.CurrentLoad != nil {
		a.load = *hb.CurrentLoad
	}
	if a.status == picket.AgentUnhealthy {
		m.move(a, picket.AgentActive, picket.ReasonHeartbeatResumed, own)
	}
	switch {
	case a.status == picket.AgentDraining && len(m.holding(id, a.incarnation)) == 0:
		m.move(a, picket.AgentDeregistered, picket.ReasonDrainCompleted, serverActor)
	case a.status == picket.AgentActive && hb.Status == picket.AgentDraining:
		m.drain(a, nil, own)
	}
	for _, cid := range hb.HandledCommands {
		if cid != a.order {
			m.handled(a, cid, own)
		}
	}
	return a, ""
}

func (m *model) handled(a *modelAgent, cid, actor string) (c picket.AgentCommand) {
	if c, ok := a.commands[cid]; ok {
		delete(a.commands, cid)
		m.emit(picket.EventAgentCommand, a.id+" handled by "+actor)
		if a.order == cid {
			a.order = ""
		}
		return c
	}
	return c
}

func (m *model) drain(a *modelAgent, timeout *int, actor string) {
	m.move(a, picket.AgentDraining, picket.ReasonDrainInitiated, actor)
	ordered := m.handled(a, a.order, actor)
	seconds := 120
	switch {
	case timeout != nil:
		seconds = *timeout
	case ordered.DrainTimeoutSeconds != nil:
		seconds = *ordered.DrainTimeoutSeconds
	case a.drain >= 0:
		seconds = a.drain
	}
	a.drainUntil = m.now + int64(seconds)*1000
	a.drainDue = a.drainUntil
	if len(m.holding(a.id, a.incarnation)) == 0 {
		a.drainDue = min(a.drainUntil, m.now+heartbeatInterval)
	}
}

// change is a new status asked for, where match is the version that it is for,
// 0 for any.
func (m *model) change(by modelCaller, id string, match int64, to picket.AgentStatus,
	timeout *int) (*modelAgent, picket.Code) {
	a, code := m.authorize(by, id)
	switch {
	case code != "":
		return nil, code
	case match > 0 && match != a.version:
		return nil, picket.CodeVersion
	case a.status == to:
		return a, ""
	case to == picket.AgentDraining && (a.status == picket.AgentActive || a.status == picket.AgentUnhealthy):
		m.drain(a, timeout, by.actor(a))
		return a, ""
	case to == picket.AgentDeregistered && !a.status.Gone():
		m.removeAgent(a, picket.AgentDeregistered, picket.ReasonDeregistered, "agent_deregistered", by.actor(a))
		return a, ""
	}
	return nil, picket.CodeStateConflict
}

func (m *model) command(o requestID, by modelCaller, id, cid string, c picket.AgentCommand) (string, picket.Code) {
	if was, code, again := m.once(o); again {
		return first(was), code
	}
	a, code := m.authorize(by, id)
	switch {
	case code != "":
		return "", code
	case a.status.Gone():
		return "", picket.CodeAgentGone
	case c.Command == picket.CommandDrain && a.status == picket.AgentDraining:
		return "", picket.CodeStateConflict
	}
	drain := c.Command == picket.CommandDrain
	switch {
	case drain && a.order != "":
		cid = a.order
	case len(a.commands) >= picket.MaxPendingCommands:
		return "", picket.CodeRateLimited
	}
	if drain {
		a.order = cid
	}
	a.commands[cid] = c
	m.emit(picket.EventAgentCommand, a.id+" requested by "+by.actor(a))
	m.remember(o, day, cid)
	return cid, ""
}

// admit is whether an agent gets leases: 0 for one that has no record.
func (m *model) admit(who acquirer) (int64, picket.Code) {
	a := m.agents[who.id]
	if a == nil {
		return 0, ""
	}
	if _, code := m.authorize(who.by, who.id); code != "" {
		return 0, code
	}
	switch {
	case a.status.Gone() || who.incarnation > 0 && who.incarnation < a.incarnation:
		return 0, picket.CodeAgentGone
	case a.status == picket.AgentDraining:
		return 0, picket.CodeAgentDraining
	}
	return a.incarnation, ""
}

// replayAgents is what the model says about its agents, in the terms of the replay.
func (m *model) replayAgents() map[string]kit.ReplayedAgent {
	out := map[string]kit.ReplayedAgent{}
	for id, a := range m.agents {
		out[id] = kit.ReplayedAgent{Status: a.status, Incarnation: a.incarnation, Version: a.version}
	}
	return out
}
