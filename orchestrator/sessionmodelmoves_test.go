package orchestrator_test

import (
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// What the adapter of the model does, and what people do with its sessions.

// report reports most of the sessions. Those that are left out have ended. A turn goes on if it is reported.
func (m *sessionMachine) report() {
	var list []picket.SessionReport
	for _, s := range m.sessions {
		if m.rnd.IntN(16) == 0 {
			continue
		}
		r := idleSession(s.id)
		r.Metered = m.rnd.IntN(3) > 0
		if s.turn != nil && m.rnd.IntN(2) == 0 {
			r.State, r.PromptID = picket.SessionPrompting, s.turn.id
		} else if p := m.working(s); p != nil && m.rnd.IntN(2) == 0 {
			r.State, r.PromptID = picket.SessionPrompting, p.id
		}
		list = append(list, r)
	}
	if m.rnd.IntN(8) == 0 { // by an adapter that was superseded
		m.note("report by another registration")
		m.agree(m.fixture.report(m.agent, m.n+1, list...), picket.CodeAgentGone)
		return
	}
	m.note("report %+v", list)
	m.agree(m.fixture.report(m.agent, m.n, list...), "")
	for _, s := range m.sessions {
		i := slices.IndexFunc(list, func(r picket.SessionReport) bool { return r.SessionID == s.id })
		switch lives := s.begun && !s.ended; {
		case i >= 0:
			m.reported(s, list[i])
		case lives:
			m.endSession(s)
		}
	}
}

// reported takes the report of a session that lives, or that begins with it.
func (m *sessionMachine) reported(s *modelSession, r picket.SessionReport) {
	if !s.begun || s.ended {
		m.begun++
		s.begun, s.ended, s.stop, s.number = true, false, false, m.begun
	}
	s.metered, s.reported, s.shown = r.Metered, m.now, r.PromptID
	m.endOverdue(s)
	if s.turn != nil && s.turn.id != r.PromptID {
		s.turn = nil
	}
}

func (m *sessionMachine) endSession(s *modelSession) {
	s.ended, s.turn = true, nil
	m.endOverdue(s)
	for _, p := range slices.Clone(s.open) {
		m.end(s, p, picket.PromptFailed, "session_ended")
	}
}

func (m *sessionMachine) prompt() {
	s, seconds := m.session(), 18+65*m.rnd.IntN(4)
	m.note("prompt %s for %d s", s.id, seconds)
	p, err := m.PromptSession(m.Ctx, kit.Operator, s.id, picket.PromptRequest{Text: "x", TimeoutSeconds: &seconds})
	switch {
	case s.forgotten():
		m.agree(err, picket.CodeNotFound)
		return
	case s.ended, s.stop:
		m.agree(err, picket.CodeStateConflict)
		return
	}
	// What the prompt ends gives its money back first.
	ends := m.overdueOf(s)
	if s.underWay != nil && !slices.Contains(ends, s.underWay) {
		ends = append(ends, s.underWay)
	}
	if left := m.left("prompt", ends...); !left.admit(s.metered) {
		m.agree(err, picket.CodeBudgetExceeded)
		return
	}
	if len(s.open)-len(ends) >= picket.MaxOpenPrompts {
		m.agree(err, picket.CodeStateConflict)
		return
	}
	m.agree(err, "")
	m.endOverdue(s)
	if s.underWay != nil {
		m.end(s, s.underWay, picket.PromptRefused, "prompt_active")
	}
	m.add(s, &modelPrompt{id: p.PromptID, state: picket.PromptQueued, due: m.now + 1000*int64(seconds)}, "prompt")
}

// add adds a prompt that was queued to those of its session, and reserves its money.
func (m *sessionMachine) add(s *modelSession, p *modelPrompt, kind string) {
	p.funds = m.newFunds(kind)
	m.money.prompts = append(m.money.prompts, p)
	s.all, s.open = append(s.all, p), append(s.open, p)
}

// commands asks for what waits. If the first prompt of a session is overdue, the answer need not have the next one
// yet, so the second answer counts.
func (m *sessionMachine) commands() {
	m.note("commands")
	_, err := m.PendingCommands(m.Ctx, kit.Operator, m.agent, picket.PendingQuery{Incarnation: m.n})
	if !m.agree(err, "") {
		return
	}
	got, err := m.PendingCommands(m.Ctx, kit.Operator, m.agent, picket.PendingQuery{Incarnation: m.n})
	if !m.agree(err, "") {
		return
	}
	var want, have []string
	for _, s := range m.sessions {
		if s.stop && !s.ended {
			want = append(want, "stop "+s.id)
		}
		if s.turn != nil { // the prompts of the session wait
			continue
		}
		for len(s.open) > 0 && s.open[0].state == picket.PromptQueued && slices.Contains(m.overdueOf(s), s.open[0]) {
			m.endOverdue(s)
		}
		if len(s.open) > 0 && s.open[0].state == picket.PromptQueued {
			want = append(want, s.open[0].id)
		}
	}
	for _, c := range got.Sessions {
		if c.Command == picket.CommandStopSession {
			have = append(have, "stop "+c.SessionID)
		} else {
			have = append(have, c.CommandID)
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(have, want) {
		m.fatalf("the adapter gets %q, want %q", have, want)
	}
}

// drawResult draws what an adapter says about a prompt.
func (m *sessionMachine) drawResult(p *modelPrompt) picket.CommandResult {
	states := []picket.PromptState{picket.PromptAccepted, picket.PromptAccepted, picket.PromptAccepted,
		picket.PromptAccepted, picket.PromptAnswered, picket.PromptAnswered, picket.PromptFailed, picket.PromptRefused}
	r := picket.CommandResult{Incarnation: m.n, State: states[m.rnd.IntN(len(states))], Reason: "why",
		Offset: max(0, len(p.answer)-m.rnd.IntN(2)), Output: strings.Repeat("a", m.rnd.IntN(3))}
	if p.wake != nil && m.rnd.IntN(2) == 0 {
		r.Reason = "prompt_active"
	}
	if r.State == picket.PromptAccepted && m.rnd.IntN(4) > 0 {
		r.CapabilityHash = strings.Repeat(string("aaab"[m.rnd.IntN(4)]), 64)
	}
	return r
}

// result reports what became of a prompt, also out of turn.
func (m *sessionMachine) result() {
	if s, p := m.anyPrompt(); p != nil {
		m.send(s, p, m.drawResult(p))
	}
}

// accept reports that the agent works on a prompt that waits, and has a capability for it.
func (m *sessionMachine) accept() {
	for range 4 {
		if s := m.session(); len(s.open) > 0 && s.open[0].secret == "" {
			m.send(s, s.open[0], picket.CommandResult{Incarnation: m.n, State: picket.PromptAccepted,
				CapabilityHash: strings.Repeat("a", 64)})
			return
		}
	}
}

// send sends the result of a prompt.
func (m *sessionMachine) send(s *modelSession, p *modelPrompt, r picket.CommandResult) {
	m.note("%s is %s %q at %d with %q", p.id, r.State, r.Reason, r.Offset, r.Output)
	taken, err := m.CommandResult(m.Ctx, kit.Operator, m.agent, p.id, r)
	was, _ := m.overdue(p)
	switch {
	case was == r.State && r.State != picket.PromptAccepted:
		m.agree(err, "")
		m.wantTurn(p, r.State, taken)
		return
	case was.Ended(), r.CapabilityHash != "" && p.secret != "" && p.secret != r.CapabilityHash:
		m.agree(err, picket.CodeStateConflict)
		return
	}
	m.agree(err, "")
	if r.CapabilityHash != "" {
		p.secret = r.CapabilityHash
	}
	p.answer += strings.Repeat("a", max(0, r.Offset+len(r.Output)-len(p.answer)))
	m.wantTurn(p, r.State, taken)
	seen := p.wake == nil || r.State == picket.PromptAccepted || r.State == picket.PromptAnswered
	if p.state == picket.PromptQueued && seen {
		if p.wake != nil {
			m.settleWake(s, p, true, false)
		}
		p.state = picket.PromptAccepted
	}
	if r.State != picket.PromptAccepted {
		m.end(s, p, r.State, r.Reason)
	}
	if taken.NextTask {
		s.turn = p
	}
}

func (m *sessionMachine) wantTurn(p *modelPrompt, state picket.PromptState, taken picket.ResultTaken) {
	if want := p.next && state == picket.PromptAnswered; taken.NextTask != want {
		m.fatalf("a turn is taken: %v, want %v", taken.NextTask, want)
	}
}

// reserve asks for a task, with the capability of a prompt that may have ended.
func (m *sessionMachine) reserve() {
	p := m.worker()
	if p == nil {
		return
	}
	held := m.credential(p)
	m.note("%s asks for a task", p.id)
	got, err := m.NextTask(m.Ctx, held)
	if !m.admits(p, held) {
		m.agree(err, picket.CodeSessionCapability)
		return
	}
	if m.agree(err, "") && !got.Reserved {
		m.fatalf("no turn is reserved: %+v", got)
	}
	p.next = true
}

func (m *sessionMachine) stop() {
	if m.rnd.IntN(6) > 0 { // it is an end, so it is rare
		return
	}
	s := m.session()
	m.note("stop %s", s.id)
	switch err := m.StopSession(m.Ctx, kit.Operator, s.id); {
	case s.forgotten():
		m.agree(err, picket.CodeNotFound)
	case s.ended:
		m.agree(err, picket.CodeStateConflict)
	default:
		m.agree(err, "")
		s.stop = true
	}
}

// wait lets time pass. The agent stays alive. On the virtual clock it is often the time up to the next limit, or a
// millisecond less or more.
func (m *sessionMachine) wait() {
	d := modelStep
	if limits := m.limits(); m.Virtual && len(limits) > 0 && m.rnd.IntN(3) > 0 {
		d = time.Duration(limits[m.rnd.IntN(len(limits))]-m.now+int64(m.rnd.IntN(3)-1)) * time.Millisecond
	}
	m.note("%s pass", d)
	m.JumpStoreTime(m.t, d)
	m.beat()
}

// limits are the instants of the next step at which something changes.
func (m *sessionMachine) limits() (list []int64) {
	for _, s := range m.sessions {
		list = append(list, s.reported+120_000, s.lastWake+m.interval.Milliseconds())
		for _, p := range s.open {
			list = append(list, p.due, p.due+late)
			if p.wake != nil {
				list = append(list, p.wake.due)
			}
		}
	}
	list = append(list, (m.now/wakeCycle+1)*wakeCycle)
	return slices.DeleteFunc(list, func(at int64) bool { return at <= m.now || at > m.now+modelStep.Milliseconds() })
}

// beat sends a heartbeat of the agent.
func (m *sessionMachine) beat() {
	_, err := m.Heartbeat(m.Ctx, kit.Operator, m.agent, kit.ActiveHeartbeat())
	m.agree(err, "")
	m.look()
}
