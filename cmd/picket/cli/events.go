package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// NewEvents is `picket events`: the event log, printed, followed or exported.
func NewEvents() *cobra.Command {
	list := newEventsCommand("list", "List events, oldest first; -f follows them")
	c := newEventsCommand("events", "Read the log: one event for every change")
	c.Args = func(cmd *cobra.Command, given []string) error {
		if len(given) > 0 {
			return UnknownCommand(cmd, given)
		}
		return nil
	}
	c.AddCommand(list, newEventsExport())
	return c
}

func newEventsCommand(use, short string) *cobra.Command {
	c := &cobra.Command{
		Use:     use,
		Short:   short,
		Args:    CheckArgs(cobra.NoArgs),
		Example: "  picket events --after 0 --type task.leased,lease.expired\n  picket events -f -o jsonl\n  picket events --audit --type key.created,key.revoked",
		RunE:    connected(runEvents),
	}
	f := c.Flags()
	f.BoolP("follow", "f", false, "follow new events until Ctrl-C, also across restarts of the server")
	f.BoolP("watch", "w", false, "the same as --follow")
	f.String("after", "", "start after this cursor; 0 is the beginning (default: 0, with -f now)")
	eventFilters(c)
	f.Int("limit", 100, "at most this many, 1 to 1000 (without -f)")
	return term.FormatFlag(c)
}

// eventFilters are the flags that say which events are meant.
func eventFilters(c *cobra.Command) {
	f := c.Flags()
	f.StringSlice("type", nil, "only these types")
	f.String("task", "", "only this task")
	f.String("agent", "", "only this agent id")
	f.Bool("audit", false,
		"read the audit log: events of people, keys, settings, money decisions, stops and drains (scope operator)")
	term.Choices(c, "type", picket.EventTypes...)
	_ = c.RegisterFlagCompletionFunc("task", completeIDs(taskIDs))
	_ = c.RegisterFlagCompletionFunc("agent", completeIDs(agentIDs))
}

func runEvents(cmd *cobra.Command, s *Connection, _ []string) error {
	q, err := s.eventQuery(cmd)
	if err != nil {
		return err
	}
	f := cmd.Flags()
	follow, _ := f.GetBool("follow")
	if watch, _ := f.GetBool("watch"); follow || watch {
		if q.Audit {
			return picket.Refuse(exit.CodeUsage, "Leave out -f. Read further events with --after SEQ.",
				"--audit and -f cannot be combined")
		}
		after, _ := f.GetString("after")
		return s.followEvents(cmd, q, after)
	}
	after, _ := f.GetString("after")
	limit, _ := f.GetInt("limit")
	return Listing[picket.Event]{
		Cmd:     cmd,
		Member:  "events",
		Empty:   "no events",
		Name:    func(e picket.Event) string { return e.ID },
		Columns: eventColumns,
		more: func(members map[string]jsontext.Value, n int) string {
			if n < limit {
				return ""
			}
			next := term.ShellQuote(OutputText(picket.RawJSON(members["next"])))
			return fmt.Sprintf("%d shown, there are more: add --after %s, or --limit 1000", n, next)
		},
	}.show(s, topic{}, func(ctx context.Context, raw *jsontext.Value) error {
		page, err := s.EventsUpTo(ctx, q, after, limit)
		if err != nil {
			return err
		}
		*raw, err = json.Marshal(page)
		return err
	})
}

// rawEventPage is what was read of the log, in the server's own words.
type rawEventPage struct {
	Events []jsontext.Value `json:"events"`
	Next   string           `json:"next"`
}

// rawEvents is one request for the log after a cursor that a person may have typed.
func (s *Connection) rawEvents(ctx context.Context, q picket.EventQuery, after string,
	limit int) (page rawEventPage, err error) {
	typed := url.Values{"limit": {strconv.Itoa(limit)}}
	if after != "" {
		typed.Set("after", after)
	}
	var raw []byte
	if _, err = s.Events.List(ctx, q, client.WithQuery(typed), client.WithBody(&raw)); err == nil {
		err = json.Unmarshal(raw, &page)
	}
	return page, err
}

// EventsUpTo reads up to limit events. A page that comes short, or empty, is not
// the end: the server looks at so many events and says in next how far it came.
func (s *Connection) EventsUpTo(ctx context.Context, q picket.EventQuery, after string,
	limit int) (all rawEventPage, err error) {
	for {
		page, err := s.rawEvents(ctx, q, after, limit-len(all.Events))
		if err != nil {
			return all, err
		}
		before, _ := strconv.ParseInt(after, 10, 64)
		now, _ := strconv.ParseInt(page.Next, 10, 64)
		all.Events, all.Next = append(all.Events, page.Events...), page.Next
		if len(all.Events) >= limit || now-before < minPageAdvance {
			return all, nil
		}
		after = page.Next
	}
}

// minPageAdvance is the step that a short page takes at least when there is more; a
// smaller one is what was written since the last page. Without it a busy log
// would be followed instead of listed.
const minPageAdvance = 100

// eventQuery is which events are meant.
func (s *Connection) eventQuery(cmd *cobra.Command) (q picket.EventQuery, err error) {
	f := cmd.Flags()
	q.Types, _ = f.GetStringSlice("type")
	q.Agent, _ = f.GetString("agent")
	q.Audit, _ = f.GetBool("audit")
	if task, _ := f.GetString("task"); task != "" {
		q.TaskID, err = s.taskID(cmd.Context(), task)
	}
	return q, err
}

var eventColumns = []term.Column[picket.Event]{
	{Head: "SEQ", Cell: func(e picket.Event) string { return e.ID }},
	{Head: "AT", Cell: func(e picket.Event) string { return e.At.Time().Local().Format("15:04:05.000") }},
	{Head: "TYPE", Cell: func(e picket.Event) string { return e.Type }},
	{Head: "TASK", Cell: func(e picket.Event) string { return e.TaskID }},
	{Head: "FENCE", Cell: func(e picket.Event) string { return fenceText(e.FencingToken) }},
	{Head: "RUN", Cell: func(e picket.Event) string { return e.RunID }, Wide: true},
	{Head: "AGENT", Cell: func(e picket.Event) string { return e.AgentID }, Wide: true},
	{Head: "ACTOR", Cell: func(e picket.Event) string { return e.Actor }, Wide: true},
	{Head: "WHAT", Cell: EventText},
}

func fenceText(fence int64) string {
	if fence == 0 {
		return "-"
	}
	return strconv.FormatInt(fence, 10)
}

// EventText is the part of an event's data that a person looks for first.
func EventText(e picket.Event) string {
	if text := LauncherEventText(e); text != "" {
		return term.Clip(text, 80)
	}
	if text := agentEventText(e); text != "" {
		return term.Clip(text, 80)
	}
	if text := MoneyEventText(e); text != "" {
		return term.Clip(text, 80)
	}
	var data struct {
		State    string       `json:"state"`
		Class    string       `json:"class"`
		Code     string       `json:"code"`
		Summary  string       `json:"summary"`
		Reason   string       `json:"reason"`
		Question string       `json:"question"`
		KeyID    string       `json:"keyId"`
		Agent    string       `json:"agentName"`
		Revision string       `json:"revisionId"`
		Name     string       `json:"name"`
		Exit     *picket.Exit `json:"exit"`
	}
	if json.Unmarshal(e.Data, &data) != nil {
		return term.Clip(string(e.Data), 80)
	}
	var parts []string
	for _, p := range []string{data.State, data.Class, data.Code, data.Summary, data.Reason, data.Question, data.KeyID,
		data.Name, data.Agent, data.Revision} {
		if p != "" && !strings.Contains(strings.Join(parts, " "), p) {
			parts = append(parts, p)
		}
	}
	if data.Exit != nil {
		parts = append(parts, exitText(data.Exit))
	}
	return term.Clip(strings.Join(parts, " "), 80)
}

func (s *Connection) followEvents(cmd *cobra.Command, q picket.EventQuery, after string) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err = s.Events.Follow(ctx, client.Follower{
		Query: q, After: after, Link: connectionReporter(cmd),
		Event: func(e picket.Event, raw []byte) error { return PrintEvent(cmd, format, e, raw) },
	})
	if ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// connectionReporter says once that the server is away, and that it is back.
func connectionReporter(cmd *cobra.Command) func(up bool) {
	away := false
	return func(up bool) {
		switch {
		case !up && !away:
			fmt.Fprintln(cmd.ErrOrStderr(), "the server does not answer; going on where it stopped when it does")
		case up && away:
			fmt.Fprintln(cmd.ErrOrStderr(), "the server is back")
		}
		away = !up
	}
}

// PrintEvent prints one event in a format, which is one of those of term.FormatFlag.
func PrintEvent(cmd *cobra.Command, format string, e picket.Event, raw jsontext.Value) error {
	w := cmd.OutOrStdout()
	if e.Type == client.EventReset {
		fmt.Fprintln(cmd.ErrOrStderr(), "some events are no longer kept; going on from now")
		return nil
	}
	switch format {
	case "json", "jsonl":
		return term.PrintValue(w, "jsonl", raw)
	case "yaml":
		fmt.Fprintln(w, "---")
		return term.PrintValue(w, "yaml", raw)
	case "name":
		_, err := fmt.Fprintln(w, e.ID)
		return err
	}
	p := term.Painter(w)
	_, err := fmt.Fprintf(w, "%-6s %s  %-16s %s  fence %s  %s\n", e.ID,
		p.Dim(e.At.Time().Local().Format("15:04:05.000")),
		e.Type, term.OneLine(e.TaskID), fenceText(e.FencingToken), EventText(e))
	return err
}
