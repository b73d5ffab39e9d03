package cli

import (
	"context"
	"encoding/csv"
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
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/text"
)

// NewPrice is `picket price`: what tools and models cost.
func NewPrice() *cobra.Command { return CommandGroup("price", "Show what calls cost", newPriceList()) }

// priceRow is one line of the list: a tool or a model.
type priceRow struct {
	Name  string         `json:"name"`
	Kind  string         `json:"kind"`
	Price jsontext.Value `json:"price"`
	text  string
}

func newPriceList() *cobra.Command {
	c := &cobra.Command{
		Short: "List what calls of tools and models cost",
		Long: "List the prices that the server uses now. They come from tools.prices in its picket.yaml, which\n" +
			"the server reads again on SIGHUP. A name that ends in * is the price of every tool whose name\n" +
			"begins in the same way; of several such names, the longest counts. Calls of a tool without a\n" +
			"price are refused.",
	}
	return listCommand(c, func(cmd *cobra.Command, s *Connection) error {
		format, err := term.FormatOf(cmd)
		if err != nil {
			return err
		}
		prices := func(ctx context.Context, _ string, opts ...client.Option) (budget.PriceList, error) {
			return s.Server.Prices(ctx, opts...)
		}
		// That prices were read again is not an event.
		return showOne(cmd, s, topic{kinds: []string{"store."}, polled: true}, "", prices,
			func(_ context.Context, w io.Writer, list budget.PriceList, raw jsontext.Value) error {
				return printPrices(cmd, w, format, list, raw)
			})
	})
}

func printPrices(cmd *cobra.Command, w io.Writer, format string, list budget.PriceList, raw jsontext.Value) error {
	if format == "json" || format == "yaml" {
		return term.PrintValue(w, format, raw)
	}
	rows, err := priceRows(list)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		fmt.Fprintln(term.NotesWriter(cmd, w),
			"no prices: every tool that is not free is refused. They stand under tools.prices in the server's picket.yaml")
		return nil
	}
	return term.PrintItemsTo(w, format, rows, []term.Column[priceRow]{
		{Head: "NAME", Cell: func(r priceRow) string { return r.Name }},
		{Head: "KIND", Cell: func(r priceRow) string { return r.Kind }},
		{Head: "PRICE", Cell: func(r priceRow) string { return r.text }},
	}, func(r priceRow) string { return r.Name })
}

func priceRows(list budget.PriceList) ([]priceRow, error) {
	var rows []priceRow
	for _, name := range slices.Sorted(maps.Keys(list.Tools)) {
		raw, err := json.Marshal(list.Tools[name], json.Deterministic(true))
		if err != nil {
			return nil, err
		}
		rows = append(rows, priceRow{name, "tool", raw, priceText(list.Tools[name])})
	}
	for _, name := range slices.Sorted(maps.Keys(list.Models)) {
		raw, err := json.Marshal(list.Models[name], json.Deterministic(true))
		if err != nil {
			return nil, err
		}
		rows = append(rows, priceRow{name, "model", raw, modelText(list.Models[name])})
	}
	return rows, nil
}

// priceText is a price as people say it.
func priceText(p budget.Price) string {
	var parts []string
	if p.Call > 0 {
		parts = append(parts, Dollars(p.Call)+" a call")
	}
	for _, unit := range slices.Sorted(maps.Keys(p.PerUnit)) {
		if each := p.PerUnit[unit]; each > 0 {
			parts = append(parts, Dollars(each)+" a "+strings.ReplaceAll(string(unit), "_", " "))
		}
	}
	if len(parts) == 0 {
		return "free"
	}
	text := strings.Join(parts, " and ")
	if len(p.PerUnit) > 0 {
		text += ", at most " + Dollars(p.Max)
	}
	if p.ChargeOn == budget.ChargeOnSuccess {
		text += ", if it succeeds"
	}
	return text
}

func modelText(p budget.TokenPrice) string {
	text := Dollars(p.Input) + " in, " + Dollars(p.Output) + " out"
	if p.CacheRead > 0 {
		text += ", " + Dollars(p.CacheRead) + " cache read"
	}
	if p.CacheWrite > 0 {
		text += ", " + Dollars(p.CacheWrite) + " cache write"
	}
	return text + " a million tokens"
}

func newBudgetLedger() *cobra.Command {
	c := &cobra.Command{
		Use:   "ledger [ENVELOPE]",
		Short: "List what was charged and added, oldest first",
		Args:  CheckArgs(cobra.MaximumNArgs(1)),
		Long: "List the rows of one envelope (a task id, a prompt id, house, or house:DATE) or of all. There is one\n" +
			"row for each settled call, each charged usage report, each correction of an uncertain call and each\n" +
			"top-up. A row names the version of the prices by which it was charged.",
		ValidArgsFunction: completeFirstID(taskIDs),
		RunE: connected(func(cmd *cobra.Command, s *Connection, given []string) error {
			q := flagQuery(cmd, "after", "limit")
			if len(given) > 0 {
				id, err := s.envelopeID(cmd.Context(), given[0])
				if err != nil {
					return err
				}
				q.Set("task", id)
			}
			return ledgerListing(cmd).show(s, moneyTopic, querying(s.Budgets.Ledger, q))
		}),
	}
	c.Flags().Int64("after", 0, "continue after this row")
	c.Flags().Int("limit", 100, "list at most this many, up to 1000")
	c.Flags().Lookup("after").DefValue = ""
	return watchFlag(term.FormatFlag(c))
}

func ledgerListing(cmd *cobra.Command) Listing[picket.LedgerRow] {
	return Listing[picket.LedgerRow]{
		Cmd:    cmd,
		Member: "rows",
		Empty:  "nothing was charged",
		Name:   func(r picket.LedgerRow) string { return strconv.FormatInt(r.Seq, 10) },
		more:   moreAfter("next", "--after", ""),
		Columns: []term.Column[picket.LedgerRow]{
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
			{Head: "TOOL", Cell: func(r picket.LedgerRow) string { return orDash(term.OneLine(r.Tool)) }, DropOrder: 3},
			{Head: "OUTCOME", Cell: outcomeText, DropOrder: 4},
			{Head: "USD", Cell: func(r picket.LedgerRow) string { return withSign(r.Kind, Dollars(r.Charged.USD)) }},
			{
				Head: "TOKENS",
				Cell: func(r picket.LedgerRow) string {
					return withSign(r.Kind, strconv.FormatInt(r.Charged.Tokens, 10))
				},
				DropOrder: 7,
			},
			{Head: "RESERVED", Cell: func(r picket.LedgerRow) string { return Dollars(r.Reserved.USD) }, Wide: true},
			{Head: "PRICES", Cell: func(r picket.LedgerRow) string { return orDash(r.PriceVersion) }, Wide: true},
			{Head: "RUN", Cell: func(r picket.LedgerRow) string { return orDash(r.RunID) }, Wide: true},
			{Head: "ACTOR", Cell: func(r picket.LedgerRow) string { return orDash(r.Actor) }, Wide: true},
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
	return orDash(strings.TrimSpace(text))
}

func newBudgetReport() *cobra.Command {
	c := &cobra.Command{
		Use:   "report",
		Short: "Add up what was spent, by day, role, model or label",
		Args:  CheckArgs(cobra.NoArgs),
		Long: "Add up what was charged, by UTC day, role of the task, model, or value of a label. Several can be\n" +
			"combined, such as --by day,role. A label can be combined only with day. The totals are kept for 400\n" +
			"days, longer than the tasks. A charge counts on the day on which it was booked.\n\n" +
			"SPENT is what was charged, less what was RETURNED by corrections of uncertain calls. UNCERTAIN is the\n" +
			"part of SPENT that was charged because nobody knew whether a call was made. UNVERIFIED was reported by\n" +
			"agents and charged to nobody, so it is not part of SPENT. The columns show \"-\" for tasks without a role\n" +
			"or without the label, and for charges that no model caused. A day has separate totals for 300 pairs of\n" +
			"role and model and for 500 labels; \"(other)\" stands for the rest.",
		Example: "  picket budget report\n  picket budget report --by role --since 30d\n" +
			"  picket budget report --by day,label:team --since 2026-04-01 --until 2026-04-30 -o csv >april.csv",
		RunE: connected(reportSpending),
	}
	f := c.Flags()
	f.StringSlice("by", []string{picket.SpendingByDay}, "day, role, model or label:NAME")
	f.String("since", "7d", "the first UTC day, or a number of days that end with --until")
	f.String("until", "", "the last UTC day (default: today)")
	f.StringP("output", "o", "table", "print as format: table, wide, json, jsonl, yaml, name, csv")
	term.Choices(c, "output", "table", "wide", "json", "jsonl", "yaml", "name", "csv")
	term.Choices(c, "by", picket.SpendingByDay, picket.SpendingByRole, picket.SpendingByModel, picket.SpendingByLabel)
	return term.JSONFlag(c)
}

func reportSpending(cmd *cobra.Command, s *Connection, _ []string) error {
	format, _ := cmd.Flags().GetString("output")
	if format != "csv" {
		if _, err := term.FormatOf(cmd); err != nil {
			return err
		}
	}
	var q picket.SpendingQuery
	q.By, _ = cmd.Flags().GetStringSlice("by")
	q.Since, _ = cmd.Flags().GetString("since")
	q.Until, _ = cmd.Flags().GetString("until")
	var raw jsontext.Value
	report, err := s.Budgets.Spending(cmd.Context(), q, client.WithBody(&raw))
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	switch format {
	case "json", "yaml":
		err = term.PrintValue(w, format, raw)
	case "csv":
		err = csv.NewWriter(w).WriteAll(report.Records(text.SpreadsheetCell))
	default:
		err = printSpending(cmd, w, format, report)
	}
	if err == nil && !report.Complete {
		fmt.Fprintln(cmd.ErrOrStderr(), "the report is not complete: try again in a moment, or ask for fewer days or fewer groups")
	}
	return err
}

// spendingLine is a line of the table of a report: what it is about, and the amounts.
type spendingLine struct {
	picket.SpendingRow `json:",inline"`
	names              []string
}

// printSpending prints the rows of a report and, in a table, what they add up to.
func printSpending(cmd *cobra.Command, w io.Writer, format string, report picket.SpendingReport) error {
	lines := []spendingLine{}
	for _, row := range report.Rows {
		lines = append(lines, spendingLine{row, row.Names(report.By)})
	}
	if format == "table" || format == "wide" {
		if len(lines) == 0 {
			fmt.Fprintf(term.NotesWriter(cmd, w), "nothing was spent from %s to %s\n", report.Since, report.Until)
			return nil
		}
		total := make([]string, len(report.By))
		total[0] = "TOTAL"
		lines = append(lines, spendingLine{picket.SpendingRow{Spending: report.Total}, total})
	}
	return term.PrintItemsTo(w, format, lines, spendingColumns(report.By), func(l spendingLine) string {
		return strings.Join(l.names, "\t")
	})
}

func spendingColumns(by []string) []term.Column[spendingLine] {
	var columns []term.Column[spendingLine]
	for i, name := range by {
		columns = append(columns, term.Column[spendingLine]{
			Head: strings.ToUpper(strings.TrimPrefix(name, picket.SpendingByLabel)),
			Cell: func(l spendingLine) string { return orDash(term.OneLine(l.names[i])) },
		})
	}
	amount := func(head string, wide bool, of func(picket.Spending) budget.Envelope) {
		columns = append(columns,
			term.Column[spendingLine]{Head: head, Wide: wide,
				Cell: func(l spendingLine) string { return Dollars(of(l.Spending).USD) }},
			term.Column[spendingLine]{Head: "TOKENS", DropOrder: 2, Wide: wide,
				Cell: func(l spendingLine) string { return strconv.FormatInt(of(l.Spending).Tokens, 10) }})
	}
	amount("SPENT", false, func(s picket.Spending) budget.Envelope { return s.Spent })
	columns = append(columns, term.Column[spendingLine]{Head: "CALLS", DropOrder: 3,
		Cell: func(l spendingLine) string { return strconv.FormatInt(l.Calls, 10) }})
	amount("UNCERTAIN", true, func(s picket.Spending) budget.Envelope { return s.Uncertain })
	amount("UNVERIFIED", true, func(s picket.Spending) budget.Envelope { return s.Unverified })
	amount("RETURNED", true, func(s picket.Spending) budget.Envelope { return s.Returned })
	return columns
}
