package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
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
