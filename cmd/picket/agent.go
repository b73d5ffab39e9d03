package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

func newAgent() *cobra.Command {
	return commandGroup("agent", "See who works, drain workers and take them out",
		newAgentList(), newAgentGet(), newAgentWatch(), newAgentDrain(), newAgentDeregister(), newAgentCommand(),
		settings.NeedsTrust(newAgentRegister()), newAgentBeat())
}

// onAgent is a verb on one agent: it connects, completes the id and acts.
func onAgent(use, short string, act func(cmd *cobra.Command, s *connection, id string) error) *cobra.Command {
	return &cobra.Command{
		Use:               use + " AGENT",
		Short:             short,
		Args:              checkArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: completeFirstID(agentIDs),
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := connect(cmd)
			if err != nil {
				return err
			}
			id, err := s.agentID(cmd.Context(), given[0])
			if err != nil {
				return err
			}
			return act(cmd, s, id)
		},
	}
}

// agentTopic is what becomes of agents and what they hold; load and signs of life
// are no events.
var agentTopic = topic{kinds: []string{"agent.", "task.", "lease.", "store."}, polled: true}

func agentPath(id string) string { return "/api/v1/agents/" + pathSegment(id) }

func newAgentList() *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List agents, those that are active unless told otherwise",
		Args:    checkArgs(cobra.NoArgs),
		Example: "  picket agent list --role coder --min-available 1\n  picket agent list --status '*' --watch",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := connect(cmd)
			if err != nil {
				return err
			}
			q := agentQuery(cmd)
			return agentListing(cmd).show(s, agentTopic, func(ctx context.Context, raw *jsontext.Value) error {
				return s.get(ctx, "/api/v1/agents?"+q.Encode(), nil, raw)
			})
		},
	}
	f := c.Flags()
	f.StringSlice("capability", nil, "only agents with any of these capabilities")
	f.StringSlice("status", nil,
		"only these statuses: active, unhealthy, draining, dead, deregistered, or '*' for all (default: active)")
	f.String("role", "", "only this role")
	f.Int("min-available", 0, "only agents that declare a maximum and are this far below it")
	f.Int("limit", 1000, "at most this many, 1 to 1000")
	f.String("cursor", "", "go on where a page of -o json ended (next_cursor)")
	term.Choices(c, "status", append(statusNames(), "*")...)
	return watchFlag(term.FormatFlag(c))
}

func statusNames() []string {
	var names []string
	for _, s := range picket.AgentStatuses {
		names = append(names, string(s))
	}
	return names
}

// agentQuery are the filters that were given, in the words of the registry.
func agentQuery(cmd *cobra.Command) url.Values {
	f, q := cmd.Flags(), url.Values{}
	for flag, name := range map[string]string{"capability": "capabilities", "status": "status"} {
		if list, _ := f.GetStringSlice(flag); f.Changed(flag) {
			q.Set(name, strings.Join(list, ","))
		}
	}
	for flag, name := range map[string]string{"role": "role_id", "cursor": "cursor"} {
		if text, _ := f.GetString(flag); f.Changed(flag) {
			q.Set(name, text)
		}
	}
	for flag, name := range map[string]string{"min-available": "min_available_capacity", "limit": "limit"} {
		if n, _ := f.GetInt(flag); f.Changed(flag) {
			q.Set(name, strconv.Itoa(n))
		}
	}
	return q
}

func agentListing(cmd *cobra.Command) listing[picket.AgentRow] {
	empty := "no agents are active; --status '*' shows the others"
	if cmd.Flags().Changed("status") || len(agentQuery(cmd)) > 0 {
		empty = "no such agents"
	}
	return listing[picket.AgentRow]{
		cmd:    cmd,
		member: "agents",
		empty:  empty,
		name:   func(a picket.AgentRow) string { return a.AgentID },
		more: func(members map[string]jsontext.Value, _ int) string {
			if cursor := outputText(picket.RawJSON(members["next_cursor"])); cursor != "" {
				return "--cursor " + term.ShellQuote(cursor) + " for the next page, or --limit 1000"
			}
			return ""
		},
		columns: []term.Column[picket.AgentRow]{
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
		func(cmd *cobra.Command, s *connection, id string) error {
			return showOrWatch(cmd, s, agentTopic, func(ctx context.Context, w io.Writer) error {
				var raw jsontext.Value
				var a picket.Agent
				if err := s.get(ctx, agentPath(id), &a, &raw); err != nil {
					return err
				}
				term.NoteAnswer(w, raw)
				return printAgent(ctx, cmd, s, w, a, raw, viewFull)
			})
		})))
}

// printAgent shows a record in the chosen format; done is what has been done to
// it, or whole.
func printAgent(ctx context.Context, cmd *cobra.Command, s *connection, w io.Writer, a picket.Agent, raw jsontext.Value,
	done string) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	switch {
	case format == "name":
		fmt.Fprintln(w, a.AgentID)
	case format == "json" || format == "jsonl" || format == "yaml":
		return term.PrintValue(w, format, raw)
	case done == viewCreated:
		fmt.Fprintln(w, a.AgentID)
	case done == viewFull:
		describeAgent(w, a, s.leasesOf(ctx, a.AgentID))
	default:
		fmt.Fprintf(w, "%s %s\n", a.AgentID, term.Painter(w).State(string(a.Status)))
	}
	return nil
}

// describeAgent shows a record as a person reads it; only what there is.
func describeAgent(w io.Writer, a picket.Agent, held []picket.LiveLease) {
	p := term.Painter(w)
	var rows [][]string
	row := func(name, text string) {
		if text != "" && text != "-" {
			rows = append(rows, []string{p.Dim(name), text})
		}
	}
	row("agent", a.AgentID)
	row("name", term.OneLine(a.Name))
	row("role", a.RoleID)
	status := p.State(string(a.Status))
	if !a.DrainDeadlineAt.IsZero() && a.Status == picket.AgentDraining {
		status += ", until " + a.DrainDeadlineAt.String() + " at the latest"
	}
	row("status", status)
	row("load", loadText(a.Capacity))
	row("capabilities", strings.Join(a.Capabilities, " "))
	row("seen", term.Ago(a.LastHeartbeatAt)+" ago")
	row("heartbeat", fmt.Sprintf("every %ds, unhealthy after %ds, dead after %ds", a.Heartbeat.IntervalSeconds,
		a.Heartbeat.UnhealthyAfterSeconds, a.Heartbeat.DeadAfterSeconds))
	if n := a.DrainTimeoutSeconds; n != nil {
		row("drain", fmt.Sprintf("within %ds", *n))
	}
	row("endpoint", term.OneLine(a.Endpoint))
	if text := string(a.Metadata); text != "{}" {
		row("metadata", term.OneLine(text))
	}
	row("registered", a.RegisteredAt.String())
	row("version", fmt.Sprintf("%d of incarnation %d", a.Version, a.Incarnation))
	for i, l := range held {
		name := ""
		if i == 0 {
			name = "holds"
		}
		rows = append(rows, []string{p.Dim(name), fmt.Sprintf("%s, fence %d", l.TaskID, l.FencingToken)})
	}
	term.PrintRows(w, rows)
}

// leasesOf are the leases of an agent; nil too where this key may not see them.
func (s *connection) leasesOf(ctx context.Context, id string) []picket.LiveLease {
	var list struct {
		Leases []picket.LiveLease `json:"leases"`
	}
	_ = s.get(ctx, "/api/v1/leases", &list, nil)
	var held []picket.LiveLease
	for _, l := range list.Leases {
		if l.AgentID == id {
			held = append(held, l)
		}
	}
	return held
}
