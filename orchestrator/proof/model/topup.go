package model

import (
	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// topUp gives an envelope more, and all above it.
func (m *model) topUp(o requestID, id string, more budget.Envelope) picket.Code {
	if _, code, again := m.once(o); again {
		return code
	}
	e := m.envs[id]
	switch {
	case e == nil:
		return picket.CodeNotFound
	case e.closed:
		return picket.CodeTaskClosed
	}
	for p := m.envs[e.parent]; p != nil; p = m.envs[p.parent] {
		p.Granted, p.Carved, p.whole = p.Granted.Add(more), p.Carved.Add(more), p.whole.Add(more)
	}
	e.Granted, e.Available, e.whole = e.Granted.Add(more), e.Available.Add(more), e.whole.Add(more)
	e.tops++
	t, u := e.levels()
	e.warnedT, e.warnedU = min(e.warnedT, t), min(e.warnedU, u)
	m.emit(picket.EventBudgetToppedUp, id)
	m.rows++
	m.remember(o, day, id)
	return ""
}

// funds tells a run whether its envelope was topped up since it was refused.
func (m *model) funds(h modelCredential) (more bool, code picket.Code) {
	t, r, code := m.admits(h)
	if code != "" {
		return false, code
	}
	m.confirm(t, r)
	r.active, r.called = m.now, true
	tops := m.envs[t.id].tops
	if r.tops == nil {
		r.tops = &tops
		return false, ""
	}
	return tops > *r.tops, ""
}
