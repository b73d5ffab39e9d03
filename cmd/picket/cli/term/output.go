package term

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

// PrintItems prints a list that was made here.
func PrintItems[T any](cmd *cobra.Command, format string, items []T, columns []Column[T], name func(T) string) error {
	return PrintItemsTo(cmd.OutOrStdout(), format, items, columns, name)
}

// PrintItemsTo prints a list that was made here to a writer.
func PrintItemsTo[T any](w io.Writer, format string, items []T, columns []Column[T], name func(T) string) error {
	raws := []jsontext.Value{}
	for _, item := range items {
		raw, err := json.Marshal(item)
		if err != nil {
			return err
		}
		raws = append(raws, raw)
	}
	if format == "json" || format == "yaml" {
		raw, err := json.Marshal(raws)
		if err != nil {
			return err
		}
		return PrintValue(w, format, raw)
	}
	return PrintList(w, format, items, raws, columns, name)
}

// PrintList prints each item of a list: its name, its JSON in a line, or a row of a table.
func PrintList[T any](w io.Writer, format string, items []T, raws []jsontext.Value, columns []Column[T],
	name func(T) string) error {
	switch format {
	case "name":
		for _, item := range items {
			fmt.Fprintln(w, name(item))
		}
	case "jsonl":
		for _, raw := range raws {
			if err := PrintValue(w, format, raw); err != nil {
				return err
			}
		}
	default:
		PrintTable(w, columns, items, format == "wide")
	}
	return nil
}

var formats = []string{"table", "wide", "json", "jsonl", "yaml", "name"}

// FormatFlag adds -o to a command that prints data.
func FormatFlag(c *cobra.Command) *cobra.Command {
	format := outputFormat("table")
	c.Flags().VarP(&format, "output", "o", "print as format: "+strings.Join(formats, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return JSONFlag(c)
}

// JSONFlag adds --json, which means -o json, to a command that has the flag -o.
func JSONFlag(c *cobra.Command) *cobra.Command {
	c.Flags().VarPF(jsonAlias{c}, "json", "", "the same as -o json").NoOptDefVal = "true"
	return c
}

// jsonAlias is the value of --json. It sets the flag -o of its command.
type jsonAlias struct{ c *cobra.Command }

func (jsonAlias) String() string { return "false" }
func (jsonAlias) Type() string   { return "bool" }

func (a jsonAlias) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if err != nil || !on {
		return err
	}
	return a.c.Flags().Set("output", "json")
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

// FormatOf reads the format that was asked for with -o: one of formats, else a
// usage error.
func FormatOf(cmd *cobra.Command) (string, error) {
	f, _ := cmd.Flags().GetString("output")
	if !slices.Contains(formats, f) {
		return "", exit.Usagef("-o %s: choose one of %s", f, strings.Join(formats, ", "))
	}
	return f, nil
}

// Choices offers the shell the values of a flag.
func Choices(c *cobra.Command, flag string, values ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// Texts are values as plain strings.
func Texts[T ~string](values []T) []string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return texts
}

// PrintValue writes one JSON value as json, jsonl or yaml, digits and member
// order untouched.
func PrintValue(w io.Writer, format string, raw jsontext.Value) error {
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

// Clip shortens text to n columns.
func Clip(text string, n int) string { return ansi.Truncate(OneLine(text), n, "…") }
