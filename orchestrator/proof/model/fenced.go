package model

import (
	"fmt"
	"slices"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The model's fenced verbs: what a run may do with its own credential, and
// which refusal it gets when it may not.

// modelCredential is a credential as it is presented.
type modelCredential struct {
	task   string
	run    string
	forged bool
	fence  int64
}

// holds is the one definition of "still holds"; the first test that fails
// answers.
func (m *model) holds(h modelCredential) (*modelTask, *modelRun, picket.Code) {
	r := m.runs[h.run]
	if r == nil || h.forged {
		return nil, nil, picket.CodeLeaseExpired
	}
	t := m.tasks[r.task]
	if r.token <= m.floor && h.fence <= m.floor && r.state == picket.RunRunning {
		h.fence = 0 // a store that is lost may have granted it
	}
	switch {
	case r.task != h.task:
		return nil, nil, picket.CodeTaskMismatch
	case t.state == picket.TaskCancelled, m.cancelledAbove(t):
		return nil, nil, picket.CodeTaskCancelled
	case h.fence > t.token:
		return nil, nil, picket.CodeUnknownFence
	case h.fence > 0 && h.fence < t.token && !slices.Contains(r.tokens, h.fence), r.token < t.token:
		return nil, nil, picket.CodeStaleFence
	case r.state == picket.RunExpired:
		return nil, nil, picket.CodeLeaseExpired
	case r.state != picket.RunRunning:
		return nil, nil, picket.CodeLeaseReleased
	case r.token <= m.floor:
		return t, r, picket.CodeReclaimRequired
	case !m.serves(r):
		return nil, nil, picket.CodeLeaseExpired
	case m.now >= t.deadline:
		return nil, nil, picket.CodeLeaseExpired
	}
	return t, r, ""
}

// admits is holds for a caller that reclaims a lease from before an adoption and repeats its
// request, as the engine does.
func (m *model) admits(h modelCredential) (*modelTask, *modelRun, picket.Code) {
	t, r, code := m.holds(h)
	if code == picket.CodeReclaimRequired && !m.serves(r) {
		return nil, nil, picket.CodeLeaseExpired
	}
	if code == picket.CodeReclaimRequired {
		if h.fence > 0 && !slices.Contains(r.tokens, h.fence) {
			r.tokens = append(r.tokens, h.fence)
		}
		m.raiseToken(t, r)
		t, r, code = m.holds(h)
	}
	return t, r, code
}

// confirm starts the full window at the first admitted call.
func (m *model) confirm(t *modelTask, r *modelRun) {
	if !r.confirmed {
		r.confirmed = true
		t.deadline = max(t.deadline, m.now+r.window)
	}
}

// closedBefore is the answer of a closing verb that this run made before.
func (m *model) closedBefore(h modelCredential, verb, content string) (string, bool) {
	r := m.runs[h.run]
	if r == nil || h.forged || r.task != h.task || r.closed == "" || r.closed != verb+" "+content {
		return "", false
	}
	return r.closedSay, true
}

// closing runs a verb that ends a lease; act does what is its own.
func (m *model) closing(h modelCredential, verb, content string, confirms bool,
	act func(t *modelTask, r *modelRun) string) (string, picket.Code) {
	if say, ok := m.closedBefore(h, verb, content); ok {
		return say, ""
	}
	t, r, code := m.admits(h)
	if code != "" {
		return "", code
	}
	if confirms {
		m.confirm(t, r)
	}
	r.closed, r.closedSay = verb+" "+content, act(t, r)
	return r.closedSay, ""
}

func (m *model) renew(h modelCredential) (ttl int64, code picket.Code) {
	t, r, code := m.admits(h)
	if code != "" {
		return 0, code
	}
	r.confirmed = true
	t.deadline = max(t.deadline, m.now+r.window)
	return t.deadline - m.now, ""
}

func (m *model) report(h modelCredential, request, content string) (seq, nudge int64, code picket.Code) {
	t, r, code := m.admits(h)
	if code != "" {
		return 0, 0, code
	}
	if request != "" {
		if i := slices.IndexFunc(r.seen, func(s modelReport) bool { return s.request == request }); i >= 0 {
			if r.seen[i].content != content {
				return 0, 0, picket.CodeIdempotencyConflict
			}
			return r.seen[i].seq, r.toldWith(request), ""
		}
	}
	m.confirm(t, r)
	nudge, code = m.acted(t, r, "report "+content, request, request, 0)
	if code != "" {
		return 0, 0, code
	}
	t.reports++
	r.remember(modelReport{request, content, t.reports})
	m.emit(picket.EventTaskProgress, t.id)
	return t.reports, nudge, ""
}

// remember keeps the answers to the last 32 requests that have an id.
func (r *modelRun) remember(answer modelReport) {
	if answer.request != "" {
		r.seen = append([]modelReport{answer}, r.seen...)
		r.seen = r.seen[:min(len(r.seen), 32)]
	}
}

func (m *model) complete(h modelCredential, content string, how picket.Children) (string, picket.Code) {
	if _, again := m.closedBefore(h, "complete", content); !again {
		t, _, code := m.admits(h)
		if code == "" && how == "" && len(m.openChildren(t)) > 0 {
			return "", picket.CodeChildrenOpen
		}
	}
	return m.closing(h, "complete", content, true, func(t *modelTask, r *modelRun) string {
		open := m.openChildren(t)
		m.end(r, picket.RunCompleted, picket.ExitSuccess)
		t.state, t.inReview = picket.TaskReview, m.wall()
		if t.unreviewed {
			t.state = picket.TaskCompleted
			m.endMoney(t)
		}
		m.emit("task."+string(t.state), t.id)
		state := string(t.state)
		m.settleChildren(t, open, how)
		return state
	})
}

func (m *model) fail(h modelCredential, reason string, retryable bool) (string, picket.Code) {
	return m.closing(h, "fail", fmt.Sprint(reason, retryable), true, func(t *modelTask, r *modelRun) string {
		m.end(r, picket.RunFailed, picket.ExitAgentFailed)
		m.emit(picket.EventLeaseFailed, t.id)
		state := string(m.after(r, picket.ExitAgentFailed, retryable))
		m.failChildren(t)
		return state
	})
}

// decline fails the task at once, whatever its retry policy is.
func (m *model) decline(h modelCredential, reason string) (string, picket.Code) {
	return m.closing(h, "fail", reason+" rejected", true, func(t *modelTask, r *modelRun) string {
		m.end(r, picket.RunFailed, picket.ExitRejected)
		m.emit(picket.EventLeaseFailed, t.id)
		t.state = picket.TaskFailed
		m.endMoney(t)
		m.failChildren(t)
		return string(t.state)
	})
}

// failChildren ends what a task has delegated whose run gave up.
func (m *model) failChildren(t *modelTask) {
	if t.ever {
		m.cancelChildren(t)
		t.delegated, t.batches = 0, t.batches+1
	}
}

func (m *model) release(h modelCredential, class picket.ExitClass, code string) (string, picket.Code) {
	return m.closing(h, "release", string(class)+code, false, func(t *modelTask, r *modelRun) string {
		state := picket.RunFailed
		if class == picket.ExitReleased {
			state = picket.RunReleased
		}
		m.end(r, state, class)
		// A release comes after the process is dead.
		if !r.exited {
			r.exitedAt = m.now
		}
		r.exited, r.code = true, code
		m.emit(picket.EventLeaseReleased, t.id)
		return string(m.after(r, class, true))
	})
}

func (m *model) requestHelp(h modelCredential, kind picket.HandoffKind, question string, wait int64,
	policy picket.OnDeadline) (string, picket.Code) {
	content := fmt.Sprint(kind, question, wait, policy)
	return m.closing(h, "help", content, true, func(t *modelTask, r *modelRun) string {
		m.end(r, picket.RunReleased, picket.ExitReleased)
		m.emit(picket.EventTaskHandoff, t.id)
		deadline := int64(0)
		if wait > 0 {
			deadline = m.now + wait
		}
		return m.park(r, kind, deadline, policy)
	})
}

// Evidence: good until 15 minutes after the lease ended, no matter who holds now.

func (m *model) lateHolder(h modelCredential) (*modelRun, picket.Code) {
	r := m.runs[h.run]
	switch {
	case r == nil || h.forged:
		return nil, picket.CodeLeaseExpired
	case r.task != h.task:
		return nil, picket.CodeTaskMismatch
	case h.fence > r.token:
		return nil, picket.CodeUnknownFence
	case h.fence > 0 && !slices.Contains(r.tokens, h.fence):
		return nil, picket.CodeStaleFence
	case r.state != picket.RunRunning && m.now-r.ended >= 15*60_000:
		return nil, picket.CodeLeaseExpired
	}
	return r, ""
}

func (m *model) launched(h modelCredential) picket.Code {
	r, code := m.lateHolder(h)
	if code == "" && !r.launched && !(r.exited && m.now-r.exitedAt >= kit.HalfMinute) {
		r.launched = true
		m.emit(picket.EventRunLaunched, r.task)
	}
	return code
}

func (m *model) runExit(h modelCredential, code string) picket.Code {
	r, refusal := m.lateHolder(h)
	if refusal != "" || r.exited && r.code == code {
		return refusal
	}
	if r.exited && m.tasks[r.task].decided {
		return picket.CodeTaskClosed
	}
	if !r.exited {
		r.exitedAt = m.now
	}
	r.exited, r.code = true, code
	r.exits++
	// Anyone who waits for this process goes on: the run's own task, or the one
	// that repairs or repeats it.
	for _, id := range m.ids {
		if t := m.tasks[id]; t.state == picket.TaskQueued && t.gate == r.id {
			m.enqueue(t, t.ready, "")
		}
	}
	m.emit(picket.EventRunExited, r.task)
	return ""
}
