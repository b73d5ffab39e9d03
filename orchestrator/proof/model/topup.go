package model

import (
	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// topUp gives an envelope more, and all above it. It returns what it makes of the hand-off of the
// task, "" if the task is in none. seen is the hand-off that has to be open, if any.
func (m *model) topUp(o requestID, id string, more budget.Envelope, keep bool,
	seen string) (picket.TopUpOutcome, picket.Code) {
	if was, code, again := m.once(o); again {
		if code != "" {
			return "", code
		}
		return picket.TopUpOutcome(was[1]), ""
	}
	e := m.envs[id]
	if e == nil {
		return "", picket.CodeNotFound
	}
	if seen != "" {
		check := func(h *modelHandoff) picket.Code {
			if h.task != id {
				return picket.CodeValidation
			}
			return ""
		}
		if code := m.onHelp(requestID{}, seen, check); code != "" {
			return "", code
		}
	}
	if e.closed {
		return "", picket.CodeTaskClosed
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
	outcome := m.answerParked(m.tasks[id], e, keep)
	m.remember(o, day, id, string(outcome))
	return outcome, ""
}

// answerParked answers the hand-off of a task that waits for money, if there is enough now.
func (m *model) answerParked(t *modelTask, e *modelEnvelope, keep bool) picket.TopUpOutcome {
	if t.state != picket.TaskHandoff || m.cancelledAbove(t) {
		return ""
	}
	h := m.helps[t.help]
	need := m.runs[h.run].need
	switch {
	case h.kind != picket.HandoffBudget:
		return picket.TopUpOtherReason
	case keep:
		return picket.TopUpKeptParked
	case need.Tokens > e.free().Tokens || need.USD > e.free().USD || e.free().Tokens < 0 || e.free().USD < 0:
		return picket.TopUpTooSmall
	}
	m.decide(h, true)
	return picket.TopUpAnswered
}

// funds tells a run whether its envelope was topped up since it was refused.
func (m *model) funds(h modelCredential, at int64) (more bool, nudge int64, code picket.Code) {
	t, r, code := m.admits(h)
	if code != "" {
		return false, 0, code
	}
	m.confirm(t, r)
	tops := m.envs[t.id].tops
	if r.tops == nil {
		r.tops = &tops
	} else {
		more = tops > *r.tops
	}
	nudge, code = m.acted(t, r, "await_top_up", "", "", at)
	return more, nudge, code
}
