package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
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
exec picket tool request_human_help --question "orders_old still has rows. What should happen to it?" --options "delete it" --options "keep both"
`

var handoffChapter = chapter{
	title: "the hand-off",
	lead:  "An agent that needs a person asks and ends. Nothing runs and nothing is held while the question stands.",
	prepare: func(st *demoEnv) ([]chapterStep, error) {
		h := &handoffDemo{demoEnv: st}
		var err error
		h.script, err = st.script("handoff.sh", handoffAgent)
		return []chapterStep{h.createPeople, h.ask, h.runOtherTask, h.answer, h.answerTooLate, h.checkAnswerUsed}, err
	},
}

// handoffDemo is the play: one worker with one place, two tasks, a question, and two
// people who answer it.
type handoffDemo struct {
	*demoEnv
	script    string
	id        string
	handoffID string
}

// createPeople gives both a key of their own, under names that the shell knows.
func (h *handoffDemo) createPeople(ctx context.Context) error {
	for _, name := range []string{"ann", "ben"} {
		key, err := h.s.Keys.Create(ctx, picket.KeyRequest{Name: name, Scopes: []picket.Scope{picket.ScopeReviewer}})
		if err != nil {
			return err
		}
		h.env = append(h.env, strings.ToUpper(name)+"="+key.Key.Reveal())
	}
	h.narrate("Ann and Ben may decide: each has a key of the scope reviewer, in $ANN and $BEN.")
	return nil
}

func (h *handoffDemo) ask(ctx context.Context) error {
	t, err := h.s.Tasks.Create(ctx, picket.TaskSpec{Title: "tidy up the orders"})
	if err != nil {
		return err
	}
	h.id = t.TaskID
	worker, err := h.start("adapter", "--agent-id", "careful", "--", h.script)
	if err != nil {
		return err
	}
	t, err = h.awaitTask(ctx, h.id, "the agent's question",
		func(t picket.Task) bool { return t.State == picket.TaskHandoff && t.Handoff != nil })
	if err != nil {
		return fmt.Errorf("%w\n%s", err, worker.stderr())
	}
	h.handoffID = t.Handoff.HandoffID
	h.narrate("Submitted %s. Its agent asks, and ends:", h.id)
	text, err := h.runShell(ctx, exit.OK, "picket handoff show")
	if err == nil && (!strings.Contains(text, h.handoffID) || !strings.Contains(text, "keep both")) {
		err = fmt.Errorf("the question is not shown with its options")
	}
	return err
}

// runOtherTask is work for the same worker, whose only place the question must not
// hold.
func (h *handoffDemo) runOtherTask(ctx context.Context) error {
	t, err := h.s.Tasks.Create(ctx, picket.TaskSpec{Title: "count the rows", Review: picket.ReviewByNone})
	if err != nil {
		return err
	}
	t, err = h.awaitTask(ctx, t.TaskID, "another task's end while the question stands",
		func(t picket.Task) bool { return t.State == picket.TaskCompleted })
	if err != nil {
		return err
	}
	if t.Runs[0].AgentID != "careful" {
		return fmt.Errorf("expected the worker that asked to do the other task, %s did", t.Runs[0].AgentID)
	}
	held, err := h.s.Leases.List(ctx)
	if err != nil {
		return err
	}
	if held.Total > 0 {
		return fmt.Errorf("%s is leased while nothing but the question is left", held.Leases[0].TaskID)
	}
	h.narrate("Meanwhile the same worker, which has one place, was given another task and has completed it: %q.",
		cli.OutputText(t.Output))
	return nil
}

func (h *handoffDemo) answer(ctx context.Context) error {
	h.narrate("Ann says that she takes care of it, and answers:")
	if _, err := h.runShell(ctx, exit.OK, "PICKET_API_KEY=$ANN picket handoff claim -o name"); err != nil {
		return err
	}
	_, err := h.runShell(ctx, exit.OK, "PICKET_API_KEY=$ANN picket handoff answer "+h.handoffID+" --option 2")
	return err
}

func (h *handoffDemo) answerTooLate(ctx context.Context) error {
	h.narrate("Ben has not seen that, and answers, too:")
	text, err := h.runShell(ctx, exit.Conflict,
		"PICKET_API_KEY=$BEN picket handoff answer "+h.handoffID+` --option "delete it"`)
	if err == nil && !(strings.Contains(text, "ann (key_") && strings.Contains(text, "keep both") &&
		strings.Contains(text, string(picket.CodeStateConflict))) {
		err = errors.New("the second answer was not refused with what Ann has answered")
	}
	return err
}

func (h *handoffDemo) checkAnswerUsed(ctx context.Context) error {
	t, err := h.awaitTask(ctx, h.id, "the result in review",
		func(t picket.Task) bool { return t.State == picket.TaskReview })
	if err != nil {
		return err
	}
	if cli.OutputText(t.Output) != "both tables are kept" {
		return fmt.Errorf("the answer was not heeded: the task is %s with %q", t.State, cli.OutputText(t.Output))
	}
	h.narrate("He is refused, with exit code 4, and sees her answer. The agent's next run was handed her answer, and has done so: %q.", cli.OutputText(t.Output))
	return nil
}
