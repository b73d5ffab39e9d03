// Package command is `picket conformance`: it holds a server against a published
// protocol, rule by rule. Each suite is a command. It is a package so that tests can run it.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/agentheartbeat"
	"github.com/picket-dev/picket/internal/agenttoagent"
	"github.com/picket-dev/picket/internal/conformance"
	"github.com/picket-dev/picket/internal/rfc16"
	"github.com/picket-dev/picket/internal/text"
)

// Main runs one command line and returns the exit code of the process. The
// arguments are those that follow `picket conformance`, flags before it included. If
// the first is cobra's request for completions, the rest are completed.
func Main(args []string) int {
	root := &cobra.Command{Use: "picket"}
	root.PersistentFlags().String("config", "",
		"read this file (default: picket.yaml here, else in the user's configuration directory)")
	root.PersistentFlags().String("url", "", "talk to the server at this URL")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.FlagError(err) })
	root.AddCommand(cli.CommandGroup("conformance", "Check a server against a published protocol, rule by rule",
		newConformanceRFC16(), newConformanceHeartbeat(), newConformanceA2A()))
	cli.UnwrapHelp(root)
	line := append([]string{"conformance"}, args...)
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		line[0], line[1] = line[1], line[0]
	}
	return cli.Execute(root, line)
}

// progressFunc gets every result as it comes.
type progressFunc = func(done, total int, r conformance.Result)

// runSuite runs a suite against a server, and prints its report. The exit code is 1 if a rule failed or none
// was run.
func runSuite(cmd *cobra.Command, format string, s *cli.Connection,
	run func(context.Context, progressFunc) (conformance.Report, error)) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	p := term.Painter(cmd.ErrOrStderr())
	var progress progressFunc
	if term.IsTerminal(cmd.ErrOrStderr()) {
		progress = func(done, total int, _ conformance.Result) {
			fmt.Fprintf(cmd.ErrOrStderr(), "\r%s\x1b[K", p.Dim(fmt.Sprintf("%d of %d rules", done, total)))
		}
	}
	report, err := run(ctx, progress)
	if progress != nil {
		fmt.Fprint(cmd.ErrOrStderr(), "\r\x1b[K")
	}
	if err != nil && len(report.Results) == 0 {
		if err = conformanceError(err); s.KeySource != "--key" || picket.CodeOf(err) != picket.CodeUnauthenticated {
			err = s.WithRemedy(err)
		}
		return err
	}
	if err := printReport(cmd.OutOrStdout(), cmd.ErrOrStderr(), format, report); err != nil {
		return err
	}
	if len(report.Left) > 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), p.Warn("left behind:"), term.OneLine(strings.Join(report.Left, ", ")))
	}
	if report.Failed > 0 || err != nil || report.Passed == 0 {
		return exit.Status(exit.Error)
	}
	return nil
}

// selects reports whether one of the wanted sections or names selects a rule.
func selects(wanted []string, section, name string) bool {
	return slices.ContainsFunc(wanted, func(want string) bool {
		return section == want || strings.HasPrefix(section, want+".") || name == want
	})
}

func noSuchRule(suite string, only []string) error {
	return picket.Refuse(exit.CodeUsage, "picket conformance "+suite+" --list shows them all.",
		"--only %s: no rule has this section or name", strings.Join(only, ","))
}

// conformanceServer finds the server and, where no flag gave it, the key.
func conformanceServer(cmd *cobra.Command, key string) (*cli.Connection, error) {
	if key != "" {
		return cli.ConnectWith(cmd, picket.Secret(key), "--key")
	}
	return cli.Connect(cmd)
}

// keyFlag is a key as it stands on the command line, or in the file that is
// named there: command lines can be read by others.
func keyFlag(cmd *cobra.Command, flag string) (string, error) {
	text, _ := cmd.Flags().GetString(flag)
	path, inFile := strings.CutPrefix(text, "@")
	if !inFile {
		return text, nil
	}
	key, err := cli.ReadSecret(path)
	if err != nil && picket.CodeOf(err) != exit.CodeUsage {
		return "", exit.Usagef("--%s: the key cannot be read: %v", flag, err)
	}
	return key.Reveal(), err
}

// conformanceError says why there is no verdict.
func conformanceError(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, rfc16.ErrUnknownKey), errors.Is(err, agentheartbeat.ErrUnknownKey),
		errors.Is(err, agenttoagent.ErrUnknownKey):
		return picket.Refuse(picket.CodeUnauthenticated, "Pass one it knows: --key @FILE.", "%v", err)
	case errors.Is(err, rfc16.ErrNoRegistry), errors.Is(err, agentheartbeat.ErrNoPolicies):
		return picket.Refuse(picket.CodeNotFound, "Check the URL: it is the server's own, without /api/v1.", "%v", err)
	}
	if errors.Is(err, agenttoagent.ErrNoCard) || errors.Is(err, agenttoagent.ErrNoBinding) {
		return picket.Refuse(picket.CodeNotFound, "Check the URL: the card is below it, such as http://host/agents/ROLE.",
			"%v", err)
	}
	if errors.Is(err, agentheartbeat.ErrNotOperator) {
		return picket.Refuse(picket.CodeForbidden, "Pass one of an operator: --key @FILE.", "%v", err)
	}
	return picket.Refuse(picket.CodeUnavailable, "Check that it runs, and the URL.", "%v", err).
		WithCause(picket.ErrUnknown)
}

func printReport(out, errs io.Writer, format string, report conformance.Report) error {
	switch format {
	case "json", "yaml":
		return printAs(out, format, report)
	case "jsonl":
		for _, r := range report.Results {
			if err := printAs(out, format, r); err != nil {
				return err
			}
		}
		fmt.Fprintln(errs, report.Summary())
		return nil
	}
	p := term.Painter(out)
	for _, r := range report.Results {
		if format == "name" {
			fmt.Fprintln(out, string(r.Outcome)+" "+r.Section+"/"+r.ID)
			continue
		}
		word := map[conformance.Outcome]string{
			conformance.Passed: p.Good("ok      "),
			conformance.Failed: p.Bad("FAIL    "),
			conformance.NotRun: p.Warn("not run "),
		}[r.Outcome]
		fmt.Fprintf(out, "%s%s\n", word, term.OneLine(r.Line()))
		if r.Outcome == conformance.Failed || format == "wide" {
			fmt.Fprintln(out, "        "+term.OneLine(r.Text))
		}
		if r.Outcome == conformance.Failed {
			fmt.Fprintf(out, "        expected: %s\n        got:      %s\n", term.OneLine(r.Expected),
				term.OneLine(r.Got))
			if r.Repeat != "" {
				fmt.Fprintln(out, "        "+text.Printable(r.Repeat))
			}
		}
	}
	if format != "name" {
		fmt.Fprintln(out, report.Summary())
	}
	return nil
}

func printAs(w io.Writer, format string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return term.PrintValue(w, format, jsontext.Value(raw))
}

// ruleRow is a rule as --list prints it.
type ruleRow struct {
	Section string `json:"section"`
	ID      string `json:"id"`
	Text    string `json:"text"`
	Settled bool   `json:"settled"`
	Needs   string `json:"needs"`
	NotRun  string `json:"not_run,omitempty"` // why HTTP cannot show it
}

func printRules(cmd *cobra.Command, format string, rows []ruleRow) error {
	list := struct {
		Rules []ruleRow `json:"rules"`
	}{rows}
	raw, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return cli.Listing[ruleRow]{
		Cmd: cmd, Member: "rules", Empty: "no rules", Name: func(r ruleRow) string { return r.Section + "/" + r.ID },
		Columns: []term.Column[ruleRow]{
			{Head: "SECTION", Cell: func(r ruleRow) string { return r.Section }},
			{Head: "RULE", Cell: func(r ruleRow) string { return r.ID }},
			{Head: "NEEDS", Cell: func(r ruleRow) string { return r.Needs }, Wide: true},
			{Head: "WHAT MUST HOLD", Cell: func(r ruleRow) string { return r.Text }},
		},
	}.Print(cmd.OutOrStdout(), format, raw)
}
