package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/taskfile"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/text"
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
		Long: `Submit a task for any agent that fits.

With --from, each line of a file is a task: the body of POST /api/v1/tasks as a JSON object, and nothing from
picket.yaml. Lines are submitted in order. A line that is refused is reported with its number, and the others are
submitted all the same. The exit code is then that of the first refused line. After an interruption, repeat the
command with the same file and --key-prefix: for 24 hours, no line is submitted twice. A line can have a key of its
own in idempotencyKey.`,
		Example: `  picket task create "fix the flaky test" --role coder --need go --input @notes.md
  picket task create --from tasks.jsonl --key-prefix release-7 -o name`,
		Args: func(cmd *cobra.Command, given []string) error {
			if cmd.Flags().Changed("from") {
				return CheckArgs(cobra.ExactArgs(0))(cmd, given)
			}
			return CheckArgs(cobra.ExactArgs(1))(cmd, given)
		},
		RunE: func(cmd *cobra.Command, given []string) error {
			if cmd.Flags().Changed("from") {
				return createFromFile(cmd)
			}
			if cmd.Flags().Changed("key-prefix") {
				return exit.Usagef("--key-prefix: it is for --from; a single task has no key prefix")
			}
			return createOne(cmd, given[0])
		},
	}
	SpecFlags(c)
	c.Flags().String("agent", "", "pin the task to this agent id")
	c.Flags().String("on-exit", "", "exit 0 without mark_complete means: fail (default) or complete")
	term.Choices(c, "on-exit", "fail", "complete")
	c.Flags().String("not-before", "", "do not start before this time (RFC 3339, or a duration from now)")
	c.Flags().String("fixes", "", "the task this one repairs")
	c.Flags().String("from", "", "submit a task for each line of this file in JSON Lines; - is stdin")
	c.Flags().String("key-prefix", "", "with --from: prefix of the idempotency keys; the same file with the same prefix submits each line once (default: random)")
	return term.FormatFlag(c)
}

// createOne submits one task.
func createOne(cmd *cobra.Command, title string) error {
	cfg, err := settings.LoadSettings(cmd)
	if err != nil {
		return err
	}
	spec, err := SpecOf(cmd, cfg, title)
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
}

// createFromFile submits a task for each line of the file that --from names.
func createFromFile(cmd *cobra.Command) error {
	if err := refuseSpecFlags(cmd); err != nil {
		return err
	}
	prefix, _ := cmd.Flags().GetString("key-prefix")
	if !cmd.Flags().Changed("key-prefix") {
		prefix = "from-" + rand.Text()
	}
	if err := taskfile.CheckKeyPrefix(prefix); err != nil {
		return exit.Usagef("--key-prefix %s: %v", term.ShellQuote(prefix), err)
	}
	name, _ := cmd.Flags().GetString("from")
	in := cmd.InOrStdin()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return picket.Refuse(exit.CodeUsage, "Name a readable file after --from, or - for standard input.",
				"--from: %v", err)
		}
		defer f.Close()
		in = f
	}
	s, err := Connect(cmd)
	if err != nil {
		return err
	}
	job := fileSubmission{cmd: cmd, name: name, prefix: prefix}
	return job.run(s, in)
}

// refuseSpecFlags refuses the flags of a single task.
func refuseSpecFlags(cmd *cobra.Command) error {
	var wrong []string
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && !slices.Contains([]string{"from", "key-prefix", "output", "json"}, f.Name) {
			wrong = append(wrong, "--"+f.Name)
		}
	})
	if len(wrong) == 0 {
		return nil
	}
	return picket.Refuse(exit.CodeUsage, "Write it into each line of the file.",
		"%s cannot be used with --from", strings.Join(wrong, ", "))
}

// fileSubmission is the work of one `task create --from`.
type fileSubmission struct {
	cmd          *cobra.Command
	name, prefix string
	format       string
	made         []jsontext.Value // for the formats that are one value
	firstRefusal error
}

func (j *fileSubmission) run(s *Connection, in io.Reader) (err error) {
	if j.format, err = term.FormatOf(j.cmd); err != nil {
		return err
	}
	talk := j.cmd.ErrOrStderr()
	if !j.cmd.Flags().Changed("key-prefix") {
		fmt.Fprintf(talk, "picket: the key prefix is %s; repeat with --key-prefix %s if this is interrupted\n", j.prefix,
			j.prefix)
	}
	counts, err := taskfile.Submitter{
		KeyPrefix: j.prefix,
		Create: func(ctx context.Context, tasks []picket.TaskSubmission) ([]client.TaskResult, error) {
			return s.Tasks.CreateMany(ctx, tasks, traceHeaders()...)
		},
		Submitted: j.submitted,
		Refused:   j.refused,
		Progress:  func(c taskfile.Counts) { fmt.Fprintln(talk, "picket: "+countsText(c)+" so far") },
	}.Submit(j.cmd.Context(), in)
	if printed := j.printMade(); printed != nil && err == nil {
		err = printed
	}
	fmt.Fprintln(talk, "picket: "+countsText(counts))
	return j.result(err)
}

func countsText(c taskfile.Counts) string {
	text := Plural(c.Submitted, "task") + " submitted"
	if c.Refused > 0 {
		text += ", " + Plural(c.Refused, "line") + " refused"
	}
	return text
}

// submitted prints a task that was submitted.
func (j *fileSubmission) submitted(_ int, r client.TaskResult) error {
	w := j.cmd.OutOrStdout()
	switch j.format {
	case "json", "yaml":
		j.made = append(j.made, r.Raw)
		return nil
	case "jsonl":
		return term.PrintValue(w, j.format, r.Raw)
	}
	_, err := fmt.Fprintln(w, r.Task.TaskID)
	return err
}

// printMade prints the submitted tasks as one list, if the format is for one value.
func (j *fileSubmission) printMade() error {
	if j.format != "json" && j.format != "yaml" {
		return nil
	}
	raw, err := json.Marshal(j.made)
	if err != nil {
		return err
	}
	return term.PrintValue(j.cmd.OutOrStdout(), j.format, raw)
}

// refused reports a line that was refused.
func (j *fileSubmission) refused(line int, err error) {
	if j.firstRefusal == nil {
		j.firstRefusal = err
	}
	talk := j.cmd.ErrOrStderr()
	fmt.Fprintf(talk, "picket: %s: %s\n", j.place(line), text.Printable(exit.Text(err)))
	if remedy := exit.Remedy(err); remedy != "" {
		fmt.Fprintf(talk, "  fix: %s\n", text.Printable(remedy))
	}
}

func (j *fileSubmission) place(line int) string {
	if j.name == "-" {
		return "line " + strconv.Itoa(line)
	}
	return term.OneLine(j.name) + ":" + strconv.Itoa(line)
}

// result is the error of the command. If the work has stopped early, it says how to go on.
func (j *fileSubmission) result(err error) error {
	stopped, ok := errors.AsType[*taskfile.StoppedError](err)
	if !ok {
		if err == nil && j.firstRefusal != nil {
			return exit.Status(exit.Code(j.firstRefusal))
		}
		return err
	}
	fmt.Fprintf(j.cmd.ErrOrStderr(), "picket: stopped at %s; the lines before are done\n", j.place(stopped.Line))
	PrintNext(j.cmd, term.ShellJoin([]string{"picket", "task", "create", "--from", j.name, "--key-prefix", j.prefix}))
	return stopped.Err
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
