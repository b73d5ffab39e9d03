package orchestrator_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

// giveBack acquires the task n times and gives it back each time, the first
// time under held. It returns the task afterwards.
func (h *attacker) giveBack(held picket.LeaseCredential, n int, class picket.ExitClass) picket.Task {
	h.Helper()
	for i := range n {
		if i > 0 {
			before := held.TaskID
			if held = h.next(); held.TaskID != before {
				h.Fatalf("leased %s", held.TaskID)
			}
		}
		_, err := h.Release(h.ctx, held, picket.Exit{Class: class})
		h.ok(err)
	}
	task, err := h.Task(h.ctx, held.TaskID)
	h.ok(err)
	return task
}

// wantsPerson wants that a task waits for a person, who is told the quota, and
// that nobody gets it.
func (h *attacker) wantsPerson(task picket.Task) {
	h.Helper()
	leases, err := h.Acquire(h.ctx, operator, picket.AcquireRequest{AgentID: "greedy"})
	h.ok(err)
	if task.State != picket.TaskHandoff || task.Handoff == nil || len(leases) > 0 {
		h.Fatalf("after %d runs the task is %s, %d leases", len(task.Runs), task.State, len(leases))
	}
	words := fmt.Sprintf("the task has had %d runs since a person last decided", smallQuotas.Runs)
	if task.Handoff.Kind != picket.HandoffEscalation || !strings.Contains(task.Handoff.Question, words) {
		h.Fatalf("a hand-off of kind %s asks %q", task.Handoff.Kind, task.Handoff.Question)
	}
}

// runsOfATask gives a task back for ever: after so many runs a person decides.
func runsOfATask(h *attacker) {
	held := h.start()
	task := h.giveBack(held, smallQuotas.Runs, picket.ExitReleased)
	h.wantsPerson(task)
	_, err := h.Answer(h.ctx, operator, task.Handoff.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(`"go on"`)})
	h.ok(err)
	task = h.giveBack(h.next(), smallQuotas.Runs, picket.ExitReleased) // counted again
	h.wantsPerson(task)
	_, err = h.Retry(h.ctx, operator, task.TaskID, "go on")
	h.ok(err)
	if task = h.giveBack(h.next(), smallQuotas.Runs-1, picket.ExitReleased); task.State != picket.TaskQueued {
		h.Fatalf("after %d runs more the task is %s", smallQuotas.Runs-1, task.State)
	}
	task = h.giveBack(h.next(), 1, picket.ExitReleased)
	h.wantsPerson(task)
	h.end(held)
}

// runsThatFail ends by the quota where more failures are allowed than runs; a
// task that is to fail instead of asking does so.
func runsThatFail(h *attacker) {
	for _, escalate := range []picket.Escalate{picket.EscalateHuman, picket.EscalateFail} {
		retry := picket.Retry{MaxAttempts: ptr(20), On: []picket.ExitClass{picket.ExitCrash}, BackoffSeconds: ptr(0)}
		_, err := h.Submit(h.ctx, operator, picket.TaskSpec{Title: "a task", Retry: &retry, Escalate: escalate})
		h.ok(err)
		task := h.giveBack(h.next(), smallQuotas.Runs, picket.ExitCrash)
		if escalate == picket.EscalateFail {
			if task.State != picket.TaskFailed {
				h.Fatalf("after %d runs the task is %s", len(task.Runs), task.State)
			}
			continue
		}
		h.wantsPerson(task)
		h.end(picket.LeaseCredential{TaskID: task.TaskID})
	}
}

// runsThatAsk gets its runs by questions that a deadline answers, not a person.
func runsThatAsk(h *attacker) {
	held := h.start()
	ask := func(held picket.LeaseCredential) picket.Task {
		h.Helper()
		_, err := h.RequestHelp(h.ctx, held,
			picket.HelpRequest{Question: "May I?", DeadlineSeconds: ptr(60), OnDeadline: picket.OnDeadlineDeny})
		h.ok(err)
		h.ok(h.raw.HIncrBy(h.ctx, h.prefix+"meta", "now", (2 * time.Minute).Milliseconds()).Err())
		h.ok(h.Tick(h.ctx))
		task, err := h.Task(h.ctx, held.TaskID)
		h.ok(err)
		return task
	}
	for i := range smallQuotas.Runs - 1 {
		if task := ask(held); task.State != picket.TaskQueued {
			h.Fatalf("after question %d the task is %s", i+1, task.State)
		}
		held = h.next()
	}
	task := ask(held)
	if task.State != picket.TaskHandoff || task.Handoff == nil || task.Handoff.OnDeadline != picket.OnDeadlineEscalate {
		h.Fatalf("after %d questions the task is %s, %+v", smallQuotas.Runs, task.State, task.Handoff)
	}
	_, err := h.Answer(h.ctx, operator, task.Handoff.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)})
	h.ok(err)
	if task = h.giveBack(h.next(), smallQuotas.Runs-1, picket.ExitReleased); task.State != picket.TaskQueued {
		h.Fatalf("after the answer of a person the task is %s", task.State)
	}
	h.end(held)
}
