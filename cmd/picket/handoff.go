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

func newHandoff() *cobra.Command {
	return noun("handoff", "Answer agents that wait for a person",
		newHandoffList(), newHandoffShow(), newHandoffClaim(), newHandoffAnswer(), newHandoffFinish(), newHandoffCancel())
}

func (s *server) handoffs(ctx context.Context, state picket.HandoffState) ([]picket.Handoff, error) {
	var page struct {
		Handoffs []picket.Handoff `json:"handoffs"`
	}
	err := s.get(ctx, "/api/v1/handoffs?state="+string(state), &page, nil)
	return page.Handoffs, err
}

func newHandoffList() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the hand-offs, open ones unless told otherwise", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := connect(cmd)
			if err != nil {
				return err
			}
			state, _ := cmd.Flags().GetString("state")
			return listing[picket.Handoff]{
				cmd: cmd, member: "handoffs", empty: "nobody waits for a person", name: func(h picket.Handoff) string { return h.HandoffID },
				columns: []column[picket.Handoff]{
					{head: "HANDOFF", cell: func(h picket.Handoff) string { return h.HandoffID }},
					{head: "KIND", cell: func(h picket.Handoff) string { return string(h.Kind) }},
					{head: "WAITS", cell: func(h picket.Handoff) string { return ago(h.CreatedAt) }},
					{head: "CLAIMED", cell: func(h picket.Handoff) string { return h.ClaimedBy }, wide: true},
					{head: "TASK", cell: func(h picket.Handoff) string { return h.TaskID }, wide: true},
					{head: "DEADLINE", cell: func(h picket.Handoff) string { return h.Deadline.String() }, wide: true},
					{head: "STATE", cell: func(h picket.Handoff) string { return string(h.State) }, wide: true},
					{head: "QUESTION", cell: func(h picket.Handoff) string { return clip(h.Question, 70) }},
				},
			}.show(func(ctx context.Context, raw *jsontext.Value) error {
				return s.get(ctx, "/api/v1/handoffs?state="+segment(state), nil, raw)
			})
		},
	}
	c.Flags().String("state", "open", "open, answered, finished or cancelled")
	return watchFlag(formatFlag(c))
}

// onHandoff is a verb on one hand-off; without an id it takes the only open one.
func onHandoff(use, short string, act func(cmd *cobra.Command, s *server, id string) error) *cobra.Command {
	return onOne(use+" [HANDOFF]", short, "hand-off", (*server).handoffID, handoffIDs, act)
}

func newHandoffShow() *cobra.Command {
	return formatFlag(onHandoff("show", "Show the question with what was tried", func(cmd *cobra.Command, s *server, id string) error {
		var raw jsontext.Value
		var h picket.Handoff
		if err := s.get(cmd.Context(), "/api/v1/handoffs/"+segment(id), &h, &raw); err != nil {
			return err
		}
		return printHandoff(cmd, h, raw, s.escalatedRun(cmd.Context(), h))
	}))
}

// escalatedRun is how the run ended that made an escalation; an empty text for
// other hand-offs, and when it is not known any more.
func (s *server) escalatedRun(ctx context.Context, h picket.Handoff) string {
	var t picket.Task
	if h.Kind != picket.HandoffEscalation || s.get(ctx, "/api/v1/tasks/"+segment(h.TaskID), &t, nil) != nil {
		return ""
	}
	for _, r := range t.Runs {
		if r.RunID == h.RunID {
			return endText(r)
		}
	}
	return ""
}

func printHandoff(cmd *cobra.Command, h picket.Handoff, raw jsontext.Value, run string) error {
	format, err := formatOf(cmd)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	switch format {
	case "json", "jsonl", "yaml":
		return printValue(w, format, raw)
	case "name":
		fmt.Fprintln(w, h.HandoffID)
		return nil
	}
	p := painter(w)
	rows := [][]string{
		{p.dim("hand-off"), h.HandoffID}, {p.dim("task"), h.TaskID}, {p.dim("kind"), string(h.Kind)},
		{p.dim("state"), p.state(string(h.State))}, {p.dim("question"), p.bold(oneLine(h.Question))},
	}
	if h.ClaimedBy != "" {
		rows = append(rows, []string{p.dim("claimed by"), oneLine(h.ClaimedBy)})
	}
	if run != "" {
		rows = append(rows, []string{p.dim("run ended"), run})
	}
	for i, o := range h.Options {
		rows = append(rows, []string{p.dim("option " + strconv.Itoa(i+1)), oneLine(o)})
	}
	for _, a := range h.Tried {
		rows = append(rows, []string{p.dim("tried"), oneLine(a.Action) + ": " + oneLine(a.Outcome)})
	}
	if h.LastReport != nil {
		rows = append(rows, []string{p.dim("report"), oneLine(h.LastReport.Summary)})
	}
	if h.Answer != nil {
		rows = append(rows, []string{p.dim("answer"), oneLine(answerText(h.Answer)) + " (" + oneLine(h.Answer.By) + ")"})
	}
	printRows(w, rows)
	if h.State == picket.HandoffOpen {
		next(cmd, answerCommand(h))
	}
	return nil
}

// answerCommand is what a person types to answer, ready to paste.
func answerCommand(h picket.Handoff) string {
	switch h.Kind {
	case picket.HandoffEscalation:
		return "picket task retry " + h.TaskID
	case picket.HandoffBudget:
		return "picket budget top-up " + h.TaskID + " --usd 0.50 && picket handoff answer " + h.HandoffID + ` --text "topped up"`
	}
	if len(h.Options) > 0 {
		return "picket handoff answer " + h.HandoffID + " --option 1"
	}
	return "picket handoff answer " + h.HandoffID + ` --text "…"`
}

func answerText(a *picket.Answer) string {
	if a.Option != nil {
		return strings.TrimSpace(*a.Option + " " + outputText(a.Answer))
	}
	return outputText(a.Answer)
}
