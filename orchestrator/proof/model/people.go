package model

import (
	"cmp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The model's verbs of operators, people and the reaper.

func (m *model) submit(o requestID, id string, s modelSpec, ready int64, fixes string) (string, picket.Code) {
	if was, code, again := m.once(o); again {
		return first(was), code
	}
	if t := m.clientTask(s.client); t != nil { // whose request was forgotten, or had another key
		if t.client.request != o.body {
			return "", picket.CodeIdempotencyConflict
		}
		return t.id, ""
	}
	if s.client.closed {
		return "", picket.CodeAgentDraining
	}
	of := source{fixes: fixes}
	if fixes != "" {
		t := m.tasks[fixes]
		if t == nil {
			return "", picket.CodeNotFound
		}
		if t.state == picket.TaskLeased {
			return "", picket.CodeStateConflict
		}
		of.run = t.processRun()
	}
	if s.client.key != "" {
		s.client.request = o.body
		if code := m.clientLimits(s); code != "" {
			return "", code
		}
	}
	m.create(id, s, ready, of, "")
	if c := s.client.push; c != nil {
		m.putPush(m.tasks[id], c.ID, c.URL.Reveal())
	}
	m.remember(o, day, id)
	return id, ""
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}

func (m *model) expire(r *modelRun, class picket.ExitClass) {
	m.end(r, picket.RunExpired, class)
	m.emit(picket.EventLeaseExpired, r.task)
	m.after(r, class, true)
}

func (m *model) expireDue() int {
	n := 0
	for _, r := range m.live() {
		if m.now < m.tasks[r.task].deadline {
			continue
		}
		n++
		class := picket.ExitLeaseExpired
		switch {
		case r.token <= m.floor && !r.exited && m.now < m.adopted+kit.HalfMinute:
			m.tasks[r.task].deadline = m.adopted + kit.HalfMinute
			continue
		case r.token <= m.floor:
			class = picket.ExitStoreAdopted
		case !r.confirmed:
			class = picket.ExitUndelivered
		}
		m.expire(r, class)
	}
	return n
}

func (m *model) undeliver(rids []string) {
	for _, rid := range rids {
		if r := m.runs[rid]; r != nil && r.state == picket.RunRunning && !r.confirmed {
			m.expire(r, picket.ExitUndelivered)
		}
	}
}

// onTask runs an operator's verb on a task that is not closed.
func (m *model) onTask(o requestID, tid string, act func(t *modelTask) picket.Code) picket.Code {
	if _, code, again := m.once(o); again {
		return code
	}
	t := m.tasks[tid]
	switch {
	case t == nil:
		return picket.CodeNotFound
	case t.state.Terminal():
		return picket.CodeTaskClosed
	}
	code := act(t)
	if code == "" {
		m.remember(o, day, tid)
	}
	return code
}

func (m *model) expireByOperator(o requestID, tid string) picket.Code {
	return m.onTask(o, tid, func(t *modelTask) picket.Code {
		if t.state != picket.TaskLeased {
			return picket.CodeStateConflict
		}
		m.expire(m.runs[t.run], picket.ExitByOperator)
		return ""
	})
}

func (m *model) cancel(o requestID, tid string) picket.Code {
	return m.onTask(o, tid, func(t *modelTask) picket.Code {
		m.cancelTree(t)
		return ""
	})
}

func (m *model) retry(o requestID, tid, fresh string) (string, picket.Code) {
	if was, code, again := m.once(o); again {
		return first(was), code
	}
	t := m.tasks[tid]
	switch {
	case t == nil:
		return "", picket.CodeNotFound
	case t.state == picket.TaskCompleted:
		return "", picket.CodeTaskClosed
	case m.repeated(t):
		return "", picket.CodeStateConflict
	case t.state.Terminal():
		above, s := m.openParent(t), t.modelSpec
		s.client = modelClient{} // the new task is that of the operator
		s.envelope = m.envs[tid].whole
		if above != "" && m.lacks(above, s.envelope) {
			return "", picket.CodeBudgetExceeded
		}
		m.emit(picket.EventTaskRetried, tid)
		m.create(fresh, s, 0, source{run: t.processRun(), fixes: t.fixes, retries: tid}, above)
		m.tasks[fresh].edited, t.anew = t.edited, fresh
		m.remember(o, day, fresh)
		return fresh, ""
	case m.cancelledAbove(t):
		return "", picket.CodeTaskClosed
	case t.state != picket.TaskHandoff || m.helps[t.help].kind != picket.HandoffEscalation:
		return "", picket.CodeStateConflict
	}
	m.helps[t.help].state = picket.HandoffAnswered
	t.failures = 0
	m.countRunsAnew(t)
	m.enqueue(t, 0, t.run)
	m.emit(picket.EventTaskRetried, tid)
	m.remember(o, day, tid)
	return tid, ""
}

// repeated reports whether a closed task was made again, and that one is open.
func (m *model) repeated(t *modelTask) bool {
	anew := m.tasks[t.anew]
	return anew != nil && !anew.state.Terminal() && !m.cancelledAbove(anew)
}

func (m *model) review(o requestID, tid string, seen reviewerView, approve bool, fix string, s modelSpec,
	ready int64) (string, picket.Code) {
	if was, code, again := m.once(o); again {
		return first(was), code
	}
	code := m.onTask(requestID{}, tid, func(t *modelTask) picket.Code {
		switch {
		case m.cancelledAbove(t):
			return picket.CodeTaskClosed
		case t.state != picket.TaskReview:
			return picket.CodeStateConflict
		}
		if code := m.staleDigest(t, seen); code != "" {
			return code
		}
		m.decided(t, approve, fix, s, ready)
		return ""
	})
	if code != "" {
		return "", code
	}
	m.remember(o, day, fix)
	return fix, ""
}

// onHelp runs a person's verb on an open hand-off.
func (m *model) onHelp(o requestID, hid string, act func(h *modelHandoff) picket.Code) picket.Code {
	if _, code, again := m.once(o); again {
		return code
	}
	h := m.helps[hid]
	switch {
	case h == nil:
		return picket.CodeNotFound
	case m.tasks[h.task].state.Terminal(), m.cancelledAbove(m.tasks[h.task]):
		return picket.CodeTaskClosed
	case h.state != picket.HandoffOpen:
		return picket.CodeStateConflict
	}
	code := act(h)
	if code == "" {
		m.remember(o, day, h.task)
	}
	return code
}

func (m *model) answer(o requestID, hid, edited string) picket.Code {
	return m.onHelp(o, hid, func(h *modelHandoff) picket.Code {
		t := m.tasks[h.task]
		t.edited = cmp.Or(edited, t.edited)
		m.decide(h, true)
		return ""
	})
}

func (m *model) finish(o requestID, hid string) picket.Code {
	return m.onHelp(o, hid, func(h *modelHandoff) picket.Code {
		h.state = picket.HandoffFinished
		m.tasks[h.task].state, m.tasks[h.task].decided = picket.TaskCompleted, true
		m.endMoney(m.tasks[h.task])
		m.emit(picket.EventTaskFinished, h.task)
		return ""
	})
}

// cancelHelp cancels the task of an open hand-off, also one whose tree is being
// cancelled and that the book-keeping has not come to yet.
func (m *model) cancelHelp(o requestID, hid string) picket.Code {
	if _, code, again := m.once(o); again {
		return code
	}
	h := m.helps[hid]
	switch {
	case h == nil:
		return picket.CodeNotFound
	case m.tasks[h.task].state.Terminal(), h.state != picket.HandoffOpen && m.cancelledAbove(m.tasks[h.task]):
		return picket.CodeTaskClosed
	case h.state != picket.HandoffOpen:
		return picket.CodeStateConflict
	}
	code := m.cancel(requestID{}, h.task)
	if code == "" {
		m.remember(o, day, h.task)
	}
	return code
}

// claim notes who looks after a hand-off, and the person who should take it if it names one.
func (m *model) claim(o requestID, hid, by string, takeOver bool, assignee string) picket.Code {
	return m.onHelp(o, hid, func(h *modelHandoff) picket.Code {
		if h.claimed != "" && h.claimed != by && !takeOver {
			return picket.CodeStateConflict
		}
		was := m.assignedTo(h)
		assignee = cmp.Or(assignee, was)
		if h.claimed != by || assignee != was {
			h.claimed, h.assignee = by, assignee
			m.emit(picket.EventHandoffClaimed, h.task)
		}
		return ""
	})
}

func (m *model) pause(o requestID, hard bool) picket.Code {
	if _, code, again := m.once(o); again {
		return code
	}
	m.remember(o, day, "done")
	m.paused, m.stopped = true, hard || m.stopped // a pause does not weaken a stop
	m.emit(picket.EventPaused, "")
	if hard {
		for _, r := range m.live() {
			m.end(r, picket.RunReleased, picket.ExitReleased)
			m.after(r, picket.ExitReleased, true)
			m.emit(picket.EventLeaseReleased, r.task)
		}
	}
	return ""
}

func (m *model) resume(o requestID) picket.Code {
	_, code, again := m.once(o)
	if code != "" {
		return code
	}
	if !again && m.paused {
		m.paused, m.stopped = false, false
		m.emit(picket.EventResumed, "")
	}
	m.remember(o, day, "done")
	return ""
}

// tick moves due tasks on and applies the deadline policy of hand-offs.
func (m *model) tick() {
	m.promote(100)
	var due []*modelHandoff
	for _, hid := range m.hids {
		if h := m.helps[hid]; h.state == picket.HandoffOpen && h.deadline > 0 && h.deadline <= m.now {
			due = append(due, h)
		}
	}
	for _, h := range due {
		h.deadline = 0
		switch h.policy {
		case picket.OnDeadlineDeny:
			m.decide(h, false)
			continue
		case picket.OnDeadlineEscalate:
			m.tasks[h.task].priority = min(9, m.tasks[h.task].priority+1)
		}
		m.emit(picket.EventHandoffOverdue, h.task)
	}
}
