package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// NewReview is `picket review`: results that wait for a decision.
func NewReview() *cobra.Command {
	return CommandGroup("review", "Decide about completed tasks", newReviewList(), newReviewShow(), newReviewApprove(),
		newReviewReject())
}

// Reviews are those that match a filter, oldest first, 2,000 at most.
func (s *Connection) Reviews(ctx context.Context, filter url.Values) ([]picket.PendingReview, error) {
	all, _, err := s.reviewsUpTo(ctx, filter, maxPages, math.MaxInt)
	return all, err
}

// reviewsUpTo goes through so many pages at most, of which a filter can leave
// few rows or none, until it has found enough; more tells that there are others.
func (s *Connection) reviewsUpTo(ctx context.Context, filter url.Values,
	pages, enough int) (all []picket.PendingReview, more bool, err error) {
	q := maps.Clone(filter)
	if q == nil {
		q = url.Values{}
	}
	q.Set("limit", "200")
	for range pages {
		var page picket.ReviewPage
		if err := s.Get(ctx, "/api/v1/reviews?"+q.Encode(), &page, nil); err != nil {
			return nil, false, err
		}
		all = append(all, page.Reviews...)
		if page.NextCursor == nil {
			return all, false, nil
		}
		if len(all) >= enough {
			break
		}
		q.Set("cursor", *page.NextCursor)
	}
	return all, true, nil
}

var reviewColumns = []term.Column[picket.PendingReview]{
	{Head: "TASK", Cell: func(r picket.PendingReview) string { return r.TaskID }},
	{Head: "WAITS", Cell: func(r picket.PendingReview) string { return term.Ago(r.SubmittedAt) }},
	{Head: "TITLE", Cell: func(r picket.PendingReview) string { return term.Clip(r.Title, 40) }},
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
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List what waits for a decision, oldest first",
		Args:    CheckArgs(cobra.NoArgs),
		Example: "  picket review list --watch\n  picket review list --role coder --label team=a -o wide",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := Connect(cmd)
			if err != nil {
				return err
			}
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
			}.show(s, pendingTopic, func(ctx context.Context, raw *jsontext.Value) error {
				return s.Get(ctx, "/api/v1/reviews?"+q.Encode(), nil, raw)
			})
		},
	}
	return watchFlag(term.FormatFlag(pageFlags(reviewFilters(c))))
}

// reviewFilters are the flags that say which reviews are meant.
func reviewFilters(c *cobra.Command) *cobra.Command {
	c.Flags().String("role", "", "only tasks of this role")
	c.Flags().String("parent", "", "only the subtasks of this task")
	c.Flags().StringArray("label", nil, "only with this label key=value")
	_ = c.RegisterFlagCompletionFunc("parent", completeIDs(taskIDs))
	_ = c.RegisterFlagCompletionFunc("role", completeIDs(poolRoles))
	return c
}

// reviewQuery are the filters that were given; empty where none was.
func reviewQuery(cmd *cobra.Command, s *Connection) (url.Values, error) {
	f, q := cmd.Flags(), url.Values{}
	if role, _ := f.GetString("role"); role != "" {
		q.Set("role", role)
	}
	if parent, _ := f.GetString("parent"); parent != "" {
		id, err := s.taskID(cmd.Context(), parent)
		if err != nil {
			return nil, err
		}
		q.Set("parent", id)
	}
	labels, _ := f.GetStringArray("label")
	for _, label := range labels {
		q.Add("label", label)
	}
	return q, nil
}

// onReview is a verb on one waiting review; without an id it takes the only
// one there is.
func onReview(use, short string, act func(cmd *cobra.Command, s *Connection, id string) error) *cobra.Command {
	return onOnlyWaiting(use+" [TASK]", short, "review", (*Connection).taskID, reviewIDs, act)
}

func newReviewShow() *cobra.Command {
	c := onReview("show", "Show the result, reports, end and changes of a task",
		func(cmd *cobra.Command, s *Connection, id string) error {
			return showOrWatch(cmd, s, topic{task: id}, func(ctx context.Context, w io.Writer) error {
				var raw jsontext.Value
				var task picket.Task
				if err := s.Get(ctx, "/api/v1/tasks/"+PathSegment(id), &task, &raw); err != nil {
					return err
				}
				term.NoteAnswer(w, raw)
				if format, _ := term.FormatOf(cmd); format == "name" {
					return printTaskTo(cmd, w, task, raw, viewFull)
				}
				if err := s.saveDigest(task); err != nil {
					fmt.Fprintf(term.NotesWriter(cmd, w),
						"the digest of this review cannot be stored, so decide with --digest %s: %v\n",
						task.Review.Digest, err)
				}
				if err := printTaskTo(cmd, w, task, raw, viewFull); err != nil {
					return err
				}
				if format, _ := term.FormatOf(cmd); format != "table" && format != "wide" {
					return nil
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
	var trail struct {
		Reports []picket.Report `json:"reports"`
	}
	if err := s.Get(ctx, "/api/v1/tasks/"+PathSegment(task.TaskID)+"/reports", &trail, nil); err != nil {
		return err
	}
	for _, r := range trail.Reports[max(0, len(trail.Reports)-maxReportsPrinted):] {
		fmt.Fprintf(w, "report %d, %s: %s\n", r.Seq, r.At.Time().Local().Format("15:04:05"), term.OneLine(r.Summary))
	}
	if text := OutputText(task.Output); strings.Contains(text, "\n") {
		fmt.Fprintf(w, "\n%s\n", term.Printable(text))
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

// rejectedTask is the task with the fix that was made in the same step.
type rejectedTask struct {
	picket.Task
	FixTaskID *string `json:"fixTaskId"`
}

func newReviewReject() *cobra.Command {
	c := onReview("reject", "Refuse the result; --fix makes the task that repairs it",
		func(cmd *cobra.Command, s *Connection, id string) error {
			fix, _ := cmd.Flags().GetString("fix")
			var body struct {
				picket.Decision
				Fix *picket.TaskSpec `json:"fix,omitempty"`
			}
			body.Note, _ = cmd.Flags().GetString("note")
			if fix != "" {
				var err error
				if body.Fix, err = fixSpec(cmd, s, id, fix); err != nil {
					return err
				}
			}
			var raw jsontext.Value
			var got rejectedTask
			err := s.decide(cmd, id, func(digest string) error {
				body.Digest = digest
				return s.Post(cmd.Context(), "/api/v1/reviews/"+PathSegment(id)+"/reject", body, &got, &raw)
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

// fixSpec is the task that repairs another: it has the input that the last run
// was given, asks for the same kind of agent and ends as that one did, under the
// same limits.
func fixSpec(cmd *cobra.Command, s *Connection, id, title string) (*picket.TaskSpec, error) {
	var t picket.Task
	if err := s.Get(cmd.Context(), "/api/v1/tasks/"+PathSegment(id), &t, nil); err != nil {
		return nil, err
	}
	review := t.ReviewBy
	if review == picket.ReviewByParent {
		review = picket.ReviewByHuman // who rejects here, decides again
	}
	return &picket.TaskSpec{
		Title:              title,
		Input:              t.CurrentInput(),
		Role:               t.Role,
		Needs:              t.Needs,
		Labels:             t.Labels,
		Priority:           &t.Priority,
		OnExit:             t.OnExit,
		Review:             review,
		LeaseWindowSeconds: &t.LeaseWindowSeconds,
		TimeoutSeconds:     t.TimeoutSeconds,
		StallAfterSeconds:  t.StallAfterSeconds,
		Retry:              &t.Retry,
		Escalate:           t.Escalate,
		BudgetEnvelope:     &t.BudgetEnvelope,
	}, nil
}
