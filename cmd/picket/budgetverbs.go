package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

func newBudgetTopUp() *cobra.Command {
	c := &cobra.Command{
		Use:   "top-up ENVELOPE",
		Short: "Give an envelope more dollars or tokens",
		Args:  checkArgs(cobra.ExactArgs(1)),
		Long: "Give an envelope more: a task id, house for the day's, or house:DATE. A subtask's is raised together with those it was carved from; a day's house pays, where there is one.\n" +
			"Calls that were refused can be repeated at once; an agent in await_top_up goes on.",
		Example:           "  picket budget top-up TASK --usd 0.50\n  picket budget top-up house --usd 20 --reason \"release week\"",
		ValidArgsFunction: completeFirstID(taskIDs),
		RunE: func(cmd *cobra.Command, given []string) error {
			body, err := topUpOf(cmd)
			if err != nil {
				return err
			}
			s, err := connect(cmd)
			if err != nil {
				return err
			}
			id, err := s.envelopeID(cmd.Context(), given[0])
			if err != nil {
				return err
			}
			var state picket.EnvelopeState
			var raw jsontext.Value
			if err := s.post(cmd.Context(), "/api/v1/envelopes/"+pathSegment(id)+"/top-up", body, &state,
				&raw); err != nil {
				return err
			}
			return printTopUp(cmd, state, raw)
		},
	}
	f := c.Flags()
	f.String("usd", "", "dollars to add")
	f.Int64("tokens", 0, "tokens to add")
	f.String("reason", "", "why, for the log and the ledger")
	f.Lookup("tokens").DefValue = ""
	return term.FormatFlag(c)
}

func topUpOf(cmd *cobra.Command) (body picket.TopUp, err error) {
	f := cmd.Flags()
	body.Reason, _ = f.GetString("reason")
	body.Tokens, _ = f.GetInt64("tokens")
	if text, _ := f.GetString("usd"); text != "" {
		if body.USD, err = budget.ParseMoney(strings.TrimPrefix(text, "$")); err != nil {
			return body, notDollars("--usd", err)
		}
		if body.USD < 0 {
			return body, notDollars("--usd", fmt.Errorf("%s is below zero, and nothing is taken back", text))
		}
	}
	if body.USD == 0 && body.Tokens == 0 {
		e := exit.Usagef("a top-up adds dollars or tokens")
		e.Remedy = "Add --usd 0.50 or --tokens 100000."
		return body, e
	}
	return body, nil
}

// notDollars refuses an amount on the command line.
func notDollars(flag string, err error) error {
	e := exit.Usagef("%s %v", flag, err)
	e.Remedy = budget.Money(0).WireForm()
	return e
}

func printTopUp(cmd *cobra.Command, e picket.EnvelopeState, raw jsontext.Value) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	switch format {
	case "name":
		fmt.Fprintln(w, e.ID)
	case "json", "jsonl", "yaml":
		return term.PrintValue(w, format, raw)
	default:
		fmt.Fprintf(w, "%s has %s left\n", e.ID, strings.Join(leftOf(envelopeRow{EnvelopeState: e}), " and "))
		if e.Locked {
			fmt.Fprintln(cmd.ErrOrStderr(),
				"it is still overdrawn, so paid calls stay refused: top up what is below zero")
		}
	}
	return nil
}

func newBudgetLedger() *cobra.Command {
	c := &cobra.Command{
		Use:   "ledger [ENVELOPE]",
		Short: "List what was charged and added, oldest first",
		Args:  checkArgs(cobra.MaximumNArgs(1)),
		Long: "List the rows of one envelope (a task id, house, or house:DATE) or of all: each settled call, each usage report of an agent that charged, each\n" +
			"correction of an uncertain call and each top-up has one. A row says by which version of the prices it was charged.",
		ValidArgsFunction: completeFirstID(taskIDs),
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := connect(cmd)
			if err != nil {
				return err
			}
			q := url.Values{}
			for _, name := range []string{"after", "limit"} {
				if f := cmd.Flags().Lookup(name); f.Changed {
					q.Set(name, f.Value.String())
				}
			}
			if len(given) > 0 {
				id, err := s.envelopeID(cmd.Context(), given[0])
				if err != nil {
					return err
				}
				q.Set("task", id)
			}
			return ledgerListing(cmd).show(s, moneyTopic, func(ctx context.Context, raw *jsontext.Value) error {
				return s.get(ctx, "/api/v1/ledger?"+q.Encode(), nil, raw)
			})
		},
	}
	c.Flags().Int64("after", 0, "go on after this row")
	c.Flags().Int("limit", 100, "list at most this many, up to 1000")
	c.Flags().Lookup("after").DefValue = ""
	return watchFlag(term.FormatFlag(c))
}

func ledgerListing(cmd *cobra.Command) listing[picket.LedgerRow] {
	return listing[picket.LedgerRow]{
		cmd:    cmd,
		member: "rows",
		empty:  "nothing was charged",
		name:   func(r picket.LedgerRow) string { return strconv.FormatInt(r.Seq, 10) },
		more: func(members map[string]jsontext.Value, _ int) string {
			after := strings.Trim(string(members["next"]), `"`)
			if after == "" {
				return ""
			}
			return "--after " + after + " for the next page"
		},
		columns: []term.Column[picket.LedgerRow]{
			{Head: "ROW", Cell: func(r picket.LedgerRow) string { return strconv.FormatInt(r.Seq, 10) }, DropOrder: 6},
			{
				Head:      "AT",
				Cell:      func(r picket.LedgerRow) string { return r.At.Time().Local().Format("15:04:05") },
				DropOrder: 8,
			},
			{Head: "ENVELOPE", Cell: func(r picket.LedgerRow) string { return r.TaskID }},
			{
				Head:      "KIND",
				Cell:      func(r picket.LedgerRow) string { return strings.ReplaceAll(string(r.Kind), "_", " ") },
				DropOrder: 5,
			},
			{Head: "TOOL", Cell: func(r picket.LedgerRow) string { return dash(term.OneLine(r.Tool)) }, DropOrder: 3},
			{Head: "OUTCOME", Cell: outcomeText, DropOrder: 4},
			{Head: "USD", Cell: func(r picket.LedgerRow) string { return withSign(r.Kind, dollars(r.Charged.USD)) }},
			{
				Head: "TOKENS",
				Cell: func(r picket.LedgerRow) string {
					return withSign(r.Kind, strconv.FormatInt(r.Charged.Tokens, 10))
				},
				DropOrder: 7,
			},
			{Head: "RESERVED", Cell: func(r picket.LedgerRow) string { return dollars(r.Reserved.USD) }, Wide: true},
			{Head: "PRICES", Cell: func(r picket.LedgerRow) string { return dash(r.PriceVersion) }, Wide: true},
			{Head: "RUN", Cell: func(r picket.LedgerRow) string { return dash(r.RunID) }, Wide: true},
			{Head: "ACTOR", Cell: func(r picket.LedgerRow) string { return dash(r.Actor) }, Wide: true},
			{Head: "DETAIL", Cell: func(r picket.LedgerRow) string { return term.Clip(r.Detail, 40) }, DropOrder: 1},
		},
	}
}

// withSign tells what was added from what was charged.
func withSign(kind picket.LedgerKind, text string) string {
	if kind == picket.LedgerTopUp {
		return "+" + text
	}
	return text
}

func outcomeText(r picket.LedgerRow) string {
	text := string(r.Outcome)
	if r.Late {
		text += " late"
	}
	return dash(strings.TrimSpace(text))
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// leftOf says what an envelope has left of what it was given; a day only of what
// it limits.
func leftOf(r envelopeRow) (parts []string) {
	if limitText(r, "", r.Envelope.USD >= budget.MaxMoney) == "" {
		parts = append(parts, dollars(r.Available.USD)+" of "+dollars(r.Envelope.USD))
	}
	if limitText(r, "", r.Envelope.Tokens >= budget.MaxTokens) == "" {
		parts = append(parts, fmt.Sprintf("%d of %d tokens", r.Available.Tokens, r.Envelope.Tokens))
	}
	return parts
}
