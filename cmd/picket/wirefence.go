package main

import (
	"cmp"
	"context"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/doctor"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/toolproxy/tools"
)

func newFenceSQL() *cobra.Command {
	c := &cobra.Command{
		Use:   "fence-sql NAME",
		Short: "Print the SQL that a database for agents needs",
		Long: "Print the SQL that creates the fence marks in the database NAME of tools.sql. Run it in that database as a role\n" +
			"that agents do not have. The output contains a key that agents must not learn. Run the SQL again after the\n" +
			"secret file has changed, or to replace a table of marks that the role of agents owns.",
		Example: "picket fence-sql main --role agents | psql \"$OWNER_DATABASE_URL\" -v ON_ERROR_STOP=1",
		Args:    cli.CheckArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := settings.LoadSettings(cmd)
			if err != nil {
				return err
			}
			name := args[0]
			if known := slices.Sorted(maps.Keys(cfg.Tools.SQL)); !slices.Contains(known, name) {
				return picket.Refuse(exit.CodeUsage,
					"Name a database of tools.sql in the server's picket.yaml, or add this one there.",
					"tools.sql has no database %s, only: %s", term.ShellQuote(name),
					cmp.Or(strings.Join(known, ", "), "none"))
			}
			role, _ := cmd.Flags().GetString("role")
			sealer, err := sealerOf(cfg)
			if err != nil {
				return err
			}
			sql, err := tools.FenceSQL(sealer, name, cfg.Tools.SQL[name].Marks, role)
			if err != nil {
				return picket.Refuse(exit.CodeUsage, "Set --role to the role that the URL of the database names.", "%v",
					err)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), sql.Reveal())
			return err
		},
	}
	c.Flags().String("role", "", "the role that agents have in the database (required)")
	_ = c.MarkFlagRequired("role")
	return c
}

// sealerOf reads the secret file of the server, or the one that `picket up` made.
func sealerOf(s settings.Settings) (*seal.Sealer, error) {
	own := filepath.Join(s.Data, "secret.key")
	if path := s.SecretFile; path != "" {
		own = path
	}
	return loadSealer(own)
}

// fenceFindings reports what agents could do to the fence marks, for each
// database whose URL is set here.
func fenceFindings(ctx context.Context, cfg settings.Settings) (found []doctor.Finding) {
	databases := databasesOf(cfg, toolEnv{os.Getenv, func(string, string) {}})
	for _, name := range slices.Sorted(maps.Keys(cfg.Tools.SQL)) {
		d, set := databases[name]
		if !set {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		problems, err := tools.FenceProblems(ctx, name, d)
		cancel()
		f := doctor.Finding{Subject: "database " + name, Grade: "warn"}
		switch {
		case err != nil:
			f.Detail = exit.Text(err)
			f.Remedy = "Start it, or correct the URL in the variable that tools.sql." + name + ".url_env names."
		case len(problems) > 0:
			f.Detail = "the fence does not hold: the role of agents " + strings.Join(problems, "; it ")
			f.Remedy = "Give agents a role that owns none of the marks. Then run the SQL that this prints: picket fence-sql " +
				name + " --role ROLE"
		default:
			f.Grade, f.Detail = "ok", "the role of agents can only raise fence marks, and only with a MAC of the server"
		}
		found = append(found, f)
	}
	return found
}
