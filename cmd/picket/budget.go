package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

func newBudget() *cobra.Command {
	return commandGroup("budget", "See what tasks may spend and have spent, and give them more", newBudgetShow(),
		newBudgetTopUp(), newBudgetLedger())
}

// envelopeID completes what was typed: a task, or the house of a day.
func (s *connection) envelopeID(ctx context.Context, typed string) (string, error) {
	if typed == "house" || strings.HasPrefix(typed, "house:") {
		return typed, nil
	}
	return s.taskID(ctx, typed)
}

func newBudgetShow() *cobra.Command {
	c := &cobra.Command{
		Use:   "show [ENVELOPE]",
		Short: "Show an envelope with its subtasks; without a name those of the day",
		Args:  checkArgs(cobra.MaximumNArgs(1)),
		Long: "Show what may be spent and was spent: of a task id and its subtasks, or of house or house:DATE, a day (UTC) and its tasks. Without a name it is\n" +
			"today's, or, where picket.yaml sets no limit a day, the latest tasks. LEFT is what the envelope may still give to new calls and subtasks. SPENT, and\n" +
			"HELD by calls under way, are counted with all that stands below it; what is missing to OF is what subtasks still have left.",
		Example:           "  picket budget show\n  picket budget show TASK\n  picket budget show house:2026-04-11 --open",
		ValidArgsFunction: completeFirstID(taskIDs),
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := connect(cmd)
			if err != nil {
				return err
			}
			return showBudget(cmd, s, given)
		},
	}
	c.Flags().Bool("open", false, "only envelopes that are still open")
	return watchFlag(term.FormatFlag(c))
}

// moneyTopic is what is granted and charged; what is only reserved is no event.
var moneyTopic = topic{kinds: []string{"budget.", "task.", "tool."}, polled: true}

func showBudget(cmd *cobra.Command, s *connection, given []string) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	id := "house"
	if len(given) > 0 {
		if id, err = s.envelopeID(cmd.Context(), given[0]); err != nil {
			return err
		}
	}
	open, _ := cmd.Flags().GetBool("open")
	return showOrWatch(cmd, s, moneyTopic, func(ctx context.Context, w io.Writer) error {
		var state picket.EnvelopeState
		var raw jsontext.Value
		err := s.get(ctx, "/api/v1/envelopes/"+pathSegment(id), &state, &raw)
		if len(given) == 0 && errors.Is(err, picket.CodeNotFound) {
			return printLatestBudgets(ctx, cmd, s, w, format, open)
		}
		if err != nil {
			return err
		}
		term.NoteAnswer(w, raw)
		if format == "json" || format == "yaml" {
			return term.PrintValue(w, format, raw)
		}
		if err := term.PrintItemsTo(w, format, envelopeRows(state, 0, open), envelopeColumns,
			envelopeName); err != nil {
			return err
		}
		if n := countEnvelopes(state); n >= picket.MaxEnvelopes {
			counted := "HELD"
			if state.SpentInAll == nil {
				counted = "SPENT and HELD"
			}
			fmt.Fprintf(term.NotesWriter(cmd, w),
				"there may be more: only the first %d envelopes are shown and counted in %s; name a task to see its own\n", n, counted)
		}
		return nil
	})
}

// printLatestBudgets are the envelopes of the latest trees of tasks, for servers
// without a limit a day.
func printLatestBudgets(ctx context.Context, cmd *cobra.Command, s *connection, w io.Writer, format string,
	open bool) error {
	q := url.Values{"limit": {"50"}}
	if open {
		q.Set("state", "queued,leased,review,handoff")
	}
	var page picket.TaskPage
	if err := s.get(ctx, "/api/v1/tasks?"+q.Encode(), &page, nil); err != nil {
		return err
	}
	rows := []envelopeRow{}
	seen := map[string]bool{}
	for _, t := range page.Tasks {
		if seen[t.Root] {
			continue
		}
		seen[t.Root] = true
		state := taskEnvelopeState(t)
		if open || t.TaskID != t.Root { // a subtask is newer than its root, but what is closed is not in the list
			if err := s.get(ctx, "/api/v1/envelopes/"+pathSegment(t.Root), &state, nil); err != nil &&
				!errors.Is(err, picket.CodeNotFound) {
				return err
			}
		}
		rows = append(rows, envelopeRows(state, 0, open)...)
	}
	if len(rows) == 0 && (format == "table" || format == "wide") {
		fmt.Fprintln(term.NotesWriter(cmd, w), map[bool]string{true: "no open tasks", false: "no tasks"}[open])
		return nil
	}
	if format == "json" || format == "yaml" {
		// they stand in those above them
		rows = slices.DeleteFunc(rows, func(r envelopeRow) bool { return r.depth > 0 })
	}
	return term.PrintItemsTo(w, format, rows, envelopeColumns, envelopeName)
}

// taskEnvelopeState is the envelope of a task that has no subtasks, as its own record
// shows it.
func taskEnvelopeState(t picket.Task) picket.EnvelopeState {
	e := picket.EnvelopeState{
		ID:       t.TaskID,
		State:    "open",
		Envelope: t.BudgetEnvelope,
		Locked:   t.Available.Tokens < 0 || t.Available.USD < 0,
		Account: budget.Account{
			Granted:   t.Available.Add(t.Held).Add(t.Spent),
			Available: t.Available,
			Held:      t.Held,
			Spent:     t.Spent,
		},
		Calls:    []picket.OpenCall{},
		Children: []picket.EnvelopeState{},
	}
	if t.State.Terminal() {
		e.State = "closed"
	}
	return e
}

// budgetText is what a task has spent of what it may spend.
func budgetText(t picket.Task) string {
	text := fmt.Sprintf("%s of %s, %d of %d tokens spent", dollars(t.Spent.USD), dollars(t.BudgetEnvelope.USD),
		t.Spent.Tokens, t.BudgetEnvelope.Tokens)
	if !t.Held.IsZero() {
		text += fmt.Sprintf("; %s, %d tokens held", dollars(t.Held.USD), t.Held.Tokens)
	}
	return text
}

// dollars is an amount for people.
func dollars(m budget.Money) string { return m.Dollars() }
