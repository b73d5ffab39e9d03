package cli

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/files"
	"github.com/picket-dev/picket/internal/text"
)

func newEventsExport() *cobra.Command {
	c := &cobra.Command{
		Use:   "export FILE",
		Short: "Write the log to a file, or to standard output (-)",
		Args:  CheckArgs(cobra.ExactArgs(1)),
		Long: "Write all events that the server has when the export begins, one on each line, oldest first.\n" +
			"Only whole lines are written, and no event is written twice. --continue continues an export that\n" +
			"was interrupted, or brings a file up to date: it starts after the last line of the file. --since\n" +
			"and --after say where a new file begins. The last cursor is printed on standard error. The\n" +
			"export waits for a server that is away for a moment. Events are in the order in which they\n" +
			"happened, and their times are those of the server's clock. If that clock was set back, --until\n" +
			"ends early and reports it, and the next export continues there.",
		Example: "  picket events export log.jsonl\n  picket events export --continue log.jsonl\n" +
			"  picket events export --since 24h --type task.approved,task.rejected -o csv - >decisions.csv\n" +
			"  picket events export --audit --continue audit.jsonl",
		RunE: connected(runEventsExport),
	}
	f := c.Flags()
	f.String("since", "", "at or after this time (RFC 3339, or a duration back from now)")
	f.String("until", "", "end before the first event at or after this time (as --since)")
	f.String("after", "", "start after this cursor (default: the beginning)")
	f.Bool("continue", false, "continue after the last line of FILE; without it FILE must not exist")
	f.StringP("output", "o", "jsonl", "print as format: jsonl, csv")
	term.Choices(c, "output", "jsonl", "csv")
	eventFilters(c)
	c.MarkFlagsMutuallyExclusive("since", "after")
	return c
}

func runEventsExport(cmd *cobra.Command, s *Connection, given []string) (err error) {
	x := &eventExport{cmd: cmd, s: s, path: given[0], began: time.Now()}
	if x.format, _ = cmd.Flags().GetString("output"); x.format != "jsonl" && x.format != "csv" {
		return exit.Usagef("-o %s: choose one of jsonl, csv", x.format)
	}
	if x.q, err = x.s.eventQuery(cmd); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := x.bounds(ctx); err != nil {
		return err
	}
	x.from = x.after
	if err := x.openFile(); err != nil {
		return err
	}
	failed := x.run(ctx)
	if err := x.close(); err != nil {
		return err
	}
	x.report(ctx.Err() != nil, failed)
	if ctx.Err() != nil {
		return exit.Status(exit.Interrupted)
	}
	return failed
}

// eventExport writes a part of the log.
type eventExport struct {
	cmd    *cobra.Command
	s      *Connection
	q      picket.EventQuery
	path   string
	format string
	began  time.Time
	told   time.Time

	from       int64
	after      int64
	last       int64 // where to begin, the cursor that has been read up to, and where to end
	until      picket.Instant
	file       *os.File // nil for standard output
	out        *bufio.Writer
	count      int
	outOfOrder int // of a time before until, behind the first that is not
}

// bounds finds where to begin and where to end, in numbers of the log.
func (x *eventExport) bounds(ctx context.Context) error {
	f := x.cmd.Flags()
	var stats picket.Stats
	err := x.patiently(ctx, func() (err error) { stats, err = x.s.Server.Stats(ctx); return err })
	if err != nil {
		return err
	}
	x.last = stats.LastSeq
	if text, _ := f.GetString("after"); text != "" {
		var err error
		if x.after, err = strconv.ParseInt(text, 10, 64); err != nil || x.after < 0 {
			return exit.Usagef("--after %s: a cursor is a number", term.ShellQuote(text))
		}
	}
	if text, _ := f.GetString("until"); text != "" {
		var err error
		if x.until, err = instantFlag("until", text, -1); err != nil {
			return err
		}
	}
	text, _ := f.GetString("since")
	if text == "" {
		return nil
	}
	since, err := instantFlag("since", text, -1)
	if err != nil {
		return err
	}
	x.after, err = x.cursorBefore(ctx, since)
	return err
}

// cursorBefore is the cursor after which the log begins to be of a time or later.
// The instants in the log are of the server's clock: where that was set back, it
// is one of the places where such a time begins.
func (x *eventExport) cursorBefore(ctx context.Context, since picket.Instant) (int64, error) {
	low, high := int64(0), x.last // the answer is at least low and at most high
	for low < high {
		middle := low + (high-low)/2
		page, err := x.page(ctx, picket.EventQuery{Audit: x.q.Audit}, middle, 1)
		if err != nil && !errors.Is(err, picket.CodeCursorExpired) {
			return 0, err
		}
		var e picket.Event
		if err == nil && len(page.Events) > 0 {
			if err := json.Unmarshal(page.Events[0], &e); err != nil {
				return 0, err
			}
		}
		switch {
		case err != nil: // events that are kept no more are of earlier than any that is
			low = middle + 1
		case len(page.Events) == 0 || e.At >= since:
			high = middle
		default:
			low = max(middle+1, e.Seq)
		}
	}
	return low, nil
}

// page is one request for the log.
func (x *eventExport) page(ctx context.Context, q picket.EventQuery, after int64,
	limit int) (page rawEventPage, err error) {
	err = x.patiently(ctx, func() (err error) {
		page, err = x.s.rawEvents(ctx, q, strconv.FormatInt(after, 10), limit)
		return err
	})
	return page, err
}

func (x *eventExport) patiently(ctx context.Context, call func() error) error {
	return RetryUnanswered(ctx, exportPatience, x.cmd.ErrOrStderr(), call)
}

// exportPatience is how long a server that is away is waited for.
const exportPatience = 30 * time.Second

func (x *eventExport) run(ctx context.Context) error {
	for x.after < x.last {
		page, err := x.page(ctx, x.q, x.after, 1000)
		if err != nil {
			return err
		}
		next, err := strconv.ParseInt(page.Next, 10, 64)
		if err != nil || next <= x.after {
			return err // the end
		}
		if over, err := x.write(page); err != nil || over {
			return err
		}
		x.after = next
		x.progress(false)
	}
	return nil
}

// write adds the events of a page and reports whether one is too late. All that
// follows it is for the next export, whatever its time: what is written is the
// log up to a cursor, without holes.
func (x *eventExport) write(page rawEventPage) (over bool, err error) {
	for i, raw := range page.Events {
		var e picket.Event
		if err := json.Unmarshal(raw, &e); err != nil {
			return false, err
		}
		if e.Seq > x.last {
			return true, x.out.Flush()
		}
		if !x.until.IsZero() && e.At >= x.until {
			x.outOfOrder = x.countOutOfOrder(page.Events[i+1:])
			return true, x.out.Flush()
		}
		if err := x.writeEvent(e, raw); err != nil {
			return false, err
		}
		x.count++
		x.after = e.Seq
	}
	return false, x.out.Flush()
}

// countOutOfOrder counts what is in the export's time among the events behind its end;
// it looks no further than the page that was read.
func (x *eventExport) countOutOfOrder(behind []jsontext.Value) (n int) {
	for _, raw := range behind {
		var e picket.Event
		if json.Unmarshal(raw, &e) == nil && e.Seq <= x.last && e.At < x.until {
			n++
		}
	}
	return n
}

// progress says how far it has come, on a terminal, once a second.
func (x *eventExport) progress(always bool) {
	w := x.cmd.ErrOrStderr()
	if !term.IsTerminal(w) || !always && time.Since(x.told) < time.Second {
		return
	}
	x.told = time.Now()
	fmt.Fprintf(w, "\r\x1b[2K%d events, %d of %d read", x.count, x.after, x.last)
}

// report says how far the export is, and how to go on.
func (x *eventExport) report(interrupted bool, failed error) {
	w := x.cmd.ErrOrStderr()
	x.progress(true)
	if term.IsTerminal(w) {
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%s in %s, the last cursor is %d\n", Plural(x.count, "event"),
		term.ShortDuration(time.Since(x.began)),
		x.after)
	if x.outOfOrder > 0 {
		fmt.Fprintf(w,
			"the server's clock was set back after that: at least %s of before %s will come with an export that goes on from there\n", Plural(x.outOfOrder, "event"), x.until)
	}
	if interrupted || failed != nil {
		PrintNext(x.cmd, x.resumeCommand())
	}
}

// resumeCommand is the command that goes on.
func (x *eventExport) resumeCommand() string {
	words := []string{"picket", "events", "export"}
	if x.q.Audit {
		words = append(words, "--audit")
	}
	for _, filter := range [][2]string{{"--type", strings.Join(x.q.Types, ",")}, {"--task", x.q.TaskID},
		{"--agent", x.q.Agent}} {
		if filter[1] != "" {
			words = append(words, filter[:]...)
		}
	}
	if !x.until.IsZero() {
		words = append(words, "--until", x.until.String())
	}
	if x.format != "jsonl" {
		words = append(words, "-o", x.format)
	}
	if x.file == nil {
		return term.ShellJoin(append(words, "--after", strconv.FormatInt(x.after, 10), "-"))
	}
	if x.from > 0 {
		words = append(words, "--after", strconv.FormatInt(x.from, 10))
	}
	return term.ShellJoin(append(words, "--continue", x.path))
}

// openFile opens the file; one that is gone on with is cut after its last whole
// line.
func (x *eventExport) openFile() error {
	goesOn, _ := x.cmd.Flags().GetBool("continue")
	if x.path == "-" {
		if goesOn {
			return exit.Usagef("--continue needs a file")
		}
		x.out = bufio.NewWriter(x.cmd.OutOrStdout())
		return x.writeHeader()
	}
	how := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if goesOn {
		how = os.O_RDWR | os.O_CREATE
	}
	var err error
	if x.file, err = os.OpenFile(x.path, how, 0o600); errors.Is(err, os.ErrExist) {
		e := exit.Usagef("%s is there already", x.path)
		e.Remedy = "Go on with it: picket events export --continue " + term.ShellQuote(x.path) +
			"; or name another file."
		return e
	}
	if err != nil {
		return exit.Usagef("%v", err)
	}
	x.out = bufio.NewWriter(x.file)
	if goesOn {
		return x.resumeFile()
	}
	return x.writeHeader()
}

// resumeFile finds the last whole line of the file.
func (x *eventExport) resumeFile() error {
	lines := bufio.NewReader(x.file)
	whole, last := int64(0), ""
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		whole, last = whole+int64(len(line)), line
	}
	if err := files.Truncate(x.file, whole); err != nil {
		return err
	}
	if _, err := x.file.Seek(whole, io.SeekStart); err != nil {
		return err
	}
	if whole == 0 {
		return x.writeHeader()
	}
	return x.cursorOf(last)
}

// cursorOf reads the cursor of a line that an export wrote.
func (x *eventExport) cursorOf(line string) error {
	text, _, _ := strings.Cut(line, ",")
	if x.format == "jsonl" {
		var e picket.Event
		if err := json.Unmarshal([]byte(line), &e); err == nil {
			text = e.ID
		}
	} else if strings.TrimSpace(line) == strings.Join(csvHeader, ",") {
		return nil
	}
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seq > x.last {
		return picket.Refuse(exit.CodeUsage, "Name the file of an export of this server, with its -o, or a new file.",
			"the last line of %s is not an event of this log: %s", x.path, term.Clip(line, 60))
	}
	x.after = max(x.after, seq)
	return nil
}

func (x *eventExport) writeEvent(e picket.Event, raw jsontext.Value) error {
	if x.format == "jsonl" {
		return term.PrintValue(x.out, "jsonl", raw)
	}
	fence := ""
	if e.FencingToken != 0 {
		fence = strconv.FormatInt(e.FencingToken, 10)
	}
	return x.writeCSVRow([]string{e.ID, e.At.String(), e.Type, e.TaskID, e.RunID, e.AgentID, fence, e.Actor, e.Reason,
		string(e.Data)})
}

var csvHeader = []string{"id", "at", "type", "task", "run", "agent", "fence", "actor", "reason", "data"}

func (x *eventExport) writeHeader() error {
	if x.format != "csv" {
		return nil
	}
	return x.writeCSVRow(csvHeader)
}

// writeCSVRow writes a line of a table. What a spreadsheet would take for a formula is set off by
// an apostrophe, because agents write some of the texts.
func (x *eventExport) writeCSVRow(cells []string) error {
	for i, cell := range cells {
		if line := term.OneLine(cell); line != "-" || cell == "-" {
			cell = line
		} else {
			cell = "" // a table for people has "-" there
		}
		cells[i] = text.SpreadsheetCell(cell)
	}
	w := csv.NewWriter(x.out)
	_ = w.Write(cells)
	w.Flush()
	return w.Error()
}

func (x *eventExport) close() error {
	err := x.out.Flush()
	if x.file != nil {
		err = errors.Join(err, x.file.Sync(), x.file.Close())
	}
	return err
}
