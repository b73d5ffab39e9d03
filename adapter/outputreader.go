package adapter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

// lineFacts is what one line of a coding agent's output tells.
type lineFacts struct {
	session  string              // its own session
	usage    *picket.UsageReport // what it has used so far; Source is filled in later
	usedTool bool                // it has used a tool of Picket's
	message  string              // worth a line to people, such as why it gave up
	warning  string              // why it may have no tools; told if it never used one
	fatal    string              // it cannot work: it is ended for that
}

// lineParser follows the output of one run, line by line. It is never called by two
// at once. Lines that mean nothing to it are the zero finding.
type lineParser func(line []byte) lineFacts

// outputReader reads the output of a coding agent as it passes by.
type outputReader struct {
	preset  Preset
	job     Job
	session *agentSession

	mu             sync.Mutex
	parse          lineParser
	usedTool       bool
	messagePrinted bool // why it stopped has been said
	warning        string
	lines          []*lineWriter
}

func newOutputReader(p Preset, job Job, session *agentSession, read lineParser) *outputReader {
	return &outputReader{preset: p, job: job, session: session, parse: read}
}

// wrap passes a stream on and reads its lines.
func (w *outputReader) wrap(to io.Writer) io.Writer {
	if to == nil {
		to = io.Discard
	}
	l := &lineWriter{to: to, each: w.readLine}
	w.lines = append(w.lines, l)
	return l
}

func (w *outputReader) readLine(line []byte) {
	w.mu.Lock()
	f := w.parse(line)
	w.usedTool, w.messagePrinted = w.usedTool || f.usedTool, w.messagePrinted || f.message != ""
	if f.warning != "" {
		w.warning = f.warning
	}
	w.mu.Unlock()
	if f.session != "" {
		w.session.save(f.session)
	}
	if f.usage != nil && w.job.Used != nil {
		report := *f.usage
		report.Source = string(w.preset)
		w.job.Used(report)
	}
	if f.message != "" {
		w.printNote(f.message)
	}
	if f.fatal != "" && w.job.Fail != nil {
		w.job.Fail(f.fatal)
	}
}

// printNote tells people something beside what the agent prints.
func (w *outputReader) printNote(what string) {
	if w.job.Stderr != nil {
		fmt.Fprintf(w.job.Stderr, "[picket: %s]\n", what)
	}
}

// follow follows a process to its end and reads the last of its lines before
// anybody else learns of it.
func (w *outputReader) follow(p Process) Process {
	watched := &readProcess{Process: p, done: make(chan struct{})}
	go func() {
		defer close(watched.done)
		<-p.Done()
		for _, l := range w.lines {
			l.flush()
		}
		w.finish(p.Exit())
	}()
	return watched
}

func (w *outputReader) finish(exit Exited) {
	w.mu.Lock()
	used, noted, doubt := w.usedTool, w.messagePrinted, w.warning
	w.mu.Unlock()
	if used || exit.Signal != "" {
		return
	}
	if exit.Code != 0 {
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

// readProcess is a process whose output has been read when it is done.
type readProcess struct {
	Process
	done chan struct{}
}

func (p *readProcess) Done() <-chan struct{} { return p.done }

// KillAt implements Deadliner as far as the process within does.
func (p *readProcess) KillAt(at time.Duration) {
	if d, ok := p.Process.(DeadlineKeeper); ok {
		d.KillAt(at)
	}
}

// Stopped implements Observer as far as the process within does.
func (p *readProcess) Stopped() bool {
	o, ok := p.Process.(Observer)
	return ok && o.Stopped()
}

// Overdue reports whether the process ended because its deadline passed.
func (p *readProcess) Overdue() bool {
	o, ok := p.Process.(interface{ Overdue() bool })
	return ok && o.Overdue()
}

// Exec implements Executor as far as the process within does.
func (p *readProcess) Exec(ctx context.Context, job ExecJob) (Exited, error) {
	if x, ok := p.Process.(Executor); ok {
		return x.Exec(ctx, job)
	}
	return Exited{}, errors.New("nothing can be run beside this agent")
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
