package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// NewAgent is `picket agent`: the registry of agents.
func NewAgent() *cobra.Command {
	return CommandGroup("agent", "List agents, drain them and remove them",
		newAgentList(), newAgentGet(), newAgentWatch(), newAgentDrain(), newAgentDeregister(), newAgentCommand(),
		settings.NeedsTrust(newAgentRegister()), newAgentBeat(), newAgentPolicy(),
		agentInbox.newTell(), agentInbox.newMessages())
}

// onAgent is a verb on one agent: it connects, completes the id and acts.
func onAgent(use, short string, act func(cmd *cobra.Command, s *Connection, id string) error) *cobra.Command {
	return onOne(use+" AGENT", short, (*Connection).agentID, agentIDs, act)
}

// agentTopic are the events of agents and their leases; load and signs of life are not events.
var agentTopic = topic{kinds: []string{"agent.", "task.", "lease.", "store."}, polled: true}

func newAgentList() *cobra.Command {
	c := &cobra.Command{
		Short:   "List agents (default: the active ones)",
		Example: "  picket agent list --role coder --min-available 1\n  picket agent list --status '*' --watch",
	}
	f := c.Flags()
	f.StringSlice("capability", nil, "only agents with any of these capabilities")
	f.StringSlice("status", nil,
		"only these statuses: active, unhealthy, draining, dead, deregistered, or '*' for all (default: active)")
	f.String("role", "", "only this role")
	f.Int("min-available", 0, "only agents that declare a maximum and are this far below it")
	f.Int("limit", 1000, "at most this many, 1 to 1000")
	f.String("cursor", "", "continue where a page of -o json ended (next_cursor)")
	term.Choices(c, "status", append(term.Texts(picket.AgentStatuses), "*")...)
	return listCommand(c, func(cmd *cobra.Command, s *Connection) error {
		wanted := agentQuery(cmd)
		wanted.Set("attached", "true") // discovery leaves the workers of `picket run` out
		return agentListing(cmd).show(s, agentTopic, querying(s.Agents.List, wanted))
	})
}

// agentQuery are the filters that were given, in the words of the registry.
func agentQuery(cmd *cobra.Command) url.Values {
	q := flagQuery(cmd, "capability=capabilities", "status", "min-available=min_available_capacity", "limit", "cursor")
	if role := cmd.Flags().Lookup("role"); role.Changed { // the server refuses an empty one
		q.Set("role_id", role.Value.String())
	}
	return q
}

func agentListing(cmd *cobra.Command) Listing[picket.AgentRow] {
	empty := "no agents are active; --status '*' shows the others"
	if cmd.Flags().Changed("status") || len(agentQuery(cmd)) > 0 {
		empty = "no such agents"
	}
	return Listing[picket.AgentRow]{
		Cmd:    cmd,
		Member: "agents",
		Empty:  empty,
		Name:   func(a picket.AgentRow) string { return a.AgentID },
		more:   moreAfter("next_cursor", "--cursor", ", or --limit 1000"),
		Columns: []term.Column[picket.AgentRow]{
			{Head: "AGENT", Cell: func(a picket.AgentRow) string { return a.AgentID }},
			{Head: "ROLE", Cell: func(a picket.AgentRow) string { return orDash(a.RoleID) }},
			{Head: "STATUS", Cell: func(a picket.AgentRow) string { return string(a.Status) }},
			{Head: "LOAD", Cell: func(a picket.AgentRow) string { return loadText(a.Capacity) }},
			{Head: "SEEN", Cell: func(a picket.AgentRow) string { return term.Ago(a.LastHeartbeatAt) }},
			{Head: "NAME", Cell: func(a picket.AgentRow) string { return orDash(a.Name) }, Wide: true},
			{
				Head: "CAPABILITIES",
				Cell: func(a picket.AgentRow) string { return orDash(strings.Join(a.Capabilities, ",")) },
			},
		},
	}
}

func orDash(text string) string { return cmp.Or(text, "-") }

// loadText is the load, and of how much where that is declared.
func loadText(c picket.Capacity) string {
	if c.MaxConcurrentTasks == nil {
		return strconv.Itoa(c.CurrentLoad)
	}
	return fmt.Sprintf("%d/%d", c.CurrentLoad, *c.MaxConcurrentTasks)
}

func newAgentGet() *cobra.Command {
	return watchFlag(term.FormatFlag(onAgent("get", "Show an agent's record, and what it holds",
		func(cmd *cobra.Command, s *Connection, id string) error {
			return showOne(cmd, s, agentTopic, id, s.Agents.Get,
				func(ctx context.Context, w io.Writer, a picket.Agent, raw jsontext.Value) error {
					return printAgent(ctx, cmd, s, w, a, raw, viewFull)
				})
		})))
}

// printAgent shows a record in the chosen format; done is what has been done to
// it, or whole.
func printAgent(ctx context.Context, cmd *cobra.Command, s *Connection, w io.Writer, a picket.Agent, raw jsontext.Value,
	done string) error {
	return printAnswer(cmd, w, raw, a.AgentID, func() error {
		switch done {
		case viewCreated:
			fmt.Fprintln(w, a.AgentID)
		case viewFull:
			held, _ := s.leasesOf(ctx, a.AgentID) // none for a key that may not see leases
			describeAgent(w, a, held)
		default:
			fmt.Fprintf(w, "%s %s\n", a.AgentID, term.Painter(w).State(string(a.Status)))
		}
		return nil
	})
}

// describeAgent shows a record as a person reads it; only what there is.
func describeAgent(w io.Writer, a picket.Agent, held []picket.LiveLease) {
	d := term.NewDescription(w)
	d.Add("agent", a.AgentID)
	d.Add("name", term.OneLine(a.Name))
	d.Add("role", a.RoleID)
	status := d.State(string(a.Status))
	if !a.DrainDeadlineAt.IsZero() && a.Status == picket.AgentDraining {
		status += ", until " + a.DrainDeadlineAt.String() + " at the latest"
	}
	d.Add("status", status)
	d.Add("load", loadText(a.Capacity))
	d.Add("capabilities", strings.Join(a.Capabilities, " "))
	d.Add("seen", term.Ago(a.LastHeartbeatAt)+" ago")
	d.Add("heartbeat", fmt.Sprintf("every %ds, unhealthy after %ds, dead after %ds", a.Heartbeat.IntervalSeconds,
		a.Heartbeat.UnhealthyAfterSeconds, a.Heartbeat.DeadAfterSeconds))
	if n := a.DrainTimeoutSeconds; n != nil {
		d.Add("drain", fmt.Sprintf("within %ds", *n))
	}
	d.Add("endpoint", term.OneLine(a.Endpoint))
	if text := string(a.Metadata); text != "{}" {
		d.Add("metadata", term.OneLine(text))
	}
	d.Add("registered", a.RegisteredAt.String())
	d.Add("version", fmt.Sprintf("%d of incarnation %d", a.Version, a.Incarnation))
	for i, l := range held {
		name := ""
		if i == 0 {
			name = "holds"
		}
		d.Row(name, fmt.Sprintf("%s, fence %d", l.TaskID, l.FencingToken))
	}
	d.Print()
}

// leasesOf are the leases of an agent; nil too where this key may not see them.
func (s *Connection) leasesOf(ctx context.Context, id string) (held []picket.LiveLease, err error) {
	page, err := s.Leases.Find(ctx, picket.LeaseQuery{AgentID: id})
	return page.Leases, err
}

// agentID completes what was typed to the id of one agent. Ids that clients
// chose can be anything, so the whole id stands above every beginning and end.
func (s *Connection) agentID(ctx context.Context, typed string) (string, error) {
	if len(typed) == len("agent_")+ulidLength && strings.HasPrefix(typed, "agent_") {
		return typed, nil
	}
	if err := picket.CheckName("agent", typed); err != nil {
		return "", picket.Refuse(exit.CodeUsage, "See: picket agent list --status '*'",
			"%s is not an id of an agent", term.ShellQuote(typed))
	}
	_, err := s.Agents.Get(ctx, typed)
	if err == nil || !errors.Is(err, picket.CodeNotFound) && !errors.Is(err, picket.CodeForbidden) {
		return typed, err
	}
	id, unmatched := resolveID(ctx, "agent", typed, s.agentCandidates)
	switch {
	case errors.Is(err, picket.CodeForbidden) && unmatched != nil:
		return "", err
	case errors.Is(unmatched, picket.CodeNotFound):
		var e *picket.Error
		errors.As(unmatched, &e)
		e.Remedy = "See: picket agent list --status '*'"
	}
	return id, unmatched
}
