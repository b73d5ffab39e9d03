package orchestrator_test

import (
	"context"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Wakes of the model, by people.

// modelCooldown is the least time between two wakes of a session whose policy has no interval of its own.
const modelCooldown = 100 * time.Second

// modelWakesPerCycle bounds the wakes of an agent name in a cycle, on the virtual clock.
const modelWakesPerCycle = 1

// wakeCycle is how long a cycle of the scheduler lasts, in ms.
const wakeCycle = 30_000

// modelWake is what a wake has in addition to a prompt.
type modelWake struct {
	due     int64 // ms; until then an adapter accepts it
	cycle   int64 // in which it was reserved
	request wakeRequest
}

// wakeRequest is a request of a person who waits for its end.
type wakeRequest struct {
	by     picket.Caller
	id     string // of the session
	done   chan wakeAnswer
	cancel context.CancelFunc // nil: it was answered, or the person has gone
	want   picket.WakeReason  // of its answer; empty: that is not known yet
}

type wakeAnswer struct {
	picket.WakeDecision
	err error
}

// decide is the reason of a wake that is asked for now, and when it is allowed next, by the clock of the server. 0
// means that waiting does not help.
func (m *sessionMachine) decide(s *modelSession) (reason picket.WakeReason, next int64) {
	if s.forgotten() {
		return picket.WakeReasonSessionNotFound, 0
	}
	open := len(s.open)
	under := s.underWay != nil && !slices.Contains(m.overdueOf(s), s.underWay)
	if under {
		open--
	}
	switch health := m.wantHealth(s, open > 0); {
	case s.ended, m.now-s.reported > 120_000:
		return picket.WakeReasonSessionUnhealthy, 0
	case health != "idle healthy - -":
		return picket.WakeReasonSessionPromptActive, 0
	case s.stop:
		return picket.WakeReasonSessionNotAttachable, 0
	}
	left := m.left("wake")
	allowed := s.lastWake + m.interval.Milliseconds()
	cycle := m.now / wakeCycle
	switch {
	case !left.admit(s.metered) && (left.unspent > 0 || m.money.noWakes()): // reserved by others, or never there
		return picket.WakeReasonBudgetExceeded, 0
	case !left.admit(s.metered):
		return picket.WakeReasonBudgetExceeded, (m.raw/dayMs + 1) * dayMs
	case s.lastWake != 0 && m.now < allowed && under:
		return picket.WakeReasonCoalesced, m.raw + allowed - m.now
	case s.lastWake != 0 && m.now < allowed:
		return picket.WakeReasonCooldownActive, m.raw + allowed - m.now
	case under:
		return picket.WakeReasonCoalesced, 0
	case m.Virtual && m.cycles[cycle] >= modelWakesPerCycle:
		return picket.WakeReasonRateLimited, m.raw + (cycle+1)*wakeCycle - m.now
	}
	return picket.WakeReasonSent, 0
}

// wake asks for a wake. One that goes out is under way after that.
func (m *sessionMachine) wake() {
	s := m.session()
	want, next := m.decide(s)
	dry := m.rnd.IntN(4) == 0
	ctx, cancel := context.WithCancel(m.Ctx)
	r := wakeRequest{by: kit.Idempotent("W"), id: s.id, done: make(chan wakeAnswer, 1), cancel: cancel}
	r.by.Idempotency.Key = fmt.Sprintf("%s-%d", m.agent, len(m.steps))
	r.by.Operator = true
	m.note("wake %s (dry: %v), which is %s", s.id, dry, want)
	go func() {
		d, err := m.Wake(ctx, r.by, m.name, picket.WakeRequest{SessionID: s.id, DryRun: dry})
		r.done <- wakeAnswer{d, err}
	}()
	if dry || want != picket.WakeReasonSent {
		r.want = want
		m.answered(&r, next)
		if !dry {
			m.counts[want]++
			m.requests = append(m.requests, r)
		}
		return
	}
	p := &modelPrompt{id: m.newWake(s, r.done), state: picket.PromptQueued,
		due: m.now + 1000*picket.DefaultPromptSeconds, wake: &modelWake{due: m.now + 10_000, cycle: m.now / wakeCycle}}
	p.wake.request = r
	m.cycles[p.wake.cycle]++
	m.endOverdue(s)
	m.add(s, p, "wake")
	s.underWay = p
	if m.rnd.IntN(4) == 0 {
		m.note("the server of %s dies", p.id)
		m.leave(p)
	}
}

// newWake waits for the wake that was reserved, and returns its id.
func (m *sessionMachine) newWake(s *modelSession, done chan wakeAnswer) (id string) {
	m.t.Helper()
	there := func() bool {
		page, err := m.SessionPrompts(m.Ctx, s.id, 0, 1)
		kit.OK(m.t, err)
		known := func(p *modelPrompt) bool { return p.id == id }
		if len(page.Prompts) == 1 {
			id = page.Prompts[0].PromptID
		}
		return len(page.Prompts) == 1 && page.Prompts[0].Wake && !slices.ContainsFunc(s.all, known)
	}
	if m.Virtual {
		synctest.Wait()
		if !there() {
			m.fatalf("no wake is under way: %+v", <-done)
		}
		return id
	}
	kit.WaitFor(m.t, "a wake is under way", func() bool { return there() || len(done) > 0 })
	if len(done) > 0 {
		m.fatalf("no wake is under way: %+v", <-done)
	}
	return id
}

// answered compares the answer of a request with the one that is wanted.
func (m *sessionMachine) answered(r *wakeRequest, next int64) {
	m.t.Helper()
	got := <-r.done
	if r.cancel != nil {
		r.cancel()
	}
	if r.want == picket.WakeReasonSyntheticPromptFailed {
		m.agree(got.err, picket.CodeSyntheticPromptFailed)
		return
	}
	m.agree(got.err, "")
	at := int64(0)
	if got.NextAllowedAt != nil {
		at = int64(*got.NextAllowedAt)
	}
	off := at - next
	if m.Virtual && off != 0 || max(off, -off) > 10_000 || got.Reason != r.want || got.Result != r.want.Result() {
		m.fatalf("the wake of %s is %+v, want %s, allowed at %d", r.id, got, r.want, next)
	}
}

// settleWake ends the time in which a wake is under way. sent is true if an adapter has accepted it.
func (m *sessionMachine) settleWake(s *modelSession, p *modelPrompt, sent, race bool) {
	m.t.Helper()
	r := &p.wake.request
	switch {
	case sent:
		r.want, s.lastWake = picket.WakeReasonSent, m.now
	case race:
		r.want = picket.WakeReasonSessionPromptActiveRace
	default:
		r.want = picket.WakeReasonSyntheticPromptFailed
	}
	s.underWay = nil
	m.counts[r.want]++
	if !sent {
		m.cycles[p.wake.cycle]--
	}
	if r.cancel != nil {
		m.answered(r, 0)
		r.cancel = nil
	}
	m.requests = append(m.requests, *r)
}

// leave has the server of a wake die.
func (m *sessionMachine) leave(p *modelPrompt) {
	m.t.Helper()
	r := &p.wake.request
	if r.cancel == nil {
		return
	}
	r.cancel()
	if got := <-r.done; got.err == nil {
		m.fatalf("the wake is %+v, and nobody has accepted it", got)
	}
	r.cancel = nil
}

// leaveWakes has the servers of all wakes die.
func (m *sessionMachine) leaveWakes() {
	for _, s := range m.sessions {
		if s.underWay != nil {
			m.leave(s.underWay)
		}
	}
}

// repeatWake repeats a request, whose answer is the same and which changes nothing.
func (m *sessionMachine) repeatWake() {
	if len(m.requests) == 0 {
		return
	}
	r := m.requests[m.rnd.IntN(len(m.requests))]
	m.note("the wake %s comes again", r.by.Idempotency.Key)
	got, err := m.Wake(m.Ctx, r.by, m.name, picket.WakeRequest{SessionID: r.id})
	switch {
	case r.want == picket.WakeReasonSyntheticPromptFailed:
		m.agree(err, picket.CodeSyntheticPromptFailed)
	case m.agree(err, "") && got.Reason != r.want:
		m.fatalf("the repeated wake of %s is %+v, and was %s", r.id, got, r.want)
	}
}

// compareWakes looks at what was decided so far, and at what wakes may still spend.
func (m *sessionMachine) compareWakes() {
	m.t.Helper()
	stats, err := m.Stats(m.Ctx)
	kit.OK(m.t, err)
	for reason, n := range m.counts {
		if stats.Wakes[reason] != n {
			m.fatalf("%d decisions are %s, want %d", stats.Wakes[reason], reason, n)
		}
	}
	status, err := m.PolicyStatus(m.Ctx, m.name, 0)
	kit.OK(m.t, err)
	left := m.left("wake")
	next := heartbeat.NextDay(picket.Instant(m.raw))
	got := status.WakeBudget
	renewed := got.RenewedAt != nil && *got.RenewedAt == next
	if m.money.noWakes() { // on no day
		renewed = got.RenewedAt == nil
	}
	if got.Envelope != left.short || got.Left != max(0, left.left) || !renewed {
		m.fatalf("wakes have %+v, want %s of %s until %s", got, max(0, left.left), left.short, next)
	}
}
