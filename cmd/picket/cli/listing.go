package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// Listing is a command's answer that is a list: its items, the server's own
// words for each, and how to show them.
type Listing[T any] struct {
	Cmd     *cobra.Command
	Member  string // of the answer that holds the items
	Columns []term.Column[T]
	Name    func(T) string
	Empty   string        // said on stderr when there is nothing
	order   func([]T) []T // the order in a table; nil: the server's
	// more is said on stderr when the server has more than it sent; nil for
	// lists that come whole.
	more func(members map[string]jsontext.Value, n int) string
}

// show asks once, or with --watch whenever one of these events comes, and
// prints.
func (l Listing[T]) show(s *Connection, of topic, fetch func(context.Context, *jsontext.Value) error) error {
	format, err := term.FormatOf(l.Cmd)
	if err != nil {
		return err
	}
	return showOrWatch(l.Cmd, s, of, func(ctx context.Context, w io.Writer) error {
		var raw jsontext.Value
		if err := fetch(ctx, &raw); err != nil {
			return err
		}
		term.NoteAnswer(w, raw)
		return l.Print(w, format, raw)
	})
}

func (l Listing[T]) Print(w io.Writer, format string, raw jsontext.Value) error {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(raw, &members); err != nil {
		return err
	}
	var raws []jsontext.Value
	var items []T
	if err := json.Unmarshal(members[l.Member], &raws); err != nil {
		return err
	}
	if err := json.Unmarshal(members[l.Member], &items); err != nil {
		return err
	}
	if l.more != nil && format != "json" && format != "yaml" { // they show the cursor
		defer func() {
			if text := l.more(members, len(items)); text != "" {
				fmt.Fprintf(term.NotesWriter(l.Cmd, w), "%d shown, there are more: add %s\n", len(items), text)
			}
		}()
	}
	switch format {
	case "json", "yaml":
		return term.PrintValue(w, format, raw)
	case "jsonl":
		for _, r := range raws {
			if err := term.PrintValue(w, "jsonl", r); err != nil {
				return err
			}
		}
		return nil
	case "name":
		for _, item := range items {
			fmt.Fprintln(w, l.Name(item))
		}
		return nil
	}
	if len(items) == 0 {
		fmt.Fprintln(term.NotesWriter(l.Cmd, w), l.Empty)
		return nil
	}
	if l.order != nil {
		items = l.order(items)
	}
	term.PrintTable(w, l.Columns, items, format == "wide")
	return nil
}
