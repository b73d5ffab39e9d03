package command

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/agentheartbeat"
	"github.com/picket-dev/picket/internal/conformance"
)

func newConformanceHeartbeat() *cobra.Command {
	c := &cobra.Command{
		Use:   "heartbeat",
		Short: "Agent Heartbeat: wake policies, the health of sessions, and wakes",
		Args:  cli.CheckArgs(cobra.NoArgs),
		Long: "Hold a running server against every rule of Agent Heartbeat; it takes half a minute. The suite answers the\n" +
			"wakes of its own sessions itself: it starts no coding agent and spends no money. An administrator's key makes the\n" +
			"keys it needs and revokes them. Agents of the run are deregistered, policies deleted, tasks cancelled. A rule that\n" +
			"lacks something is not run and says why. docs/reference/heartbeat.md lists the rules.",
		Example: `  picket conformance heartbeat
  picket conformance heartbeat --url http://host:8000 --key @admin.key
  picket conformance heartbeat --only 6 --only 7/write-http -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runConformanceHeartbeat(cmd) },
	}
	f := c.Flags()
	f.String("key", "", "an operator's or administrator's key, or @FILE (default: PICKET_API_KEY, else the saved one)")
	f.String("files", "", "the directory with the files of the server's policies, on this machine (picket up: DATA/agents)")
	f.StringSlice("only", nil, "only these sections, such as 6, or rules, such as 6/wake_sent")
	f.Bool("list", false, "list the rules and ask no server")
	return term.FormatFlag(c)
}

func runConformanceHeartbeat(cmd *cobra.Command) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	cfg := agentheartbeat.Config{Picket: findPicket()}
	cfg.Files, _ = cmd.Flags().GetString("files")
	if only, _ := cmd.Flags().GetStringSlice("only"); len(only) > 0 {
		cfg.Only = func(r agentheartbeat.Rule) bool { return selects(only, r.Section, r.Name()) }
		if !slices.ContainsFunc(agentheartbeat.Rules(), cfg.Only) {
			return noSuchRule("heartbeat", only)
		}
	}
	if cfg.Key, err = keyFlag(cmd, "key"); err != nil {
		return err
	}
	if list, _ := cmd.Flags().GetBool("list"); list {
		return printRules(cmd, format, heartbeatRows(cfg))
	}
	s, err := conformanceServer(cmd, cfg.Key)
	if err != nil {
		return err
	}
	cfg.URL, cfg.Key = s.URL(), s.Key().Reveal()
	return runSuite(cmd, format, s, func(ctx context.Context, progress progressFunc) (conformance.Report, error) {
		cfg.Progress = progress
		return agentheartbeat.Run(ctx, cfg)
	})
}

// heartbeatRows are the rules that --list prints.
func heartbeatRows(cfg agentheartbeat.Config) (rows []ruleRow) {
	for _, r := range agentheartbeat.Rules() {
		if cfg.Only != nil && !cfg.Only(r) {
			continue
		}
		needs := slices.DeleteFunc(slices.Clone(r.Needs), func(need string) bool { return need == "settled" })
		rows = append(rows, ruleRow{r.Section, r.ID, r.Text, r.Settled(), strings.Join(needs, ", "), r.Why})
	}
	return rows
}

// findPicket looks for the picket binary beside this one, then on PATH. It is empty if there is none.
func findPicket() string {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), "picket")); err == nil {
			return path
		}
	}
	path, err := exec.LookPath("picket")
	if err != nil {
		return ""
	}
	if path, err = filepath.Abs(path); err != nil {
		return ""
	}
	return path
}
