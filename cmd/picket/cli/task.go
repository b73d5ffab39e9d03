package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// LastRun is the latest run of a task, or the zero Run if it was never leased.
func LastRun(t picket.Task) picket.Run {
	if len(t.Runs) == 0 {
		return picket.Run{}
	}
	return t.Runs[len(t.Runs)-1]
}

// NewTask is `picket task`, with the verbs of this package and more.
func NewTask(more ...*cobra.Command) *cobra.Command {
	c := CommandGroup("task", "Submit, list, show and cancel tasks",
		settings.NeedsTrust(newTaskCreate()), newTaskList(), newTaskGet(), newTaskLogs(), newTaskRuns(),
		newTaskReports(), newTaskExplain(), newTaskBundle(), newTaskCancel(), newTaskRetry(), taskInbox.newTell(),
		taskInbox.newMessages(), newTaskNext())
	c.AddCommand(more...)
	return c
}

// OnTask is a verb on one task: it connects, completes the id and acts.
func OnTask(use, short string, act func(cmd *cobra.Command, s *Connection, id string) error) *cobra.Command {
	return onOne(use+" TASK", short, (*Connection).taskID, taskIDs, act)
}

func newTaskCreate() *cobra.Command {
	c := &cobra.Command{
		Use: "create TITLE", Short: "Submit a task for any agent that fits",
		Example: `  picket task create "fix the flaky test" --role coder --need go --input @notes.md`,
		Args:    CheckArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error {
			cfg, err := settings.LoadSettings(cmd)
			if err != nil {
				return err
			}
			spec, err := SpecOf(cmd, cfg, given[0])
			if err != nil {
				return err
			}
			if err := placementFlags(cmd, &spec); err != nil {
				return err
			}
			s, err := Connect(cmd)
			if err != nil {
				return err
			}
			var raw jsontext.Value
			task, err := s.Submit(cmd.Context(), spec, client.WithBody(&raw))
			if err != nil {
				return err
			}
			if err := printTask(cmd, task, raw, viewCreated); err != nil {
				return err
			}
			PrintNext(cmd, "picket task watch "+task.TaskID, "picket task explain "+task.TaskID)
			return nil
		},
	}
	SpecFlags(c)
	c.Flags().String("agent", "", "pin the task to this agent id")
	c.Flags().String("on-exit", "", "exit 0 without mark_complete means: fail (default) or complete")
	term.Choices(c, "on-exit", "fail", "complete")
	c.Flags().String("not-before", "", "do not start before this time (RFC 3339, or a duration from now)")
	c.Flags().String("fixes", "", "the task this one repairs")
	return term.FormatFlag(c)
}

// placementFlags reads the flags that only `task create` has.
func placementFlags(cmd *cobra.Command, spec *picket.TaskSpec) error {
	f := cmd.Flags()
	spec.Agent, _ = f.GetString("agent")
	spec.Fixes, _ = f.GetString("fixes")
	overrideFromFlag(cmd, "on-exit", &spec.OnExit)
	text, _ := f.GetString("not-before")
	if text == "" {
		return nil
	}
	at, err := instantFlag("not-before", text, 1)
	spec.NotBefore = at
	return err
}

// instantFlag reads the value of a flag: RFC 3339, or a duration counted from now in
// direction sign.
func instantFlag(flag, text string, sign time.Duration) (picket.Instant, error) {
	if d, err := time.ParseDuration(text); err == nil {
		if d < 0 {
			return 0, picket.Refuse(exit.CodeUsage, "Write it without: "+strings.TrimPrefix(text, "-"),
				"--%s %s: a duration here has no sign", flag, term.ShellQuote(text))
		}
		return picket.InstantOf(time.Now().Add(sign * d)), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, picket.Refuse(exit.CodeUsage, "Such as 2026-04-11T10:42:17Z, or 2h.",
			"--%s %s is neither a time nor a duration", flag, term.ShellQuote(text))
	}
	return picket.InstantOf(t), nil
}

func newTaskList() *cobra.Command {
	c := &cobra.Command{
		Short:   "List tasks, newest first",
		Example: "  picket task list --state queued,leased --label team=a\n  picket task list --watch",
	}
	f := c.Flags()
	f.StringSlice("state", nil, "only these states")
	f.String("role", "", "only this role")
	f.String("parent", "", "only the subtasks of this task")
	f.StringArray("label", nil, "only with this label key=value")
	f.String("assignee", "", "only tasks of this assignee")
	f.String("since", "", "created at or after this time (RFC 3339, or a duration back from now)")
	f.Int("limit", 50, "at most this many, 1 to 200")
	f.String("cursor", "", "continue where a page of -o json ended (nextCursor)")
	term.Choices(c, "state", term.Texts(picket.TaskStates)...)
	return listCommand(c, func(cmd *cobra.Command, s *Connection) error {
		q := flagQuery(cmd, "state", "role", "parent", "assignee", "label", "limit", "cursor")
		if since, _ := f.GetString("since"); since != "" {
			at, err := instantFlag("since", since, -1)
			if err != nil {
				return err
			}
			q.Set("since", at.String())
		}
		of := topic{kinds: []string{"task.", "lease.", "store."}}
		return taskListing(cmd).show(s, of, querying(s.Tasks.List, q))
	})
}

func taskListing(cmd *cobra.Command) Listing[picket.Task] {
	depths := map[string]int{}
	parent, _ := cmd.Flags().GetString("parent")
	return Listing[picket.Task]{
		order:  func(tasks []picket.Task) []picket.Task { return sortByTree(tasks, depths) },
		Cmd:    cmd,
		Member: "tasks",
		Empty:  "no tasks",
		Name:   func(t picket.Task) string { return t.TaskID },
		more:   moreAfter("nextCursor", "--cursor", ", or --limit 200"),
		Columns: []term.Column[picket.Task]{
			{
				Head: "TASK",
				Cell: func(t picket.Task) string { return strings.Repeat("· ", depths[t.TaskID]) + t.TaskID },
			},
			{Head: "STATE", Cell: func(t picket.Task) string { return string(t.State) }},
			{
				Head:      "FENCE",
				Cell:      func(t picket.Task) string { return strconv.FormatInt(t.FencingToken, 10) },
				DropOrder: 3,
			},
			{Head: "AGE", Cell: func(t picket.Task) string { return term.Ago(t.CreatedAt) }, DropOrder: 2},
			{Head: "ROLE", Cell: func(t picket.Task) string { return t.Role }, Wide: true},
			{Head: "PRIORITY", Cell: func(t picket.Task) string { return strconv.Itoa(t.Priority) }, Wide: true},
			{Head: "FAILURES", Cell: func(t picket.Task) string { return strconv.Itoa(t.Failures) }, Wide: true},
			{Head: "LABELS", Cell: func(t picket.Task) string { return labelText(t.Labels) }, Wide: true},
			{
				Head:      "TITLE",
				Cell:      func(t picket.Task) string { return term.Clip(listedTitle(t, parent, depths), 60) },
				DropOrder: 1,
			},
		},
	}
}

// PrintNext prints the commands that usually follow. They are made to be pasted, so
// what comes from outside stands in them only as ShellJoin or quoted wrote it;
// oneLine is the second lock.
func PrintNext(cmd *cobra.Command, commands ...string) {
	w := cmd.ErrOrStderr()
	printNextTo(w, term.Painter(w), commands...)
}

func printNextTo(w io.Writer, p term.Paint, commands ...string) {
	for i, c := range commands {
		head := "next: "
		if i > 0 {
			head = "      "
		}
		fmt.Fprintln(w, p.Dim(head)+term.OneLine(term.WithProgramName(c)))
	}
}
