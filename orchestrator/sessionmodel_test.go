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
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A model of agent sessions, their prompts, wakes and money, which runs beside the engine. On a real store its time
// moves in steps of 65 seconds, and no deadline is near the end of a step.

// modelStep is how far time moves at once.
const modelStep = 65 * time.Second

// modelWorld is one store. Rounds follow each other on it.
type modelWorld struct {
	*fixture
	t      *testing.T
	rnd    *rand.Rand
	money  *modelMoney
	counts map[picket.WakeReason]int64 // decisions about wakes
}

// modelPrompt is a prompt or a wake as it has to be.
type modelPrompt struct {
	id     string
	state  picket.PromptState
	reason string
	answer string
	due    int64 // ms
	secret string
	next   bool       // a turn is reserved
	wake   *modelWake // nil: it is the prompt of a person
	funds  *modelFunds
}

// modelSession is a session as it has to be. One that has ended without a prompt is forgotten.
type modelSession struct {
	id       string
	begun    bool
	ended    bool
	stop     bool
	all      []*modelPrompt
	open     []*modelPrompt
	turn     *modelPrompt // that was answered and whose turn is under way; nil: none
	number   int          // of its first report
	metered  bool
	reported int64        // ms; the last report
	shown    string       // the prompt of the last report; empty: the session was idle
	lastWake int64        // ms; when a wake was accepted; 0: never
	underWay *modelPrompt // a wake that no adapter has answered; nil: none
}

// sessionMachine is one round: the adapter of an agent and the people who prompt and wake its sessions.
type sessionMachine struct {
	*modelWorld
	agent    string
	name     string        // of the agent
	interval time.Duration // least time between two wakes
	n        int64         // incarnation
	now      int64         // ms of store time
	raw      int64         // ms of the server's own clock
	begun    int           // sessions so far
	sessions []*modelSession
	cycles   map[int64]int // wakes of the cycles of the scheduler
	requests []wakeRequest // that were answered
	steps    []string
}

func (s *modelSession) forgotten() bool { return !s.begun || s.ended && len(s.all) == 0 }

// late is how long after its deadline an accepted prompt can still be answered, in ms.
const late = 30_000

// overdue is what a prompt has become by its deadline.
func (m *sessionMachine) overdue(p *modelPrompt) (picket.PromptState, string) {
	due := p.due
	if p.wake != nil {
		due = p.wake.due
	}
	switch {
	case p.state == picket.PromptQueued && m.now >= due:
		return picket.PromptExpired, ""
	case p.state == picket.PromptAccepted && m.now >= p.due+late:
		return picket.PromptFailed, "timeout"
	}
	return p.state, p.reason
}

// end gives a prompt its last state.
func (m *sessionMachine) end(s *modelSession, p *modelPrompt, state picket.PromptState, reason string) {
	if p.wake != nil && p.state == picket.PromptQueued {
		m.settleWake(s, p, false, state == picket.PromptRefused && reason == "prompt_active")
	}
	p.state, p.reason = state, reason
	p.funds.closed = true
	s.open = slices.DeleteFunc(s.open, func(other *modelPrompt) bool { return other == p })
}

// overdueOf are the open prompts of a session whose deadline has passed.
func (m *sessionMachine) overdueOf(s *modelSession) (list []*modelPrompt) {
	for _, p := range s.open {
		if state, _ := m.overdue(p); state.Ended() {
			list = append(list, p)
		}
	}
	return list
}

// endOverdue ends the prompts of a session whose deadline has passed.
func (m *sessionMachine) endOverdue(s *modelSession) {
	for _, p := range m.overdueOf(s) {
		state, reason := m.overdue(p)
		m.end(s, p, state, reason)
	}
}

func (m *sessionMachine) note(format string, args ...any) {
	m.steps = append(m.steps, fmt.Sprintf(format, args...))
}

func (m *sessionMachine) fatalf(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s, after\n%s", fmt.Sprintf(format, args...), strings.Join(m.steps, "\n"))
}

// agree holds the refusal of the engine against that of the model.
func (m *sessionMachine) agree(err error, want picket.Code) bool {
	m.t.Helper()
	if got := picket.CodeOf(err); err == nil && want != "" || err != nil && got != want {
		m.fatalf("got %v, want %q", err, want)
	}
	return err == nil
}

func (m *sessionMachine) session() *modelSession { return m.sessions[m.rnd.IntN(len(m.sessions))] }

// anyPrompt draws a prompt and its session. Most are open. nil: there is none.
func (m *sessionMachine) anyPrompt() (*modelSession, *modelPrompt) {
	s := m.session()
	for range 3 {
		if len(s.open) > 0 {
			break
		}
		s = m.session()
	}
	switch {
	case len(s.open) > 0 && m.rnd.IntN(3) > 0:
		return s, s.open[0]
	case len(s.all) > 0:
		return s, s.all[max(0, len(s.all)-1-m.rnd.IntN(4))]
	}
	return s, nil
}

// worker draws a prompt. Most of them have a capability that is admitted. nil: there is none.
func (m *sessionMachine) worker() *modelPrompt {
	for range 8 {
		s := m.session()
		if len(s.open) > 0 && s.open[0].secret != "" && m.now < s.open[0].due && m.rnd.IntN(8) > 0 {
			return s.open[0]
		}
	}
	_, p := m.anyPrompt()
	return p
}

// credential is the capability of a prompt, or sometimes a wrong one.
func (m *sessionMachine) credential(p *modelPrompt) picket.LeaseCredential {
	held := picket.LeaseCredential{Namespace: "default", PromptID: p.id, Secret: p.secret}
	if held.Secret == "" || m.rnd.IntN(16) == 0 {
		held.Secret = strings.Repeat("f", 64)
	}
	return held
}

// admits reports whether a credential is admitted.
func (m *sessionMachine) admits(p *modelPrompt, held picket.LeaseCredential) bool {
	return p.state == picket.PromptAccepted && held.Secret == p.secret && m.now < p.due
}

// look reads the clocks of the store.
func (m *sessionMachine) look() {
	stored, err := m.Raw.HMGet(m.Ctx, kit.Meta, "now", "raw").Result()
	kit.OK(m.t, err)
	server, err := m.Raw.Time(m.Ctx).Result()
	kit.OK(m.t, err)
	var at [2]int64
	for i, text := range stored {
		_, err := fmt.Sscan(text.(string), &at[i])
		kit.OK(m.t, err)
	}
	m.raw = server.UnixMilli()
	m.now = at[0] + min(max(0, m.raw-at[1]), 1000)
}

// wantHealth is the health of a session, as state, health, reason and detail. prompting is true if a prompt is under
// way.
func (m *sessionMachine) wantHealth(s *modelSession, prompting bool) string {
	switch {
	case s.ended:
		return "stopped dead session_unhealthy health_dead"
	case m.now-s.reported > heartbeat.Defaults().SessionHealthStaleAfter.Milliseconds():
		state := picket.SessionIdle
		if s.shown != "" {
			state = picket.SessionPrompting
		}
		return string(state) + " stale session_unhealthy health_stale"
	case prompting || s.turn != nil || s.shown != "":
		return "prompting healthy session_prompt_active -"
	}
	return "idle healthy - -"
}

func healthText(h picket.SessionHealth) string {
	reason, detail := "-", "-"
	if h.IneligibilityReason != nil {
		reason = string(*h.IneligibilityReason)
	}
	if h.DetailCode != nil {
		detail = string(*h.DetailCode)
	}
	return fmt.Sprintf("%s %s %s %s", h.State, h.Health, reason, detail)
}

// working is the prompt that the agent of a session works on; nil: there is none.
func (m *sessionMachine) working(s *modelSession) *modelPrompt {
	if len(s.open) > 0 && s.open[0].state == picket.PromptAccepted {
		if state, _ := m.overdue(s.open[0]); !state.Ended() {
			return s.open[0]
		}
	}
	return nil
}

// compare looks at all prompts and sessions, and at the money.
func (m *sessionMachine) compare() {
	m.t.Helper()
	m.look()
	for _, s := range m.sessions {
		if s.forgotten() {
			continue
		}
		m.comparePrompts(s)
		if s.ended {
			got, err := m.AgentSession(m.Ctx, s.id)
			kit.OK(m.t, err)
			m.compareSession(s, got)
		}
	}
	page, err := m.AgentSessions(m.Ctx, picket.AgentSessionQuery{AgentID: m.agent})
	kit.OK(m.t, err)
	living := slices.DeleteFunc(slices.Clone(m.sessions), func(s *modelSession) bool { return !s.begun || s.ended })
	slices.SortFunc(living, func(a, b *modelSession) int { return b.number - a.number })
	if !slices.EqualFunc(page.Sessions, living,
		func(a picket.AgentSession, b *modelSession) bool { return a.SessionID == b.id }) {
		m.fatalf("listed are %+v, want %+v", page.Sessions, living)
	}
	for i, s := range living {
		m.compareSession(s, page.Sessions[i])
	}
	m.compareMoney()
}

func (m *sessionMachine) compareSession(s *modelSession, got picket.AgentSession) {
	m.t.Helper()
	health := m.wantHealth(s, m.working(s) != nil)
	if got.OpenPrompts != len(s.open) || healthText(got.Health) != health || got.Metered != s.metered {
		m.fatalf("%+v is %s, want %s %+v", got, healthText(got.Health), health, s)
	}
}

// comparePrompts looks at the latest prompts of a session.
func (m *sessionMachine) comparePrompts(s *modelSession) {
	m.t.Helper()
	page, err := m.SessionPrompts(m.Ctx, s.id, 0, 10)
	kit.OK(m.t, err)
	latest := s.all[max(0, len(s.all)-10):]
	if len(page.Prompts) != len(latest) {
		m.fatalf("%d prompts are listed of %d", len(page.Prompts), len(latest))
	}
	for i, p := range latest {
		m.comparePrompt(p, page.Prompts[len(latest)-1-i])
	}
}

func (m *sessionMachine) comparePrompt(p *modelPrompt, got picket.SessionPrompt) {
	m.t.Helper()
	state, reason := m.overdue(p)
	if got.PromptID != p.id || got.State != state || got.Reason != reason || got.Answer != p.answer ||
		got.NextTask != p.next || got.Wake != (p.wake != nil) || got.Spent != p.funds.spent {
		m.fatalf("%s is %+v, want %s %q %q, turn %v, spent %+v", p.id, got, state, reason, p.answer, p.next,
			p.funds.spent)
	}
}

// newRound begins a round with an agent that has a name and sessions of its own.
func (w *modelWorld) newRound(round int) *sessionMachine {
	m := &sessionMachine{modelWorld: w, agent: fmt.Sprint("a", round), name: fmt.Sprint("ann", round),
		interval: modelCooldown, cycles: map[int64]int{}}
	if round%8 == 1 {
		w.beginLate()
	}
	w.money.begin(w)
	a, err := m.Register(m.Ctx, kit.Operator, picket.Registration{AgentID: m.agent, RoleID: "coder",
		Metadata: picket.RawJSON(fmt.Sprintf(`{"agent_name":%q}`, m.name))})
	kit.OK(m.t, err)
	m.n = a.Incarnation
	policy := wakePolicyText
	if m.rnd.IntN(2) == 0 {
		policy, m.interval = "---\npreferences: {min_interval: 5m}\n---\nLook.\n", 5*time.Minute
	}
	m.mustWritePolicy(m.t, m.name, policy)
	for range 1 + m.rnd.IntN(4) {
		m.sessions = append(m.sessions, &modelSession{id: "asession_" + ulid.Make().String()})
	}
	m.look()
	m.report()
	return m
}

// actions are what a round draws from. Each kind of rounds has more of something.
func (m *sessionMachine) actions() []func() {
	all := []func(){m.report, m.report, m.prompt, m.commands, m.accept, m.accept, m.result, m.result, m.reserve, m.stop,
		m.wait, m.wake, m.repeatWake, m.call, m.settle, m.midnight}
	switch m.rnd.IntN(3) {
	case 0:
		return append(all, m.prompt, m.prompt, m.commands, m.commands, m.wait, m.result, m.result, m.result, m.reserve)
	case 1:
		return append(all, m.wake, m.wake, m.wake, m.wake, m.accept, m.result, m.result, m.wait)
	}
	return append(all, m.prompt, m.accept, m.call, m.call, m.call, m.call, m.call, m.settle, m.settle, m.settle)
}

// Sessions, their prompts, wakes and money are what a model says after every step, whatever adapters and people do,
// and the invariants hold.
func TestSessionsAgreeWithAModel(t *testing.T) {
	seed := rig.Seed(t)
	onBothStores(t, func(t *testing.T, base *fixture) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		base.MustSubmit(t, picket.TaskSpec{Role: "coder"})
		f := base.limited(t, orchestrator.DefaultSessionLimits(), func(cfg *orchestrator.Config) {
			cfg.Wake = heartbeat.Defaults()
			cfg.Wake.WakeCooldown = modelCooldown
			if base.Virtual { // a real clock may begin a cycle at any time
				cfg.Wake.MaxWakesPerCycle = modelWakesPerCycle
			}
		})
		w := &modelWorld{fixture: f, t: t, rnd: rnd, money: newModelMoney(), counts: map[picket.WakeReason]int64{}}
		suite, usual, soak := "sessions and wakes, in memory", 8, 2000
		if !base.Virtual {
			suite, usual, soak = "sessions and wakes, on Redis", 5, 500
		}
		rounds := rig.SoakRounds(t, suite, usual, soak)
		for round := range rounds {
			m := w.newRound(round)
			actions := m.actions()
			for range 80 {
				m.look()
				actions[rnd.IntN(len(actions))]()
				m.compare()
			}
			m.leaveWakes()
			w.money.finish(m)
			kit.CheckInvariants(t, f.Engine)
		}
	})
}
