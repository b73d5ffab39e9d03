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
	return taskList.print(w, notes, format, tasks)
}

var taskList = recordList[*protocol.Task]{none: "no such tasks", one: "a task", columns: taskColumns,
	name: func(t *protocol.Task) string { return string(t.ID) }}

// recordList shows a list of what an agent has sent.
type recordList[T any] struct {
	none    string // what a table without rows says
	one     string // one of them, in an error
	columns []term.Column[T]
	name    func(T) string
}

// print shows a list in a format. JSON and YAML have the records as the agent sent them.
func (l recordList[T]) print(w, notes io.Writer, format string, list []T) error {
	if (format == "table" || format == "wide") && len(list) == 0 {
		fmt.Fprintln(notes, l.none)
		return nil
	}
	raws := []jsontext.Value{}
	for _, r := range list {
		raw, err := stdjson.Marshal(r)
		if err != nil {
			return agentclient.NotA2A("%s of the agent cannot be written as JSON: %s", l.one,
				agentclient.Excerpt(err.Error()))
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
	return term.PrintList(w, format, list, raws, l.columns, func(r T) string { return term.OneLine(l.name(r)) })
}
