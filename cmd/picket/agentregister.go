package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// What an adapter does by itself can be done by hand: for scripts that are
// agents of their own.

func newAgentRegister() *cobra.Command {
	c := &cobra.Command{
		Use:   "register [AGENT]",
		Short: "Register an agent by hand, for scripts; adapters do it themselves",
		Args:  checkArgs(cobra.MaximumNArgs(1)),
		Long: "Register an agent by hand. It must then send heartbeats: picket agent beat. Without AGENT the server makes an\n" +
			"id. The id of a dead or deregistered agent can be registered again with the key that did it before.",
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
	healthFlags(c)
	asFlag(c)
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
	s, err := connect(cmd)
	if err != nil {
		return err
	}
	var raw jsontext.Value
	var a picket.Agent
	if err := s.post(cmd.Context(), "/api/v1/agents", reg, &a, &raw); err != nil {
		return err
	}
	if err := printAgent(cmd.Context(), cmd, s, cmd.OutOrStdout(), a, raw, viewCreated); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(),
		"%s is active, incarnation %d; without a heartbeat it is unhealthy after %ds and dead after %ds\n",
		a.AgentID, a.Incarnation, a.Heartbeat.UnhealthyAfterSeconds, a.Heartbeat.DeadAfterSeconds)
	printNext(cmd, "picket agent beat "+a.AgentID, "picket agent deregister "+a.AgentID)
	return nil
}

// registrationOf reads the flags, and the entry of --as behind them.
func registrationOf(cmd *cobra.Command) (reg picket.Registration, err error) {
	cfg, err := settings.LoadSettings(cmd)
	if err != nil {
		return reg, err
	}
	if _, _, err := applyAgentEntry(cmd, cfg); err != nil {
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
	if reg.Heartbeat, err = thresholdsOf(cmd); err != nil {
		return reg, err
	}
	drain, err := secondsOf(cmd, "drain-timeout")
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
	c := onAgent("beat", "Send one heartbeat by hand, for scripts; prints what the server wants of the agent",
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

func runAgentBeat(cmd *cobra.Command, s *connection, id string) error {
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
	var answer picket.HeartbeatAnswer
	err := s.post(cmd.Context(), agentPath(id)+"/heartbeat", hb, &answer, &raw)
	var refusal *picket.Error
	if errors.Is(err, picket.CodeAgentGone) && errors.As(err, &refusal) {
		refusal.Remedy = "Stop all work first, its leases have ended; then: picket agent register " + id
	}
	if err != nil {
		return err
	}
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if format == "json" || format == "jsonl" || format == "yaml" {
		return term.PrintValue(w, format, raw)
	}
	if format == "name" {
		fmt.Fprintln(w, id)
		return nil
	}
	fmt.Fprintf(w, "%s %s\n", id, term.Painter(w).State(string(answer.AgentStatus)))
	var rows [][]string
	for _, c := range answer.PendingCommands {
		rows = append(rows, []string{c.Command, c.CommandID, orDash(c.TaskID), term.OneLine(c.Reason)})
	}
	term.PrintRows(w, rows)
	return nil
}
