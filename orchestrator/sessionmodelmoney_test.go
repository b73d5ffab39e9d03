package orchestrator_test

import (
	"slices"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Money of the model. It knows what each prompt was granted and has spent, and adds that up for each envelope that
// prompts are carved from.

// dayMs is a day.
const dayMs = 24 * 60 * 60 * 1000

const cent = budget.Money(10_000_000)

// modelFunds is the envelope of a prompt.
type modelFunds struct {
	kind    string // wake or prompt
	name    string // of the agent
	day     string
	granted budget.Envelope // until it is closed
	held    budget.Envelope
	spent   budget.Envelope
	closed  bool
	calls   []*modelSpending
}

// modelSpending is a call of a model.
type modelSpending struct {
	picket.Reservation
	uncertain bool // nobody knows what it cost
	over      bool // it was settled
}

// carved is what a prompt takes of the envelopes that it is carved from.
func (f *modelFunds) carved(closed bool) budget.Envelope {
	if closed || f.closed {
		return f.spent.Add(f.held)
	}
	return f.granted
}

// available is what the prompt can still spend.
func (f *modelFunds) available() budget.Envelope {
	if f.closed {
		return budget.Envelope{}
	}
	used := f.spent.Add(f.held)
	return budget.Envelope{Tokens: f.granted.Tokens - used.Tokens, USD: f.granted.USD - used.USD}
}

// modelSums are the sums of some prompts.
type modelSums struct{ carved, spent budget.Envelope }

func (s *modelSums) add(f *modelFunds, closed bool) {
	s.carved, s.spent = s.carved.Add(f.carved(closed)), s.spent.Add(f.spent)
}

// modelMoney is the money of a store.
type modelMoney struct {
	limits  orchestrator.SessionLimits
	cap     *budget.Envelope     // of a day; nil: none
	earlier map[string]modelSums // by day: the prompts of earlier rounds
	joined  map[string]bool      // days in which the sessions are carved from the envelope of the day
	prompts []*modelPrompt       // of this round
}

func newModelMoney() *modelMoney {
	return &modelMoney{earlier: map[string]modelSums{}, joined: map[string]bool{}}
}

// begin draws the limits of a round.
func (b *modelMoney) begin(w *modelWorld) {
	most := 40
	if w.rnd.IntN(2) == 0 {
		most = 400
	}
	draw := func() budget.Money { return cent * budget.Money(w.rnd.IntN(most)) }
	b.limits = orchestrator.SessionLimits{Namespace: cent * 1_000_000, Others: orchestrator.SessionNameLimits{
		Wakes: draw(), Prompts: draw(), Each: cent * budget.Money(w.rnd.IntN(20))}}
	if w.rnd.IntN(3) == 0 {
		b.limits.Namespace = b.sums(w.today(), "", "").carved.USD + draw()
	}
	b.cap = nil
	if w.rnd.IntN(2) == 0 {
		all := b.sums(w.today(), "", "").carved
		b.cap = &budget.Envelope{Tokens: all.Tokens + int64(w.rnd.IntN(4000)), USD: all.USD + draw()}
	}
	kit.OK(w.t, w.Store.SetSessionLimits(b.limits))
	w.Store.SetBudgets(b.cap, nil)
}

// noWakes reports whether a setting is 0, so that no wake is ever paid for.
func (b *modelMoney) noWakes() bool {
	return b.limits.Others.Wakes == 0 || b.limits.Namespace == 0 || b.cap != nil && b.cap.USD == 0
}

// finish keeps the sums of a round. None of its prompts is used after that.
func (b *modelMoney) finish(m *sessionMachine) {
	for _, p := range b.prompts {
		sums := b.earlier[p.funds.day]
		// What is still open stays so, as far as this day is concerned.
		sums.add(p.funds, false)
		b.earlier[p.funds.day] = sums
	}
	b.prompts = nil
}

// sums adds up the prompts of a day: of a kind and a name, or of all if the kind is empty. Those in ends count as if
// they had ended.
func (b *modelMoney) sums(day, kind, name string, ends ...*modelPrompt) (s modelSums) {
	if kind == "" {
		s = b.earlier[day]
	}
	for _, p := range b.prompts {
		if f := p.funds; f.day == day && (kind == "" || f.kind == kind && f.name == name) {
			s.add(f, slices.Contains(ends, p))
		}
	}
	return s
}

func (w *modelWorld) today() string { return dayOf(w.clock()) }

func dayOf(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.DateOnly) }

// clock is the server's own clock, in ms.
func (w *modelWorld) clock() int64 {
	server, err := w.Raw.Time(w.Ctx).Result()
	kit.OK(w.t, err)
	return server.UnixMilli()
}

// modelLeft is what the prompts of a kind have left today.
type modelLeft struct {
	left    budget.Money
	unspent budget.Money // what they would have if nothing was reserved
	short   string       // the envelope that has the least
}

// admit reports whether a prompt may begin.
func (l modelLeft) admit(metered bool) bool { return l.unspent > 0 && (l.left > 0 || !metered) }

// left is what the prompts of a kind have left today, if some prompts end before.
func (m *sessionMachine) left(kind string, ends ...*modelPrompt) modelLeft {
	b, day := m.money, dayOf(m.raw)
	own, all := b.sums(day, kind, m.name, ends...), b.sums(day, "", "", ends...)
	limit := b.limits.Others.Prompts
	if kind == "wake" {
		limit = b.limits.Others.Wakes
	}
	bounds := []modelLeft{{limit - own.carved.USD, limit - own.spent.USD, kind + ":" + m.name + ":" + day},
		{b.limits.Namespace - all.carved.USD, b.limits.Namespace - all.spent.USD, "sessions:" + day}}
	if b.cap != nil {
		free := b.cap.USD
		if b.joined[day] {
			free -= all.carved.USD
		}
		bounds = append(bounds, modelLeft{free, free + all.carved.USD - all.spent.USD, "house:" + day})
	}
	least, spent := bounds[0], bounds[0]
	for _, bound := range bounds {
		if bound.left < least.left {
			least = bound
		}
		if bound.unspent < spent.unspent {
			spent = bound
		}
	}
	least.unspent = spent.unspent
	if spent.unspent <= 0 {
		least.short = spent.short
	}
	return least
}

// newFunds reserves what a prompt may spend.
func (m *sessionMachine) newFunds(kind string) *modelFunds {
	amount := max(0, min(m.left(kind).left, m.money.limits.Others.Each))
	f := &modelFunds{kind: kind, name: m.name, day: dayOf(m.raw), granted: budget.Envelope{USD: amount}}
	if m.money.cap != nil {
		m.money.joined[f.day] = true
	}
	return f
}

// call reserves what a call of a model may cost, with the capability of a prompt that may have ended.
func (m *sessionMachine) call() {
	p := m.worker()
	if p == nil {
		return
	}
	f, held := p.funds, m.credential(p)
	c := modelCall("0")
	c.Reserve = budget.Envelope{Tokens: int64(m.rnd.IntN(500)), USD: cent * budget.Money(m.rnd.IntN(8))}
	m.note("%s reserves %+v for %s", p.id, c.Reserve, c.CallID)
	got, err := m.Reserve(m.Ctx, held, c)
	more := max(0, c.Reserve.Tokens-f.available().Tokens)
	switch {
	case !m.admits(p, held):
		m.agree(err, picket.CodeSessionCapability)
		return
	case more > m.tokensLeft(f.day), c.Reserve.USD > f.available().USD && !c.Reserve.IsZero():
		m.agree(err, picket.CodeBudgetExceeded)
		return
	}
	m.agree(err, "")
	f.granted.Tokens += more
	f.held = f.held.Add(c.Reserve)
	f.calls = append(f.calls, &modelSpending{Reservation: got})
	if left := f.available().USD; got.Available.USD != left {
		m.fatalf("the call leaves %s, want %s", got.Available.USD, left)
	}
	if m.rnd.IntN(4) == 0 { // the reply was lost
		again, err := m.Reserve(m.Ctx, held, c)
		if m.agree(err, ""); again != got {
			m.fatalf("the repeated call is %+v, and was %+v", again, got)
		}
	}
}

// tokensLeft is how many tokens a day has left.
func (m *sessionMachine) tokensLeft(day string) int64 {
	switch b := m.money; {
	case b.cap == nil:
		return picket.MaxNumber
	case b.joined[day]:
		return b.cap.Tokens - b.sums(day, "", "").carved.Tokens
	default:
		return b.cap.Tokens
	}
}

// caller draws a prompt. Most have calls; nil: there is none.
func (m *sessionMachine) caller() *modelPrompt {
	if with := slices.DeleteFunc(slices.Clone(m.money.prompts),
		func(p *modelPrompt) bool { return len(p.funds.calls) == 0 }); len(with) > 0 {
		return with[m.rnd.IntN(len(with))]
	}
	return nil
}

// settle books what a call of any prompt has cost, or what one has cost of which nobody knew.
func (m *sessionMachine) settle() {
	p := m.caller()
	if p == nil || len(p.funds.calls) == 0 {
		return
	}
	f := p.funds
	c := f.calls[m.rnd.IntN(len(f.calls))]
	s := kit.DoneSettlement(c.Reservation, "0")
	s.Cost = budget.Envelope{Tokens: int64(m.rnd.IntN(600)), USD: cent * budget.Money(m.rnd.IntN(9))}
	switch m.rnd.IntN(6) {
	case 0:
		s = kit.SettlementAs(c.Reservation, picket.CallUndispatched)
	case 1:
		s = kit.SettlementAs(c.Reservation, picket.CallUncertain)
	}
	m.note("%s of %s is %s and costs %+v", c.CallID, p.id, s.Outcome, s.Cost)
	_, err := m.Settle(m.Ctx, s)
	m.agree(err, "")
	cost := s.Cost
	if s.Outcome == picket.CallUncertain {
		cost = c.Reserved
	}
	switch {
	case !c.over:
		f.held = f.held.Sub(c.Reserved)
		f.spent = f.spent.Add(cost)
		c.over, c.uncertain = true, s.Outcome == picket.CallUncertain
	case c.uncertain && s.Outcome != picket.CallUncertain:
		f.spent = f.spent.Sub(c.Reserved).Add(cost)
		c.uncertain = false
	}
}

// beginLate has a round begin shortly before midnight, on the virtual clock.
func (w *modelWorld) beginLate() {
	if !w.Virtual {
		return
	}
	const before = 50_000
	now := w.clock()
	next := (now/dayMs+1)*dayMs - before
	if next <= now {
		next += dayMs
	}
	time.Sleep(time.Duration(next-now) * time.Millisecond)
}

// midnight begins another day, if the present one is almost over.
func (m *sessionMachine) midnight() {
	left := dayMs - m.raw%dayMs
	if !m.Virtual || left > modelStep.Milliseconds() {
		return
	}
	m.leaveWakes()
	m.note("midnight")
	time.Sleep(time.Duration(left) * time.Millisecond)
	m.beat()
}

// compareMoney looks at the envelopes of the day, and at those of the prompts.
func (m *sessionMachine) compareMoney() {
	m.t.Helper()
	day, b := dayOf(m.raw), m.money
	for _, kind := range []string{"wake", "prompt"} {
		if slices.ContainsFunc(b.prompts,
			func(p *modelPrompt) bool { return p.funds.kind == kind && p.funds.day == day }) {
			m.compareDay(kind+":"+m.name+":"+day, b.sums(day, kind, m.name))
		}
	}
	if all := b.sums(day, "", ""); all != (modelSums{}) {
		m.compareDay("sessions:"+day, all)
		if b.joined[day] {
			m.compareDay("house:"+day, all)
		}
	}
	for _, p := range b.prompts {
		if len(p.funds.calls) > 0 || !p.state.Ended() {
			m.compareFunds(p)
		}
	}
	if m.rnd.IntN(4) == 0 {
		m.compareWakes()
	}
}

func (m *sessionMachine) compareDay(id string, want modelSums) {
	m.t.Helper()
	got, err := m.Envelope(m.Ctx, id)
	if err != nil || got.Carved != want.carved || got.SpentInAll == nil || *got.SpentInAll != want.spent ||
		!got.Held.IsZero() || !got.Spent.IsZero() {
		m.fatalf("%s is %+v (%v), want %+v", id, got.Account, err, want)
	}
}

func (m *sessionMachine) compareFunds(p *modelPrompt) {
	m.t.Helper()
	f := p.funds
	want := budget.Account{Granted: f.carved(false), Available: f.available(), Held: f.held, Spent: f.spent}
	got, err := m.Envelope(m.Ctx, p.id)
	if err != nil || got.Account != want || (got.State == "closed") != f.closed {
		m.fatalf("%s is %s %+v (%v), want %+v", p.id, got.State, got.Account, err, want)
	}
}
