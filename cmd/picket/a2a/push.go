package a2a

import (
	"context"
	"fmt"
	"io"
	"os"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

func newPush() *cobra.Command {
	c := cli.CommandGroup("push", "Choose the addresses to which an agent posts the changes of a task",
		newPushAdd(), newPushList(), newPushRemove())
	c.Long = "A push configuration names an address. The agent posts each change of the task there, as a push notification.\n" +
		"It deletes the configuration after it has posted the end of the task."
	return c
}

func newPushAdd() *cobra.Command {
	c := onTask("add", "Post the changes of a task to an address", func(cmd *cobra.Command, a *agent,
		id protocol.TaskID) error {
		format, err := term.FormatOf(cmd)
		if err != nil {
			return err
		}
		config, err := pushOf(cmd, id)
		if err != nil {
			return err
		}
		ctx, stop := context.WithTimeout(cmd.Context(), agentclient.CallTimeout)
		defer stop()
		made, err := a.Client.CreateTaskPushConfig(ctx, config)
		if err != nil {
			return a.Explain(err)
		}
		return pushList.print(cmd.OutOrStdout(), io.Discard, format, []*protocol.PushConfig{made})
	})
	c.Example = "  picket a2a push add builder task_01… --to https://hooks.example.com/picket --secret-env HOOK_SECRET"
	f := c.Flags()
	f.String("to", "", "the https address that gets the notifications (required)")
	f.String("id", "", "the id of the configuration (default: the agent makes one); one with the same id is replaced")
	f.String("secret-env", "", "the environment variable that holds the token of the notifications; Picket signs them with it")
	f.String("scheme", "Bearer", "the HTTP authentication scheme of --credentials-env")
	f.String("credentials-env", "", "the environment variable that holds the credentials which the address asks for")
	return term.FormatFlag(c)
}

// pushOf is the configuration that the flags describe.
func pushOf(cmd *cobra.Command, id protocol.TaskID) (*protocol.PushConfig, error) {
	f := cmd.Flags()
	config := &protocol.PushConfig{TaskID: id}
	config.URL, _ = f.GetString("to")
	config.ID, _ = f.GetString("id")
	if config.URL == "" {
		return nil, exit.Usagef("--to is required: give the https address that gets the notifications")
	}
	token, err := secretOf(cmd, "secret-env")
	if err != nil {
		return nil, err
	}
	config.Token = token
	credentials, err := secretOf(cmd, "credentials-env")
	if err != nil || credentials == "" {
		return config, err
	}
	scheme, _ := f.GetString("scheme")
	config.Auth = &protocol.PushAuthInfo{Scheme: scheme, Credentials: credentials}
	return config, nil
}

// secretOf reads the environment variable that a flag names; empty: the flag is not given.
func secretOf(cmd *cobra.Command, flag string) (string, error) {
	name, _ := cmd.Flags().GetString(flag)
	if name == "" {
		return "", nil
	}
	if value := os.Getenv(name); value != "" {
		return value, nil
	}
	return "", picket.Refuse(exit.CodeUsage, "Set the variable to the secret, and export it.",
		"--%s: the environment variable %s is empty", flag, name)
}

func newPushList() *cobra.Command {
	c := onTask("list", "List the push configurations of a task", func(cmd *cobra.Command, a *agent,
		id protocol.TaskID) error {
		format, err := term.FormatOf(cmd)
		if err != nil {
			return err
		}
		return cli.ShowOrPoll(cmd, func(ctx context.Context, w io.Writer) error {
			ctx, stop := context.WithTimeout(ctx, agentclient.CallTimeout)
			defer stop()
			list, err := a.Client.ListTaskPushConfigs(ctx, &protocol.ListTaskPushConfigRequest{TaskID: id})
			if err != nil {
				return a.Explain(err)
			}
			return pushList.print(w, term.NotesWriter(cmd, w), format, list)
		})
	})
	c.Aliases = []string{"ls"}
	return cli.PolledView(c)
}

func newPushRemove() *cobra.Command {
	return &cobra.Command{
		Use: "remove AGENT TASK ID", Aliases: []string{"rm"}, Short: "Delete a push configuration of a task",
		Args: cli.CheckArgs(cobra.ExactArgs(3)),
		RunE: onAgent(func(cmd *cobra.Command, a *agent, rest []string) error {
			ctx, stop := context.WithTimeout(cmd.Context(), agentclient.CallTimeout)
			defer stop()
			err := a.Client.DeleteTaskPushConfig(ctx, &protocol.DeleteTaskPushConfigRequest{
				TaskID: protocol.TaskID(rest[0]), ID: rest[1]})
			if err != nil {
				return a.Explain(err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), "deleted "+term.OneLine(rest[1]))
			return nil
		}),
	}
}

var pushColumns = []term.Column[*protocol.PushConfig]{
	{Head: "ID", Cell: func(c *protocol.PushConfig) string { return term.OneLine(c.ID) }},
	{Head: "URL", Cell: func(c *protocol.PushConfig) string { return term.OneLine(c.URL) }},
}

var pushList = recordList[*protocol.PushConfig]{none: "no push configurations", one: "a push configuration",
	columns: pushColumns, name: func(c *protocol.PushConfig) string { return c.ID }}
