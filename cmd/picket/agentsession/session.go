package agentsession

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// New is `picket session`.
func New() *cobra.Command {
	c := cli.CommandGroup("session", "Prompt the coding agents that adapters keep ready, and look after them",
		newList(), newInspect(), newHealth(), newStatus(), newPrompt(), newAttach(), newLogs(), newStop())
	c.Long = "A session is a conversation of a coding agent that an adapter keeps, and that can be prompted. It is not\n" +
		"a lease, and gives no right to any task. SESSION is the id of a session, or at least the last 4 characters\n" +
		"of the id of one that has not ended. If an agent has exactly one session, SESSION may be the name or the\n" +
		"id of the agent."
	return c
}

// onSession is a command about one session.
func onSession(verb, short string, act func(cmd *cobra.Command, s *cli.Connection, id string) error) *cobra.Command {
	return &cobra.Command{
		Use: verb + " SESSION", Short: short, Args: cli.CheckArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error {
			s, id, err := find(cmd, given[0])
			if err != nil {
				return err
			}
			return act(cmd, s, id)
		},
	}
}

// find connects to the server and finds the session that a person means.
func find(cmd *cobra.Command, given string) (*cli.Connection, string, error) {
	s, err := cli.Connect(cmd)
	if err != nil {
		return nil, "", err
	}
	if picket.CheckID("SESSION", "asession", given) == nil {
		return s, given, nil
	}
	var all []picket.AgentSession
	err = eachSession(cmd.Context(), s, picket.AgentSessionQuery{}, func(a picket.AgentSession) {
		all = append(all, a)
	})
	fit := meant(given, all)
	switch {
	case err != nil:
		return nil, "", err
	case len(fit) == 0:
		return nil, "", picket.Refuse(exit.CodeUsage, "List the sessions: picket session list",
			"there is no session %.80q", given)
	case len(fit) > 1:
		return nil, "", picket.Refuse(exit.CodeUsage, "Give the id of one: "+strings.Join(fit[:min(len(fit), 5)], ", "),
			"%.80q means %d sessions", given, len(fit))
	}
	return s, fit[0], nil
}

// meant lists the ids of the sessions that a person can mean by the end of an id, or by the id or the name of an agent.
// Of an agent those that are dead count only if none lives.
func meant(given string, all []picket.AgentSession) []string {
	var fit, dead []string
	for _, a := range all {
		byID := len(given) >= 4 && strings.HasSuffix(a.SessionID, strings.ToUpper(given))
		switch {
		case !byID && a.AgentID != given && a.AgentName != given:
		case !byID && a.Health.Health == picket.HealthDead:
			dead = append(dead, a.SessionID)
		default:
			fit = append(fit, a.SessionID)
		}
	}
	if len(fit) == 0 {
		return dead
	}
	return fit
}

// eachSession reads the sessions of all pages.
func eachSession(ctx context.Context, s *cli.Connection, q picket.AgentSessionQuery,
	use func(picket.AgentSession)) error {
	q.Limit = 100
	for {
		page, err := s.Sessions.List(ctx, q)
		if err != nil {
			return err
		}
		for _, a := range page.Sessions {
			use(a)
		}
		if q.Cursor = page.Cursor; q.Cursor == 0 {
			return nil
		}
	}
}

func newList() *cobra.Command {
	c := cli.WatchedList(&cobra.Command{Short: "List the sessions that have not ended, newest first"},
		[]string{"agent_session.", "agent."}, list)
	c.Flags().String("agent", "", "only the sessions of this agent (id or name)")
	return c
}

func list(ctx context.Context, cmd *cobra.Command, s *cli.Connection, w io.Writer) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	agent, _ := cmd.Flags().GetString("agent")
	var all []picket.AgentSession
	err = eachSession(ctx, s, picket.AgentSessionQuery{}, func(a picket.AgentSession) {
		if agent == "" || a.AgentID == agent || a.AgentName == agent {
			all = append(all, a)
		}
	})
	notes := term.NotesWriter(cmd, w)
	switch {
	case err != nil:
		return err
	case len(all) > 0 || !isTable(format):
		return term.PrintItemsTo(w, format, all, columns, func(a picket.AgentSession) string { return a.SessionID })
	case agent != "":
		fmt.Fprintf(notes, "no session of an agent %q is listed\n", agent)
	default:
		fmt.Fprintln(notes, "no adapter keeps a session")
	}
	return nil
}

var columns = []term.Column[picket.AgentSession]{
	{Head: "ID", Cell: func(a picket.AgentSession) string { return a.SessionID }},
	{Head: "AGENT", Cell: func(a picket.AgentSession) string { return cmp.Or(a.AgentName, a.AgentID) }},
	{Head: "PRESET", Cell: func(a picket.AgentSession) string { return a.Preset }},
	{Head: "KIND", Cell: func(a picket.AgentSession) string { return string(a.Kind) }, DropOrder: 3},
	{Head: "STATE", Cell: func(a picket.AgentSession) string { return string(a.Health.State) }},
	{Head: "HEALTH", Cell: func(a picket.AgentSession) string { return healthText(a.Health) }},
	{Head: "PROMPTS", Cell: func(a picket.AgentSession) string { return fmt.Sprint(a.OpenPrompts) }, DropOrder: 2},
	{Head: "ACTIVE", Cell: func(a picket.AgentSession) string { return ago(a.Health.LastActivityAt) }, DropOrder: 1},
	{Head: "WORKS ON", Cell: func(a picket.AgentSession) string { return cmp.Or(a.TaskID, "-") }},
}

// healthText is the health of a session with the reason for which it cannot be woken.
func healthText(h picket.SessionHealth) string {
	switch {
	case h.DetailCode != nil:
		return string(h.Health) + " (" + string(*h.DetailCode) + ")"
	case h.IneligibilityReason != nil:
		return string(h.Health) + " (" + string(*h.IneligibilityReason) + ")"
	}
	return string(h.Health)
}

func ago(i picket.Instant) string {
	if i.IsZero() {
		return "never"
	}
	return term.Ago(i) + " ago"
}

func newInspect() *cobra.Command {
	c := onSession("inspect", "Show a session: its agent, its health and its last prompts",
		func(cmd *cobra.Command, s *cli.Connection, id string) error {
			return show(cmd, s, id, func(a picket.AgentSession) error {
				printSession(cmd, a)
				page, err := s.Sessions.Prompts(cmd.Context(), id, 0, 5)
				if err != nil {
					return err
				}
				for i := len(page.Prompts) - 1; i >= 0; i-- {
					fmt.Fprintln(cmd.OutOrStdout())
					printPrompt(cmd, page.Prompts[i])
				}
				if a.Health.State != picket.SessionStopped {
					cli.PrintNext(cmd, "picket session prompt "+id+` "…"`)
				}
				return nil
			})
		})
	return term.FormatFlag(c)
}

// show reads a session and prints it as the flags ask for.
func show(cmd *cobra.Command, s *cli.Connection, id string, table func(picket.AgentSession) error) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	var raw jsontext.Value
	a, err := s.Sessions.Get(cmd.Context(), id, client.WithBody(&raw))
	switch {
	case err != nil:
		return err
	case format == "name":
		fmt.Fprintln(cmd.OutOrStdout(), a.SessionID)
		return nil
	case !isTable(format):
		return term.PrintValue(cmd.OutOrStdout(), format, raw)
	}
	return table(a)
}

func printSession(cmd *cobra.Command, a picket.AgentSession) {
	rows := [][]string{
		{"session", a.SessionID}, {"agent", a.AgentID}, {"agent name", cmp.Or(a.AgentName, "-")},
		{"coding agent", a.Preset + ", " + string(a.Kind)}, {"started", ago(a.StartedAt)},
		{"prompt", cmp.Or(a.PromptID, "-")}, {"open prompts", fmt.Sprint(a.OpenPrompts)},
		{"works on", cmp.Or(a.TaskID, "-")}, {"calls are metered", yesNo(a.Metered)},
	}
	if a.WakePlan != nil {
		rows = append(rows, []string{"next wake", wakeText(*a.WakePlan)})
	}
	term.PrintRows(cmd.OutOrStdout(), append(rows, healthRows(a.Health)...))
}

// wakeText says when the scheduler wakes a session next, or why it does not.
func wakeText(p picket.WakePlan) string {
	text := "none"
	switch {
	case p.NextAt != nil && p.OnlyIfChanged:
		text = p.NextAt.String() + " at the earliest, if something has changed by then"
	case p.NextAt != nil:
		text = p.NextAt.String() + " at the earliest"
	case p.Reason != nil:
		text = "none (" + string(*p.Reason) + ")"
	}
	if p.BackingOff {
		text += "; backing off"
	}
	return text
}

func healthRows(h picket.SessionHealth) [][]string {
	reason := "-"
	if h.IneligibilityReason != nil {
		reason = string(*h.IneligibilityReason)
	}
	return [][]string{
		{"state", string(h.State)}, {"health", healthText(h)}, {"can be woken", yesNo(h.EligibleForWake)},
		{"if not, why", reason}, {"can be prompted", yesNo(h.Attachable)}, {"last activity", ago(h.LastActivityAt)},
		{"last presence", ago(h.LastPresenceAt)}, {"last report", ago(h.UpdatedAt)},
	}
}

// isTable reports whether people read the output.
func isTable(format string) bool { return format == "table" || format == "wide" }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func newHealth() *cobra.Command {
	c := onSession("health", "Show the health of a session, and whether it can be woken",
		func(cmd *cobra.Command, s *cli.Connection, id string) error {
			format, err := term.FormatOf(cmd)
			if err != nil {
				return err
			}
			a, err := s.Sessions.Get(cmd.Context(), id)
			if err != nil {
				return err
			}
			if isTable(format) {
				term.PrintRows(cmd.OutOrStdout(), healthRows(a.Health))
				return nil
			}
			return printJSON(cmd, format, a.Health)
		})
	return term.FormatFlag(c)
}

func newStatus() *cobra.Command {
	c := onSession("status", "Show the state of a session in one line",
		func(cmd *cobra.Command, s *cli.Connection, id string) error {
			return show(cmd, s, id, func(a picket.AgentSession) error {
				line := fmt.Sprintf("%s is %s, %s; %s open; last activity %s", a.SessionID, a.Health.State,
					healthText(a.Health), cli.Plural(a.OpenPrompts, "prompt"), ago(a.Health.LastActivityAt))
				if a.WakePlan != nil {
					line += "; next wake " + wakeText(*a.WakePlan)
				}
				fmt.Fprintln(cmd.OutOrStdout(), line)
				return nil
			})
		})
	return term.FormatFlag(c)
}

func newStop() *cobra.Command {
	return onSession("stop", "Stop a session: its adapter ends the process and deletes the conversation",
		func(cmd *cobra.Command, s *cli.Connection, id string) error {
			if _, err := s.Sessions.Stop(cmd.Context(), id); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), id, "is being stopped")
			cli.PrintNext(cmd, "picket session list")
			return nil
		})
}
