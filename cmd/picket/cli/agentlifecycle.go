package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

func newAgentDrain() *cobra.Command {
	c := onAgent("drain", "Let an agent finish what it has, and give it nothing more", runAgentDrain)
	c.Long = "Let an agent finish what it has, and give it nothing more. The agent is deregistered when its last\n" +
		"lease has ended. When the timeout is over, leases that it still holds are taken from it, and the\n" +
		"agent is dead. The drain begins at once. To ask the agent to drain itself, with a reason, use picket\n" +
		"agent command AGENT drain.\n\n" +
		"With --wait, the command shows which leases the agent still holds, until the agent is gone. Ctrl-C\n" +
		"ends the wait, but not the drain. Exit codes with --wait: 0 if the agent was deregistered, 124 if it\n" +
		"still held leases at the timeout, 1 if it died before, 130 after Ctrl-C."
	c.Example = "  picket agent drain coder-1 --timeout 10m --wait"
	c.Flags().Duration("timeout", 0, "time that its tasks get to finish (default: as it registered, else 2m)")
	c.Flags().Lookup("timeout").DefValue = ""
	c.Flags().Bool("wait", false, "return when the agent is gone")
	return term.FormatFlag(c)
}

func runAgentDrain(cmd *cobra.Command, s *Connection, id string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	change := picket.AgentStatusChange{Status: picket.AgentDraining}
	if cmd.Flags().Changed("timeout") {
		n, err := SecondsOf(cmd, "timeout")
		if err != nil {
			return err
		}
		change.DrainTimeoutSeconds = &n
	}
	since := s.lastCursor(ctx)
	var raw jsontext.Value
	a, err := s.changeAgentStatus(ctx, cmd, id, change, &raw)
	if err != nil {
		return err
	}
	if wait, _ := cmd.Flags().GetBool("wait"); wait {
		return s.awaitDrained(ctx, cmd, a, since)
	}
	if err := printAgent(ctx, cmd, s, cmd.OutOrStdout(), a, raw, "drained"); err != nil {
		return err
	}
	until := fmt.Sprintf("until %s at the latest", a.DrainDeadlineAt)
	if held, err := s.leasesOf(ctx, id); err == nil {
		until += "; it holds " + Plural(len(held), "lease")
	}
	fmt.Fprintln(cmd.ErrOrStderr(), until)
	PrintNext(cmd, "picket agent watch "+id, "picket agent get "+id)
	return nil
}

// Plural is a number and a noun, in the plural unless the number is 1.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// changeAgentStatus changes an agent's status with the version of the record that it has just read.
// If the record has changed in between, or the answer is lost, it reads the record again and tries
// once more. A change that was already made is not repeated, and a later registration is left
// alone.
func (s *Connection) changeAgentStatus(ctx context.Context, cmd *cobra.Command, id string,
	change picket.AgentStatusChange,
	raw *jsontext.Value) (picket.Agent, error) {
	for wait, again := 100*time.Millisecond, true; ; wait *= 2 {
		a, err := s.Agents.Get(ctx, id)
		if err != nil {
			return a, err
		}
		change.Incarnation = cmp.Or(change.Incarnation, a.Incarnation)
		a, err = s.Agents.ChangeStatus(ctx, id, a.Version, change, client.WithBody(raw))
		switch {
		case errors.Is(err, picket.CodeVersion) && again:
			again = false
			fmt.Fprintf(cmd.ErrOrStderr(), "%s has changed meanwhile, trying again\n", id)
		case errors.Is(err, picket.ErrUnknown) && wait < time.Second:
			if Sleep(ctx, wait) != nil {
				return a, err
			}
		default:
			return a, err
		}
	}
}

// lastCursor is the cursor of the newest event; "" where this key may not know.
func (s *Connection) lastCursor(ctx context.Context) string {
	stats, err := s.Server.Stats(ctx)
	if err != nil {
		return ""
	}
	return strconv.FormatInt(stats.LastSeq, 10)
}

// awaitDrained looks at a draining agent until it is gone.
func (s *Connection) awaitDrained(ctx context.Context, cmd *cobra.Command, a picket.Agent, since string) error {
	talk := cmd.ErrOrStderr()
	fmt.Fprintf(talk, "%s drains, until %s at the latest\n", a.AgentID, a.DrainDeadlineAt)
	incarnation := a.Incarnation
	var raw jsontext.Value
	view := drainView{w: talk, live: term.IsTerminal(talk)}
	wait, away := 100*time.Millisecond, false
	for !a.Status.Gone() && a.Incarnation == incarnation {
		if leases, err := s.leasesOf(ctx, a.AgentID); err == nil {
			view.show(a, leases)
		}
		if Sleep(ctx, wait) != nil {
			view.clear()
			fmt.Fprintf(talk, "the drain of %s continues, until %s at the latest\n", a.AgentID, a.DrainDeadlineAt)
			PrintNext(cmd, "picket agent drain "+a.AgentID+" --wait", "picket agent get "+a.AgentID)
			return exit.Status(exit.Interrupted)
		}
		wait = min(wait*3/2, view.longestWait())
		now, err := s.Agents.Get(ctx, a.AgentID, client.WithBody(&raw))
		if err == nil {
			a = now
		} else if !errors.Is(err, picket.ErrUnknown) && ctx.Err() == nil {
			return err
		}
		if err != nil && !away {
			view.clear()
			fmt.Fprintln(talk, "the server does not answer; going on when it does")
		}
		away = err != nil
	}
	view.clear()
	reason := s.lastStatusReason(ctx, a.AgentID, since, incarnation)
	if a.Incarnation != incarnation {
		fmt.Fprintf(talk, "%s has registered again since\n", a.AgentID)
	} else if err := printAgent(ctx, cmd, s, cmd.OutOrStdout(), a, raw, "drained"); err != nil {
		return err
	}
	switch {
	case reason == picket.ReasonDrainTimeout:
		fmt.Fprintln(talk, "its time was over: what it still held was taken from it and is queued again")
		return exit.Status(exit.Timeout)
	case reason == picket.ReasonHeartbeatTimeout, reason == "" && a.Status == picket.AgentDead:
		fmt.Fprintln(talk, "it has sent no heartbeat any more: its leases were ended, and their tasks are queued again")
		return exit.Status(exit.Error)
	}
	return nil
}

// lastStatusReason is why an incarnation of an agent changed its status last, of the
// events after a cursor; "" where this key may not know.
func (s *Connection) lastStatusReason(ctx context.Context, id, since string,
	incarnation int64) (last picket.LifecycleReason) {
	after, err := strconv.ParseInt(since, 10, 64)
	if err != nil {
		return ""
	}
	page, _ := s.Events.List(ctx,
		picket.EventQuery{Types: []string{picket.EventAgentLifecycle}, Agent: id, After: after, Limit: 1000})
	for _, e := range page.Events {
		var data struct {
			Incarnation int64 `json:"incarnation"`
		}
		if json.Unmarshal(e.Data, &data) == nil && data.Incarnation == incarnation {
			last = picket.LifecycleReason(e.Reason)
		}
	}
	return last
}

func newAgentDeregister() *cobra.Command {
	c := onAgent("deregister", "Remove an agent from the registry at once; its leases end",
		func(cmd *cobra.Command, s *Connection, id string) error {
			held, _ := s.leasesOf(cmd.Context(), id) // none for a key that may not see leases
			var raw jsontext.Value
			a, err := s.changeAgentStatus(cmd.Context(), cmd, id,
				picket.AgentStatusChange{Status: picket.AgentDeregistered},
				&raw)
			if err != nil {
				return err
			}
			if err := printAgent(cmd.Context(), cmd, s, cmd.OutOrStdout(), a, raw, "deregistered"); err != nil {
				return err
			}
			if len(held) > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "it held %s; the tasks are queued again\n", Plural(len(held), "lease"))
			}
			PrintNext(cmd, "picket agent get "+id, "picket agent list")
			return nil
		})
	c.Aliases = []string{"rm", "delete"}
	return term.FormatFlag(c)
}

var commandNames = []string{picket.CommandDrain, picket.CommandStopTask, picket.CommandPing}

func newAgentCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "command AGENT drain|stop_task|ping",
		Short:   "Send an agent a command, with the answer to its next heartbeat",
		Example: "  picket agent command coder-1 drain --reason maintenance --drain-timeout 10m\n  picket agent command coder-1 stop_task --task TASK",
		Args:    CheckArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: func(cmd *cobra.Command, given []string,
			typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(given) == 1 {
				return commandNames, cobra.ShellCompDirectiveNoFileComp
			}
			return completeFirstID(agentIDs)(cmd, given, typed)
		},
		RunE: runAgentCommand,
	}
	f := c.Flags()
	f.String("task", "", "for stop_task: the task to stop")
	f.String("reason", "", "why, for the agent and the log")
	f.Duration("drain-timeout", 0, "for drain: time that its tasks get to finish (default: as it registered, else 2m)")
	f.Lookup("drain-timeout").DefValue = ""
	_ = c.RegisterFlagCompletionFunc("task", completeFirstID(taskIDs))
	return term.FormatFlag(c)
}

func runAgentCommand(cmd *cobra.Command, given []string) error {
	ctx, f := cmd.Context(), cmd.Flags()
	order := picket.AgentCommand{Command: given[1]}
	if f.Changed("drain-timeout") {
		n, err := SecondsOf(cmd, "drain-timeout")
		if err != nil {
			return err
		}
		order.DrainTimeoutSeconds = &n
	}
	order.Reason, _ = f.GetString("reason")
	order.TaskID, _ = f.GetString("task")
	if order.Command == picket.CommandStopTask && order.TaskID == "" {
		return picket.Refuse(exit.CodeUsage, "Name it with --task TASK; see: picket lease list",
			"stop_task needs to know which task")
	}
	if err := order.Check(); err != nil {
		return err
	}
	s, err := Connect(cmd)
	if err != nil {
		return err
	}
	id, err := s.agentID(ctx, given[0])
	if err != nil {
		return err
	}
	if order.TaskID != "" {
		if order.TaskID, err = s.taskID(ctx, order.TaskID); err != nil {
			return err
		}
	}
	var raw jsontext.Value
	accepted, err := s.Agents.Command(ctx, id, order, client.WithBody(&raw))
	if err != nil {
		return err
	}
	return printAnswer(cmd, cmd.OutOrStdout(), raw, "", func() error {
		fmt.Fprintln(cmd.OutOrStdout(), accepted.CommandID)
		PrintNext(cmd, "picket agent watch "+id)
		return nil
	})
}

// What an adapter does on its own can be done by hand: for scripts that are
// agents of their own.

func newAgentRegister() *cobra.Command {
	c := &cobra.Command{
		Use:   "register [AGENT]",
		Short: "Register an agent by hand, for scripts; adapters register automatically",
		Args:  CheckArgs(cobra.MaximumNArgs(1)),
		Long: "Register an agent by hand. It must then send heartbeats with picket agent beat. Without AGENT\n" +
			"the server makes an id. If the id is dead or deregistered, the key that registered it can\n" +
			"register it again.",
		Example:           `  picket agent register night-batch --role batch --max 2 --metadata '{"version":"1.2.0"}'`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              runAgentRegister,
	}
	f := c.Flags()
	f.String("role", "", "its role, which is its pool")
	f.StringSlice("capability", nil, "a capability it has")
	f.Int("max", 0, "how many tasks it works on at once (default: not declared)")
	f.Lookup("max").DefValue = ""
	f.String("endpoint", "", "a URL to show; it is never called")
	f.String("metadata", "", "a JSON object to show; @file and - (stdin) are read")
	HealthFlags(c)
	AsFlag(c)
	return term.FormatFlag(c)
}

func runAgentRegister(cmd *cobra.Command, given []string) error {
	reg, err := registrationOf(cmd)
	if err != nil {
		return err
	}
	if len(given) > 0 {
		reg.AgentID = given[0]
	}
	checked := reg
	if err := checked.Normalize(); err != nil {
		return err
	}
	s, err := Connect(cmd)
	if err != nil {
		return err
	}
	var raw jsontext.Value
	a, err := s.Agents.Register(cmd.Context(), reg, client.WithBody(&raw))
	if err != nil {
		return err
	}
	if err := printAgent(cmd.Context(), cmd, s, cmd.OutOrStdout(), a, raw, viewCreated); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(),
		"%s is active, incarnation %d; without a heartbeat it is unhealthy after %ds and dead after %ds\n",
		a.AgentID, a.Incarnation, a.Heartbeat.UnhealthyAfterSeconds, a.Heartbeat.DeadAfterSeconds)
	PrintNext(cmd, "picket agent beat "+a.AgentID, "picket agent deregister "+a.AgentID)
	return nil
}

// registrationOf reads the flags, and the entry of --as behind them.
func registrationOf(cmd *cobra.Command) (reg picket.Registration, err error) {
	cfg, err := settings.LoadSettings(cmd)
	if err != nil {
		return reg, err
	}
	if _, _, err := ApplyAgentEntry(cmd, cfg); err != nil {
		return reg, err
	}
	f := cmd.Flags()
	reg.RoleID, _ = f.GetString("role")
	reg.Name, _ = f.GetString("name")
	reg.Capabilities, _ = f.GetStringSlice("capability")
	reg.Endpoint, _ = f.GetString("endpoint")
	if n, _ := f.GetInt("max"); n != 0 || f.Changed("max") {
		reg.Capacity = &picket.DeclaredCapacity{MaxConcurrentTasks: &n}
	}
	if reg.Heartbeat, err = ThresholdsOf(cmd); err != nil {
		return reg, err
	}
	drain, err := SecondsOf(cmd, "drain-timeout")
	if err != nil {
		return reg, err
	}
	reg.DrainTimeoutSeconds = &drain
	if text, _ := f.GetString("metadata"); text != "" {
		reg.Metadata, err = jsonArgument(cmd, "--metadata", text)
	}
	return reg, err
}

func newAgentBeat() *cobra.Command {
	c := onAgent("beat", "Send one heartbeat by hand, for scripts; prints the commands that wait for it",
		runAgentBeat)
	c.Example = "  picket agent beat night-batch --load 2 --task TASK --handled COMMAND"
	f := c.Flags()
	f.Int("load", 0, "number of tasks in progress (default: as before)")
	f.Lookup("load").DefValue = ""
	f.StringSlice("task", nil, "a task in progress")
	f.Bool("draining", false, "say that the agent takes no more work")
	f.StringSlice("handled", nil, "the id of a command that was carried out")
	f.Int64("incarnation", 0, "refuse when a later registration has taken the id")
	f.Lookup("incarnation").DefValue = ""
	return term.FormatFlag(c)
}

func runAgentBeat(cmd *cobra.Command, s *Connection, id string) error {
	f := cmd.Flags()
	hb := picket.Heartbeat{Status: picket.AgentActive, ClientTimestamp: picket.InstantOf(time.Now())}
	if draining, _ := f.GetBool("draining"); draining {
		hb.Status = picket.AgentDraining
	}
	if n, _ := f.GetInt("load"); f.Changed("load") {
		hb.CurrentLoad = &n
	}
	hb.TasksInProgress, _ = f.GetStringSlice("task")
	hb.HandledCommands, _ = f.GetStringSlice("handled")
	hb.Incarnation, _ = f.GetInt64("incarnation")
	if err := hb.Check(); err != nil {
		return err
	}
	var raw jsontext.Value
	answer, err := s.Agents.Heartbeat(cmd.Context(), id, hb, client.WithBody(&raw))
	var refusal *picket.Error
	if errors.Is(err, picket.CodeAgentGone) && errors.As(err, &refusal) {
		refusal.Remedy = "Stop all work first, its leases have ended; then: picket agent register " + id
	}
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	return printAnswer(cmd, w, raw, id, func() error {
		fmt.Fprintf(w, "%s %s\n", id, term.Painter(w).State(string(answer.AgentStatus)))
		var rows [][]string
		for _, c := range answer.PendingCommands {
			rows = append(rows, []string{c.Command, c.CommandID, orDash(c.TaskID), term.OneLine(c.Reason)})
		}
		term.PrintRows(w, rows)
		return nil
	})
}
