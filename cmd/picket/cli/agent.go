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
	return CommandGroup("agent", "See who works, drain workers and take them out",
		newAgentList(), newAgentGet(), newAgentWatch(), newAgentDrain(), newAgentDeregister(), newAgentCommand(),
		settings.NeedsTrust(newAgentRegister()), newAgentBeat())
}

// onAgent is a verb on one agent: it connects, completes the id and acts.
func onAgent(use, short string, act func(cmd *cobra.Command, s *Connection, id string) error) *cobra.Command {
	return &cobra.Command{
		Use:               use + " AGENT",
		Short:             short,
		Args:              CheckArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: completeFirstID(agentIDs),
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := Connect(cmd)
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
// are not events.
var agentTopic = topic{kinds: []string{"agent.", "task.", "lease.", "store."}, polled: true}

func agentPath(id string) string { return "/api/v1/agents/" + PathSegment(id) }

func newAgentList() *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List agents, those that are active unless told otherwise",
		Args:    CheckArgs(cobra.NoArgs),
		Example: "  picket agent list --role coder --min-available 1\n  picket agent list --status '*' --watch",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := Connect(cmd)
			if err != nil {
				return err
			}
			q := agentQuery(cmd)
			return agentListing(cmd).show(s, agentTopic, func(ctx context.Context, raw *jsontext.Value) error {
				return s.Get(ctx, "/api/v1/agents?"+q.Encode(), nil, raw)
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
		more: func(members map[string]jsontext.Value, _ int) string {
			if cursor := OutputText(picket.RawJSON(members["next_cursor"])); cursor != "" {
				return "--cursor " + term.ShellQuote(cursor) + " for the next page, or --limit 1000"
			}
			return ""
		},
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
			return showOrWatch(cmd, s, agentTopic, func(ctx context.Context, w io.Writer) error {
				var raw jsontext.Value
				var a picket.Agent
				if err := s.Get(ctx, agentPath(id), &a, &raw); err != nil {
					return err
				}
				term.NoteAnswer(w, raw)
				return printAgent(ctx, cmd, s, w, a, raw, viewFull)
			})
		})))
}

// printAgent shows a record in the chosen format; done is what has been done to
// it, or whole.
func printAgent(ctx context.Context, cmd *cobra.Command, s *Connection, w io.Writer, a picket.Agent, raw jsontext.Value,
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
func (s *Connection) leasesOf(ctx context.Context, id string) []picket.LiveLease {
	var list struct {
		Leases []picket.LiveLease `json:"leases"`
	}
	_ = s.Get(ctx, "/api/v1/leases", &list, nil)
	var held []picket.LiveLease
	for _, l := range list.Leases {
		if l.AgentID == id {
			held = append(held, l)
		}
	}
	return held
}

// agentID completes what was typed to the id of one agent. Ids that clients
// chose can be anything, so the whole id stands above every beginning and end.
func (s *Connection) agentID(ctx context.Context, typed string) (string, error) {
	if len(typed) == len("agent_")+ulidLength && strings.HasPrefix(typed, "agent_") {
		return typed, nil
	}
	if err := picket.CheckName("agent", typed); err != nil {
		e := exit.Usagef("%s is not an id of an agent", term.ShellQuote(typed))
		e.Remedy = "See: picket agent list --status '*'"
		return "", e
	}
	err := s.Get(ctx, agentPath(typed), nil, nil)
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

// agentCandidates are the agents of every status, 10,000 at most.
func (s *Connection) agentCandidates(ctx context.Context) ([]candidate, error) {
	var all []candidate
	q := url.Values{"status": {"*"}, "limit": {"1000"}}
	for range maxPages {
		var page picket.AgentPage
		if err := s.Get(ctx, "/api/v1/agents?"+q.Encode(), &page, nil); err != nil {
			return nil, err
		}
		for _, a := range page.Agents {
			all = append(all, candidate{a.AgentID, strings.TrimSpace(string(a.Status) + " " + a.RoleID + " " + a.Name)})
		}
		if page.NextCursor == "" {
			break
		}
		q.Set("cursor", page.NextCursor)
	}
	return all, nil
}

func agentIDs(s *Connection) candidateLister { return s.agentCandidates }
