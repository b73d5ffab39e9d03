package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Sessions of the model's agents, one for each. They are prompted, ask for tasks and work on leases, while their
// agents come and go.

// modelSession is the session of an agent.
type modelSession struct {
	id          string
	live        bool
	prompted    bool  // it is kept after its end
	incarnation int64 // of the agent that reported it last
	task        string
	turn        string // the prompt whose turn is under way
	open        []*modelPrompt
}

// modelPrompt is an open prompt. It has a capability once it was accepted.
type modelPrompt struct {
	id       string
	accepted bool
	next     bool
	created  int64
	ended    picket.PromptState // empty: it is open
}

// oldPrompt is the age at which sessions are left alone: the deadlines of prompts are not part of this model.
const oldPrompt = 50 * 60_000

// sessionOf is the session of an agent.
func (m *model) sessionOf(agent string) *modelSession {
	if m.sessions[agent] == nil {
		m.sessions[agent] = &modelSession{id: "asession_" + ulid.Make().String()}
	}
	return m.sessions[agent]
}

// endSession ends a session and its prompts.
func (m *model) endSession(agent, kind string) {
	s := m.sessions[agent]
	for _, p := range s.open {
		p.ended = picket.PromptFailed
	}
	s.live, s.turn, s.task, s.open = false, "", "", nil
	m.emit("agent_session."+kind, agent)
}

// loseSession ends the session of an agent that its present registration does not keep.
func (m *model) loseSession(agent string) {
	a, s := m.agents[agent], m.sessions[agent]
	if s != nil && s.live && (a.status.Gone() || s.incarnation != a.incarnation) {
		m.endSession(agent, "lost")
	}
}

// loseSessionLater leaves the session of an agent that is gone to a chore.
func (m *model) loseSessionLater(agent string, why picket.LifecycleReason) {
	if s := m.sessions[agent]; s != nil && s.live {
		m.pendingChores[fmt.Sprintf("sessions:%s:%s", agent, why)] = func() int {
			m.loseSession(agent)
			return 1
		}
	}
}

// adapter is the agent of a request that only its present registration may make.
func (m *model) adapter(by modelCaller, id string, incarnation int64) (*modelAgent, picket.Code) {
	a, code := m.authorize(by, id)
	if code == "" && (a.status.Gone() || incarnation != a.incarnation) {
		return nil, picket.CodeAgentGone
	}
	return a, code
}

// reportSession is a report of the session of an agent, or of none.
func (m *model) reportSession(by modelCaller, id string, incarnation int64, list []picket.SessionReport) picket.Code {
	a, code := m.adapter(by, id, incarnation)
	if code != "" {
		return code
	}
	m.loseSession(id)
	s := m.sessionOf(id)
	if len(list) == 0 {
		if s.live {
			m.endSession(id, "ended")
		}
		return ""
	}
	if !s.live {
		m.emit("agent_session.started", id)
	}
	s.live, s.incarnation, s.task = true, a.incarnation, ""
	for _, r := range m.holding(id, a.incarnation) {
		if r.task == list[0].TaskID {
			s.task = r.task
		}
	}
	if list[0].PromptID != s.turn {
		s.turn = ""
	}
	return ""
}

// promptSession is a prompt of a person.
func (m *model) promptSession(s *modelSession, agent, id string) picket.Code {
	switch {
	case !s.live && !s.prompted:
		return picket.CodeNotFound
	case !s.live, s.task != "":
		return picket.CodeStateConflict
	}
	s.prompted = true
	s.open = append(s.open, &modelPrompt{id: id, created: m.now})
	m.emit("agent_session.prompted", agent)
	return ""
}

// offered is the prompt that the adapter gets; nil: there is none.
func (s *modelSession) offered() *modelPrompt {
	if s.turn == "" && len(s.open) > 0 && !s.open[0].accepted {
		return s.open[0]
	}
	return nil
}

// answerPrompt is the result of a prompt. turn is true if the session takes a task.
func (m *model) answerPrompt(by modelCaller, id string, incarnation int64, p *modelPrompt,
	to picket.PromptState) (turn bool, code picket.Code) {
	if _, code := m.adapter(by, id, incarnation); code != "" {
		return false, code
	}
	turn = to == picket.PromptAnswered && p.next
	switch {
	case p.ended == to:
		return turn, ""
	case p.ended != "":
		return false, picket.CodeStateConflict
	}
	p.accepted = true
	if to == picket.PromptAccepted {
		return false, ""
	}
	s := m.sessions[id]
	p.ended = to
	s.open = slices.DeleteFunc(s.open, func(other *modelPrompt) bool { return other == p })
	if turn {
		s.turn = p.id
	}
	return turn, ""
}

// nextTask reserves the next turn of a session.
func (m *model) nextTask(id string, p *modelPrompt) (reason picket.NextTaskReason, code picket.Code) {
	a, s := m.agents[id], m.sessions[id]
	if !p.accepted || p.ended != "" || a.status.Gone() || s.incarnation != a.incarnation {
		return "", picket.CodeSessionCapability
	}
	who := acquirer{id: id, role: a.role, attached: a.role == picket.RoleAttached}
	covered := 0
	for lane := range m.lanes() {
		if who.covers(lane) {
			covered++
		}
	}
	switch {
	case a.status == picket.AgentDraining:
		return picket.NextTaskDraining, ""
	case covered == 0:
		return picket.NextTaskNone, ""
	}
	p.next = true
	return "", ""
}

// The moves.

// sessionAgent draws an agent of which a session can be known.
func (x *machine) sessionAgent(fits func(*modelSession) bool) string {
	return x.member(func(a *modelAgent) bool { return fits(x.m.sessionOf(a.id)) })
}

func (x *machine) anySession(fits func(*modelSession) bool) func() bool {
	return func() bool {
		for _, s := range x.m.sessions {
			if fits(s) && !x.aged(s) {
				return true
			}
		}
		return false
	}
}

// aged reports whether a session is left alone.
func (x *machine) aged(s *modelSession) bool {
	return slices.ContainsFunc(s.open, func(p *modelPrompt) bool { return x.m.now-p.created > oldPrompt })
}

func isLive(s *modelSession) bool { return s.live }

func hasOpen(s *modelSession) bool { return len(s.open) > 0 }

// adapterCaller is who speaks for an agent, and as which incarnation of it.
type adapterCaller struct {
	by     modelCaller
	caller picket.Caller
	n      int64
}

// present is the process that has registered an agent last.
func (x *machine) present(id string) adapterCaller {
	c := adapterCaller{by: modelCaller{key: "key_a", operator: true}, n: 1}
	if a := x.m.agents[id]; a != nil {
		c.n = a.incarnation
	}
	c.caller = picket.Caller{Actor: c.by.key, Operator: true}
	return c
}

// adapterOf draws who speaks for an agent: mostly its present process.
func (x *machine) adapterOf(id string) adapterCaller {
	c := x.present(id)
	if x.chance("other adapter", 15) {
		c.by, c.caller = x.caller()
		c.n = max(1, c.n+oneOf[int64](x, "incarnation", 0, 1, -1))
	}
	return c
}

// reportSessions reports the session of an agent, which works on one of its tasks or not.
func (x *machine) reportSessions() { x.reportSessionOf(x.member(isActive)) }

func (x *machine) reportSessionOf(id string) {
	a := x.m.agents[id]
	s := x.m.sessionOf(id)
	if x.aged(s) {
		return
	}
	var list []picket.SessionReport
	if !x.chance("left out", 8) {
		r := idleReport(s)
		if s.turn != "" && x.chance("works", 60) {
			r.State, r.PromptID = picket.SessionPrompting, s.turn
			if held := x.m.holding(id, a.incarnation); len(held) > 0 && x.chance("on a task", 80) {
				r.TaskID = held[x.below(len(held), "task")].task
			} else if len(x.m.ids) > 0 {
				r.TaskID = x.pick("task", x.m.ids, kit.NoTask)
			}
		}
		list = append(list, r)
	}
	x.reportAs(x.adapterOf(id), id, list)
}

func idleReport(s *modelSession) picket.SessionReport {
	return picket.SessionReport{SessionID: s.id, Kind: picket.SessionResumable, Preset: "claude",
		State: picket.SessionIdle}
}

func (x *machine) reportAs(c adapterCaller, id string, list []picket.SessionReport) {
	err := x.e.ReportSessions(x.ctx, c.caller, id, picket.SessionsReport{Incarnation: c.n, Sessions: list})
	x.agree(err, x.m.reportSession(c.by, id, c.n, list), "report %+v of %s by %+v", list, id, c)
}

func (x *machine) promptAgent() {
	id := x.sessionAgent(func(s *modelSession) bool { return s.live && len(s.open) < 4 })
	if s := x.m.sessionOf(id); len(s.open) < 4 && !x.aged(s) {
		x.promptOf(id)
	}
}

func (x *machine) promptOf(id string) {
	s := x.m.sessionOf(id)
	hour := 3600
	p, err := x.e.PromptSession(x.ctx, picket.Caller{Actor: "key_b"}, s.id,
		picket.PromptRequest{Text: "x", TimeoutSeconds: &hour})
	x.agree(err, x.m.promptSession(s, id, p.PromptID), "prompt of the session of %s", id)
}

// takeTurn has an agent take a task after a prompt, while another prompt waits. Then the run, the session or the agent
// may end.
func (x *machine) takeTurn() {
	id := oneOf(x, "id", agentIDs...)
	if a := x.m.agents[id]; a == nil || a.status.Gone() {
		x.registerAs(id, modelCaller{key: "key_a"})
	}
	s := x.m.sessionOf(id)
	if x.aged(s) || x.m.agents[id] == nil {
		return
	}
	x.reportAs(x.present(id), id, []picket.SessionReport{idleReport(s)})
	if !s.live {
		return
	}
	x.submitLasting()
	for range 1 + x.below(2, "prompts") {
		x.promptAgentNow(id)
	}
	x.servePromptOf(id)
	x.reportSessionOf(id)
	switch x.below(4, "then") {
	case 0:
		x.servePromptOf(id)
	case 1:
		x.reportAs(x.present(id), id, []picket.SessionReport{idleReport(s)})
		x.compareOffered(id, s)
	case 2:
		x.silence()
		x.judge()
	}
}

// promptAgentNow prompts the session of an agent, if it has not too many prompts.
func (x *machine) promptAgentNow(id string) {
	if len(x.m.sessionOf(id).open) < 4 {
		x.promptOf(id)
	}
}

// servePrompt has the adapter take what waits, and its agent work on it: it may ask for a task, and it may end its
// answer. Then the agent may take a task.
func (x *machine) servePrompt() {
	x.servePromptOf(x.sessionAgent(hasOpen))
}

func (x *machine) servePromptOf(id string) {
	s := x.m.sessionOf(id)
	if len(s.open) == 0 || x.aged(s) {
		return
	}
	x.compareOffered(id, s)
	p := s.open[0]
	if s.offered() == nil && !p.accepted { // it waits for a turn
		return
	}
	x.sendResult(id, p, picket.PromptAccepted)
	if x.chance("asks", 70) {
		x.askForTask(id, p)
	}
	if x.chance("ends", 80) {
		to := oneOf(x, "result", picket.PromptAnswered, picket.PromptAnswered, picket.PromptAnswered,
			picket.PromptFailed)
		for range 1 + x.below(2, "times") {
			x.sendResult(id, p, to)
			x.compareOffered(id, s)
		}
	}
	if s.turn != "" && x.chance("takes", 80) {
		c := x.present(id)
		x.acquireAs(repeatableAcquire{a: acquirer{id: id, by: c.by, incarnation: c.n}, caller: c.caller,
			req: picket.AcquireRequest{AgentID: id, Incarnation: c.n, Max: kit.Ptr(1)}})
	}
}

// compareOffered compares what the adapter gets. It asks as the present registration.
func (x *machine) compareOffered(id string, s *modelSession) {
	x.Helper()
	c := x.present(id)
	got, err := x.e.PendingCommands(x.ctx, c.caller, id, picket.PendingQuery{Incarnation: c.n})
	_, code := x.m.adapter(c.by, id, c.n)
	if !x.agree(err, code, "commands of %s", id) {
		return
	}
	var have, want []string
	for _, c := range got.Sessions {
		have = append(have, c.CommandID)
	}
	if p := s.offered(); p != nil {
		want = append(want, p.id)
	}
	if !slices.Equal(have, want) {
		x.Fatalf("the adapter of %s gets %q, want %q", id, have, want)
	}
}

// capabilityHash is that of every prompt.
var capabilityHash = strings.Repeat("c", 64)

func (x *machine) sendResult(id string, p *modelPrompt, to picket.PromptState) {
	c := x.adapterOf(id)
	r := picket.CommandResult{Incarnation: c.n, State: to}
	if to == picket.PromptAccepted {
		r.CapabilityHash = capabilityHash
	}
	got, err := x.e.CommandResult(x.ctx, c.caller, id, p.id, r)
	turn, code := x.m.answerPrompt(c.by, id, c.n, p, to)
	if x.agree(err, code, "%s is %s by %+v", p.id, to, c) {
		x.same("result: turn", got.NextTask, turn)
	}
}

func (x *machine) askForTask(id string, p *modelPrompt) {
	held := picket.LeaseCredential{Namespace: x.e.Namespace(), PromptID: p.id, Secret: capabilityHash}
	got, err := x.e.NextTask(x.ctx, held)
	reason, code := x.m.nextTask(id, p)
	if x.agree(err, code, "next_task of %s", id) {
		x.same("next_task: reserved", got.Reserved, reason == "")
		x.same("next_task: reason", got.Reason, reason)
	}
}

// compareSessions holds what is shown of the sessions against the model.
func (x *machine) compareSessions() {
	x.Helper()
	for id, s := range x.m.sessions {
		if !s.live && !s.prompted || x.aged(s) {
			continue
		}
		got, err := x.e.AgentSession(x.ctx, s.id)
		x.ok(err)
		turn := s.turn
		if len(s.open) > 0 && s.open[0].accepted {
			turn = s.open[0].id
		}
		if got.TaskID != s.task && s.live || got.OpenPrompts != len(s.open) || turn != "" && got.PromptID != turn {
			x.Fatalf("the session of %s is %+v, want %+v", id, got, s)
		}
	}
}
