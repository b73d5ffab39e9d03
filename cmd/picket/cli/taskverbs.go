package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

func newTaskGet() *cobra.Command {
	c := OnTask("get", "Show one task", func(cmd *cobra.Command, s *Connection, id string) error {
		return showOne(cmd, s, topic{}, id, s.Tasks.Get,
			func(ctx context.Context, w io.Writer, task picket.Task, raw jsontext.Value) error {
				if err := printTaskTo(cmd, w, task, raw, viewFull); err != nil {
					return err
				}
				format, _ := term.FormatOf(cmd)
				if format == "table" || format == "wide" {
					if err := printSubtasks(ctx, s, w, task); err != nil {
						return err
					}
				}
				if format == "wide" {
					if err := printChangesTo(ctx, s, w, task); err != nil {
						return err
					}
					return printBundle(ctx, s, w, task)
				}
				return nil
			})
	})
	c.Aliases = []string{"show"}
	return watchFlag(term.FormatFlag(c))
}

func newTaskCancel() *cobra.Command {
	return newReasonCommand(OnTask, "cancel", "Cancel a task: its run ends within a second or two",
		func(s *Connection) reasonedChange { return s.Tasks.Cancel }, "cancelled")
}

func newTaskRetry() *cobra.Command {
	return newReasonCommand(OnTask, "retry", "Queue an escalated task again, or repeat a closed one as a new task",
		func(s *Connection) reasonedChange { return s.Tasks.Retry }, "queued", printWhoTakesIt)
}

// printWhoTakesIt prints which worker will take a task that was queued again. If none will, it
// prints the command that starts one.
func printWhoTakesIt(cmd *cobra.Command, s *Connection, task picket.Task) {
	explain := "picket task explain " + task.TaskID
	why, err := s.Tasks.Explain(cmd.Context(), task.TaskID)
	cfg, unread := settings.LoadSettings(cmd)
	if err != nil || unread != nil {
		PrintNext(cmd, explain) // it was queued all the same
		return
	}
	for _, because := range why.Because {
		fmt.Fprintln(cmd.ErrOrStderr(), "picket: "+term.OneLine(because))
	}
	var next []string
	for _, command := range why.Next {
		next = append(next, cfg.LocalWorkerCommand(command))
	}
	PrintNext(cmd, append(next, explain)...)
}

// reasonedChange changes a task, with a reason.
type reasonedChange func(ctx context.Context, id, reason string, opts ...client.Option) (picket.Task, error)

type idVerb func(use, short string, act func(*cobra.Command, *Connection, string) error) *cobra.Command

// newReasonCommand makes a reasonedChange; after prints more about the task that was changed.
func newReasonCommand(on idVerb, use, short string, change func(*Connection) reasonedChange, done string,
	after ...func(*cobra.Command, *Connection, picket.Task)) *cobra.Command {
	c := on(use, short, func(cmd *cobra.Command, s *Connection, id string) error {
		reason, _ := cmd.Flags().GetString("reason")
		var raw jsontext.Value
		task, err := change(s)(cmd.Context(), id, reason, client.WithBody(&raw))
		if err != nil {
			return err
		}
		if err := printTask(cmd, task, raw, done); err != nil {
			return err
		}
		for _, tell := range after {
			tell(cmd, s, task)
		}
		return nil
	})
	c.Flags().String("reason", "", "why, for the log")
	return term.FormatFlag(c)
}

// Ways to show a task.
const (
	viewCreated = "created"
	viewFull    = "" // everything
)

func printTask(cmd *cobra.Command, task picket.Task, raw jsontext.Value, done string) error {
	return printTaskTo(cmd, cmd.OutOrStdout(), task, raw, done)
}

func printTaskTo(cmd *cobra.Command, w io.Writer, task picket.Task, raw jsontext.Value, done string) error {
	return printAnswer(cmd, w, raw, task.TaskID, func() error {
		switch done {
		case viewCreated:
			fmt.Fprintln(w, task.TaskID)
		case viewFull:
			describeTask(w, task)
		default:
			fmt.Fprintf(w, "%s %s\n", task.TaskID, term.Painter(w).State(string(task.State)))
		}
		return nil
	})
}

// describeTask shows a task as a person reads it: what, where it stands, what came
// of it; only what there is.
func describeTask(w io.Writer, t picket.Task) {
	d := term.NewDescription(w)
	d.Add("task", t.TaskID)
	d.Add("title", term.OneLine(t.Title))
	d.Add("state", d.State(string(t.State)))
	d.Add("reason", term.OneLine(t.Reason))
	d.Add("fence", strconv.FormatInt(t.FencingToken, 10))
	d.Add("attempts", fmt.Sprintf("%d, %d failed", t.Attempts, t.Failures))
	d.Add("role", term.OneLine(t.Role))
	d.Add("assignee", term.OneLine(t.Assignee))
	d.Add("needs", strings.Join(t.Needs, " "))
	d.Add("agent", term.OneLine(t.Agent))
	d.Add("labels", labelText(t.Labels))
	d.Add("trace", t.Trace.ID())
	d.Add("budget", budgetText(t))
	d.Add("created", t.CreatedAt.String()+" by "+term.OneLine(t.CreatedBy))
	if r := t.CurrentRun; r != nil {
		d.Add("run", fmt.Sprintf("%s on %s, %s", r.RunID, term.OneLine(r.AgentID), term.Ago(r.StartedAt)))
	}
	if r := t.LastReport; r != nil {
		d.Add("report", fmt.Sprintf("#%d %s", r.Seq, term.OneLine(r.Summary)))
		d.Add("next step", term.OneLine(r.NextStep))
		d.Add("blockers", term.OneLine(strings.Join(r.Blockers, "; ")))
	}
	if r := LastRun(t); !r.EndedAt.IsZero() && r.State != picket.RunCompleted {
		d.Add("last run", EndText(r))
	}
	if h := t.Handoff; h != nil {
		d.Add("hand-off", fmt.Sprintf("%s %s: %s", h.HandoffID, h.State, term.OneLine(h.Question)))
	}
	d.Add("containment", term.OneLine(LastRun(t).Containment))
	d.Add("output", term.Clip(OutputText(t.Output), 200))
	d.Add("summary", term.OneLine(t.Summary))
	if r := t.Review; r != nil && r.Decision != nil {
		d.Add("review", strings.TrimSuffix(fmt.Sprintf("%s by %s %s", *r.Decision, term.OneLine(r.By),
			term.OneLine(r.Note)), " -"))
	}
	d.Print()
}

// OutputText shows a JSON string as its text and anything else as JSON.
func OutputText(raw picket.RawJSON) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	v := jsontext.Value(raw)
	if v.Kind() == '"' {
		if text, err := jsontext.AppendUnquote(nil, v); err == nil {
			return strings.TrimRight(string(text), "\n")
		}
	}
	return string(raw)
}

func labelText(labels map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, k+"="+labels[k])
	}
	return strings.Join(parts, " ")
}

func newTaskRuns() *cobra.Command {
	c := OnTask("runs", "List the attempts at a task", func(cmd *cobra.Command, s *Connection, id string) error {
		return Listing[picket.Run]{
			Cmd:    cmd,
			Member: "runs",
			Empty:  "not started yet",
			Name:   func(r picket.Run) string { return r.RunID },
			Columns: []term.Column[picket.Run]{
				{Head: "RUN", Cell: func(r picket.Run) string { return r.RunID }},
				{Head: "FENCE", Cell: func(r picket.Run) string { return strconv.FormatInt(r.FencingToken, 10) }},
				{Head: "STATE", Cell: func(r picket.Run) string { return string(r.State) }},
				{Head: "EXIT", Cell: func(r picket.Run) string { return exitText(r.Exit) }},
				{Head: "TOOK", Cell: RunDuration},
				{
					Head: "CONTAINMENT",
					Cell: func(r picket.Run) string { return cmp.Or(term.OneLine(r.Containment), "-") },
				},
				{Head: "AGENT", Cell: func(r picket.Run) string { return r.AgentID }, Wide: true},
				{Head: "WORKSPACE", Cell: func(r picket.Run) string { return r.WorkspacePath }, Wide: true},
				{Head: "WHY", Cell: exitReason},
			},
		}.show(s, topic{task: id}, readingOf(s.Tasks.Get, id))
	})
	return watchFlag(term.FormatFlag(c))
}

// RunDuration is how long a run took or, if it still runs, how long it has run.
func RunDuration(r picket.Run) string {
	if r.EndedAt.IsZero() {
		return term.Ago(r.StartedAt)
	}
	return term.ShortDuration(r.EndedAt.Time().Sub(r.StartedAt.Time()))
}

// exitText is how a run ended in a few letters.
func exitText(e *picket.Exit) string {
	if e == nil {
		return "-"
	}
	text := string(e.Class)
	switch {
	case e.Signal != nil && *e.Signal != "":
		text += " " + *e.Signal
	case e.Code != nil:
		text += " " + strconv.Itoa(*e.Code)
	}
	return text
}

// exitReason is the reason of a run's end. Of an agent's last words the last line that
// is for people says what went wrong.
func exitReason(r picket.Run) string {
	if r.Exit == nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(r.Exit.Detail), "\n")
	last := lines[len(lines)-1]
	for _, line := range slices.Backward(lines) {
		if line != "" && !strings.HasPrefix(line, "{") {
			last = line
			break
		}
	}
	return term.Clip(strings.TrimSpace(last), 200)
}

// EndText is how a run ended and why.
func EndText(r picket.Run) string {
	if reason := exitReason(r); reason != "" && reason != "-" {
		return exitText(r.Exit) + ": " + reason
	}
	return exitText(r.Exit)
}

func newTaskReports() *cobra.Command {
	c := OnTask("reports", "List the progress reports of a task",
		func(cmd *cobra.Command, s *Connection, id string) error {
			return Listing[picket.Report]{
				Cmd:    cmd,
				Member: "reports",
				Empty:  "no reports yet",
				more: func(members map[string]jsontext.Value, _ int) string {
					var list []picket.Report
					_ = json.Unmarshal(members["reports"], &list)
					return picket.DroppedReports(list)
				},
				Name: func(r picket.Report) string { return strconv.FormatInt(r.Seq, 10) },
				Columns: []term.Column[picket.Report]{
					{Head: "#", Cell: func(r picket.Report) string { return strconv.FormatInt(r.Seq, 10) }},
					{Head: "AGE", Cell: func(r picket.Report) string { return term.Ago(r.At) }},
					{
						Head: "FENCE",
						Cell: func(r picket.Report) string { return strconv.FormatInt(r.FencingToken, 10) },
					},
					{Head: "SUMMARY", Cell: func(r picket.Report) string { return term.Clip(r.Summary, 80) }},
					{Head: "NEXT", Cell: func(r picket.Report) string { return term.Clip(r.NextStep, 50) }},
					{
						Head: "BLOCKERS",
						Cell: func(r picket.Report) string { return term.Clip(strings.Join(r.Blockers, "; "), 50) },
						Wide: true,
					},
				},
			}.show(s, topic{task: id}, readingOf(s.Tasks.Reports, id))
		})
	return watchFlag(term.FormatFlag(c))
}

func newTaskExplain() *cobra.Command {
	return watchFlag(term.FormatFlag(OnTask("explain", "Explain why a task is in its state, and what to do",
		func(cmd *cobra.Command, s *Connection, id string) error {
			format, err := term.FormatOf(cmd)
			if err != nil {
				return err
			}
			cfg, err := settings.LoadSettings(cmd)
			if err != nil {
				return err
			}
			return showOne(cmd, s, topic{polled: true}, id, s.Tasks.Explain,
				func(_ context.Context, w io.Writer, e picket.Explanation, raw jsontext.Value) error {
					if format != "table" && format != "wide" {
						return term.PrintValue(w, format, raw)
					}
					fmt.Fprintln(w, term.Painter(w).State(string(e.State)))
					for _, b := range e.Because {
						fmt.Fprintln(w, "  because "+term.OneLine(b))
					}
					for _, n := range e.Next {
						fmt.Fprintln(w, "  next:   "+term.OneLine(cfg.LocalWorkerCommand(n)))
					}
					return nil
				})
		})))
}
