package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

func newReviewApprove() *cobra.Command {
	c := &cobra.Command{
		Use:               "approve [TASK ...]",
		Short:             "Accept results: the tasks are completed and frozen",
		ValidArgsFunction: completeIDs(reviewIDs),
		Long: "Accept the results of tasks: of one task, of several, or of all that match --role, --label,\n" +
			"--assignee and --parent. Without an id it is the only task that waits. With a filter, the command\n" +
			"shows the matching tasks and asks you to type how many there are. --count gives this number in advance,\n" +
			"and --yes accepts it. If another number of tasks matches by then, nothing is decided (exit code\n" +
			"4). Each task is a decision of its own. If somebody else has decided some of them meanwhile, the\n" +
			"command names these and exits with 4. A filter approves a task with evidence only if you have\n" +
			"looked at it with picket review show and the evidence has not changed since.",
		Example: "  picket review approve --note \"well done\"\n  picket review approve 7Q2K M3XF\n" +
			"  picket review approve --role coder --label team=a\n  picket review approve --parent task_… --count 12",
		RunE: connected(runApprove),
	}
	f := c.Flags()
	f.String("note", "", "a note for the record")
	f.Int("count", 0, "how many tasks the filters match, 1 to 500; with another number nothing is decided")
	f.BoolP("yes", "y", false, "approve what the filters match now, without asking")
	return term.FormatFlag(digestFlag(reviewFilters(c)))
}

func runApprove(cmd *cobra.Command, s *Connection, given []string) error {
	filter, err := reviewQuery(cmd, s)
	if err != nil {
		return err
	}
	count := cmd.Flags().Changed("count") || cmd.Flags().Changed("yes")
	switch {
	case len(filter) > 0 && len(given) > 0:
		return picket.Refuse(exit.CodeUsage, "Name tasks, or give filters.",
			"tasks are named, and filters are given")
	case cmd.Flags().Changed("digest") && (len(filter) > 0 || len(given) > 1):
		return picket.Refuse(exit.CodeUsage, "Name one task, or leave --digest out.",
			"--digest works with one task only")
	case len(filter) > 0:
		return s.approveMatching(cmd, filter)
	case count:
		return picket.Refuse(exit.CodeUsage, "Add --role, --label, --assignee or --parent, or leave it out.",
			"--count and --yes are about filters")
	case len(given) > 1:
		return s.approveNamed(cmd, given)
	}
	id, err := givenOrOnly(cmd.Context(), cmd, given, s.taskID, s.reviewCandidates, "review")
	if err != nil {
		return err
	}
	return s.approveOne(cmd, id)
}

func (s *Connection) approveOne(cmd *cobra.Command, id string) error {
	note, _ := cmd.Flags().GetString("note")
	var raw jsontext.Value
	var task picket.Task
	err := s.decide(cmd, id, func(digest string) (err error) {
		decision := picket.Decision{Note: note, Digest: digest}
		task, err = s.Reviews.Approve(cmd.Context(), id, decision, client.WithBody(&raw))
		return err
	})
	if err != nil {
		return err
	}
	if err := printTask(cmd, task, raw, "approved"); err != nil {
		return err
	}
	if ev, _, err := s.completingEvidence(cmd.Context(), task); err == nil && ev != nil && len(ev.Files) > 0 {
		if command := ev.MergeCommand(id); command != "" {
			PrintNext(cmd, command)
		}
	}
	return nil
}

// approveNamed decides about each task on its own. If somebody else has decided one of them first,
// the others are still decided. One that is named twice is one decision.
func (s *Connection) approveNamed(cmd *cobra.Command, given []string) error {
	note, _ := cmd.Flags().GetString("note")
	var ids []string
	for _, typed := range given {
		id, err := s.taskID(cmd.Context(), typed)
		if err != nil {
			return err
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	got := picket.BulkApproved{Approved: []string{}, Lost: []picket.LostRace{}}
	for _, id := range ids {
		err := s.decide(cmd, id, func(digest string) error {
			_, err := s.Reviews.Approve(cmd.Context(), id, picket.Decision{Note: note, Digest: digest})
			return err
		})
		var refusal *picket.Error
		switch {
		case err == nil:
			got.Approved = append(got.Approved, id)
		case errors.As(err, &refusal) && exit.ForHTTP(refusal.Code.Status()) == exit.Conflict:
			by, _ := refusal.Facts["by"].(string)
			now, _ := refusal.Facts["current"].(string)
			got.Lost = append(got.Lost, picket.LostRace{TaskID: id, Code: refusal.Code, By: by, Digest: now})
		default:
			return errors.Join(s.printApproved(cmd, got, nil), err)
		}
	}
	return s.printApproved(cmd, got, nil)
}

// approveMatching approves the tasks that the filters match. The table that it
// prints contains no evidence, so it does not count as looking at a task.
func (s *Connection) approveMatching(cmd *cobra.Command, q url.Values) error {
	labels, err := labelPairs(q["label"])
	if err != nil {
		return err
	}
	all := picket.BulkApproval{
		Filter: picket.ReviewFilter{Role: q.Get("role"), Parent: q.Get("parent"),
			Assignee: q.Get("assignee"), Labels: labels},
	}
	shown, more, err := s.reviewsUpTo(cmd.Context(), q, maxQueuePages, maxBulkApproval+1)
	if err != nil {
		return err
	}
	all.Digests = s.digestsOf(shown)
	if all.Count, _ = cmd.Flags().GetInt("count"); cmd.Flags().Changed("count") {
		return s.sendBulkApproval(cmd, all)
	}
	switch {
	case len(shown) > maxBulkApproval:
		return exit.Usagef("more than %d reviews match, and no more than that are approved at once: narrow the filters",
			maxBulkApproval)
	case more:
		return picket.Refuse(exit.CodeUsage,
			"Narrow the filters, name the tasks, or say with --count how many you mean: then the server goes through all of it.",
			"the queue of reviews goes on behind the %d pages that were looked through", maxQueuePages)
	case len(shown) == 0:
		return picket.Refuse(picket.CodeNotFound, "See what there is: picket review list", "no review matches")
	}
	for _, r := range shown {
		all.Filter.TaskIDs = append(all.Filter.TaskIDs, r.TaskID)
	}
	all.Count = len(shown)
	if yes, _ := cmd.Flags().GetBool("yes"); !yes {
		if err := confirmCount(cmd, shown); err != nil {
			return err
		}
	}
	return s.sendBulkApproval(cmd, all)
}

// maxQueuePages is how many pages of the queue are looked through for what
// matches: for a filter that matches little, 2,000,000 tasks.
const maxQueuePages = 1000

// maxBulkApproval is how many reviews one request approves.
const maxBulkApproval = 500

// confirmCount shows what would be approved and wants its count to be typed.
func confirmCount(cmd *cobra.Command, shown []picket.PendingReview) error {
	w := cmd.ErrOrStderr()
	term.PrintTable(w, reviewColumns, shown, false)
	if !term.IsTerminal(cmd.InOrStdin()) {
		return picket.Refuse(exit.CodeUsage,
			"Add --count "+strconv.Itoa(len(shown))+", or --yes for whatever there is.",
			"%s would be approved, and nobody is there to be asked", Plural(len(shown), "task"))
	}
	fmt.Fprintf(w, "type %d to approve %s: ", len(shown), Plural(len(shown), "task"))
	typed, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(typed) != strconv.Itoa(len(shown)) {
		return picket.Refuse(exit.CodeUsage, "Nothing was decided.", "that is not %d", len(shown))
	}
	return nil
}

func (s *Connection) sendBulkApproval(cmd *cobra.Command, all picket.BulkApproval) error {
	all.Note, _ = cmd.Flags().GetString("note")
	var raw jsontext.Value
	got, err := s.Reviews.ApproveAll(cmd.Context(), all, client.WithBody(&raw))
	if err != nil {
		return err
	}
	return s.printApproved(cmd, got, raw)
}

// printApproved shows what was approved, and on stderr what was not and who
// decided about it. raw are the server's own words, where it said all of it.
func (s *Connection) printApproved(cmd *cobra.Command, got picket.BulkApproved, raw jsontext.Value) error {
	format, err := term.FormatOf(cmd)
	if err == nil && raw == nil {
		raw, err = json.Marshal(got)
	}
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	switch format {
	case "json", "jsonl", "yaml":
		err = term.PrintValue(w, format, raw)
	case "name":
		for _, id := range got.Approved {
			fmt.Fprintln(w, id)
		}
	default:
		for _, id := range got.Approved {
			fmt.Fprintf(w, "%s %s\n", id, term.Painter(w).State(string(picket.TaskCompleted)))
		}
	}
	if err != nil {
		return err
	}
	talk := cmd.ErrOrStderr()
	for _, l := range got.Lost {
		text := l.TaskID + " was not approved [" + string(l.Code) + "]"
		switch {
		case l.By != "":
			text += ": decided by " + term.OneLine(l.By)
		case l.Code == picket.CodePreconditionRequired:
			text += ": you have not been shown its evidence. Look at it first: picket review show " + l.TaskID
		case l.Digest != "":
			text += ": it has changed since it was shown. Look at it again: picket review show " + l.TaskID
		}
		fmt.Fprintln(talk, text)
	}
	fmt.Fprintf(talk, "%s approved, %d lost\n", Plural(len(got.Approved), "task"), len(got.Lost))
	if len(got.Lost) > 0 {
		return exit.Status(exit.Conflict)
	}
	return nil
}
