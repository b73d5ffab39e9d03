package orchestrator_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A model of agent sessions, which runs beside the engine. Its clock moves in minutes, and no deadline is near a
// full minute.

// modelPrompt is a prompt as it has to be.
type modelPrompt struct {
	id     string
	state  picket.PromptState
	reason string
	answer string
	due    int // seconds
	secret string
	next   bool // a turn is reserved
}

// modelSession is a session as it has to be. One that has ended without a prompt is forgotten.
type modelSession struct {
	id     string
	begun  bool
	ended  bool
	stop   bool
	all    []*modelPrompt
	open   []*modelPrompt
	turn   *modelPrompt // that was answered and whose turn is under way; nil: none
	number int          // of its first report
}

// sessionMachine is one round: the adapter of an agent and the people who prompt its sessions.
type sessionMachine struct {
	*fixture
	t        *testing.T
	rnd      *rand.Rand
	agent    string
	n        int64 // incarnation
	now      int   // seconds
	begun    int   // sessions so far
	sessions []*modelSession
	steps    []string
}

func (s *modelSession) forgotten() bool { return !s.begun || s.ended && len(s.all) == 0 }

// late is how long after its deadline an accepted prompt can still be answered, in seconds.
const late = 30

// overdue is what a prompt has become by its deadline.
func (m *sessionMachine) overdue(p *modelPrompt) (picket.PromptState, string) {
	switch {
	case p.state == picket.PromptQueued && m.now >= p.due:
		return picket.PromptExpired, ""
	case p.state == picket.PromptAccepted && m.now >= p.due+late:
		return picket.PromptFailed, "timeout"
	}
	return p.state, p.reason
}

// end gives a prompt its last state.
func (s *modelSession) end(p *modelPrompt, state picket.PromptState, reason string) {
	p.state, p.reason = state, reason
	s.open = slices.DeleteFunc(s.open, func(other *modelPrompt) bool { return other == p })
}

// endOverdue ends the prompts of a session whose deadline has passed.
func (m *sessionMachine) endOverdue(s *modelSession) {
	for _, p := range slices.Clone(s.open) {
		if state, reason := m.overdue(p); state.Ended() {
			s.end(p, state, reason)
		}
	}
}

func (m *sessionMachine) note(format string, args ...any) {
	m.steps = append(m.steps, fmt.Sprintf(format, args...))
}

// agree holds the refusal of the engine against that of the model.
func (m *sessionMachine) agree(err error, want picket.Code) bool {
	m.t.Helper()
	if got := picket.CodeOf(err); err == nil && want != "" || err != nil && got != want {
		m.t.Fatalf("got %v, want %q, after\n%s", err, want, strings.Join(m.steps, "\n"))
	}
	return err == nil
}

func (m *sessionMachine) session() *modelSession { return m.sessions[m.rnd.IntN(len(m.sessions))] }

// prompt draws a prompt of a session; nil: it has none.
func (m *sessionMachine) anyPrompt(s *modelSession) *modelPrompt {
	if len(s.all) == 0 {
		return nil
	}
	return s.all[max(0, len(s.all)-1-m.rnd.IntN(4))]
}

// report reports most of the sessions. Those that are left out have ended. A turn goes on if it is reported.
func (m *sessionMachine) report() {
	var list []picket.SessionReport
	for _, s := range m.sessions {
		if m.rnd.IntN(6) == 0 {
			continue
		}
		r := idleSession(s.id)
		if s.turn != nil && m.rnd.IntN(2) == 0 {
			r.State, r.PromptID = picket.SessionPrompting, s.turn.id
		}
		list = append(list, r)
	}
	if m.rnd.IntN(5) == 0 { // by an adapter that was superseded
		m.note("report by another registration")
		m.agree(m.fixture.report(m.agent, m.n+1, list...), picket.CodeAgentGone)
		return
	}
	m.note("report %d sessions", len(list))
	m.agree(m.fixture.report(m.agent, m.n, list...), "")
	for _, s := range m.sessions {
		i := slices.IndexFunc(list, func(r picket.SessionReport) bool { return r.SessionID == s.id })
		listed := i >= 0
		if !listed || list[i].PromptID == "" {
			s.turn = nil
		}
		switch lives := s.begun && !s.ended; {
		case listed && !lives:
			m.begun++
			s.begun, s.ended, s.stop, s.number = true, false, false, m.begun
		case listed:
			m.endOverdue(s)
		case lives:
			s.ended = true
			m.endOverdue(s)
			for _, p := range slices.Clone(s.open) {
				s.end(p, picket.PromptFailed, "session_ended")
			}
		}
	}
}

func (m *sessionMachine) prompt() {
	s, seconds := m.session(), 60*m.rnd.IntN(4)+45
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
	if m.endOverdue(s); len(s.open) >= picket.MaxOpenPrompts {
		m.agree(err, picket.CodeStateConflict)
	} else if m.agree(err, "") {
		made := &modelPrompt{id: p.PromptID, state: picket.PromptQueued, due: m.now + seconds}
		s.all, s.open = append(s.all, made), append(s.open, made)
	}
}

// commands asks for what waits. If the first prompt of a session is overdue, the answer need not have the next one
// yet, so the second answer counts.
func (m *sessionMachine) commands() {
	m.note("commands")
	_, err := m.SessionCommands(m.Ctx, kit.Operator, m.agent, m.n, nil, 0)
	if !m.agree(err, "") {
		return
	}
	got, err := m.SessionCommands(m.Ctx, kit.Operator, m.agent, m.n, nil, 0)
	if !m.agree(err, "") {
		return
	}
	var want, have []string
	for _, s := range m.sessions {
		if s.stop && !s.ended {
			want = append(want, "stop "+s.id)
		}
		for s.turn == nil && len(s.open) > 0 && s.open[0].state == picket.PromptQueued && m.now >= s.open[0].due {
			m.endOverdue(s)
		}
		if len(s.open) > 0 && s.open[0].state == picket.PromptQueued && s.turn == nil {
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
		m.t.Fatalf("the adapter gets %q, want %q, after\n%s", have, want, strings.Join(m.steps, "\n"))
	}
}

// result reports what became of a prompt, also out of turn.
func (m *sessionMachine) result() {
	s := m.session()
	p := m.anyPrompt(s)
	if p == nil {
		return
	}
	states := []picket.PromptState{picket.PromptAccepted, picket.PromptAccepted, picket.PromptAnswered,
		picket.PromptFailed, picket.PromptRefused}
	r := picket.CommandResult{Incarnation: m.n, State: states[m.rnd.IntN(len(states))], Reason: "why",
		Offset: max(0, len(p.answer)-m.rnd.IntN(2)), Output: strings.Repeat("a", m.rnd.IntN(3))}
	if r.State == picket.PromptAccepted && m.rnd.IntN(2) == 0 {
		r.CapabilityHash = strings.Repeat(string("abc"[m.rnd.IntN(3)]), 64)
	}
	m.note("%s is %s at %d with %q", p.id, r.State, r.Offset, r.Output)
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
	p.state = picket.PromptAccepted
	p.answer += strings.Repeat("a", max(0, r.Offset+len(r.Output)-len(p.answer)))
	m.wantTurn(p, r.State, taken)
	if r.State != picket.PromptAccepted {
		s.end(p, r.State, "why")
	}
	if taken.NextTask {
		s.turn = p
	}
}

func (m *sessionMachine) wantTurn(p *modelPrompt, state picket.PromptState, taken picket.ResultTaken) {
	if want := p.next && state == picket.PromptAnswered; taken.NextTask != want {
		m.t.Fatalf("a turn is taken: %v, want %v, after\n%s", taken.NextTask, want, strings.Join(m.steps, "\n"))
	}
}

// reserve asks for a task, with the capability of a prompt that may have ended.
func (m *sessionMachine) reserve() {
	p := m.anyPrompt(m.session())
	if p == nil {
		return
	}
	held := picket.LeaseCredential{PromptID: p.id, Secret: p.secret}
	if held.Secret == "" || m.rnd.IntN(5) == 0 {
		held.Secret = strings.Repeat("f", 64)
	}
	m.note("%s asks for a task", p.id)
	got, err := m.NextTask(m.Ctx, held)
	if p.state != picket.PromptAccepted || held.Secret != p.secret || m.now >= p.due {
		m.agree(err, picket.CodeSessionCapability)
		return
	}
	if m.agree(err, "") && !got.Reserved {
		m.t.Fatalf("no turn is reserved: %+v", got)
	}
	p.next = true
}

func (m *sessionMachine) stop() {
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

// wait lets a minute pass. The agent stays alive.
func (m *sessionMachine) wait() {
	m.note("a minute passes")
	m.JumpStoreTime(m.t, time.Minute)
	m.now += 60
	_, err := m.Heartbeat(m.Ctx, kit.Operator, m.agent, kit.ActiveHeartbeat())
	m.agree(err, "")
}

// compare looks at all prompts and sessions.
func (m *sessionMachine) compare() {
	m.t.Helper()
	for _, s := range m.sessions {
		for _, p := range s.all {
			got, err := m.SessionPrompt(m.Ctx, s.id, p.id, 0, 0)
			state, reason := m.overdue(p)
			if err != nil || got.State != state || got.Reason != reason || got.Answer != p.answer {
				m.t.Fatalf("%s is %+v (%v), want %s %q %q, after\n%s", p.id, got, err, state, reason, p.answer,
					strings.Join(m.steps, "\n"))
			}
		}
		if s.forgotten() {
			continue
		}
		if got, err := m.AgentSession(m.Ctx, s.id); err != nil || got.OpenPrompts != len(s.open) ||
			(got.Health.State == picket.SessionStopped) != s.ended || s.turn != nil && got.Health.EligibleForWake {
			m.t.Fatalf("%+v (%v), want %+v, after\n%s", got, err, s, strings.Join(m.steps, "\n"))
		}
	}
	page, err := m.AgentSessions(m.Ctx, picket.AgentSessionQuery{AgentID: m.agent})
	kit.OK(m.t, err)
	living := slices.DeleteFunc(slices.Clone(m.sessions), func(s *modelSession) bool { return !s.begun || s.ended })
	slices.SortFunc(living, func(a, b *modelSession) int { return b.number - a.number })
	if !slices.EqualFunc(page.Sessions, living,
		func(a picket.AgentSession, b *modelSession) bool { return a.SessionID == b.id }) {
		m.t.Fatalf("listed are %+v, want %+v, after\n%s", page.Sessions, living, strings.Join(m.steps, "\n"))
	}
}

// Sessions and their prompts are what a model says after every step, whatever adapters and people do, and the
// invariants hold.
func TestSessionsAgreeWithAModel(t *testing.T) {
	seed := rig.Seed(t)
	onBothStores(t, func(t *testing.T, f *fixture) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
		for round := range rig.Rounds(12, 2000) {
			m := &sessionMachine{fixture: f, t: t, rnd: rnd, agent: fmt.Sprint("a", round)}
			m.n = f.sessionAgent(t, m.agent)
			for range 1 + rnd.IntN(3) {
				m.sessions = append(m.sessions, &modelSession{id: "asession_" + ulid.Make().String()})
			}
			m.report()
			actions := []func(){m.report, m.prompt, m.prompt, m.prompt, m.commands, m.commands, m.result, m.result,
				m.result, m.result, m.reserve, m.stop, m.wait}
			for range 40 {
				actions[rnd.IntN(len(actions))]()
				m.compare()
			}
			kit.CheckInvariants(t, f.Engine)
		}
	})
}
