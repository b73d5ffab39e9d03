package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/picket-dev/picket"
)

// handoffAgent asks about its first task what it cannot know, and ends. It is
// started again with the answer. A reviewer's note is the task of a fix.
const handoffAgent = `#!/bin/sh
if grep -q '"reviewNote"' "$PICKET_TASK_FILE"; then
  exec picket tool mark_complete --output "both tables are kept, and there is a backup"
elif grep -q 'count the rows' "$PICKET_TASK_FILE"; then
  exec picket tool mark_complete --output "1,204 rows"
elif grep -q '"option": *"keep both"' "$PICKET_TASK_FILE"; then
  exec picket tool mark_complete --output "both tables are kept"
fi
exec picket tool request_human_help --question "orders_old still has rows. What is to become of it?" --options "delete it" --options "keep both"
`

var handoffChapter = chapter{
	title: "the hand-off",
	lead:  "An agent that needs a person asks and ends. Nothing runs and nothing is held while the question stands.",
	prepare: func(st *stage) ([]act, error) {
		h := &handoff{stage: st}
		var err error
		h.script, err = st.script("handoff.sh", handoffAgent)
		return []act{h.ask, h.other, h.answer, h.tooLate, h.goesOn}, err
	},
}

// handoff is the play: one worker with one place, two tasks, a question.
type handoff struct {
	*stage
	script string
	id     string
	asked  string
}

func (h *handoff) ask(ctx context.Context) error {
	var t picket.Task
	if err := h.s.post(ctx, "/api/v1/tasks", picket.TaskSpec{Title: "tidy up the orders"}, &t, nil); err != nil {
		return err
	}
	h.id = t.TaskID
	worker, err := h.start("adapter", "--agent-id", "careful", "--", h.script)
	if err != nil {
		return err
	}
	t, err = h.awaitTask(ctx, h.id, "the agent's question", func(t picket.Task) bool { return t.State == picket.TaskHandoff && t.Handoff != nil })
	if err != nil {
		return fmt.Errorf("%w\n%s", err, worker.complained())
	}
	h.asked = t.Handoff.HandoffID
	h.tell("Submitted %s. Its agent asks, and ends:", h.id)
	text, err := h.shell(ctx, exitOK, "picket handoff show")
	if err == nil && (!strings.Contains(text, h.asked) || !strings.Contains(text, "keep both")) {
		err = fmt.Errorf("the question is not shown with its options")
	}
	return err
}

// other is work for the same worker, whose only place the question must not
// hold.
func (h *handoff) other(ctx context.Context) error {
	var t picket.Task
	if err := h.s.post(ctx, "/api/v1/tasks", picket.TaskSpec{Title: "count the rows", Review: picket.ReviewByNone}, &t, nil); err != nil {
		return err
	}
	t, err := h.awaitTask(ctx, t.TaskID, "another task's end while the question stands", func(t picket.Task) bool { return t.State == picket.TaskCompleted })
	if err != nil {
		return err
	}
	if t.Runs[0].AgentID != "careful" {
		return fmt.Errorf("expected the worker that asked to do the other task, %s did", t.Runs[0].AgentID)
	}
	var held struct {
		Leases []picket.LiveLease `json:"leases"`
	}
	if err := h.s.get(ctx, "/api/v1/leases", &held, nil); err != nil {
		return err
	}
	if len(held.Leases) > 0 {
		return fmt.Errorf("%s is leased while nothing but the question is left", held.Leases[0].TaskID)
	}
	h.tell("Meanwhile the same worker, which has one place, was given another task and has completed it: %q.", outputText(t.Output))
	return nil
}

func (h *handoff) answer(ctx context.Context) error {
	h.tell("A person takes care of it, and answers:")
	if _, err := h.shell(ctx, exitOK, "picket handoff claim -o name"); err != nil {
		return err
	}
	_, err := h.shell(ctx, exitOK, "picket handoff answer "+h.asked+" --option 2")
	return err
}

func (h *handoff) tooLate(ctx context.Context) error {
	h.tell("Somebody else answers, too, a moment later:")
	text, err := h.shell(ctx, exitConflict, "picket handoff answer "+h.asked+` --option "delete it"`)
	if err == nil && !strings.Contains(text, string(picket.CodeStateConflict)) && !strings.Contains(text, string(picket.CodeTaskClosed)) {
		err = fmt.Errorf("a second answer was not refused as one")
	}
	return err
}

func (h *handoff) goesOn(ctx context.Context) error {
	t, err := h.awaitTask(ctx, h.id, "the result in review", func(t picket.Task) bool { return t.State == picket.TaskReview })
	if err != nil {
		return err
	}
	if outputText(t.Output) != "both tables are kept" {
		return fmt.Errorf("the answer was not heeded: the task is %s with %q", t.State, outputText(t.Output))
	}
	h.tell("One answer counts. The agent's next run was handed it, and has done so: %q.", outputText(t.Output))
	return nil
}

var reviewChapter = chapter{
	title: "the review",
	lead:  "Nothing is done before a person says so. Who rejects a result can have it mended in the same step.",
	prepare: func(st *stage) ([]act, error) {
		r := &review{stage: st}
		r.script = st.path("handoff.sh")
		return []act{r.find, r.reject, r.approve, r.record}, nil
	},
}

// review is the play: what the question's task has left, rejected and mended.
type review struct {
	*stage
	script string
	id     string
	fix    string
}

func (r *review) find(ctx context.Context) error {
	list, err := r.s.reviews(ctx, nil)
	if err != nil {
		return err
	}
	for _, waiting := range list {
		if outputText(waiting.Output) == "both tables are kept" {
			r.id = waiting.TaskID
		}
	}
	if r.id == "" {
		return fmt.Errorf("not observed: the result of the task that asked, in review")
	}
	_, err = r.shell(ctx, exitOK, "picket review list")
	return err
}

var fixTask = regexp.MustCompile(`picket task watch (task_[0-9A-Z]{26})`)

func (r *review) reject(ctx context.Context) error {
	text, err := r.shell(ctx, exitOK, "picket review reject "+r.id+` --note "not without a backup" --fix "make a backup, too"`)
	if err != nil {
		return err
	}
	found := fixTask.FindStringSubmatch(text)
	if found == nil {
		return fmt.Errorf("not observed: the task that mends the rejected one")
	}
	r.fix = found[1]
	if _, err := r.start("adapter", "--", r.script); err != nil {
		return err
	}
	t, err := r.awaitTask(ctx, r.fix, "the fix in review", func(t picket.Task) bool { return t.State == picket.TaskReview })
	if err != nil {
		return err
	}
	if t.Fixes == nil || *t.Fixes != r.id || outputText(t.Output) != "both tables are kept, and there is a backup" {
		return fmt.Errorf("the fix of %s does not heed the note: %q", r.id, outputText(t.Output))
	}
	r.tell("The fix was queued in the same step and handed the note. Its agent has done it: %q.", outputText(t.Output))
	return nil
}

func (r *review) approve(ctx context.Context) error {
	if _, err := r.shell(ctx, exitOK, "picket review approve "+r.fix); err != nil {
		return err
	}
	for id, want := range map[string]picket.TaskState{r.id: picket.TaskRejected, r.fix: picket.TaskCompleted} {
		t, err := r.task(ctx, id)
		if err != nil {
			return err
		}
		if t.State != want {
			return fmt.Errorf("%s is %s, not %s", id, t.State, want)
		}
	}
	return nil
}

// record looks at what the log says about the person's decisions.
func (r *review) record(ctx context.Context) error {
	text, err := r.shell(ctx, exitOK, "picket events -o wide --limit 1000 --type task.answered,task.rejected,task.approved | cut -c1-150")
	if err != nil {
		return err
	}
	for _, decided := range []string{picket.EventTaskAnswered, picket.EventTaskRejected, picket.EventTaskApproved} {
		if !strings.Contains(text, decided) {
			return fmt.Errorf("not observed: %s in the log", decided)
		}
	}
	r.tell("Every decision is in the log, with who made it.")
	return nil
}
