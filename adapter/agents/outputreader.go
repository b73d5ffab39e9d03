package agents

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// lineFacts is what one line of a coding agent's output tells.
type lineFacts struct {
	session  string              // its own session
	usage    *picket.UsageReport // what it has used so far; Source is filled in later
	usedTool bool                // it has used a tool of Picket's
	message  string              // worth a line to people, such as why it gave up
	warning  string              // why it may have no tools; told if it never used one
	fatal    string              // it cannot work: it is ended for that
	began    bool                // it begins a turn, and says what tools it has
	taken    string              // the id of the line that it has begun to work on
	ended    bool                // a turn has ended
}

// lineParser follows the output of one run, line by line. It is never called by two
// at once. Lines that mean nothing to it are the zero finding.
type lineParser func(line []byte) lineFacts

// OutputReader reads the output of a coding agent as it passes by.
type OutputReader struct {
	preset  Preset
	run     Run
	session *agentSession
	outside bool // of any run: the agent has no tools of Picket's
	// resident gets what a resident agent says about its lines; nil: it is not resident.
	resident *Resident

	mu             sync.Mutex
	parse          lineParser
	answer         *answerReader // nil in a run
	usedTool       bool
	messagePrinted bool   // why it stopped has been said
	stopped        string // why it stopped
	named          string // its own session
	warning        string
	lostTools      bool // it does not reach the tools of Picket
	lines          []*lineWriter
}

// NewOutputReader returns a reader of the agent's output.
func (e *Setup) NewOutputReader() *OutputReader {
	w := &OutputReader{preset: e.preset, run: e.run, session: e.session, parse: e.preset.spec().newParser()}
	if e.outside != nil {
		w.outside, w.answer, w.resident = true, &answerReader{to: e.outside.Answer}, e.outside.Resident
	}
	return w
}

// Wrap returns a writer that passes a stream on to to and reads its lines. A nil to
// discards the stream. Call it before the agent starts.
func (w *OutputReader) Wrap(to io.Writer) io.Writer {
	if to == nil {
		to = io.Discard
	}
	l := &lineWriter{to: to, each: w.readLine}
	w.lines = append(w.lines, l)
	return l
}

func (w *OutputReader) readLine(line []byte) {
	w.mu.Lock()
	f := w.parse(line)
	w.usedTool, w.messagePrinted = w.usedTool || f.usedTool, w.messagePrinted || f.message != ""
	if f.warning != "" {
		w.warning = f.warning
	}
	w.stopped, w.named = cmp.Or(w.stopped, f.message), cmp.Or(f.session, w.named)
	if f.began {
		w.lostTools = f.fatal != ""
	}
	w.answer.read(line)
	w.mu.Unlock()
	if f.session != "" {
		w.session.save(f.session)
		if w.run.Session != nil {
			w.run.Session(f.session)
		}
	}
	if f.usage != nil {
		report := w.session.saveUsed(*f.usage)
		report.Source = string(w.preset)
		if w.run.Used != nil {
			w.run.Used(report)
		}
	}
	if f.message != "" {
		w.printNote(f.message)
	}
	if f.fatal != "" && w.run.Fail != nil && !w.outside {
		w.run.Fail(f.fatal)
	}
	w.tellResident(f)
}

// tellResident passes on what a resident agent has said about its lines.
func (w *OutputReader) tellResident(f lineFacts) {
	if w.resident == nil {
		return
	}
	if f.taken != "" {
		w.resident.Taken(f.taken)
	}
	if f.ended {
		w.resident.TurnEnded(f.message)
	}
}

// printNote tells people something beside what the agent prints.
func (w *OutputReader) printNote(what string) {
	if w.run.Stderr != nil {
		fmt.Fprintf(w.run.Stderr, "[picket: %s]\n", what)
	}
}

// Finish reads what is left of the last lines and notes for people if the agent has
// not used a tool of Picket's. Call it once, when the process has ended and all of its output
// was written: code is its exit code, signalled whether a signal ended it.
func (w *OutputReader) Finish(code int, signalled bool) {
	for _, l := range w.lines {
		l.flush()
	}
	w.mu.Lock()
	used, noted, doubt, begun := w.usedTool, w.messagePrinted, w.warning, w.named != ""
	w.mu.Unlock()
	if used || signalled || w.outside {
		return
	}
	if code != 0 && !(begun && w.session.shared) {
		w.session.remove() // it may be what the agent cannot go on with
	}
	if doubt == "" {
		if noted {
			return
		}
		doubt = "the agent ended without having used a tool of Picket's, such as mark_complete"
	}
	w.printNote(doubt)
}

// maxLine bounds a line that is read, in bytes; longer ones pass unread.
const maxLine = 4 << 20

// lineWriter passes output on and hands each of its lines to a reader.
type lineWriter struct {
	to   io.Writer
	each func([]byte)

	mu      sync.Mutex
	part    []byte // of a line that has not ended
	tooLong bool
}

func (l *lineWriter) Write(p []byte) (int, error) {
	n, err := l.to.Write(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := p; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		l.add(line)
		if ended {
			l.end()
		}
		rest = after
	}
	return n, err
}

func (l *lineWriter) add(p []byte) {
	if l.tooLong = l.tooLong || len(l.part)+len(p) > maxLine; l.tooLong {
		l.part = nil
		return
	}
	l.part = append(l.part, p...)
}

func (l *lineWriter) end() {
	if line := bytes.TrimSpace(l.part); len(line) > 0 && !l.tooLong {
		l.each(line)
	}
	l.part, l.tooLong = l.part[:0], false
}

// flush takes what is left as a line.
func (l *lineWriter) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
}

// usageScopeSession is the scope of figures that count since the agent's session
// began, which may have been in an earlier run.
const usageScopeSession = "session"

// usageScopeRun is the scope of figures that count since the run began.
const usageScopeRun = "run"

// parseDollars reads dollars as agents write them, a number with the errors of
// floating point in it, to the next nano-dollar; false for what is not an amount.
func parseDollars(number jsontext.Value) (budget.Money, bool) {
	const most = 1e6 // dollars: more is an error of the agent
	usd, err := strconv.ParseFloat(string(number), 64)
	if err != nil || !(usd >= 0 && usd <= most) {
		return 0, false
	}
	nano := new(big.Rat).Mul(new(big.Rat).SetFloat64(usd), big.NewRat(1e9, 1))
	nano.Add(nano, big.NewRat(1, 2))
	return budget.Money(new(big.Int).Quo(nano.Num(), nano.Denom()).Int64()), true
}

// sumTokens adds counts of tokens; less than nothing is nothing, and no sum is more
// than an envelope holds.
func sumTokens(counts ...int64) (sum int64) {
	for _, n := range counts {
		sum = min(sum+min(max(n, 0), budget.MaxTokens), budget.MaxTokens)
	}
	return sum
}
