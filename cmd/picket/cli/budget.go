package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// NewBudget is `picket budget`: envelopes and their ledger.
func NewBudget() *cobra.Command {
	return CommandGroup("budget", "Show what tasks may spend and have spent, and top them up", newBudgetShow(),
		newBudgetTopUp(), newBudgetLedger(), newBudgetReport())
}

// envelopeID completes what was typed: a task, or the envelope of a day or of agent sessions.
func (s *Connection) envelopeID(ctx context.Context, typed string) (string, error) {
	if typed == "house" || strings.HasPrefix(typed, "house:") || picket.CheckEnvelopeID("", typed) == nil {
		return typed, nil
	}
	return s.taskID(ctx, typed)
}

func newBudgetShow() *cobra.Command {
	c := &cobra.Command{
		Use:   "show [ENVELOPE]",
		Short: "Show an envelope with its subtasks (default: today's)",
		Args:  CheckArgs(cobra.MaximumNArgs(1)),
		Long: "Show what an envelope may spend and has spent. The name is a task id, house for today (UTC), or\n" +
			"house:DATE for a day; its subtasks or tasks are listed as well. Agent sessions have sessions:DATE,\n" +
			"wake:NAME:DATE, prompt:NAME:DATE and the ids of prompts. Without a name it is today's\n" +
			"envelope or, if picket.yaml sets no daily limit, the latest tasks. LEFT is what the envelope can\n" +
			"still give to new calls and subtasks. SPENT, and HELD by calls under way, include all subtasks.\n" +
			"OF is what was granted. The part of it that is not LEFT, SPENT or HELD is what the subtasks have left.",
		Example:           "  picket budget show\n  picket budget show TASK\n  picket budget show house:2026-04-11 --open",
		ValidArgsFunction: completeFirstID(taskIDs),
		RunE:              connected(showBudget),
	}
	c.Flags().Bool("open", false, "only envelopes that are still open")
	return watchFlag(term.FormatFlag(c))
}

// moneyTopic is what is granted and charged; what is only reserved is not an event.
var moneyTopic = topic{kinds: []string{"budget.", "task.", "tool."}, polled: true}

func showBudget(cmd *cobra.Command, s *Connection, given []string) error {
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
		var raw jsontext.Value
		state, err := s.Budgets.Get(ctx, id, client.WithBody(&raw))
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
func printLatestBudgets(ctx context.Context, cmd *cobra.Command, s *Connection, w io.Writer, format string,
	open bool) error {
	q := picket.TaskQuery{Limit: 50}
	if open {
		q.States = []picket.TaskState{picket.TaskQueued, picket.TaskLeased, picket.TaskReview, picket.TaskHandoff}
	}
	page, err := s.Tasks.List(ctx, q)
	if err != nil {
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
			if got, err := s.Budgets.Get(ctx, t.Root); err == nil {
				state = got
			} else if !errors.Is(err, picket.CodeNotFound) {
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
	text := fmt.Sprintf("%s of %s, %d of %d tokens spent", Dollars(t.Spent.USD), Dollars(t.BudgetEnvelope.USD),
		t.Spent.Tokens, t.BudgetEnvelope.Tokens)
	if !t.Held.IsZero() {
		text += fmt.Sprintf("; %s, %d tokens held", Dollars(t.Held.USD), t.Held.Tokens)
	}
	return text
}

// Dollars is an amount for people.
func Dollars(m budget.Money) string { return m.Dollars() }

// envelopeRow is an envelope, how deep in the tree it stands, and what was spent
// and is held in it and below it.
type envelopeRow struct {
	picket.EnvelopeState `json:",inline"`
	depth                int
	spent                budget.Envelope
	held                 budget.Envelope
}

// envelopeRows are an envelope and those below it, or only the open ones of
// them. A closed one counts in those above it all the same.
func envelopeRows(e picket.EnvelopeState, depth int, open bool) []envelopeRow {
	if open && e.State == "closed" {
		return nil
	}
	rows := []envelopeRow{{EnvelopeState: e, depth: depth}}
	rows[0].spent, rows[0].held = spentAndHeld(e)
	for _, child := range e.Children {
		rows = append(rows, envelopeRows(child, depth+1, open)...)
	}
	return rows
}

// spentAndHeld is what was spent and is held in an envelope and below it: as the
// server counts it, or added up of what it shows.
func spentAndHeld(e picket.EnvelopeState) (spent, held budget.Envelope) {
	spent, held = e.Spent, e.Held
	for _, child := range e.Children {
		s, h := spentAndHeld(child)
		spent, held = spent.Add(s), held.Add(h)
	}
	if e.SpentInAll != nil {
		spent = *e.SpentInAll
	}
	return spent, held
}

func countEnvelopes(e picket.EnvelopeState) int {
	n := 1
	for _, child := range e.Children {
		n += countEnvelopes(child)
	}
	return n
}

func envelopeName(r envelopeRow) string { return r.ID }

var envelopeColumns = []term.Column[envelopeRow]{
	{Head: "ENVELOPE", Cell: func(r envelopeRow) string { return strings.Repeat("· ", r.depth) + r.ID }},
	{Head: "STATE", Cell: envelopeState, DropOrder: 3},
	{Head: "SPENT", Cell: func(r envelopeRow) string { return Dollars(r.spent.USD) }, DropOrder: 2},
	{Head: "HELD", Cell: func(r envelopeRow) string { return Dollars(r.held.USD) }, DropOrder: 4},
	{Head: "LEFT", Cell: leftText},
	{Head: "OF", Cell: func(r envelopeRow) string {
		return limitText(r, Dollars(r.Envelope.USD), r.Envelope.USD >= budget.MaxMoney)
	}, DropOrder: 1},
	{Head: "TOKENS", Cell: func(r envelopeRow) string { return strconv.FormatInt(r.spent.Tokens, 10) }, DropOrder: 5},
	{Head: "OF", Cell: func(r envelopeRow) string {
		return limitText(r, strconv.FormatInt(r.Envelope.Tokens, 10), r.Envelope.Tokens >= budget.MaxTokens)
	}, DropOrder: 6},
	{Head: "CARVED", Cell: func(r envelopeRow) string { return Dollars(r.Carved.USD) }, Wide: true},
	{Head: "HELD TOKENS", Cell: func(r envelopeRow) string { return strconv.FormatInt(r.held.Tokens, 10) }, Wide: true},
	{Head: "CALLS", Cell: func(r envelopeRow) string { return callsText(r.Calls) }, Wide: true},
}

// leftText is what new calls may still reserve: nothing in a closed envelope.
func leftText(r envelopeRow) string {
	if r.State == "closed" {
		return "-"
	}
	return limitText(r, Dollars(r.Available.USD), r.Envelope.USD >= budget.MaxMoney)
}

// limitText is an amount that a day is limited to; one of all that can be
// counted is of a day which is limited only in the other dimension.
func limitText(r envelopeRow, text string, most bool) string {
	if most && strings.HasPrefix(r.ID, "house:") {
		return "no limit"
	}
	return text
}

// envelopeState is that of a task's envelope; a day's is never closed.
func envelopeState(r envelopeRow) string {
	state := r.State
	if strings.HasPrefix(r.ID, "house:") {
		state = "a day"
	}
	if r.Locked {
		state += ", locked"
	}
	return state
}

func callsText(calls []picket.OpenCall) string {
	var parts []string
	for _, c := range calls {
		parts = append(parts, fmt.Sprintf("%s %s for %s", term.OneLine(c.Tool), Dollars(c.Reserved.USD),
			term.ShortDuration(time.Duration(c.DeadlineMs)*time.Millisecond)))
	}
	return strings.Join(parts, ", ")
}

func newBudgetTopUp() *cobra.Command {
	c := &cobra.Command{
		Use:   "top-up ENVELOPE",
		Short: "Give an envelope more dollars or tokens",
		Args:  CheckArgs(cobra.ExactArgs(1)),
		Long: "Give an envelope more dollars or tokens. The name is a task id, house for today, or house:DATE.\n" +
			"If it is a subtask, the envelopes of its parents are raised with it. If there is a daily limit,\n" +
			"the envelope of the day pays. Calls that were refused can be repeated at once, and an agent in\n" +
			"await_top_up continues.\n\n" +
			"If the task waits in a hand-off that asks for money, the top-up answers the hand-off in the same\n" +
			"step. The hand-off stays open with --keep-parked, and if the budget still does not cover the call\n" +
			"that was refused last. A hand-off of another kind is never answered. With --handoff, nothing is\n" +
			"added if that hand-off has already been decided.",
		Example:           "  picket budget top-up TASK --usd 0.50\n  picket budget top-up house --usd 20 --reason \"release week\"",
		ValidArgsFunction: completeFirstID(taskIDs),
		RunE: func(cmd *cobra.Command, given []string) error {
			body, err := topUpOf(cmd)
			if err != nil {
				return err
			}
			s, err := Connect(cmd)
			if err != nil {
				return err
			}
			id, err := s.envelopeID(cmd.Context(), given[0])
			if err != nil {
				return err
			}
			if body.HandoffID != "" {
				if body.HandoffID, err = s.handoffID(cmd.Context(), body.HandoffID); err != nil {
					return err
				}
			}
			var raw jsontext.Value
			result, err := s.Budgets.TopUp(cmd.Context(), id, body, client.WithBody(&raw))
			if err != nil {
				return err
			}
			return printTopUp(cmd, result, raw)
		},
	}
	f := c.Flags()
	f.String("usd", "", "dollars to add")
	f.Int64("tokens", 0, "tokens to add")
	f.String("reason", "", "why, for the log and the ledger")
	f.Bool("keep-parked", false, "only add money; a hand-off that asks for money stays open")
	f.Var(new(seenValue), "handoff", "add only if this hand-off is still open")
	f.Lookup("tokens").DefValue = ""
	return term.FormatFlag(c)
}

func topUpOf(cmd *cobra.Command) (body picket.TopUp, err error) {
	f := cmd.Flags()
	body.Reason, _ = f.GetString("reason")
	body.Tokens, _ = f.GetInt64("tokens")
	body.KeepParked, _ = f.GetBool("keep-parked")
	body.HandoffID, _ = f.GetString("handoff")
	if text, _ := f.GetString("usd"); text != "" {
		if body.USD, err = budget.ParseMoney(strings.TrimPrefix(text, "$")); err != nil {
			return body, notDollars("--usd", err)
		}
		if body.USD < 0 {
			return body, notDollars("--usd", fmt.Errorf("%s is below zero, and nothing is taken back", text))
		}
	}
	if body.USD == 0 && body.Tokens == 0 {
		return body, picket.Refuse(exit.CodeUsage, "Add --usd 0.50 or --tokens 100000.",
			"a top-up adds dollars or tokens")
	}
	return body, nil
}

// notDollars refuses an amount on the command line.
func notDollars(flag string, err error) error {
	return picket.Refuse(exit.CodeUsage, budget.Money(0).WireForm(), "%s %v", flag, err)
}

func printTopUp(cmd *cobra.Command, result picket.TopUpResult, raw jsontext.Value) error {
	w, e := cmd.OutOrStdout(), result.EnvelopeState
	return printAnswer(cmd, w, raw, e.ID, func() error {
		fmt.Fprintf(w, "%s has %s left\n", e.ID, strings.Join(leftOf(envelopeRow{EnvelopeState: e}), " and "))
		if e.Locked {
			fmt.Fprintln(cmd.ErrOrStderr(),
				"it is still overdrawn, so paid calls stay refused: top up what is below zero")
		}
		if result.Handoff != nil {
			printParked(cmd, e.ID, *result.Handoff)
		}
		return nil
	})
}

// printParked prints what a top-up did to the hand-off of its task, and the next command.
func printParked(cmd *cobra.Command, task string, h picket.TopUpHandoff) {
	w := cmd.OutOrStdout()
	switch h.Outcome {
	case picket.TopUpAnswered:
		fmt.Fprintf(w, "%s is answered, and the task is queued again\n", h.HandoffID)
		PrintNext(cmd, "picket task watch "+task)
	case picket.TopUpKeptParked:
		fmt.Fprintf(w, "%s stays open\n", h.HandoffID)
		PrintNext(cmd, "picket handoff answer "+h.HandoffID+` --text "…"`)
	case picket.TopUpTooSmall:
		fmt.Fprintf(w, "%s stays open: the call that was refused last needs %s more\n", h.HandoffID,
			h.Lacking.Text())
		PrintNext(cmd, picket.TopUpCommand(task, h.Lacking), "picket handoff answer "+h.HandoffID+` --text "…"`)
	default:
		fmt.Fprintf(w, "%s stays open: it does not ask for money (kind %s)\n", h.HandoffID, h.Kind)
		PrintNext(cmd, "picket handoff show "+h.HandoffID)
	}
}

// leftOf returns what an envelope has left of its grant. For a day it returns only the dimensions
// that have a limit.
func leftOf(r envelopeRow) (parts []string) {
	if limitText(r, "", r.Envelope.USD >= budget.MaxMoney) == "" {
		parts = append(parts, Dollars(r.Available.USD)+" of "+Dollars(r.Envelope.USD))
	}
	if limitText(r, "", r.Envelope.Tokens >= budget.MaxTokens) == "" {
		parts = append(parts, fmt.Sprintf("%d of %d tokens", r.Available.Tokens, r.Envelope.Tokens))
	}
	return parts
}
