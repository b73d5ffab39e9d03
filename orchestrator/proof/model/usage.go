package model

import (
	"math"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// The model's usage: what agents report of themselves.

// counts is how much of a report counts, in one dimension.
func counts(more, granted, usual int64) int64 {
	if granted == 0 {
		granted = usual
	}
	return min(more, 10*granted)
}

// usage books running totals of an agent's own. Only the last run of a task that
// was not cancelled is charged, up to what the task was granted.
func (m *model) usage(h modelCredential, session string, ofTask bool,
	total budget.Envelope) (cost, rest budget.Envelope, p *modelEnvelope, code picket.Code) {
	r, code := m.lateHolder(h)
	if code != "" {
		return cost, rest, nil, code
	}
	t, e := m.tasks[r.task], m.envs[r.task]
	trusted := t.run == r.id && t.state != picket.TaskCancelled && !m.cancelledAbove(t) && !r.keyEnded
	key, said := r.id+" "+session, &r.said
	if ofTask {
		key = r.task + " " + session
	}
	was := m.totals[key]
	if !trusted {
		key = r.id + " unverified " + session
		if own, known := m.totals[key]; known {
			was = own
		}
	} else if ofTask {
		said = &e.said
	}
	total = budget.Envelope{Tokens: max(was.Tokens, total.Tokens), USD: max(was.USD, total.USD)}
	m.totals[key] = total
	more, usual := total.Sub(was), budget.Default()
	more = budget.Envelope{
		Tokens: counts(more.Tokens, e.whole.Tokens, usual.Tokens),
		USD:    budget.Money(counts(int64(more.USD), int64(e.whole.USD), int64(usual.USD))),
	}
	said.reported = said.reported.Add(more)
	owed := said.reported.Sub(said.llm).Sub(said.charged)
	owed = budget.Envelope{Tokens: max(0, owed.Tokens), USD: max(0, owed.USD)}
	said.charged = said.charged.Add(owed)
	if trusted && !ofTask {
		e.said.llm = e.said.llm.Sub(more).Add(owed)
	}
	var room, before budget.Envelope
	if trusted {
		room = m.chargeable(e)
	}
	locks := trusted && t.state != picket.TaskQueued && t.state != picket.TaskHandoff
	if locks {
		before = e.unverified
	}
	due := owed.Add(before)
	cost = budget.Envelope{Tokens: min(due.Tokens, room.Tokens), USD: min(due.USD, room.USD)}
	left, p := owed.Sub(cost), e
	rest = positive(left)
	if !cost.IsZero() {
		r.spent = r.spent.Add(cost)
		m.book(e.id, "", picket.Spending{Spent: cost})
		m.emit(picket.EventToolCalled, r.task)
		p = m.charge(e, budget.Envelope{}, cost)
	} else if trusted {
		p = m.giveBack(e)
	}
	if locks {
		e.unverified = e.unverified.Add(left)
	}
	if !left.IsZero() {
		m.rows++
		m.book(e.id, "", picket.Spending{Unverified: left})
		m.emit(picket.EventBudgetUnverified, r.task)
	}
	if !rest.IsZero() && locks && !e.closed {
		m.emit(picket.EventBudgetOverrun, r.task)
	}
	return cost, rest, p, ""
}

// chargeable is what usage may still be charged to an envelope: what it has, or what
// it and each closed one above it were granted and gave back, but no more than
// an open task above them has.
func (m *model) chargeable(e *modelEnvelope) budget.Envelope {
	left := positive(e.Available)
	if e.closed {
		left = budget.Envelope{Tokens: math.MaxInt64, USD: math.MaxInt64}
	}
	for e != nil && e.closed {
		left = least(left, positive(e.Available).Add(positive(e.whole.Sub(e.Granted))))
		e = m.envs[e.parent]
	}
	if e != nil && !strings.HasPrefix(e.id, "house:") {
		left = least(left, positive(e.Available))
	}
	return left
}

func positive(e budget.Envelope) budget.Envelope {
	return budget.Envelope{Tokens: max(0, e.Tokens), USD: max(0, e.USD)}
}

func least(a, b budget.Envelope) budget.Envelope {
	return budget.Envelope{Tokens: min(a.Tokens, b.Tokens), USD: min(a.USD, b.USD)}
}

func hasEnded(r *modelRun) bool { return !isRunning(r) }

// reportLateUsage reports the session of a run that has ended, and then that of the run
// that has the task now, if there is one.
func (x *machine) reportLateUsage() {
	var late []string
	for _, rid := range x.m.rids {
		if hasEnded(x.m.runs[rid]) {
			late = append(late, rid)
		}
	}
	if len(late) == 0 {
		return
	}
	late = late[max(0, len(late)-4):]
	rid := late[x.below(len(late), "who")]
	x.usageBy(rid, "s1")
	if now := x.m.tasks[x.m.runs[rid].task].run; now != rid {
		x.usageBy(now, "s1")
	}
}

// usageBy reports the total of a session in the name of a run.
func (x *machine) usageBy(rid, session string) {
	h, mh := x.trueCredential(rid)
	total := x.amount("total")
	got, err := x.e.ReportUsage(x.ctx, h,
		picket.UsageReport{Source: "claude", Session: session, Scope: "session", Tokens: total.Tokens, USD: total.USD})
	cost, rest, _, code := x.m.usage(mh, session, true, total)
	if x.agree(err, code, "usage of %s", rid) {
		x.same("usage: charged", got.Charged, cost)
		x.same("usage: unverified", got.Unverified, rest)
	}
}
