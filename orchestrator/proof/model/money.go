package model

import (
	"cmp"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// The model's money: envelopes, calls under way and what they come to.

// modelEnvelope is an envelope; the books of it are those of the product, the rules not.
type modelEnvelope struct {
	budget.Account
	id         string
	parent     string
	whole      budget.Envelope // carved at first plus topped up
	closed     bool
	warnedT    int64
	warnedU    int64
	tops       int64
	said       reportedUsage
	unverified budget.Envelope // reported beyond what was available
}

// free is what an envelope can pay with.
func (e *modelEnvelope) free() budget.Envelope { return e.Available.Sub(e.unverified) }

// modelCall is a call that costs, under way or ended.
type modelCall struct {
	task     string
	id       string
	run      string
	nonce    string
	tool     string
	hash     string
	need     budget.Envelope
	cost     budget.Envelope
	external bool
	keyed    bool
	due      int64              // when it settles automatically
	acts     int64              // until when it may act outside
	outcome  picket.CallOutcome // "" while it is under way
	row      int                // of same calls of its run; 0: it is not compared
	told     bool               // its answer has the nudge
	result   string
}

// reportedUsage is what was charged for language models and what agents reported of it, in a run or
// in the sessions of a task.
type reportedUsage struct {
	llm      budget.Envelope
	reported budget.Envelope
	charged  budget.Envelope
}

// runMoney is the money of a run.
type runMoney struct {
	spent budget.Envelope
	said  reportedUsage
	tops  *int64          // those it has seen
	need  budget.Envelope // of the call that it was refused last
}

const (
	settleDelay = 10_000 // a call settles automatically this long after its timeout
	actsMargin  = 2_000  // and acts outside no longer than this after it
)

func (m *model) carve(parent, id string, e budget.Envelope) {
	m.envs[id] = &modelEnvelope{id: id, parent: parent, whole: e, Account: budget.Account{Granted: e, Available: e}}
	if p := m.envs[parent]; p != nil {
		p.Available = p.Available.Sub(e)
		p.Carved = p.Carved.Add(e)
	}
}

// lacks tells whether an envelope lacks what is asked of it. One that has
// overrun covers nothing but what is free.
func (m *model) lacks(id string, need budget.Envelope) bool {
	has := m.envs[id].free()
	return !need.IsZero() && (!has.Covers(need) || has.Tokens < 0 || has.USD < 0)
}

// giveBack passes what a closed envelope has up to the nearest open one.
func (m *model) giveBack(e *modelEnvelope) *modelEnvelope {
	for e.closed {
		m.chargeReported(e)
		if e.parent == "" {
			break
		}
		p, left := m.envs[e.parent], e.Available
		e.Granted, e.Available = e.Granted.Sub(left), budget.Envelope{}
		p.Carved, p.Available = p.Carved.Sub(left), p.Available.Add(left)
		e = p
	}
	return e
}

// chargeReported charges a closed envelope with what was reported of it, up to
// what it has.
func (m *model) chargeReported(e *modelEnvelope) {
	has := positive(e.Available)
	cost := budget.Envelope{Tokens: min(e.unverified.Tokens, has.Tokens), USD: min(e.unverified.USD, has.USD)}
	if cost.IsZero() {
		return
	}
	e.unverified, e.Available, e.Spent = e.unverified.Sub(cost), e.Available.Sub(cost), e.Spent.Add(cost)
	m.book(e.id, "", picket.Spending{Spent: cost, Unverified: budget.Envelope{}.Sub(cost)})
	m.emit(picket.EventBudgetUnverified, e.id)
	m.rows++
}

// endMoney is the end of a task for its money.
func (m *model) endMoney(t *modelTask) {
	e := m.envs[t.id]
	e.closed = true
	m.giveBack(e)
}

func level(part, whole int64) int64 {
	for _, percent := range []int64{95, 80, 50} {
		if whole > 0 && part*100 >= percent*whole {
			return percent
		}
	}
	return 0
}

func (e *modelEnvelope) levels() (t, u int64) {
	used := e.Spent.Add(e.Carved)
	return level(used.Tokens, e.Granted.Tokens), level(int64(used.USD), int64(e.Granted.USD))
}

func (m *model) warn(e *modelEnvelope) {
	t, u := e.levels()
	for _, dim := range []struct {
		now int64
		was *int64
	}{{t, &e.warnedT}, {u, &e.warnedU}} {
		if dim.now > *dim.was {
			*dim.was = dim.now
			m.emit(picket.EventBudgetWarning, e.id)
		}
	}
}

// charge books what was spent; held of it was reserved.
func (m *model) charge(e *modelEnvelope, held, cost budget.Envelope) *modelEnvelope {
	late := e.closed
	e.Spent, e.Available = e.Spent.Add(cost), e.Available.Add(held).Sub(cost)
	p := m.giveBack(e)
	if cost.Tokens > held.Tokens && p.Available.Tokens < 0 || cost.USD > held.USD && p.Available.USD < 0 {
		m.emit(picket.EventBudgetOverrun, p.id)
	}
	if late {
		m.emit(picket.EventBudgetLate, e.id)
	}
	m.warn(p)
	m.rows++
	return p
}

func (m *model) ofRun(c *modelCall, cost budget.Envelope) {
	r := m.runs[c.run]
	r.spent = r.spent.Add(cost)
	if strings.HasPrefix(c.tool, "llm_") {
		said := &m.envs[r.task].said
		r.said.llm, said.llm = r.said.llm.Add(cost), said.llm.Add(cost)
	}
}

// reserve answers the call's reservation, or what it was answered before.
func (m *model) reserve(h modelCredential, c modelCall, wait int64) (was *modelCall, nudge int64, code picket.Code) {
	t, r, code := m.admits(h)
	if code != "" {
		return nil, 0, code
	}
	key, e := t.id+" "+c.id, m.envs[t.id]
	if old := m.calls[key]; old != nil {
		c.told = old.told
		switch {
		case old.hash != c.hash:
			return nil, 0, picket.CodeIdempotencyConflict
		case old.outcome == "" && old.nonce != c.nonce:
			return nil, 0, picket.CodeCallRunning
		case old.outcome == "":
			return nil, c.toldWith(r), ""
		case old.outcome == picket.CallUncertain:
			return nil, 0, picket.CodeStateConflict
		case old.outcome != picket.CallUndispatched && old.result == "":
			return nil, 0, picket.CodeStateConflict
		case old.outcome != picket.CallUndispatched:
			return old, c.toldWith(r), ""
		}
	}
	if m.paused {
		return nil, 0, picket.CodePaused
	}
	this, same := "paid "+c.hash, 0
	if r.call == this {
		same = r.same
	}
	if c.hash != "" && same >= 10 {
		return nil, 0, picket.CodeCallRepeated
	}
	if m.lacks(t.id, c.need) {
		tops := e.tops
		r.tops, r.need = &tops, c.need
		m.emit(picket.EventBudgetExceeded, t.id)
		return nil, 0, picket.CodeBudgetExceeded
	}
	m.confirm(t, r)
	r.active, r.called = m.now, true
	if c.hash != "" {
		m.countRepeat(r, &c, this, same+1)
	}
	e.Available, e.Held = e.Available.Sub(c.need), e.Held.Add(c.need)
	c.task, c.run, c.due = t.id, r.id, m.now+wait+settleDelay
	if c.external {
		c.acts = m.now + wait + actsMargin
	}
	m.calls[key] = &c
	return nil, c.toldWith(r), ""
}

// countRepeat counts a call that costs among the same ones in a row, and nudges for the fifth.
func (m *model) countRepeat(r *modelRun, c *modelCall, this string, same int) {
	if same == 1 {
		m.rowsOfCalls++
		r.row = m.rowsOfCalls
	}
	r.call, r.request, r.same = this, c.id, same
	c.row, c.told = r.row, same >= 5
	if c.told && r.rowTold != r.row {
		r.rowTold = r.row
		m.nudge(r)
	}
}

// uncountRepeat leaves a call that failed out of the same ones in a row.
func (m *model) uncountRepeat(c *modelCall) {
	r := m.runs[c.run]
	failed := c.outcome == picket.CallFailed || c.outcome == picket.CallUndispatched
	if failed && c.row != 0 && r.row == c.row && r.call == "paid "+c.hash {
		r.same--
	}
}

// toldWith is the nudge that goes with the answer. That of an LLM carries none.
func (c *modelCall) toldWith(r *modelRun) int64 {
	if c.told {
		r.toldWith(c.id)
		return r.nudges
	}
	if strings.HasPrefix(c.tool, "llm_") {
		return 0
	}
	return r.toldWith(c.id)
}

// settle ends a call once; a true figure corrects what nobody knew.
func (m *model) settle(task, id, nonce string, o picket.CallOutcome, cost budget.Envelope,
	result string) (*modelCall, *modelEnvelope, picket.Code) {
	c := m.calls[task+" "+id]
	if c == nil || c.nonce != nonce {
		return nil, nil, picket.CodeNotFound
	}
	if o == picket.CallUndispatched || o == picket.CallUncertain {
		cost, result = budget.Envelope{}, ""
	}
	e := m.envs[task]
	p := m.giveBack(e)
	switch {
	case c.outcome == "":
		p = m.callOver(c, o, cost)
	case c.outcome == picket.CallUncertain && o != picket.CallUncertain:
		more := cost.Sub(c.cost)
		c.outcome, c.cost = o, cost
		m.uncountRepeat(c)
		m.emit(picket.EventToolCalled, task)
		m.ofRun(c, more)
		m.book(task, c.model(), picket.Spending{Spent: more, Returned: positive(budget.Envelope{}.Sub(more))})
		p = m.charge(e, budget.Envelope{}, more)
	default:
		return c, p, ""
	}
	if c.keyed && result != "" {
		c.result = result
	}
	return c, p, ""
}

// callOver ends a call that is under way.
func (m *model) callOver(c *modelCall, o picket.CallOutcome, cost budget.Envelope) *modelEnvelope {
	if o == picket.CallUncertain {
		cost = c.need
		m.emit(picket.EventBudgetUncertain, c.task)
	}
	acted := c.acts
	c.outcome, c.cost, c.acts = o, cost, 0
	m.uncountRepeat(c)
	if acted > 0 {
		m.recheckWaiting(c.task)
	}
	m.emit(picket.EventToolCalled, c.task)
	e := m.envs[c.task]
	e.Held = e.Held.Sub(c.need)
	m.ofRun(c, cost)
	m.bookCall(c, cost)
	return m.charge(e, c.need, cost)
}

// open lists the calls under way, the first to settle automatically first.
func (m *model) open() []*modelCall {
	var out []*modelCall
	for _, c := range m.calls {
		if c.outcome == "" {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *modelCall) int {
		return cmp.Or(cmp.Compare(a.due, b.due), strings.Compare(a.task+":"+a.id, b.task+":"+b.id))
	})
	return out
}

// reapHolds settles the calls that are due. order has the calls as the store has them, as task:call.
func (m *model) reapHolds(order []string) (n int) {
	open := m.open()
	place := func(c *modelCall) int { return slices.Index(order, c.task+":"+c.id) }
	slices.SortStableFunc(open, func(a, b *modelCall) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(place(a), place(b)))
	})
	for _, c := range open {
		if c.due <= m.now {
			n++
			m.callOver(c, picket.CallUncertain, budget.Envelope{})
		}
	}
	return n
}

// acting tells until when calls of a task may act outside, its own or those of
// the ones before it that it waits for, and whose they are.
func (m *model) acting(id string, before []string) (until int64, owner string) {
	for _, of := range append([]string{id}, before...) {
		if latest := m.actsUntil(of); latest > until {
			until, owner = latest, of
		}
	}
	return until, owner
}

func (m *model) actsUntil(id string) (latest int64) {
	for _, c := range m.calls {
		if c.task == id {
			latest = max(latest, c.acts)
		}
	}
	return latest
}

// inherit makes a new task wait for what its source still has under way, and
// waits for itself.
func (m *model) inherit(t *modelTask, source string) {
	if source == "" {
		return
	}
	for _, of := range append([]string{source}, m.tasks[source].calls...) {
		if m.actsUntil(of) > m.now {
			t.calls = append(t.calls, of)
		}
	}
}

// recheckWaiting lets those go on who waited for the calls of a task.
func (m *model) recheckWaiting(owner string) {
	waiting := m.gated[owner]
	delete(m.gated, owner)
	for _, id := range m.ids {
		if t := m.tasks[id]; waiting[id] && t.state == picket.TaskQueued && t.where == "" {
			m.enqueue(t, t.ready, t.gate)
		}
	}
}

// waitsFor notes that a task waits for the calls of another, or its own.
func (m *model) waitsFor(id, owner string) {
	if m.gated[owner] == nil {
		m.gated[owner] = map[string]bool{}
	}
	m.gated[owner][id] = true
}
