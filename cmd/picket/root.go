package main

import (
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/a2a"
	"github.com/picket-dev/picket/cmd/picket/agentsession"
	"github.com/picket-dev/picket/cmd/picket/attach"
	"github.com/picket-dev/picket/cmd/picket/bridge"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/demo"
	"github.com/picket-dev/picket/cmd/picket/doctor"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// Groups of the help page, in the order a new reader needs them.
const (
	groupStart = "start"
	groupWork  = "work"
	groupHuman = "people"
	groupOps   = "operations"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "picket",
		Short: "Lease tasks to AI agents, and refuse writes under older leases",
		Long: "Picket is an orchestrator for AI agents. It leases each task to one agent at a time, under a\n" +
			"fencing token that only grows, and refuses every write under an older token.",
		Example: `  picket up
  picket run -- make test
  picket review approve
  picket demo all`,
		Args: cobra.ArbitraryArgs,
		RunE: cli.UnknownCommand,
	}
	root.PersistentFlags().String("config", "",
		"read this file (default: picket.yaml here, else in the user's configuration directory)")
	root.PersistentFlags().String("url", "", "talk to the server at this URL")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.FlagError(err) })
	root.AddGroup(
		&cobra.Group{ID: groupStart, Title: "start"},
		&cobra.Group{ID: groupWork, Title: "work"},
		&cobra.Group{ID: groupHuman, Title: "people"},
		&cobra.Group{ID: groupOps, Title: "operations"})
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupStart, settings.NeedsTrust(newUp()), settings.NeedsTrust(attach.NewRun()), demo.New(),
		doctor.WithInvariants(doctor.New(serverChecks())))
	add(groupWork, cli.NewPS(), cli.NewTask(attach.NewTaskWatch()), cli.NewLease(), cli.NewAgent(), cli.NewPool(),
		settings.NeedsTrust(attach.NewAdapter()), cli.NewWorkspace(),
		cli.NewTool(),
		bridge.New(), a2a.New(), cli.NewPinned(), cli.NewEvents())
	add(groupHuman, cli.NewReview(), cli.NewHandoff(), agentsession.New())
	root.SetCompletionCommandGroupID(groupOps)
	root.SetHelpCommandGroupID(groupOps)
	add(groupOps, settings.NeedsTrust(newInit()), settings.NeedsTrust(newServe()), cli.NewBudget(), cli.NewPrice(),
		cli.NewKey(),
		cli.NewWebhook(),
		cli.NewNotify(), cli.NewPause(), cli.NewResume(), cli.NewConfig(checkAgentFile),
		newFenceSQL(), newConformance())
	cli.UnwrapHelp(root)
	for _, name := range []string{"up", "init", "serve", "demo"} {
		c, _, _ := root.Find([]string{name})
		refuseURLFlag(c)
	}
	return root
}

// refuseURLFlag refuses --url on commands that talk to no server but their own.
func refuseURLFlag(c *cobra.Command) {
	for _, sub := range c.Commands() {
		refuseURLFlag(sub)
	}
	if c.HasSubCommands() {
		return
	}
	c.Flags().String("url", "", "")
	_ = c.Flags().MarkHidden("url")
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, given []string) error {
		if cmd.Flags().Changed("url") {
			return picket.Refuse(exit.CodeUsage, "Leave it out.",
				"%s talks to no server, so --url has no meaning for it", cmd.CommandPath())
		}
		return run(cmd, given)
	}
}
