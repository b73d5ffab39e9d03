package model

import (
	"cmp"
	"fmt"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The moves of the tree of tasks.

func (x *machine) treeActions() []action {
	x.m.stride = oneOf(x, "tasks in a step", 100, 100, 1, 3)
	live := x.anyRun(isRunning)
	parents := x.anyRun(func(r *modelRun) bool { return isRunning(r) && x.m.tasks[r.task].ever })
	return []action{
		{4, "delegate", func() bool { return live() && x.openTasks() < 2*x.most }, x.delegate},
		{2, "await", parents, x.awaitSubtask},
		{3, "review subtask", parents, x.reviewSubtask},
	}
}

func (x *machine) delegate() {
	s := picket.Subtask{Title: "a part"}
	m := modelSpec{lane: "|", byParent: true}
	switch x.below(4, "lane") {
	case 2:
		s.Role, m.lane = "coder", "coder|"
	case 3:
		s.Role, s.Needs, m.lane = "coder", []string{"go"}, "coder|go"
	}
	m.role = s.Role
	if x.chance("money", 70) {
		m.envelope = x.amount("envelope")
		s.BudgetEnvelope = &m.envelope
	}
	switch x.below(6, "reviewer") {
	case 4:
		s.Review, m.byParent = picket.ReviewByHuman, false
	case 5:
		s.Review, m.byParent, m.unreviewed = picket.ReviewByNone, false, true
	}
	request, content := oneOf(x, "key", "", "d1", "d2"), fmt.Sprintf("%+v", m)
	x.calls(func(h picket.LeaseCredential, mh modelCredential) { x.delegateBy(h, mh, request, content, s, m) })
}

func (x *machine) delegateBy(h picket.LeaseCredential, mh modelCredential, request, content string, s picket.Subtask,
	m modelSpec) {
	got, err := x.e.Delegate(x.ctx, h, request, s)
	id, nudge, code := x.m.delegate(mh, request, content, cmp.Or(got.TaskID, freshID()), m)
	if x.agree(err, code, "delegate %+v by %+v", m, mh) {
		x.same("delegate", got.TaskID, id)
		x.same("delegate: state", got.State, x.m.tasks[id].state)
		x.same("delegate: available", got.Available, x.m.envs[h.TaskID].free())
		x.nudged("delegate", got.Nudge, nudge)
	}
	x.refused(h, err, "delegate_subtask")
}

// subtask draws a subtask of a run's task, or something that is invalid.
func (x *machine) subtask(mh modelCredential) string {
	list := x.m.childrenOf(mh)
	if len(list) == 0 || x.chance("no subtask", 25) {
		list = x.m.ids
	}
	return x.pick("subtask", list, kit.NoTask)
}

func (x *machine) parent() (picket.LeaseCredential, modelCredential) {
	return x.holderOf(func(r *modelRun) bool { return isRunning(r) && x.m.tasks[r.task].ever })
}

func (x *machine) awaitSubtask() {
	h, mh := x.parent()
	x.awaitBy(h, mh, x.subtask(mh))
}

func (x *machine) awaitBy(h picket.LeaseCredential, mh modelCredential, id string) {
	got, err := x.e.AwaitSubtask(x.ctx, h, id, 0)
	c, nudge, code := x.m.await(mh, id, x.lookedAt(h))
	if x.agree(err, code, "await %s by %+v", id, mh) {
		x.same("await", got.State, c.state)
		x.same("await: spent", got.Spent, x.m.envs[id].Spent)
		x.nudged("await", got.Nudge, nudge)
	}
	x.refused(h, err, "await_subtask")
}

func (x *machine) reviewSubtask() {
	h, mh := x.parent()
	x.reviewBy(h, mh, x.subtask(mh))
}

func (x *machine) reviewBy(h picket.LeaseCredential, mh modelCredential, id string) {
	decision, note := oneOf(x, "decision", "approve", "reject", "reject"), oneOf(x, "note", "", "so")
	request := oneOf(x, "request", "", "v1")
	seen := x.lookAt(id)
	for range 1 + x.below(2, "times") {
		got, err := x.e.ReviewSubtask(x.ctx, h, request,
			picket.SubtaskReview{TaskID: id, Decision: decision, Note: note, Digest: seen.digest})
		c, nudge, code := x.m.reviewSubtask(mh, request, id, decision, note, seen, func() string {
			if got.Review == nil || got.Review.FixTaskID == nil {
				return freshID()
			}
			return *got.Review.FixTaskID
		})
		if x.agree(err, code, "%s %s by %+v", decision, id, mh) {
			x.same("review", got.State, c.state)
			x.nudged("review", got.Nudge, nudge)
		}
		x.refused(h, err, "review_subtask")
	}
}
