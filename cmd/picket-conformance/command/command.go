// Package command is `picket conformance`: it holds a server against a published
// protocol, rule by rule. It is a package so that tests can run it.
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
		newConformanceRFC16()))
	cli.UnwrapHelp(root)
	line := append([]string{"conformance"}, args...)
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		line[0], line[1] = line[1], line[0]
	}
	return cli.Execute(root, line)
}

func newConformanceRFC16() *cobra.Command {
	c := &cobra.Command{
		Use:   "rfc16",
		Short: "Agent Lifecycle & Health: any server that speaks RFC-0016",
		Args:  cli.CheckArgs(cobra.NoArgs),
		Long: "Hold a running server against every rule of RFC-0016, over HTTP and nothing else; it takes about half a minute.\n" +
			"An administrator's key makes the keys it needs and revokes them. Agents of the run are deregistered, tasks\n" +
			"cancelled. A rule that lacks something is not run and says why. docs/rfc16.md lists the rules.",
		Example: `  picket conformance rfc16
  picket conformance rfc16 --url http://host:8000 --key @admin.key
  picket conformance rfc16 --url http://host:8000 --rfc-only --agent-key @a.key --other-key @b.key
  picket conformance rfc16 --only 4.4 --only Security -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runConformanceRFC16(cmd) },
	}
	f := c.Flags()
	f.String("key", "", "an operator's or administrator's key, or @FILE (default: PICKET_API_KEY, else the saved one)")
	f.String("agent-key", "", "the key that registers the agents, or @FILE (default: one that is made, else --key)")
	f.String("other-key", "", "a second agent key, or @FILE, to be refused (default: one that is made)")
	f.Bool("rfc-only", false, "only what the RFC itself says of its own routes: no leases, events, commands or pools")
	f.StringSlice("only", nil, "only these sections, such as 4 or 4.4, or rules, such as 4.4/gone-when-dead")
	f.IntSlice("thresholds", []int{1, 2, 4}, "interval, unhealthy and dead in seconds, of agents that fall silent")
	f.Bool("list", false, "list the rules and ask no server")
	return term.FormatFlag(c)
}

func runConformanceRFC16(cmd *cobra.Command) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	cfg, err := conformanceConfig(cmd)
	if err != nil {
		return err
	}
	if list, _ := cmd.Flags().GetBool("list"); list {
		return printRules(cmd, format, cfg)
	}
	s, err := conformanceServer(cmd, &cfg)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	p := term.Painter(cmd.ErrOrStderr())
	if term.IsTerminal(cmd.ErrOrStderr()) {
		cfg.Progress = func(done, total int, _ conformance.Result) {
			fmt.Fprintf(cmd.ErrOrStderr(), "\r%s\x1b[K", p.Dim(fmt.Sprintf("%d of %d rules", done, total)))
		}
	}
	report, err := rfc16.Run(ctx, cfg)
	if cfg.Progress != nil {
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

// conformanceConfig reads everything but where the server is.
func conformanceConfig(cmd *cobra.Command) (cfg rfc16.Config, err error) {
	f := cmd.Flags()
	cfg.RFCOnly, _ = f.GetBool("rfc-only")
	seconds, _ := f.GetIntSlice("thresholds")
	if len(seconds) != 3 || seconds[0] < 1 || seconds[1] < 2*seconds[0] || seconds[2] < 2*seconds[1] {
		return cfg, picket.Refuse(exit.CodeUsage, "Such as --thresholds 1,2,4.",
			"--thresholds takes interval, unhealthy and dead in seconds, each at least twice the one before")
	}
	cfg.Interval, cfg.Unhealthy, cfg.Dead, cfg.DrainTimeout = seconds[0], seconds[1], seconds[2], seconds[1]
	if only, _ := f.GetStringSlice("only"); len(only) > 0 {
		cfg.Only = func(r rfc16.Rule) bool {
			return slices.ContainsFunc(only, func(want string) bool {
				return r.Section == want || strings.HasPrefix(r.Section, want+".") || r.Name() == want
			})
		}
		if !slices.ContainsFunc(rfc16.Rules(), cfg.Only) {
			return cfg, picket.Refuse(exit.CodeUsage, "picket conformance rfc16 --list shows them all.",
				"--only %s: no rule has this section or name", strings.Join(only, ","))
		}
	}
	for flag, into := range map[string]*string{
		"key":       &cfg.Key,
		"agent-key": &cfg.AgentKey,
		"other-key": &cfg.OtherKey,
	} {
		if *into, err = keyFlag(cmd, flag); err != nil {
			return cfg, err
		}
	}
	return cfg, nil
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

// conformanceServer finds the server and, where no flag gave it, the key.
func conformanceServer(cmd *cobra.Command, cfg *rfc16.Config) (*cli.Connection, error) {
	connect := cli.Connect
	if cfg.Key != "" {
		connect = func(cmd *cobra.Command) (*cli.Connection, error) {
			return cli.ConnectWith(cmd, picket.Secret(cfg.Key), "--key")
		}
	}
	s, err := connect(cmd)
	if err != nil {
		return nil, err
	}
	cfg.URL, cfg.Key = s.URL(), s.Key().Reveal()
	if cfg.Key == "" {
		cfg.Key = cfg.AgentKey
	}
	return s, nil
}

// conformanceError says why there is no verdict.
func conformanceError(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, rfc16.ErrUnknownKey):
		return picket.Refuse(picket.CodeUnauthenticated, "Pass one it knows: --key @FILE.", "%v", err)
	case errors.Is(err, rfc16.ErrNoRegistry):
		return picket.Refuse(picket.CodeNotFound, "Check the URL: it is the server's own, without /api/v1.", "%v", err)
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

func printRules(cmd *cobra.Command, format string, cfg rfc16.Config) error {
	list := struct {
		Rules []ruleRow `json:"rules"`
	}{}
	for _, r := range rfc16.Rules() {
		if cfg.RFCOnly && !r.RFCOnly() || cfg.Only != nil && !cfg.Only(r) {
			continue
		}
		list.Rules = append(list.Rules,
			ruleRow{r.Section, r.ID, r.Text, r.Needs&rfc16.Settled != 0, r.Needs.String(), r.Why})
	}
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
