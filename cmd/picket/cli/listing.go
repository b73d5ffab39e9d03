package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// Listing is a command's answer that is a list: its items, the server's own
// words for each, and how to show them.
type Listing[T any] struct {
	Cmd     *cobra.Command
	Member  string // of the answer that holds the items
	Columns []term.Column[T]
	Name    func(T) string
	Empty   string        // printed on stderr when there is nothing
	order   func([]T) []T // the order in a table; nil: the server's
	// more is printed on stderr when the server has more than it sent; nil for
	// lists that come whole.
	more func(members map[string]jsontext.Value, n int) string
}

// listCommand is a command that shows a Listing.
func listCommand(c *cobra.Command, show func(cmd *cobra.Command, s *Connection) error) *cobra.Command {
	c.Use, c.Aliases, c.Args = "list", []string{"ls"}, CheckArgs(cobra.NoArgs)
	c.RunE = connected(func(cmd *cobra.Command, s *Connection, _ []string) error { return show(cmd, s) })
	return watchFlag(term.FormatFlag(c))
}

// fetch reads a list and keeps the answer of the server.
type fetch func(ctx context.Context, raw *jsontext.Value) error

// reading reads a list that comes whole.
func reading[T any](read func(context.Context, ...client.Option) (T, error)) fetch {
	return func(ctx context.Context, raw *jsontext.Value) error {
		_, err := read(ctx, client.WithBody(raw))
		return err
	}
}

// readingOf reads a list that belongs to one thing and comes whole.
func readingOf[T any](read func(context.Context, string, ...client.Option) (T, error),
	id string) fetch {
	return reading(func(ctx context.Context, opts ...client.Option) (T, error) { return read(ctx, id, opts...) })
}

// querying reads a list by what a person typed.
func querying[Q, T any](read func(context.Context, Q, ...client.Option) (T, error),
	typed url.Values) fetch {
	var all Q
	return func(ctx context.Context, raw *jsontext.Value) error {
		_, err := read(ctx, all, client.WithQuery(typed), client.WithBody(raw))
		return err
	}
}

// flagQuery is a query of flags that were given. A name stands for a flag and the
// parameter that it fills, or for both as flag=parameter.
func flagQuery(cmd *cobra.Command, names ...string) url.Values {
	q := url.Values{}
	for _, name := range names {
		flag, parameter, _ := strings.Cut(name, "=")
		f := cmd.Flags().Lookup(flag)
		if !f.Changed {
			continue
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
			if f.Value.Type() == "stringSlice" {
				values = []string{strings.Join(values, ",")}
			}
		}
		if strings.Join(values, "") != "" {
			q[cmp.Or(parameter, flag)] = values
		}
	}
	return q
}

// moreAfter is the flag that goes on behind the cursor of a page.
func moreAfter(member, flag, otherwise string) func(map[string]jsontext.Value, int) string {
	return func(members map[string]jsontext.Value, n int) string {
		cursor := OutputText(picket.RawJSON(members[member]))
		if cursor == "" {
			return ""
		}
		return fmt.Sprintf("%d shown, there are more: add %s %s for the next page%s", n, flag,
			term.ShellQuote(cursor), otherwise)
	}
}

// printAnswer prints one thing in the format of its command. name is its id, "" if it
// has none, and show prints it for people.
func printAnswer(cmd *cobra.Command, w io.Writer, raw jsontext.Value, name string, show func() error) error {
	format, err := term.FormatOf(cmd)
	switch {
	case err != nil:
		return err
	case format == "json" || format == "jsonl" || format == "yaml":
		return term.PrintValue(w, format, raw)
	case format == "name" && name != "":
		_, err = fmt.Fprintln(w, name)
		return err
	}
	return show()
}

// showOne reads one thing and shows it, or with --watch whenever one of these events
// comes.
func showOne[T any](cmd *cobra.Command, s *Connection, of topic, id string,
	read func(context.Context, string, ...client.Option) (T, error),
	show func(ctx context.Context, w io.Writer, thing T, raw jsontext.Value) error) error {
	return showOrWatch(cmd, s, of, func(ctx context.Context, w io.Writer) error {
		var raw jsontext.Value
		thing, err := read(ctx, id, client.WithBody(&raw))
		if err != nil {
			return err
		}
		term.NoteAnswer(w, raw)
		return show(ctx, w, thing, raw)
	})
}

// show asks once, or with --watch whenever one of these events comes, and
// prints.
func (l Listing[T]) show(s *Connection, of topic, read fetch) error {
	format, err := term.FormatOf(l.Cmd)
	if err != nil {
		return err
	}
	return showOrWatch(l.Cmd, s, of, func(ctx context.Context, w io.Writer) error {
		var raw jsontext.Value
		if err := read(ctx, &raw); err != nil {
			return err
		}
		term.NoteAnswer(w, raw)
		return l.Print(w, format, raw)
	})
}

// Print writes the rows of an answer in a format of the flag --output.
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
				fmt.Fprintln(term.NotesWriter(l.Cmd, w), text)
			}
		}()
	}
	table := format == "table" || format == "wide"
	switch {
	case format == "json" || format == "yaml":
		return term.PrintValue(w, format, raw)
	case table && len(items) == 0:
		fmt.Fprintln(term.NotesWriter(l.Cmd, w), l.Empty)
		return nil
	case table && l.order != nil:
		items = l.order(items)
	}
	return term.PrintList(w, format, items, raws, l.Columns, l.Name)
}
