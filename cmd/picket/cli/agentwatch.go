package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// agentEventTypes are the events that are about agents themselves.
var agentEventTypes = []string{picket.EventAgentLifecycle, picket.EventAgentCommand, picket.EventAgentDrift,
	picket.EventAgentDrainOverdue}

func newAgentWatch() *cobra.Command {
	c := &cobra.Command{
		Use:               "watch [AGENT]",
		Short:             "Follow changes of agents until Ctrl-C",
		Args:              CheckArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: completeFirstID(agentIDs),
		Example:           "  picket agent watch\n  picket agent watch coder-1 --after 0",
		RunE:              runAgentWatch,
	}
	c.Flags().String("after", "", "start after this cursor; 0 is the beginning (default: now)")
	return term.FormatFlag(c)
}

func runAgentWatch(cmd *cobra.Command, given []string) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	s, err := Connect(cmd)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	id, after := "", cmd.Flag("after").Value.String()
	if after == "" {
		after = s.lastCursor(ctx) // before the look at the agent: no change falls between
	}
	if len(given) > 0 {
		if id, err = s.agentID(ctx, given[0]); err != nil {
			return err
		}
		a, err := s.Agents.Get(ctx, id)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s is %s, last heartbeat %s ago\n", id, a.Status, term.Ago(a.LastHeartbeatAt))
	}
	err = s.Events.Follow(ctx, client.Follower{
		Query: picket.EventQuery{Types: agentEventTypes, Agent: id},
		After: after,
		Event: func(e picket.Event, raw []byte) error {
			if format != "table" && format != "wide" || e.Type == client.EventReset {
				return PrintEvent(cmd, format, e, raw)
			}
			w := cmd.OutOrStdout()
			p := term.Painter(w)
			_, err := fmt.Fprintf(w, "%-6s %s  %-18s  %s  %s\n", e.ID,
				p.Dim(e.At.Time().Local().Format("15:04:05.000")), e.Type, term.OneLine(e.AgentID), agentEventText(e))
			return err
		},
	})
	if ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// agentEventText is what an event about an agent says; "" for other events.
func agentEventText(e picket.Event) string {
	var data struct {
		State           string              `json:"state"`
		Request         picket.AgentCommand `json:"request"`
		OffsetMs        int64               `json:"offsetMs"`
		IntervalSeconds int64               `json:"intervalSeconds"`
		Leases          int                 `json:"leases"`
	}
	_ = json.Unmarshal(e.Data, &data)
	var text string
	switch e.Type {
	case picket.EventAgentLifecycle:
		text = fmt.Sprintf("%s to %s: %s", e.PreviousStatus, e.NewStatus, e.Reason)
	case picket.EventAgentCommand:
		text = strings.Join(strings.Fields(data.State+" "+data.Request.Command+" "+data.Request.TaskID), " ")
		if e.Reason != "" {
			text += ": " + e.Reason
		}
	case picket.EventAgentDrift:
		text = fmt.Sprintf("its clock is %d ms off, more than twice its heartbeat of %d s", data.OffsetMs,
			data.IntervalSeconds)
	case picket.EventAgentDrainOverdue:
		text = "the drain's time is over, it holds " + Plural(data.Leases, "lease")
	default:
		return ""
	}
	if e.Actor != "" && e.Actor != e.AgentID {
		text += ", by " + e.Actor
	}
	return term.OneLine(text)
}

// drainView shows which leases a draining agent still holds. On a terminal it redraws a block of
// lines. Elsewhere it prints lines when the leases have changed.
type drainView struct {
	w     io.Writer
	live  bool
	drawn int    // lines of the block that is on the terminal
	last  string // the runs in the lines that were printed last
}

// longestWait returns the longest time between two updates.
func (d *drainView) longestWait() time.Duration {
	if d.live {
		return time.Second
	}
	return 2 * time.Second
}

// clear removes the block from the terminal.
func (d *drainView) clear() {
	if d.drawn > 0 {
		fmt.Fprintf(d.w, "\x1b[%dA\x1b[J", d.drawn)
		d.drawn = 0
	}
}

// show shows the leases that the agent holds now.
func (d *drainView) show(a picket.Agent, held []picket.LiveLease) {
	lines := []string{"it holds " + Plural(len(held), "lease")}
	runs := "runs"
	for _, l := range held {
		lines = append(lines, fmt.Sprintf("  %s  lease ends in %s  %s", l.TaskID,
			term.ShortDuration(time.Duration(l.LeaseTTLMs)*time.Millisecond), term.OneLine(l.Title)))
		runs += " " + l.RunID
	}
	if len(held) == 0 {
		lines = append(lines, fmt.Sprintf("it is deregistered at its next heartbeat, or after %ds without one",
			a.Heartbeat.IntervalSeconds))
	}
	if !d.live {
		if runs != d.last {
			fmt.Fprintln(d.w, strings.Join(lines, "\n"))
		}
		d.last = runs
		return
	}
	if left := time.Until(a.DrainDeadlineAt.Time()); len(held) > 0 && left > 0 {
		lines[0] += "; what it still holds in " + term.ShortDuration(left) + " is taken from it"
	}
	if most := max(term.TerminalHeight(d.w)-4, 1); len(lines) > most {
		lines = append(lines[:most:most], fmt.Sprintf("  and %d more", len(lines)-most))
	}
	for i, line := range lines {
		lines[i] = term.Clip(line, term.TerminalWidth(d.w)-1)
	}
	d.clear()
	fmt.Fprintln(d.w, strings.Join(lines, "\n"))
	d.drawn = len(lines)
}
