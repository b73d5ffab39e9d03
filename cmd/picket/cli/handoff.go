package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/text"
)

// NewHandoff is `picket handoff`: the questions that agents ask people.
func NewHandoff() *cobra.Command {
	return CommandGroup("handoff", "Answer agents that wait for a person",
		newHandoffList(), newHandoffShow(), newHandoffClaim(), newHandoffAnswer(), newHandoffFinish(),
		newHandoffCancel())
}

// pendingTopic is what can change what waits for people.
var pendingTopic = topic{kinds: []string{"task.", "handoff.", "lease.", "store."}}

func newHandoffList() *cobra.Command {
	c := &cobra.Command{
		Short:   "List hand-offs, oldest first (default: the open ones)",
		Example: "  picket handoff list --watch\n  picket handoff list --state answered -o wide",
	}
	c.Flags().String("state", "open", "open, answered, finished or cancelled")
	term.Choices(c, "state", term.Texts(picket.HandoffStates)...)
	c.Flags().String("assignee", "", "only those of this assignee")
	return listCommand(pageFlags(c), func(cmd *cobra.Command, s *Connection) error {
		q := pageQuery(cmd)
		maps.Copy(q, flagQuery(cmd, "assignee"))
		state, _ := cmd.Flags().GetString("state")
		q.Set("state", state)
		return Listing[picket.Handoff]{
			Cmd:    cmd,
			Member: "handoffs",
			Empty:  "nobody waits for a person",
			Name:   func(h picket.Handoff) string { return h.HandoffID },
			more:   morePages,
			Columns: []term.Column[picket.Handoff]{
				{Head: "HANDOFF", Cell: func(h picket.Handoff) string { return h.HandoffID }},
				{Head: "KIND", Cell: func(h picket.Handoff) string { return string(h.Kind) }},
				{Head: "WAITS", Cell: func(h picket.Handoff) string { return term.Ago(h.CreatedAt) }},
				{Head: "CLAIMED", Cell: func(h picket.Handoff) string { return h.ClaimedBy }, DropOrder: 1},
				{Head: "ASSIGNEE", Cell: func(h picket.Handoff) string { return orDash(h.Assignee) }, DropOrder: 2},
				{Head: "TASK", Cell: func(h picket.Handoff) string { return h.TaskID }, Wide: true},
				{Head: "TITLE", Cell: func(h picket.Handoff) string { return term.Clip(h.Title, 40) }, Wide: true},
				{Head: "DEADLINE", Cell: func(h picket.Handoff) string { return h.Deadline.String() }, Wide: true},
				{Head: "STATE", Cell: func(h picket.Handoff) string { return string(h.State) }, Wide: true},
				{Head: "QUESTION", Cell: func(h picket.Handoff) string { return term.Clip(h.Question, 70) }},
			},
		}.show(s, pendingTopic, querying(s.Handoffs.List, q))
	})
}

// pageFlags are those of a list that comes in pages.
func pageFlags(c *cobra.Command) *cobra.Command {
	c.Flags().Int("limit", 50, "at most this many, 1 to 200")
	c.Flags().String("cursor", "", "continue where a page ended (nextCursor)")
	return c
}

func pageQuery(cmd *cobra.Command) url.Values { return flagQuery(cmd, "limit", "cursor") }

// morePages is the flag that goes on where a page ended, of how many.
func morePages(members map[string]jsontext.Value, n int) string {
	of := " of " + string(members["total"]) + " in all, or --limit 200"
	return moreAfter("nextCursor", "--cursor", of)(members, n)
}

// onHandoff is a verb on one hand-off; without an id it takes the only open one.
func onHandoff(use, short string, act func(cmd *cobra.Command, s *Connection, id string) error) *cobra.Command {
	return onOnlyWaiting(use+" [HANDOFF]", short, "hand-off", (*Connection).handoffID, handoffIDs, act)
}

func newHandoffShow() *cobra.Command {
	c := onHandoff("show", "Show the question, what the agent has tried, and what its run has changed",
		func(cmd *cobra.Command, s *Connection, id string) error {
			return showOne(cmd, s, pendingTopic, id, s.Handoffs.Get,
				func(ctx context.Context, w io.Writer, h picket.Handoff, raw jsontext.Value) error {
					return s.printHandoff(ctx, cmd, w, h, raw)
				})
		})
	c.Aliases = []string{"get"}
	return watchFlag(term.FormatFlag(c))
}

// printHandoff shows a hand-off with what is known of its task.
func (s *Connection) printHandoff(ctx context.Context, cmd *cobra.Command, w io.Writer, h picket.Handoff,
	raw jsontext.Value) error {
	return printAnswer(cmd, w, raw, h.HandoffID, func() error {
		t, err := s.Tasks.Get(ctx, h.TaskID) // stays empty when it is gone
		if err != nil && !errors.Is(err, picket.CodeNotFound) {
			return err
		}
		describeHandoff(w, h, t)
		if stat := strings.TrimSpace(h.Work.Diffstat); stat != "" {
			fmt.Fprintf(w, "\n%s\n", text.Printable(stat))
		}
		if h.State == picket.HandoffOpen {
			next := append([]string{AnswerCommand(h)}, handoffAlternatives(h)...)
			printNextTo(term.NotesWriter(cmd, w), term.Painter(w), next...)
		}
		return nil
	})
}

// describeHandoff shows a hand-off as a person reads it; only what there is.
func describeHandoff(w io.Writer, h picket.Handoff, t picket.Task) {
	d := term.NewDescription(w)
	d.Add("hand-off", h.HandoffID)
	d.Add("task", h.TaskID)
	d.Add("title", term.OneLine(h.Title))
	d.Add("kind", string(h.Kind))
	d.Add("state", d.State(string(h.State)))
	d.Add("since", h.CreatedAt.String()+", "+term.Ago(h.CreatedAt)+" ago")
	d.Add("question", d.Bold(term.OneLine(h.Question)))
	if !h.Deadline.IsZero() {
		d.Add("deadline", h.Deadline.String()+", then: "+string(h.OnDeadline))
	}
	d.Add("assignee", term.OneLine(h.Assignee))
	if h.ClaimedBy != "" {
		d.Add("claimed by", term.OneLine(h.ClaimedBy)+", "+term.Ago(h.ClaimedAt)+" ago")
	}
	for _, r := range t.Runs {
		if r.RunID == h.RunID && h.Kind == picket.HandoffEscalation {
			d.Add("run ended", EndText(r))
		}
	}
	for i, o := range h.Options {
		d.Add("option "+strconv.Itoa(i+1), term.OneLine(o))
	}
	for _, a := range h.Tried {
		d.Add("tried", term.OneLine(a.Action)+": "+term.OneLine(a.Outcome))
	}
	if h.LastReport != nil {
		d.Add("report", term.OneLine(h.LastReport.Summary))
	}
	if t.TaskID != "" {
		d.Add("budget", budgetText(t))
	}
	d.Add("branch", term.OneLine(h.Work.Branch))
	d.Add("files", term.OneLine(strings.Join(h.Work.Files, ", ")))
	d.Add("workspace", term.OneLine(h.Work.WorkspacePath))
	if h.Answer != nil {
		d.Add("answer", term.OneLine(answerText(h.Answer)))
		d.Add("answered by", term.OneLine(h.Answer.By)+", "+h.Answer.At.String())
		if h.Answer.InputEdited {
			d.Add("new input", term.Clip(cmp.Or(OutputText(h.Answer.Input), string(h.Answer.Input)), 200))
		}
	}
	d.Print()
}

// AnswerCommand is what a person types to answer, ready to paste.
func AnswerCommand(h picket.Handoff) string {
	switch h.Kind {
	case picket.HandoffEscalation:
		return "picket task retry " + h.TaskID
	case picket.HandoffBudget:
		return "picket budget top-up " + h.TaskID + " --usd 0.50 --handoff " + h.HandoffID
	}
	if len(h.Options) > 0 {
		return "picket handoff answer " + h.HandoffID + " --option 1"
	}
	return "picket handoff answer " + h.HandoffID + ` --text "…"`
}

// handoffAlternatives are the commands that end an open hand-off without the agent.
func handoffAlternatives(h picket.Handoff) []string {
	ways := []string{"picket handoff finish " + h.HandoffID + ` --result "…"`, "picket handoff cancel " + h.HandoffID}
	if h.ClaimedBy == "" {
		ways = append([]string{"picket handoff claim " + h.HandoffID}, ways...)
	}
	return ways
}

func answerText(a *picket.Answer) string {
	if a.Option != nil {
		return strings.TrimSpace(*a.Option + " " + OutputText(a.Answer))
	}
	return OutputText(a.Answer)
}

func newHandoffClaim() *cobra.Command {
	c := onHandoff("claim", "Tell others that you take care of it", func(cmd *cobra.Command, s *Connection,
		id string) error {
		var body picket.ClaimRequest
		body.TakeOver, _ = cmd.Flags().GetBool("take-over")
		body.Assignee, _ = cmd.Flags().GetString("assign")
		var raw jsontext.Value
		h, err := s.Handoffs.Claim(cmd.Context(), id, body, client.WithBody(&raw))
		if err != nil {
			return err
		}
		return s.printHandoff(cmd.Context(), cmd, cmd.OutOrStdout(), h, raw)
	})
	c.Long = "Show others that you take care of a hand-off. If somebody else has claimed it, use --take-over to take it over.\n" +
		"A claim only informs others: anybody may still answer, and the first answer counts.\n" +
		"With --assign you claim it for another person. The event names you and that person."
	c.Flags().Bool("take-over", false, "take it over from the person who has claimed it")
	c.Flags().String("assign", "", "the person who should take it")
	return term.FormatFlag(c)
}

func newHandoffAnswer() *cobra.Command {
	c := onHandoff("answer", "Answer the agent: its task is queued again with the answer",
		func(cmd *cobra.Command, s *Connection, id string) error {
			body, err := answerOf(cmd)
			if err != nil {
				return err
			}
			task, raw, err := s.Answer(cmd, id, body)
			if err != nil {
				return err
			}
			return printTask(cmd, task, raw, "answered")
		})
	c.Long = "Answer the agent. Its task is queued again, and all its later runs get the answer. --input also gives them\n" +
		"another input; the task itself keeps what was submitted. If somebody else has answered before, your answer is\n" +
		"refused (exit code 4), and the command prints theirs."
	c.Example = "  picket handoff answer --text \"use the staging key\"\n  picket handoff answer 7Q2K --option yes\n" +
		"  picket handoff answer --option 2 --input @corrected.json"
	c.Flags().StringP("text", "t", "", "the answer: JSON, else text; @file and - (stdin) are read")
	c.Flags().String("option", "", "one of the offered options, or its number")
	c.Flags().String("input", "",
		"the task's input from now on: JSON, null as well, else text; @file and - (stdin) are read")
	_ = c.RegisterFlagCompletionFunc("option", completeOptions)
	c.MarkFlagsOneRequired("text", "option", "input")
	return term.FormatFlag(c)
}

// completeOptions offers the options of the hand-off that was named, or of the
// only one that is open.
func completeOptions(cmd *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	s, err := Connect(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	page, _ := s.Handoffs.List(cmd.Context(), picket.HandoffQuery{State: picket.HandoffOpen, Limit: 200})
	for _, h := range page.Handoffs {
		if len(given) > 0 && given[0] == h.HandoffID || page.Total == 1 {
			var offers []cobra.Completion
			for i, o := range h.Options {
				offers = append(offers, cobra.CompletionWithDesc(strconv.Itoa(i+1), term.Clip(o, 50)))
			}
			return offers, cobra.ShellCompDirectiveNoFileComp
		}
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func answerOf(cmd *cobra.Command) (picket.AnswerRequest, error) {
	var body picket.AnswerRequest
	if cmd.Flags().Changed("option") {
		o, _ := cmd.Flags().GetString("option")
		body.Option = &o
	}
	if text, _ := cmd.Flags().GetString("text"); text != "" {
		raw, err := jsonArgument(cmd, "--text", text)
		if err != nil {
			return body, err
		}
		body.Answer = raw
	}
	if input, _ := cmd.Flags().GetString("input"); input != "" {
		raw, err := jsonArgument(cmd, "--input", input)
		if err != nil {
			return body, err
		}
		body.Input, body.ClearInput = raw, string(bytes.TrimSpace(raw)) == "null"
	}
	return body, nil
}

// Answer sends an answer; an option given by its number is looked up first.
func (s *Connection) Answer(cmd *cobra.Command, id string,
	body picket.AnswerRequest) (task picket.Task, raw jsontext.Value, err error) {
	if body.Option != nil {
		h, err := s.Handoffs.Get(cmd.Context(), id)
		if err != nil {
			return picket.Task{}, nil, err
		}
		body.Option = OptionByNumber(h.Options, *body.Option)
	}
	task, err = s.Handoffs.Answer(cmd.Context(), id, body, client.WithBody(&raw))
	return task, raw, err
}

// OptionByNumber turns "2" into the second option, unless an option is itself
// called "2".
func OptionByNumber(options []string, typed string) *string {
	n, err := strconv.Atoi(typed)
	if err == nil && n >= 1 && n <= len(options) && !slices.Contains(options, typed) {
		return &options[n-1]
	}
	return &typed
}

func newHandoffFinish() *cobra.Command {
	c := onHandoff("finish", "Do the task yourself: it is completed with your output",
		func(cmd *cobra.Command, s *Connection, id string) error {
			text, _ := cmd.Flags().GetString("result")
			result, err := jsonArgument(cmd, "--result", text)
			if err != nil {
				return err
			}
			var raw jsontext.Value
			task, err := s.Handoffs.Finish(cmd.Context(), id, result, client.WithBody(&raw))
			if err != nil {
				return err
			}
			return printTask(cmd, task, raw, "finished")
		})
	c.Flags().String("result", "", "the task's output: JSON, else text; @file and - (stdin) are read")
	_ = c.MarkFlagRequired("result")
	return term.FormatFlag(c)
}

func newHandoffCancel() *cobra.Command {
	return newReasonCommand(onHandoff, "cancel", "Cancel its task",
		func(s *Connection) reasonedChange { return s.Handoffs.Cancel }, "cancelled")
}
