package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
)

var formats = []string{"table", "wide", "json", "jsonl", "yaml", "name"}

// formatFlag adds -o to a command that prints data.
func formatFlag(c *cobra.Command) *cobra.Command {
	format := outputFormat("table")
	c.Flags().VarP(&format, "output", "o", "print as format: "+strings.Join(formats, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// outputFormat is refused as soon as it is read, before anything is decided.
type outputFormat string

func (f *outputFormat) String() string { return string(*f) }
func (f *outputFormat) Type() string   { return "string" }

func (f *outputFormat) Set(text string) error {
	if !slices.Contains(formats, text) {
		return fmt.Errorf("choose one of %s", strings.Join(formats, ", "))
	}
	*f = outputFormat(text)
	return nil
}

func formatOf(cmd *cobra.Command) (string, error) {
	f, _ := cmd.Flags().GetString("output")
	if !slices.Contains(formats, f) {
		return "", usageError("-o %s: choose one of %s", f, strings.Join(formats, ", "))
	}
	return f, nil
}

// choices offers the shell the values of a flag.
func choices(c *cobra.Command, flag string, values ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// listing is a command's answer that is a list: its items, the server's own
// words for each, and how to show them.
type listing[T any] struct {
	cmd     *cobra.Command
	member  string // of the answer that holds the items
	columns []column[T]
	name    func(T) string
	empty   string        // said on stderr when there is nothing
	order   func([]T) []T // the order in a table; nil: the server's
	// more is said on stderr when the server has more than it sent; nil for
	// lists that come whole.
	more func(members map[string]jsontext.Value, n int) string
}

// show asks once, or with --watch whenever one of these events comes, and
// prints.
func (l listing[T]) show(s *connection, of topic, fetch func(context.Context, *jsontext.Value) error) error {
	format, err := formatOf(l.cmd)
	if err != nil {
		return err
	}
	return showOrWatch(l.cmd, s, of, func(ctx context.Context, w io.Writer) error {
		var raw jsontext.Value
		if err := fetch(ctx, &raw); err != nil {
			return err
		}
		noteAnswer(w, raw)
		return l.print(w, format, raw)
	})
}

func (l listing[T]) print(w io.Writer, format string, raw jsontext.Value) error {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(raw, &members); err != nil {
		return err
	}
	var raws []jsontext.Value
	var items []T
	if err := json.Unmarshal(members[l.member], &raws); err != nil {
		return err
	}
	if err := json.Unmarshal(members[l.member], &items); err != nil {
		return err
	}
	if l.more != nil && format != "json" && format != "yaml" { // they show the cursor
		defer func() {
			if text := l.more(members, len(items)); text != "" {
				fmt.Fprintf(notesWriter(l.cmd, w), "%d shown, there are more: add %s\n", len(items), text)
			}
		}()
	}
	switch format {
	case "json", "yaml":
		return printValue(w, format, raw)
	case "jsonl":
		for _, r := range raws {
			if err := printValue(w, "jsonl", r); err != nil {
				return err
			}
		}
		return nil
	case "name":
		for _, item := range items {
			fmt.Fprintln(w, l.name(item))
		}
		return nil
	}
	if len(items) == 0 {
		fmt.Fprintln(notesWriter(l.cmd, w), l.empty)
		return nil
	}
	if l.order != nil {
		items = l.order(items)
	}
	printTable(w, l.columns, items, format == "wide")
	return nil
}

// printValue writes one JSON value as json, jsonl or yaml, digits and member
// order untouched.
func printValue(w io.Writer, format string, raw jsontext.Value) error {
	v := safeJSON(raw.Clone())
	if format == "yaml" && hasUnsafeText(v) {
		format = "json" // which is YAML, and can write such text without its bytes
	}
	switch format {
	case "jsonl":
		if err := v.Compact(); err != nil {
			return err
		}
	case "yaml":
		text, err := yaml.JSONToYAML(v)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	default:
		if err := v.Indent(jsontext.WithIndent("  ")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s\n", v)
	return err
}

// clip shortens text to n columns.
func clip(text string, n int) string { return ansi.Truncate(oneLine(text), n, "…") }
