package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

var workChapter = chapter{
	title: "work",
	lead: "A task is leased to one agent at a time, under a fencing token that only grows. An agent is any program: here, a line\n" +
		"of shell. What it has done waits for a person's decision.",
	prepare: func(st *demoEnv) ([]chapterStep, error) {
		w := &workDemo{demoEnv: st}
		return []chapterStep{w.run, w.approve}, nil
	},
}

// workDemo is the play: one task, submitted, run and approved by commands alone.
type workDemo struct {
	*demoEnv
	id string
}

var inReview = lazyregexp.New(`(task_[0-9A-Z]{26}) is in review`)

func (w *workDemo) run(ctx context.Context) error {
	text, err := w.runShell(ctx, exit.OK, `picket run --title "say hello" -- sh -c 'echo hello from $PICKET_TASK_ID'`)
	if err != nil {
		return err
	}
	found := inReview().FindStringSubmatch(text)
	if found == nil || !strings.Contains(text, "hello from "+found[1]) {
		return fmt.Errorf("not observed: the agent's output and its task in review")
	}
	w.id = found[1]
	w.narrate("One command submitted the task, leased it, started the agent, renewed its lease and handed its output in.")
	return nil
}

func (w *workDemo) approve(ctx context.Context) error {
	if _, err := w.runShell(ctx, exit.OK, `picket review approve --note "well said"`); err != nil {
		return err
	}
	t, err := w.task(ctx, w.id)
	if err != nil {
		return err
	}
	if t.State != picket.TaskCompleted || t.FencingToken != 1 {
		return fmt.Errorf("expected a completed task under fence 1, got %s under %d", t.State, t.FencingToken)
	}
	w.narrate("Approved: the task is completed and frozen, nobody can change it any more.")
	return nil
}
