package command

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/conformance"
	"github.com/picket-dev/picket/internal/rfc16"
)

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
		return printRules(cmd, format, rfc16Rows(cfg))
	}
	s, err := conformanceServer(cmd, cfg.Key)
	if err != nil {
		return err
	}
	if cfg.URL, cfg.Key = s.URL(), s.Key().Reveal(); cfg.Key == "" {
		cfg.Key = cfg.AgentKey
	}
	return runSuite(cmd, format, s, func(ctx context.Context, progress progressFunc) (conformance.Report, error) {
		cfg.Progress = progress
		return rfc16.Run(ctx, cfg)
	})
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
		cfg.Only = func(r rfc16.Rule) bool { return selects(only, r.Section, r.Name()) }
		if !slices.ContainsFunc(rfc16.Rules(), cfg.Only) {
			return cfg, noSuchRule("rfc16", only)
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

// rfc16Rows are the rules that --list prints.
func rfc16Rows(cfg rfc16.Config) (rows []ruleRow) {
	for _, r := range rfc16.Rules() {
		if cfg.RFCOnly && !r.RFCOnly() || cfg.Only != nil && !cfg.Only(r) {
			continue
		}
		rows = append(rows, ruleRow{r.Section, r.ID, r.Text, r.Needs&rfc16.Settled != 0, r.Needs.String(), r.Why})
	}
	return rows
}
