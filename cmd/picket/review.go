package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
)

func newReview() *cobra.Command {
	return noun("review", "Decide about completed tasks", newReviewList(), newReviewShow(), newReviewApprove(), newReviewReject())
}

func (s *server) reviews(ctx context.Context) ([]picket.PendingReview, error) {
	var page struct {
		Reviews []picket.PendingReview `json:"reviews"`
	}
	err := s.get(ctx, "/api/v1/reviews", &page, nil)
	return page.Reviews, err
}

func newReviewList() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List what waits for a decision, oldest first", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := connect(cmd)
			if err != nil {
				return err
			}
			return listing[picket.PendingReview]{
				cmd: cmd, member: "reviews", empty: "nothing waits for review", name: func(r picket.PendingReview) string { return r.TaskID },
				columns: []column[picket.PendingReview]{
					{head: "TASK", cell: func(r picket.PendingReview) string { return r.TaskID }},
					{head: "WAITS", cell: func(r picket.PendingReview) string { return ago(r.SubmittedAt) }},
					{head: "TITLE", cell: func(r picket.PendingReview) string { return clip(r.Title, 40) }},
					{head: "OUTPUT", cell: func(r picket.PendingReview) string { return clip(outputText(r.Output), 60) }},
					{head: "ATTEMPTS", cell: func(r picket.PendingReview) string { return strconv.Itoa(r.Attempts) }, wide: true},
					{head: "SUMMARY", cell: func(r picket.PendingReview) string { return clip(r.Summary, 60) }, wide: true},
				},
			}.show(func(ctx context.Context, raw *jsontext.Value) error {
				return s.get(ctx, "/api/v1/reviews", nil, raw)
			})
		},
	}
	return watchFlag(formatFlag(c))
}

// onReview is a verb on one waiting review; without an id it takes the only
// one there is.
func onReview(use, short string, act func(cmd *cobra.Command, s *server, id string) error) *cobra.Command {
	return onOne(use+" [TASK]", short, "review", (*server).taskID, reviewIDs, act)
}

func newReviewShow() *cobra.Command {
	c := formatFlag(onReview("show", "Show the result, reports, end and changes of a task", func(cmd *cobra.Command, s *server, id string) error {
		var raw jsontext.Value
		var task picket.Task
		if err := s.get(cmd.Context(), "/api/v1/tasks/"+segment(id), &task, &raw); err != nil {
			return err
		}
		if err := printTask(cmd, task, raw, whole); err != nil {
			return err
		}
		if format, _ := formatOf(cmd); format != "table" && format != "wide" {
			return nil
		}
		w := cmd.OutOrStdout()
		for _, r := range task.Runs {
			fmt.Fprintf(w, "run %d: %s after %s, %s\n", r.Attempt, r.State, took(r), endText(r))
		}
		if text := outputText(task.Output); strings.Contains(text, "\n") {
			fmt.Fprintf(w, "\n%s\n", printable(text))
		}
		if err := showChanges(cmd, s, id); err != nil {
			return err
		}
		if task.State == picket.TaskReview {
			next(cmd, "picket review approve "+id, `picket review reject `+id+` --note "why" [--fix "what to do instead"]`)
		}
		return nil
	}))
	c.Aliases = []string{"get"}
	return c
}

func newReviewApprove() *cobra.Command {
	c := onReview("approve", "Accept the result: the task is completed and frozen", func(cmd *cobra.Command, s *server, id string) error {
		note, _ := cmd.Flags().GetString("note")
		body := struct {
			Note string `json:"note,omitempty"`
		}{note}
		var raw jsontext.Value
		var task picket.Task
		if err := s.post(cmd.Context(), "/api/v1/reviews/"+segment(id)+"/approve", body, &task, &raw); err != nil {
			return err
		}
		if err := printTask(cmd, task, raw, "approved"); err != nil {
			return err
		}
		if ev, err := s.changes(cmd.Context(), id); err == nil && ev != nil && len(ev.Files) > 0 {
			next(cmd, mergeCommand(ev))
		}
		return nil
	})
	c.Flags().String("note", "", "a word to the record")
	return formatFlag(c)
}

// rejected is the task with the fix that was made in the same step.
type rejected struct {
	picket.Task
	FixTaskID *string `json:"fixTaskId"`
}

func newReviewReject() *cobra.Command {
	c := onReview("reject", "Refuse the result; --fix makes the task that repairs it", func(cmd *cobra.Command, s *server, id string) error {
		note, _ := cmd.Flags().GetString("note")
		fix, _ := cmd.Flags().GetString("fix")
		body := struct {
			Note string           `json:"note,omitempty"`
			Fix  *picket.TaskSpec `json:"fix,omitempty"`
		}{Note: note}
		if fix != "" {
			var err error
			if body.Fix, err = fixOf(cmd, s, id, fix); err != nil {
				return err
			}
		}
		var raw jsontext.Value
		var got rejected
		if err := s.post(cmd.Context(), "/api/v1/reviews/"+segment(id)+"/reject", body, &got, &raw); err != nil {
			return err
		}
		if err := printTask(cmd, got.Task, raw, "rejected"); err != nil {
			return err
		}
		if got.FixTaskID != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s is queued for a worker of the same kind; where none runs, start one: picket adapter --workspace worktree -- COMMAND\n", *got.FixTaskID)
			next(cmd, "picket task watch "+*got.FixTaskID)
		}
		return nil
	})
	c.Flags().String("note", "", "what is wrong, for the agent that repairs it")
	c.Flags().String("fix", "", "make a fix task with this title, for the same kind of agent")
	return formatFlag(c)
}

// fixOf is the task that repairs another: it asks for the same kind of agent
// and ends as that one did, under the same limits.
func fixOf(cmd *cobra.Command, s *server, id, title string) (*picket.TaskSpec, error) {
	var t picket.Task
	if err := s.get(cmd.Context(), "/api/v1/tasks/"+segment(id), &t, nil); err != nil {
		return nil, err
	}
	review := t.ReviewBy
	if review == picket.ReviewByParent {
		review = picket.ReviewByHuman // who rejects here, decides again
	}
	return &picket.TaskSpec{
		Title: title, Role: t.Role, Needs: t.Needs, Labels: t.Labels, Priority: &t.Priority, OnExit: t.OnExit, Review: review,
		LeaseWindowSeconds: &t.LeaseWindowSeconds, TimeoutSeconds: t.TimeoutSeconds, StallAfterSeconds: t.StallAfterSeconds,
		Retry: &t.Retry, Escalate: t.Escalate, BudgetEnvelope: &t.BudgetEnvelope,
	}, nil
}
