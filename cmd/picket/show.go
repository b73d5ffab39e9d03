package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
)

var formats = []string{"table", "wide", "json", "jsonl", "yaml", "name"}

// formatFlag adds -o to a command that prints data.
func formatFlag(c *cobra.Command) *cobra.Command {
	c.Flags().StringP("output", "o", "table", "print as format: "+strings.Join(formats, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func formatOf(cmd *cobra.Command) (string, error) {
	f, _ := cmd.Flags().GetString("output")
	if !slices.Contains(formats, f) {
		return "", usage("-o %s: choose one of %s", f, strings.Join(formats, ", "))
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
	arrange func([]T) []T // the order in a table; nil: the server's
	// more is said on stderr when the server has more than it sent; nil for
	// lists that come whole.
	more func(members map[string]jsontext.Value, n int) string
}

// show asks once, or with --watch again and again, and prints.
func (l listing[T]) show(fetch func(context.Context, *jsontext.Value) error) error {
	format, err := formatOf(l.cmd)
	if err != nil {
		return err
	}
	return watching(l.cmd, func(ctx context.Context, w io.Writer) error {
		var raw jsontext.Value
		if err := fetch(ctx, &raw); err != nil {
			return err
		}
		showing(w, raw)
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
				fmt.Fprintf(l.cmd.ErrOrStderr(), "%d shown, there are more: add %s\n", len(items), text)
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
		fmt.Fprintln(l.cmd.ErrOrStderr(), l.empty)
		return nil
	}
	if l.arrange != nil {
		items = l.arrange(items)
	}
	printTable(w, l.columns, items, format == "wide")
	return nil
}

// printValue writes one JSON value as json, jsonl or yaml, digits and member
// order untouched.
func printValue(w io.Writer, format string, raw jsontext.Value) error {
	v := plainJSON(raw.Clone())
	if format == "yaml" && steered(v) {
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

// watchFlag adds --watch.
func watchFlag(c *cobra.Command) *cobra.Command {
	c.Flags().BoolP("watch", "w", false, "print again whenever it changes, until Ctrl-C")
	return c
}

// watching runs a printer once, or until Ctrl-C with --watch: whenever its
// output differs from the last, it is printed again.
func watching(cmd *cobra.Command, show func(context.Context, io.Writer) error) error {
	again, _ := cmd.Flags().GetBool("watch")
	if !again {
		return show(cmd.Context(), cmd.OutOrStdout())
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	out := cmd.OutOrStdout()
	var last, lastOf []byte
	for first := true; ctx.Err() == nil; first = false {
		var now bytes.Buffer
		view := &terminalBuffer{Buffer: &now, shown: out}
		if err := show(ctx, view); err != nil && ctx.Err() == nil {
			return err
		}
		// In a log, an age that has moved by itself is no news.
		aged := view.of != nil && bytes.Equal(view.of, lastOf) && !isTerminal(out)
		if first || !aged && !bytes.Equal(now.Bytes(), last) {
			if isTerminal(out) {
				fmt.Fprint(out, "\x1b[H\x1b[2J")
			}
			_, _ = out.Write(now.Bytes())
			last, lastOf = now.Bytes(), view.of
		}
		_ = sleep(ctx, time.Second)
	}
	return nil
}

// terminalBuffer holds what is shown until it is compared with the last look. It
// is as wide and as coloured as where it goes.
type terminalBuffer struct {
	*bytes.Buffer
	shown io.Writer
	of    jsontext.Value // what it shows, where that is one answer
}

// showing notes for --watch what a view shows.
func showing(w io.Writer, raw jsontext.Value) {
	if b, ok := w.(*terminalBuffer); ok {
		b.of = raw
	}
}
