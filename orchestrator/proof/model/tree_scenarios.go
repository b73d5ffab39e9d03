package model

import (
	"fmt"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Moves of several verbs each, which lead to where single ones hardly ever get:
// trees of some depth whose tasks run, money that comes late, calls again.

// treeScenarios are most of what happens in some of the checks.
func (x *machine) treeScenarios() []action {
	live := x.anyRun(isRunning)
	return []action{
		{16, "raise", func() bool { return !x.m.paused && x.openTasks() < x.most+6 }, x.growTree},
		{12, "fell", x.anyRun(func(r *modelRun) bool { return isRunning(r) && x.m.tasks[r.task].ever }), x.endParent},
		{12, "hand in", func() bool { return live() && !x.m.paused }, x.completeSubtask},
		{12, "late", func() bool { return len(x.m.open()) > 0 }, x.settleLate},
		{16, "call again", live, x.repeatCall},
	}
}

// reviewer is who decides about the task.
func (t *modelTask) reviewer() string {
	switch {
	case t.byParent:
		return string(picket.ReviewByParent)
	case t.unreviewed:
		return string(picket.ReviewByNone)
	}
	return string(picket.ReviewByHuman)
}

// trueCredential is the credential of a run, as it is.
func (x *machine) trueCredential(rid string) (picket.LeaseCredential, modelCredential) {
	return x.held[rid], modelCredential{task: x.held[rid].TaskID, run: rid}
}

// newest is the run that was granted last, if it runs.
func (x *machine) newest() (h picket.LeaseCredential, mh modelCredential, ok bool) {
	if len(x.m.rids) == 0 {
		return h, mh, false
	}
	rid := x.m.rids[len(x.m.rids)-1]
	h, mh = x.trueCredential(rid)
	return h, mh, isRunning(x.m.runs[rid])
}

// acquireOne leases the next task to somebody who takes any.
func (x *machine) acquireOne() {
	a := acquirer{id: "a3", role: "coder", caps: []string{"go", "py"}, by: modelCaller{key: "key_a"}}
	got, err := x.e.Acquire(x.ctx, picket.Caller{Actor: "key_a"},
		picket.AcquireRequest{AgentID: a.id, Role: a.role, Capabilities: a.caps, Max: kit.Ptr(1)})
	want, code := x.m.grant(requestID{}, a, runsOf(got), 1)
	if x.agree(err, code, "take one") {
		x.granted(a, got, want)
	}
}

// growTree makes a tree, branch by branch, and leases what it comes to.
func (x *machine) growTree() {
	x.submit()
	x.acquireOne()
	for range 1 + x.below(3, "levels") {
		h, mh, ok := x.newest()
		if !ok {
			return
		}
		for range 1 + x.below(2, "branches") {
			m := modelSpec{
				lane:     "|",
				byParent: true,
				envelope: budget.Envelope{Tokens: int64(x.below(4, "tokens")), USD: budget.Money(x.below(4, "nanos"))},
			}
			s := picket.Subtask{Title: "a branch", BudgetEnvelope: &m.envelope}
			if x.chance("by a person", 20) {
				s.Review, m.byParent = picket.ReviewByHuman, false
			}
			x.delegateBy(h, mh, oneOf(x, "key", "", "d1"), fmt.Sprintf("branch %+v", m), s, m)
			x.awaitBy(h, mh, x.pick("whose", x.m.ids, kit.NoTask))
			x.acquireOne()
		}
	}
}

// endParent ends a task with others below it, and has everybody try to go on.
func (x *machine) endParent() {
	h, mh := x.parent()
	switch x.below(4, "by") {
	case 0:
		got, err := x.e.Fail(x.ctx, h, "cannot", true)
		want, code := x.m.fail(mh, "cannot", true)
		x.checkClosing(h, string(got), want, err, code, "fail")
	case 1, 2:
		got, err := x.e.Cancel(x.ctx, picket.Caller{Actor: "key_a"}, h.TaskID, "because")
		if x.agree(err, x.m.cancel(requestID{}, h.TaskID), "cancel %s", h.TaskID) {
			x.checkTask("cancel", got, h.TaskID)
		}
	case 3:
		how := oneOf(x, "children", picket.ChildrenCancel, picket.ChildrenDetach)
		got, err := x.e.Complete(x.ctx, h, picket.Completion{Output: picket.RawJSON(`1`), Children: how})
		want, code := x.m.complete(mh, "1"+string(how), how)
		x.checkClosing(h, string(got), want, err, code, "complete")
	}
	for _, r := range x.m.live() {
		x.renewAs(x.trueCredential(r.id))
	}
	if !x.m.paused {
		x.acquireOne()
	}
}

// completeSubtask completes a subtask and has its parent decide about it.
func (x *machine) completeSubtask() {
	for _, r := range x.m.live() {
		t := x.m.tasks[r.task]
		if t.parent == "" {
			continue
		}
		h, mh := x.trueCredential(r.id)
		got, err := x.e.Complete(x.ctx, h,
			picket.Completion{Output: picket.RawJSON(`1`), Children: picket.ChildrenDetach})
		want, code := x.m.complete(mh, "1"+string(picket.ChildrenDetach), picket.ChildrenDetach)
		x.checkClosing(h, string(got), want, err, code, "complete")
		if p := x.m.tasks[t.parent]; p.run != "" {
			h, mh = x.trueCredential(p.run)
			x.reviewBy(h, mh, t.id)
		}
		return
	}
}

// settleLate settles a call whose task has ended.
func (x *machine) settleLate() {
	open := x.m.open()
	if len(open) == 0 {
		return
	}
	c := open[x.below(len(open), "which")]
	if t := x.m.tasks[c.task]; !t.state.Terminal() {
		_, err := x.e.Cancel(x.ctx, picket.Caller{Actor: "key_a"}, t.id, "because")
		x.agree(err, x.m.cancel(requestID{}, t.id), "cancel %s", t.id)
	}
	x.settleAs(picket.Settlement{
		TaskID:  c.task,
		CallID:  c.id,
		Nonce:   c.nonce,
		Outcome: oneOf(x, "outcome", picket.CallDone, picket.CallUncertain),
		Cost:    x.amount("cost"),
	})
}

// repeatCall makes a call, ends it and makes it again, under every nonce.
func (x *machine) repeatCall() {
	live := x.m.live()
	if len(live) == 0 {
		return
	}
	h, mh := x.trueCredential(live[x.below(len(live), "who")].id)
	c := modelCall{
		id:       oneOf(x, "call", "c4", "c5"),
		nonce:    "n1",
		hash:     "h1",
		tool:     oneOf(x, "tool", "http_request", "llm_messages"),
		need:     oneOf(x, "need", budget.Envelope{}, x.amount("need"), x.m.envs[h.TaskID].Available),
		keyed:    x.chance("keyed", 60),
		external: x.chance("external", 30),
	}
	wait, effects := int64(kit.HalfMinute-settleDelay), picket.EffectsNone
	if c.external {
		wait, effects = 4*kit.HalfMinute-actsMargin, picket.EffectsExternal
	}
	if c.need.Check() != nil {
		c.need = budget.Envelope{}
	}
	x.reserveBy(h, mh, c, wait, effects)
	if x.chance("settled", 80) {
		x.settleAs(picket.Settlement{
			TaskID: h.TaskID,
			CallID: c.id,
			Nonce:  c.nonce,
			Cost:   x.amount("cost"),
			Result: picket.RawJSON(`1`),
			Outcome: oneOf(x, "outcome", picket.CallUncertain, picket.CallDone, picket.CallUndispatched,
				picket.CallFailed),
		})
	}
	if x.chance("settled again", 50) {
		x.settleAs(picket.Settlement{
			TaskID:  h.TaskID,
			CallID:  c.id,
			Nonce:   c.nonce,
			Cost:    x.amount("true cost"),
			Result:  picket.RawJSON(`2`),
			Outcome: oneOf(x, "true outcome", picket.CallDone, picket.CallFailed, picket.CallUndispatched),
		})
	}
	c.nonce, c.hash = oneOf(x, "nonce", "n1", "n2"), oneOf(x, "hash", "h1", "h1", "h1", "h2")
	x.reserveBy(h, mh, c, wait, effects)
	if x.chance("usage", 40) {
		total := x.amount("total")
		for range 2 {
			got, err := x.e.ReportUsage(x.ctx, h,
				picket.UsageReport{Source: "claude", Session: "s3", Tokens: total.Tokens, USD: total.USD})
			cost, rest, _, code := x.m.usage(mh, "s3", false, total)
			if x.agree(err, code, "usage") {
				x.same("usage: charged", got.Charged, cost)
				x.same("usage: unverified", got.Unverified, rest)
			}
		}
	}
	if c.external && x.chance("repeated", 50) { // what repeats it waits for its calls
		_, err := x.e.Cancel(x.ctx, picket.Caller{Actor: "key_a"}, h.TaskID, "because")
		x.agree(err, x.m.cancel(requestID{}, h.TaskID), "cancel %s", h.TaskID)
		got, err := x.e.Retry(x.ctx, picket.Caller{Actor: "key_a"}, h.TaskID, "because")
		id := got.TaskID
		if id == "" {
			id = freshID()
		}
		_, code := x.m.retry(requestID{}, h.TaskID, id)
		x.agree(err, code, "retry %s", h.TaskID)
	}
}
