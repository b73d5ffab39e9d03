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

// finding is what one line of a coding agent's output tells.
type finding struct {
	session string              // its own session
	usage   *picket.UsageReport // what it has used so far; Source is filled in later
	used    bool                // it has used a tool of Picket's
	note    string              // worth a line to people, such as why it gave up
	doubt   string              // why it may have no tools; told if it never used one
	failed  string              // it cannot work: it is ended for that
}

// reader follows the output of one run, line by line. It is never called by two
// at once. Lines that mean nothing to it are the zero finding.
type reader func(line []byte) finding

// witness reads the output of a coding agent as it passes by.
type witness struct {
	preset  Preset
	job     Job
	session *agentSession

	mu    sync.Mutex
	read  reader
	used  bool
	noted bool // why it stopped has been said
	doubt string
	lines []*lines
}

func newWitness(p Preset, job Job, session *agentSession, read reader) *witness {
	return &witness{preset: p, job: job, session: session, read: read}
}

// watching passes a stream on and reads its lines.
func (w *witness) watching(to io.Writer) io.Writer {
	if to == nil {
		to = io.Discard
	}
	l := &lines{to: to, each: w.line}
	w.lines = append(w.lines, l)
	return l
}

func (w *witness) line(line []byte) {
	w.mu.Lock()
	f := w.read(line)
	w.used, w.noted = w.used || f.used, w.noted || f.note != ""
	if f.doubt != "" {
		w.doubt = f.doubt
	}
	w.mu.Unlock()
	if f.session != "" {
		w.session.note(f.session)
	}
	if f.usage != nil && w.job.Used != nil {
		report := *f.usage
		report.Source = string(w.preset)
		w.job.Used(report)
	}
	if f.note != "" {
		w.say(f.note)
	}
	if f.failed != "" && w.job.Fail != nil {
		w.job.Fail(f.failed)
	}
}

// say tells people something beside what the agent prints.
func (w *witness) say(what string) {
	if w.job.Stderr != nil {
		fmt.Fprintf(w.job.Stderr, "[picket: %s]\n", what)
	}
}

// over follows a process to its end and reads the last of its lines before
// anybody else learns of it.
func (w *witness) over(p Process) Process {
	watched := &watchedProcess{Process: p, done: make(chan struct{})}
	go func() {
		defer close(watched.done)
		<-p.Done()
		for _, l := range w.lines {
			l.flush()
		}
		w.close(p.Exit())
	}()
	return watched
}

func (w *witness) close(exit Exited) {
	w.mu.Lock()
	used, noted, doubt := w.used, w.noted, w.doubt
	w.mu.Unlock()
	if used || exit.Signal != "" {
		return
	}
	if exit.Code != 0 {
		w.session.forget() // it may be what the agent cannot go on with
	}
	if doubt == "" {
		if noted {
			return
		}
		doubt = "the agent ended without having used a tool of Picket's, such as mark_complete"
	}
	w.say(doubt)
}

// watchedProcess is a process whose output has been read when it is done.
type watchedProcess struct {
	Process
	done chan struct{}
}

func (p *watchedProcess) Done() <-chan struct{} { return p.done }

// KillAt implements Deadliner as far as the process within does.
func (p *watchedProcess) KillAt(at time.Duration) {
	if d, ok := p.Process.(Deadliner); ok {
		d.KillAt(at)
	}
}

// Stopped implements Observer as far as the process within does.
func (p *watchedProcess) Stopped() bool {
	o, ok := p.Process.(Observer)
	return ok && o.Stopped()
}

// Overdue reports whether the process ended because its deadline passed.
func (p *watchedProcess) Overdue() bool {
	o, ok := p.Process.(interface{ Overdue() bool })
	return ok && o.Overdue()
}

// Exec implements Executor as far as the process within does.
func (p *watchedProcess) Exec(ctx context.Context, job ExecJob) (Exited, error) {
	if x, ok := p.Process.(Executor); ok {
		return x.Exec(ctx, job)
	}
	return Exited{}, errors.New("nothing can be run beside this agent")
}

// maxLine bounds a line that is read, in bytes; longer ones pass unread.
const maxLine = 4 << 20

// lines passes output on and hands each of its lines to a reader.
type lines struct {
	to   io.Writer
	each func([]byte)

	mu      sync.Mutex
	part    []byte // of a line that has not ended
	tooLong bool
}

func (l *lines) Write(p []byte) (int, error) {
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

func (l *lines) add(p []byte) {
	if l.tooLong = l.tooLong || len(l.part)+len(p) > maxLine; l.tooLong {
		l.part = nil
		return
	}
	l.part = append(l.part, p...)
}

func (l *lines) end() {
	if line := bytes.TrimSpace(l.part); len(line) > 0 && !l.tooLong {
		l.each(line)
	}
	l.part, l.tooLong = l.part[:0], false
}

// flush takes what is left as a line.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
}
