package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/text"
)

// NewReview is `picket review`: results that wait for a decision.
func NewReview() *cobra.Command {
	return CommandGroup("review", "Decide about completed tasks", newReviewList(), newReviewShow(), newReviewApprove(),
		newReviewReject())
}

// reviewsUpTo goes through so many pages at most, of which a filter can leave
// few rows or none, until it has found enough; more tells that there are others.
func (s *Connection) reviewsUpTo(ctx context.Context, filter url.Values,
	pages, enough int) (all []picket.PendingReview, more bool, err error) {
	q := picket.ReviewQuery{Limit: 200}
	for range pages {
		page, err := s.Reviews.List(ctx, q, client.WithQuery(filter))
		if err != nil {
			return nil, false, err
		}
		all = append(all, page.Reviews...)
		if page.NextCursor == nil {
			return all, false, nil
		}
		if len(all) >= enough {
			break
		}
		q.Cursor = *page.NextCursor
	}
	return all, true, nil
}

var reviewColumns = []term.Column[picket.PendingReview]{
	{Head: "TASK", Cell: func(r picket.PendingReview) string { return r.TaskID }},
	{Head: "WAITS", Cell: func(r picket.PendingReview) string { return term.Ago(r.SubmittedAt) }},
	{Head: "TITLE", Cell: func(r picket.PendingReview) string { return term.Clip(r.Title, 40) }},
	{Head: "ASSIGNEE", Cell: func(r picket.PendingReview) string { return orDash(r.Assignee) }, DropOrder: 1},
	{Head: "OUTPUT", Cell: func(r picket.PendingReview) string { return term.Clip(OutputText(r.Output), 60) }},
	{Head: "ROLE", Cell: func(r picket.PendingReview) string { return orDash(r.Role) }, Wide: true},
	{Head: "LABELS", Cell: func(r picket.PendingReview) string { return orDash(labelText(r.Labels)) }, Wide: true},
	{Head: "ATTEMPTS", Cell: func(r picket.PendingReview) string { return strconv.Itoa(r.Attempts) }, Wide: true},
	{Head: "SPENT", Cell: func(r picket.PendingReview) string { return Dollars(r.Spent.USD) }, Wide: true},
	{Head: "BRANCH", Cell: func(r picket.PendingReview) string { return orDash(r.Work.Branch) }, Wide: true},
	{Head: "SUMMARY", Cell: func(r picket.PendingReview) string { return term.Clip(r.Summary, 60) }, Wide: true},
}

func newReviewList() *cobra.Command {
	c := &cobra.Command{
		Short:   "List what waits for a decision, oldest first",
		Example: "  picket review list --watch\n  picket review list --role coder --label team=a -o wide",
	}
	return listCommand(pageFlags(reviewFilters(c)), func(cmd *cobra.Command, s *Connection) error {
		q, err := reviewQuery(cmd, s)
		if err != nil {
			return err
		}
		maps.Copy(q, pageQuery(cmd))
		return Listing[picket.PendingReview]{
			Cmd:     cmd,
			Member:  "reviews",
			Empty:   "nothing waits for review",
			Name:    func(r picket.PendingReview) string { return r.TaskID },
			more:    morePages,
			Columns: reviewColumns,
		}.show(s, pendingTopic, querying(s.Reviews.List, q))
	})
}

// reviewFilters are the flags that say which reviews are meant.
func reviewFilters(c *cobra.Command) *cobra.Command {
	c.Flags().String("role", "", "only tasks of this role")
	c.Flags().String("parent", "", "only the subtasks of this task")
	c.Flags().String("assignee", "", "only those of this assignee")
	c.Flags().StringArray("label", nil, "only with this label key=value")
	_ = c.RegisterFlagCompletionFunc("parent", completeIDs(taskIDs))
	_ = c.RegisterFlagCompletionFunc("role", completeIDs(poolRoles))
	return c
}

// reviewQuery are the filters that were given; empty where none was.
func reviewQuery(cmd *cobra.Command, s *Connection) (url.Values, error) {
	q := flagQuery(cmd, "role", "parent", "assignee", "label")
	if q.Has("parent") {
		id, err := s.taskID(cmd.Context(), q.Get("parent"))
		if err != nil {
			return nil, err
		}
		q.Set("parent", id)
	}
	return q, nil
}

// onReview is a verb on one waiting review; without an id it takes the only
// one there is.
func onReview(use, short string, act func(cmd *cobra.Command, s *Connection, id string) error) *cobra.Command {
	return onOnlyWaiting(use+" [TASK]", short, "review", (*Connection).taskID, reviewIDs, act)
}

func newReviewShow() *cobra.Command {
	c := onReview("show", "Show what a task has produced: its result, reports and changes, and how it ended",
		func(cmd *cobra.Command, s *Connection, id string) error {
			return showOne(cmd, s, topic{task: id}, id, s.Tasks.Get,
				func(ctx context.Context, w io.Writer, task picket.Task, raw jsontext.Value) error {
					format, _ := term.FormatOf(cmd)
					if format == "name" { // shows nothing that a person could decide about
						return printTaskTo(cmd, w, task, raw, viewFull)
					}
					if err := s.saveDigest(task); err != nil {
						fmt.Fprintf(term.NotesWriter(cmd, w),
							"the digest of this review cannot be stored, so decide with --digest %s: %v\n",
							task.Review.Digest, err)
					}
					err := printTaskTo(cmd, w, task, raw, viewFull)
					if err != nil || format != "table" && format != "wide" {
						return err
					}
					return s.printEvidence(ctx, cmd, w, task)
				})
		})
	c.Aliases = []string{"get"}
	return watchFlag(term.FormatFlag(c))
}

// printEvidence is what a decision about a task rests on: how its runs ended, what
// they reported, its output and its changes.
func (s *Connection) printEvidence(ctx context.Context, cmd *cobra.Command, w io.Writer, task picket.Task) error {
	for _, r := range task.Runs {
		fmt.Fprintf(w, "run %d: %s after %s, %s\n", r.Attempt, r.State, RunDuration(r), EndText(r))
	}
	trail, err := s.Tasks.Reports(ctx, task.TaskID)
	if err != nil {
		return err
	}
	if dropped := picket.DroppedReports(trail); dropped != "" {
		fmt.Fprintln(w, dropped)
	}
	for _, r := range trail[max(0, len(trail)-maxReportsPrinted):] {
		fmt.Fprintf(w, "report %d, %s: %s\n", r.Seq, r.At.Time().Local().Format("15:04:05"), term.OneLine(r.Summary))
	}
	if output := OutputText(task.Output); strings.Contains(output, "\n") {
		fmt.Fprintf(w, "\n%s\n", text.Printable(output))
	}
	changes := func() error { return printChanges(cmd, s, task) }
	if _, again := w.(*term.ViewBuffer); again {
		changes = func() error { return printChangesTo(ctx, s, w, task) }
	}
	if err := changes(); err != nil {
		return err
	}
	if task.State == picket.TaskReview {
		fmt.Fprintf(w, "\n%s %s\n", term.Painter(w).Dim("digest"), task.Review.Digest)
		printNextTo(term.NotesWriter(cmd, w), term.Painter(w), "picket review approve "+task.TaskID,
			`picket review reject `+task.TaskID+` --note "why" [--fix "what to do instead"]`)
	}
	return nil
}

// maxReportsPrinted is how many of a task's latest reports are shown.
const maxReportsPrinted = 20

func newReviewReject() *cobra.Command {
	c := onReview("reject", "Refuse the result; --fix makes the task that repairs it",
		func(cmd *cobra.Command, s *Connection, id string) error {
			var fix *picket.TaskSpec
			if title, _ := cmd.Flags().GetString("fix"); title != "" {
				task, err := s.Tasks.Get(cmd.Context(), id)
				if err != nil {
					return err
				}
				spec := task.FixSpec(title)
				spec.Input, spec.Fixes = task.CurrentInput(), "" // the server knows what it repairs
				fix = &spec
			}
			note, _ := cmd.Flags().GetString("note")
			var raw jsontext.Value
			var got client.Rejected
			err := s.decide(cmd, id, func(digest string) (err error) {
				decision := picket.Decision{Note: note, Digest: digest}
				got, err = s.Reviews.Reject(cmd.Context(), id, decision, fix, client.WithBody(&raw))
				return err
			})
			if err != nil {
				return err
			}
			if err := printTask(cmd, got.Task, raw, "rejected"); err != nil {
				return err
			}
			if got.FixTaskID != nil {
				fmt.Fprintf(cmd.ErrOrStderr(),
					"%s is queued for a worker of the same kind; where none runs, start one: picket adapter --workspace worktree -- COMMAND\n", *got.FixTaskID)
				PrintNext(cmd, "picket task watch "+*got.FixTaskID)
			}
			return nil
		})
	c.Flags().String("note", "", "what is wrong, for the agent that repairs it")
	c.Flags().String("fix", "", "make a fix task with this title, for the same kind of agent")
	return term.FormatFlag(digestFlag(c))
}
