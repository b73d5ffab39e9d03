package a2a

import (
	"context"
	"io"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// New is `picket a2a`.
func New() *cobra.Command {
	c := cli.CommandGroup("a2a", "Send tasks to agents by the A2A protocol, and follow them",
		newCard(), newSend(), newTell(), newGet(), newList(), newStream(), newCancel(), newPush())
	c.Long = "AGENT is the role of a pool of the Picket server, such as builder, or the URL of any agent that speaks\n" +
		"A2A 1.0. The card of an agent is read at URL/.well-known/agent-card.json. Your Picket key, which is the saved\n" +
		"one or PICKET_API_KEY, is sent to your Picket server only. Another agent gets the credential in the environment\n" +
		"variable that --token-env names. Without --token-env it gets none."
	for _, sub := range leaves(c) {
		sub.Flags().String("token-env", "", "the environment variable that holds the credential for AGENT")
		sub.Flags().StringSlice("allow-host", nil,
			"also send requests to this host, or HOST:PORT, if the card of AGENT names it")
	}
	return c
}

// leaves are the commands below c that do something.
func leaves(c *cobra.Command) (all []*cobra.Command) {
	for _, sub := range c.Commands() {
		if sub.HasSubCommands() {
			all = append(all, leaves(sub)...)
			continue
		}
		all = append(all, sub)
	}
	return all
}

// agent is the agent that a command talks to.
type agent struct {
	*agentclient.Agent
	*target
}

// onAgent is the body of a command whose first argument is an agent.
func onAgent(act func(cmd *cobra.Command, a *agent, rest []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, given []string) error {
		t, err := findTarget(cmd, given[0])
		if err != nil {
			return err
		}
		a, err := agentclient.Open(cmd.Context(), &t.Target)
		if err != nil {
			return err
		}
		return act(cmd, &agent{Agent: a, target: t}, given[1:])
	}
}

// onTask is a command about one task of an agent.
func onTask(verb, short string, act func(cmd *cobra.Command, a *agent, id protocol.TaskID) error) *cobra.Command {
	return &cobra.Command{
		Use: verb + " AGENT TASK", Short: short, Args: cli.CheckArgs(cobra.ExactArgs(2)),
		RunE: onAgent(func(cmd *cobra.Command, a *agent, rest []string) error {
			if rest[0] == "" {
				return picket.Refuse(exit.CodeUsage, "List the tasks: "+a.command("list"), "TASK is empty")
			}
			return act(cmd, a, protocol.TaskID(rest[0]))
		}),
	}
}

func newGet() *cobra.Command {
	return cli.PolledView(onTask("get", "Show a task: its state, what the agent says, and its artifacts", get))
}

func get(cmd *cobra.Command, a *agent, id protocol.TaskID) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	return cli.ShowOrPoll(cmd, func(ctx context.Context, w io.Writer) error {
		t, err := a.Task(ctx, id)
		if err != nil {
			return err
		}
		return printAnswer(w, format, t, string(t.ID), func() { printTask(w, t) })
	})
}

func newCancel() *cobra.Command {
	c := onTask("cancel", "Cancel a task", func(cmd *cobra.Command, a *agent, id protocol.TaskID) error {
		format, err := term.FormatOf(cmd)
		if err != nil {
			return err
		}
		t, err := a.Cancel(cmd.Context(), id)
		if err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		return printAnswer(w, format, t, string(t.ID), func() { printTask(w, t) })
	})
	return term.FormatFlag(c)
}
