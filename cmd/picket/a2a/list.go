package a2a

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

const mostListed = 1000 // tasks of a list

func newList() *cobra.Command {
	c := &cobra.Command{
		Use: "list AGENT", Aliases: []string{"ls"}, Short: "List your tasks at an agent, those that changed last first",
		Args: cli.CheckArgs(cobra.ExactArgs(1)),
		RunE: onAgent(func(cmd *cobra.Command, a *agent, _ []string) error {
			format, err := term.FormatOf(cmd)
			if err != nil {
				return err
			}
			req, limit, err := listRequest(cmd)
			if err != nil {
				return err
			}
			return cli.ShowOrPoll(cmd, func(ctx context.Context, w io.Writer) error {
				tasks, more, err := a.List(ctx, req, limit)
				if err != nil {
					return err
				}
				return printTasks(w, term.NotesWriter(cmd, w), format, tasks, more)
			})
		}),
	}
	c.Flags().String("state", "", "only tasks in this state: "+strings.Join(stateNames(), ", "))
	term.Choices(c, "state", stateNames()...)
	c.Flags().String("context", "", "only tasks of this context")
	c.Flags().Int("limit", 50, "at most this many, 1 to 1000")
	return cli.PolledView(c)
}

func listRequest(cmd *cobra.Command) (req protocol.ListTasksRequest, limit int, err error) {
	state, _ := cmd.Flags().GetString("state")
	if state != "" {
		at := slices.IndexFunc(states, func(s protocol.TaskState) bool {
			return agentclient.StateName(s) == strings.ToLower(state) || string(s) == state
		})
		if at < 0 {
			return req, 0, exit.Usagef("--state %s: choose one of %s", state, strings.Join(stateNames(), ", "))
		}
		req.Status = states[at]
	}
	req.ContextID, _ = cmd.Flags().GetString("context")
	if limit, _ = cmd.Flags().GetInt("limit"); limit < 1 || limit > mostListed {
		return req, 0, exit.Usagef("--limit is %d; use 1 to %d", limit, mostListed)
	}
	return req, limit, nil
}

func stateNames() (names []string) {
	for _, s := range states {
		names = append(names, agentclient.StateName(s))
	}
	return names
}

var taskColumns = []term.Column[*protocol.Task]{
	{Head: "TASK", Cell: func(t *protocol.Task) string { return string(t.ID) }},
	{Head: "STATE", Cell: func(t *protocol.Task) string { return agentclient.StateName(t.Status.State) }},
	{Head: "CONTEXT", Cell: func(t *protocol.Task) string { return t.ContextID }, DropOrder: 2},
	{Head: "UPDATED", Cell: func(t *protocol.Task) string { return ago(t.Status.Timestamp) }, DropOrder: 1},
	{Head: "THE AGENT SAYS", Cell: func(t *protocol.Task) string {
		return term.Clip(agentclient.Said(t.Status.Message), 80)
	}},
}

func printTasks(w, notes io.Writer, format string, tasks []*protocol.Task, more bool) error {
	if more {
		defer fmt.Fprintf(notes, "%d shown, there are more: raise --limit\n", len(tasks))
	}
	table := format == "table" || format == "wide"
	if table && len(tasks) == 0 {
		fmt.Fprintln(notes, "no such tasks")
		return nil
	}
	raws := []jsontext.Value{}
	for _, t := range tasks {
		raw, err := stdjson.Marshal(t)
		if err != nil {
			return agentclient.NotA2A("a task of the agent cannot be written as JSON: %s", agentclient.Excerpt(err.Error()))
		}
		raws = append(raws, raw)
	}
	if format == "json" || format == "yaml" {
		raw, err := stdjson.Marshal(raws)
		if err != nil {
			return err
		}
		return term.PrintValue(w, format, raw)
	}
	return term.PrintList(w, format, tasks, raws, taskColumns, func(t *protocol.Task) string {
		return term.OneLine(string(t.ID))
	})
}
