package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// The model's tree: what a run delegates, awaits and reviews, and how subtasks end with their
// parent.

// modelTree is the part of a task that its tree looks at.
type modelTree struct {
	parent    string
	root      string // of a subtask
	depth     int
	children  []string // in the order of their creation
	delegated int      // those that a run asked for, since it last gave them up
	ever      bool
	batches   int
	made      string // what was asked for
	cancelled bool   // with all that is below it
	decided   bool   // by a reviewer, or by who finished a hand-off
}

// cancelledAbove tells whether a task was cancelled with one above it.
func (m *model) cancelledAbove(t *modelTask) bool {
	for id := t.parent; id != ""; id = m.tasks[id].parent {
		if m.tasks[id].cancelled {
			return true
		}
	}
	return false
}

// openParent is the parent that a repair or a repeat of a task still has.
func (m *model) openParent(t *modelTask) string {
	if t.parent == "" {
		return ""
	}
	if p := m.tasks[t.parent]; !p.state.Terminal() && !m.cancelledAbove(p) {
		return t.parent
	}
	return ""
}

// placeBelow places a new task below its parent.
func (m *model) placeBelow(t *modelTask, repeats bool) {
	p := m.tasks[t.parent]
	t.root, t.depth = p.root, p.depth+1
	if t.root == "" {
		t.root = p.id
	}
	p.children = append(p.children, t.id)
	if !repeats {
		p.delegated++
		p.ever = true
	}
}

// dropCancelled ends a queued task that was cancelled with one above it.
func (m *model) dropCancelled(t *modelTask) {
	t.state, t.where, t.due = picket.TaskCancelled, "", 0
	m.endMoney(t)
	m.emit(picket.EventTaskCancelled, t.id)
}

func (m *model) cancelTask(t *modelTask) {
	switch t.state {
	case picket.TaskLeased:
		m.end(m.runs[t.run], picket.RunCancelled, picket.ExitCancelled)
	case picket.TaskHandoff:
		m.helps[t.help].state = picket.HandoffCancelled
	}
	m.dropCancelled(t)
}

// cancelBelow cancels what is below the tasks of a list, looking at limit of
// them; what is left is a chore.
func (m *model) cancelBelow(list []string, top string, limit int) int {
	i, n := 0, 0
	for i < len(list) && n < limit {
		n++
		through := true
		for _, id := range m.tasks[list[i]].children {
			if n >= limit {
				through = false
				break
			}
			t := m.tasks[id]
			if !t.state.Terminal() {
				m.cancelTask(t)
				n++
			}
			if t.ever {
				list = append(list, id)
			}
		}
		if through {
			i++
		}
	}
	for _, id := range list[i:] {
		m.pendingChores["cancel:"+id+":"+top] = func() int { return m.cancelBelow([]string{id}, top, 100) }
	}
	return n
}

func (m *model) cancelTree(t *modelTask) {
	m.cancelTask(t)
	if t.ever {
		t.cancelled = true
		m.cancelBelow([]string{t.id}, t.id, m.stride)
	}
}

// cancelChildren cancels what is below a task that may go on.
func (m *model) cancelChildren(t *modelTask) {
	if !t.ever {
		return
	}
	for _, id := range t.children {
		if c := m.tasks[id]; c.ever || !c.state.Terminal() {
			c.cancelled = true
		}
	}
	m.cancelBelow([]string{t.id}, t.id, m.stride)
}

func (m *model) openChildren(t *modelTask) (open []*modelTask) {
	for _, id := range t.children {
		if c := m.tasks[id]; !c.state.Terminal() && t.ever {
			open = append(open, c)
		}
	}
	return open
}

// settleChildren decides about the open subtasks of a task that is complete.
func (m *model) settleChildren(t *modelTask, open []*modelTask, how picket.Children) {
	switch how {
	case picket.ChildrenDetach:
		for _, c := range open {
			c.byParent = false
		}
	case picket.ChildrenCancel:
		m.cancelChildren(t)
	}
}

// delegate makes a subtask of a run's task; fresh is the id of a new one.
func (m *model) delegate(h modelCredential, request, content, fresh string,
	s modelSpec) (id string, nudge int64, code picket.Code) {
	t, r, code := m.admits(h)
	if code != "" {
		return "", 0, code
	}
	batch := fmt.Sprint(t.id, " ", request, " ", t.batches)
	if was := m.made[batch]; request != "" && was != "" {
		if m.tasks[was].made != content {
			return "", 0, picket.CodeIdempotencyConflict
		}
		return was, r.toldWith(request), ""
	}
	switch {
	case t.depth >= picket.MaxDepth, t.delegated >= picket.MaxFanOut:
		return "", 0, picket.CodeDelegation
	case m.lacks(t.id, s.envelope):
		return "", 0, picket.CodeBudgetExceeded
	}
	m.confirm(t, r)
	nudge, code = m.acted(t, r, "delegate "+fresh, request, request, 0)
	if code != "" {
		return "", 0, code
	}
	s.lane = laneBelow(t.lane, s.lane)
	s.team = t.team
	s.priority, s.window, s.backoff, s.maxAttempts, s.retryOn, s.fails = t.priority, t.window, t.backoff, t.maxAttempts,
		t.retryOn, t.fails
	m.made[batch] = fresh
	m.create(fresh, s, 0, source{}, t.id)
	m.tasks[fresh].made = content
	return fresh, nudge, ""
}

// laneBelow is the lane of a subtask: below one that is pinned to an agent, it
// is that agent's, too.
func laneBelow(parent, own string) string {
	home, pinned := strings.CutPrefix(parent, "agent:")
	if !pinned {
		rest, below := strings.CutPrefix(parent, "for:")
		if !below {
			return own
		}
		home, _, _ = strings.Cut(rest, "|")
	}
	if own == "|" {
		return "agent:" + home
	}
	return "for:" + home + "|" + own
}

// await shows a run a subtask of its task.
func (m *model) await(h modelCredential, child string, at int64) (c *modelTask, nudge int64, code picket.Code) {
	t, r, code := m.admits(h)
	if code != "" {
		return nil, 0, code
	}
	c = m.tasks[child]
	if c == nil || c.parent != t.id {
		return nil, 0, picket.CodeNotFound
	}
	m.confirm(t, r)
	nudge, code = m.acted(t, r, "await "+child+" "+string(c.state), "", "", at)
	return c, nudge, code
}

// reviewSubtask decides a subtask that was handed in; fix is the id of the
// subtask that repairs a rejected one.
func (m *model) reviewSubtask(h modelCredential, request, child, decision, note string, seen reviewerView,
	fix func() string) (c *modelTask, nudge int64, code picket.Code) {
	t, r, code := m.admits(h)
	if code != "" {
		return nil, 0, code
	}
	c = m.tasks[child]
	switch {
	case child == t.id:
		return nil, 0, picket.CodeAuthorCannotReview
	case c == nil || c.parent != t.id:
		return nil, 0, picket.CodeNotFound
	case c.state != picket.TaskReview && c.review == fmt.Sprint(r.id, decision, note):
		return c, r.toldWith(request), ""
	case c.state.Terminal():
		return nil, 0, picket.CodeTaskClosed
	case c.state != picket.TaskReview:
		return nil, 0, picket.CodeStateConflict
	case !c.byParent:
		return nil, 0, picket.CodeForbidden
	}
	if code := m.staleDigest(c, seen); code != "" {
		return nil, 0, code
	}
	m.confirm(t, r)
	if nudge, code = m.acted(t, r, "review "+child+" "+decision, request, request, 0); code != "" {
		return nil, 0, code
	}
	c.review = fmt.Sprint(r.id, decision, note)
	if decision == "approve" {
		m.decided(c, true, "", modelSpec{}, 0)
		return c, nudge, ""
	}
	s := c.modelSpec
	s.byParent, s.unreviewed, s.envelope = true, false, m.envs[child].whole
	repair := fix()
	m.decided(c, false, repair, s, 0)
	m.tasks[repair].edited = c.edited
	return c, nudge, ""
}

// decided closes a task in review and makes what repairs it. Below a parent the
// repair gets no more than there is: nothing refuses it.
func (m *model) decided(t *modelTask, approve bool, fix string, s modelSpec, ready int64) {
	t.state = picket.TaskRejected
	kind := picket.EventTaskRejected
	if approve {
		t.state, kind = picket.TaskCompleted, picket.EventTaskApproved
	}
	t.decided = true
	m.endMoney(t)
	m.emit(kind, t.id)
	if fix == "" {
		return
	}
	above := m.openParent(t)
	if above != "" {
		has := m.envs[above].free()
		s.envelope = budget.Envelope{
			Tokens: max(0, min(s.envelope.Tokens, has.Tokens)),
			USD:    max(0, min(s.envelope.USD, has.USD)),
		}
	}
	m.create(fix, s, ready, source{run: t.processRun(), fixes: t.id}, above)
}

// childrenOf lists the tasks that a run of a task may await and review.
func (m *model) childrenOf(h modelCredential) []string {
	if t := m.tasks[h.task]; t != nil {
		return slices.Clone(t.children)
	}
	return nil
}
