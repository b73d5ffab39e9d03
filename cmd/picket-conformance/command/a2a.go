package command

import (
	"context"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/agenttoagent"
	"github.com/picket-dev/picket/internal/conformance"
)

func newConformanceA2A() *cobra.Command {
	c := &cobra.Command{
		Use:   "a2a",
		Short: "A2A 1.0: the endpoint of any agent",
		Args:  cli.CheckArgs(cobra.NoArgs),
		Long: "Hold the endpoint of an agent against the rules of A2A 1.0, over HTTP and nothing else. --url is the address\n" +
			"below which the card is, such as that of a pool. Each binding of the card is checked: JSON-RPC and HTTP+JSON.\n" +
			"With --worker-key the suite leases the tasks of a Picket pool itself, so use a pool without other agents. Tasks of\n" +
			"the run are cancelled. A rule that lacks something is not run and says why. docs/reference/a2a.md lists the rules.",
		Example: `  picket conformance a2a --url http://host:8000/agents/coder --key @client.key
  picket conformance a2a --url http://host:8000/agents/coder --key @a.key --other-key @b.key --worker-key @w.key
  picket conformance a2a --url https://agent.example.com --key @token --scripted
  picket conformance a2a --only 3.1 --only 9.5/parse -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runConformanceA2A(cmd) },
	}
	f := c.Flags()
	f.String("key", "", "the key of a client, or @FILE (default: PICKET_API_KEY, else the saved one)")
	f.String("other-key", "", "the key of another client of the same endpoint, or @FILE, to be kept apart from the first")
	f.String("worker-key", "", "a key with scope agent, or @FILE: the suite works on the tasks of the pool")
	f.String("worker-url", "", "the address of the Picket server for the worker (default: what is before /agents/ in --url)")
	f.String("worker-role", "", "the role of the pool for the worker (default: what is behind /agents/ in --url)")
	f.String("push-listen", "", "an address, such as 127.0.0.1:0, at which the suite takes push notifications; the server "+
		"must be allowed to call it")
	f.String("push-url", "", "the address under which the server reaches --push-listen (default: that over HTTP)")
	f.Bool("scripted", false, "an agent of the endpoint does what the ids of messages ask for, as the public test kit has them")
	f.StringSlice("only", nil, "only these sections, such as 3 or 3.1.4, or rules, such as 3.1.4/sorted")
	f.Bool("list", false, "list the rules and ask no server")
	return term.FormatFlag(c)
}

func runConformanceA2A(cmd *cobra.Command) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	cfg, err := a2aConfig(cmd)
	if err != nil {
		return err
	}
	if list, _ := cmd.Flags().GetBool("list"); list {
		return printRules(cmd, format, a2aRows(cfg))
	}
	s, err := conformanceServer(cmd, cfg.Key)
	if err != nil {
		return err
	}
	cfg.URL, cfg.Key = s.URL(), s.Key().Reveal()
	if at, _ := cmd.Flags().GetString("push-listen"); at != "" {
		if cfg.PushListener, err = net.Listen("tcp", at); err != nil {
			return picket.Invalid("--push-listen", "Name a free address of this machine, such as 127.0.0.1:0.", "%v", err)
		}
		defer func() { _ = cfg.PushListener.Close() }()
		cfg.PushURL, _ = cmd.Flags().GetString("push-url")
	}
	return runSuite(cmd, format, s, func(ctx context.Context, progress progressFunc) (conformance.Report, error) {
		cfg.Progress = progress
		return agenttoagent.Run(ctx, cfg)
	})
}

// a2aConfig reads everything but where the endpoint is.
func a2aConfig(cmd *cobra.Command) (cfg agenttoagent.Config, err error) {
	f := cmd.Flags()
	cfg.Scripted, _ = f.GetBool("scripted")
	cfg.WorkerURL, _ = f.GetString("worker-url")
	cfg.WorkerRole, _ = f.GetString("worker-role")
	if only, _ := f.GetStringSlice("only"); len(only) > 0 {
		cfg.Only = func(r agenttoagent.Rule) bool { return selects(only, r.Section, r.Name()) }
		if !slices.ContainsFunc(agenttoagent.Rules(), cfg.Only) {
			return cfg, noSuchRule("a2a", only)
		}
	}
	worker := ""
	for flag, into := range map[string]*string{"key": &cfg.Key, "other-key": &cfg.OtherKey, "worker-key": &worker} {
		if *into, err = keyFlag(cmd, flag); err != nil {
			return cfg, err
		}
	}
	cfg.WorkerKey = picket.Secret(worker)
	for flag, needs := range map[string]string{"worker-url": "worker-key", "worker-role": "worker-key",
		"push-url": "push-listen"} {
		if f.Changed(flag) && !f.Changed(needs) {
			return cfg, exit.Usagef("--%s has no meaning without --%s", flag, needs)
		}
	}
	return cfg, nil
}

// a2aRows are the rules that --list prints.
func a2aRows(cfg agenttoagent.Config) (rows []ruleRow) {
	for _, r := range agenttoagent.Rules() {
		if cfg.Only == nil || cfg.Only(r) {
			rows = append(rows, ruleRow{r.Section, r.ID, r.Text, r.Settled(), strings.Join(r.Needs, ", "), r.Why})
		}
	}
	return rows
}
