package main

import (
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
)

// printItems prints a list that was made here.
func printItems[T any](cmd *cobra.Command, format string, items []T, columns []column[T], name func(T) string) error {
	return printItemsTo(cmd.OutOrStdout(), format, items, columns, name)
}

func printItemsTo[T any](w io.Writer, format string, items []T, columns []column[T], name func(T) string) error {
	raws := []jsontext.Value{}
	for _, item := range items {
		raw, err := json.Marshal(item)
		if err != nil {
			return err
		}
		raws = append(raws, raw)
	}
	switch format {
	case "name":
		for _, item := range items {
			fmt.Fprintln(w, name(item))
		}
	case "json", "yaml":
		raw, err := json.Marshal(raws)
		if err != nil {
			return err
		}
		return printValue(w, format, raw)
	case "jsonl":
		for _, raw := range raws {
			if err := printValue(w, format, raw); err != nil {
				return err
			}
		}
	default:
		printTable(w, columns, items, format == "wide")
	}
	return nil
}
