package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// CommandGroup is a command that only holds verbs.
func CommandGroup(use, short string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: UnknownCommand}
	c.AddCommand(verbs...)
	return c
}

// UnknownCommand runs when no verb matched: help without arguments, else an
// error with the nearest names. Cobra would print help and succeed.
func UnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	err := exit.Usagef("there is no command %q under %q", args[0], cmd.CommandPath())
	if near := term.Nearest(args[0], names); near != "" {
		err.Remedy = "Did you mean: " + cmd.CommandPath() + " " + near
	} else {
		err.Remedy = "Choose one of: " + strings.Join(names, ", ")
	}
	return err
}

// connected is the body of a command that talks to a server.
func connected(act func(cmd *cobra.Command, s *Connection, given []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, given []string) error {
		s, err := Connect(cmd)
		if err != nil {
			return err
		}
		return act(cmd, s, given)
	}
}

// CheckArgs wraps an argument check so that its failure counts as a usage error.
func CheckArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if err := check(cmd, given); err != nil {
			u := exit.Usagef("%s: %v", cmd.CommandPath(), err)
			var wants, got int
			if _, e := fmt.Sscanf(err.Error(), "accepts %d arg(s), received %d", &wants, &got); e == nil {
				u = exit.Usagef("%s takes %s, and %d %s given", cmd.CommandPath(), Plural(wants, "argument"), got,
					map[bool]string{true: "was", false: "were"}[got == 1])
			}
			u.Remedy = "Usage: " + cmd.UseLine()
			return u
		}
		return nil
	}
}
