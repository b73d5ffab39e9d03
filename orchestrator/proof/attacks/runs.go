package attacks

import (
	"fmt"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// giveBack acquires the task n times and gives it back each time, the first
// time under held. It returns the task afterwards.
func (h *Attacker) giveBack(held picket.LeaseCredential, n int, class picket.ExitClass) picket.Task {
	h.Helper()
	for i := range n {
		if i > 0 {
			before := held.TaskID
			if held = h.next(); held.TaskID != before {
				h.Fatalf("leased %s", held.TaskID)
			}
		}
		_, err := h.Release(h.Ctx, held, picket.Exit{Class: class})
		h.OK(err)
	}
	task, err := h.Task(h.Ctx, held.TaskID)
	h.OK(err)
	return task
}

// wantsPerson wants that a task waits for a person, who is told the quota, and
// that nobody gets it.
func (h *Attacker) wantsPerson(task picket.Task) {
	h.Helper()
	leases, err := h.Acquire(h.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "greedy"})
	h.OK(err)
	if task.State != picket.TaskHandoff || task.Handoff == nil || len(leases) > 0 {
		h.Fatalf("after %d runs the task is %s, %d leases", len(task.Runs), task.State, len(leases))
	}
	words := fmt.Sprintf("the task has had %d runs since a person last decided", SmallQuotas.Runs)
	if task.Handoff.Kind != picket.HandoffEscalation || !strings.Contains(task.Handoff.Question, words) {
		h.Fatalf("a hand-off of kind %s asks %q", task.Handoff.Kind, task.Handoff.Question)
	}
}

// runsOfATask gives a task back for ever: after so many runs a person decides.
func runsOfATask(h *Attacker) {
	held := h.Start()
	task := h.giveBack(held, SmallQuotas.Runs, picket.ExitReleased)
	h.wantsPerson(task)
	_, err := h.Answer(h.Ctx, kit.Operator, task.Handoff.HandoffID,
		picket.AnswerRequest{Answer: picket.RawJSON(`"go on"`)})
	h.OK(err)
	task = h.giveBack(h.next(), SmallQuotas.Runs, picket.ExitReleased) // counted again
	h.wantsPerson(task)
	_, err = h.Retry(h.Ctx, kit.Operator, task.TaskID, "go on")
	h.OK(err)
	if task = h.giveBack(h.next(), SmallQuotas.Runs-1, picket.ExitReleased); task.State != picket.TaskQueued {
		h.Fatalf("after %d runs more the task is %s", SmallQuotas.Runs-1, task.State)
	}
	task = h.giveBack(h.next(), 1, picket.ExitReleased)
	h.wantsPerson(task)
	h.End(held)
}

// runsThatFail ends by the quota where more failures are allowed than runs; a
// task that is to fail instead of asking does so.
func runsThatFail(h *Attacker) {
	for _, escalate := range []picket.Escalate{picket.EscalateHuman, picket.EscalateFail} {
		retry := picket.Retry{MaxAttempts: kit.Ptr(20), On: []picket.ExitClass{picket.ExitCrash},
			BackoffSeconds: kit.Ptr(0)}
		_, err := h.Submit(h.Ctx, kit.Operator, picket.TaskSpec{Title: "a task", Retry: &retry, Escalate: escalate})
		h.OK(err)
		task := h.giveBack(h.next(), SmallQuotas.Runs, picket.ExitCrash)
		if escalate == picket.EscalateFail {
			if task.State != picket.TaskFailed {
				h.Fatalf("after %d runs the task is %s", len(task.Runs), task.State)
			}
			continue
		}
		h.wantsPerson(task)
		h.End(picket.LeaseCredential{TaskID: task.TaskID})
	}
}

// runsThatAsk gets its runs by questions that a deadline answers, not a person.
func runsThatAsk(h *Attacker) {
	held := h.Start()
	ask := func(held picket.LeaseCredential) picket.Task {
		h.Helper()
		_, err := h.RequestHelp(h.Ctx, held,
			picket.HelpRequest{Question: "May I?", DeadlineSeconds: kit.Ptr(60), OnDeadline: picket.OnDeadlineDeny})
		h.OK(err)
		h.OK(h.Raw.HIncrBy(h.Ctx, h.Prefix+"meta", "now", (2 * time.Minute).Milliseconds()).Err())
		h.OK(h.Tick(h.Ctx))
		task, err := h.Task(h.Ctx, held.TaskID)
		h.OK(err)
		return task
	}
	for i := range SmallQuotas.Runs - 1 {
		if task := ask(held); task.State != picket.TaskQueued {
			h.Fatalf("after question %d the task is %s", i+1, task.State)
		}
		held = h.next()
	}
	task := ask(held)
	if task.State != picket.TaskHandoff || task.Handoff == nil || task.Handoff.OnDeadline != picket.OnDeadlineEscalate {
		h.Fatalf("after %d questions the task is %s, %+v", SmallQuotas.Runs, task.State, task.Handoff)
	}
	_, err := h.Answer(h.Ctx, kit.Operator, task.Handoff.HandoffID,
		picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)})
	h.OK(err)
	if task = h.giveBack(h.next(), SmallQuotas.Runs-1, picket.ExitReleased); task.State != picket.TaskQueued {
		h.Fatalf("after the answer of a person the task is %s", task.State)
	}
	h.End(held)
}
