package a2a

import (
	"cmp"
	"context"
	"io"
	"strings"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

const (
	firstPause   = time.Second // before a lost stream is opened again; it doubles
	longestPause = 10 * time.Second
)

// follower follows a task: by its stream, opened again whenever it ends too early, or by reading the task now and then
// if the agent has no streams.
type follower struct {
	*agent
	id protocol.TaskID
	// untilAsked ends it when the task waits for its client or a person.
	untilAsked bool
	event      func(protocol.Event) error // gets each event, and each task that was read
	lost       func(error)                // is called when the connection is lost, once until the agent answers again
	first      time.Duration              // the shortest pause
	longest    time.Duration
	// reopen is the age at which a stream is opened again; 0: never.
	reopen time.Duration
	// reads has the task read whenever its stream fails, in any way.
	reads bool

	failed error // of event
	status protocol.TaskStatus
	moved  bool // the status has changed since the stream was opened
	away   bool // the agent has not answered since then
}

// run follows the task until it has ended. The error is that of ctx, that of event, or a refusal.
func (f *follower) run(ctx context.Context) error {
	for pause := f.first; ; pause = min(2*pause, f.longest) {
		f.moved = false
		err := f.listen(ctx)
		if !f.done() && f.failed == nil && (endsStream(err) || f.reads && ctx.Err() == nil) {
			err = f.read(ctx)
		}
		switch code := picket.CodeOf(err); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case f.failed != nil:
			return f.failed
		case err != nil && code != picket.CodeUnavailable && !code.Retryable():
			return err
		case f.done():
			return nil
		case err != nil && !f.away:
			f.lost(err)
			f.away = true
		}
		if f.moved {
			pause = f.first
		}
		if refusal, ok := picket.RefusalOf(err); ok && refusal != nil {
			pause = max(pause, refusal.RetryAfter)
		}
		if err := cli.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// endsStream reports whether the task has to be read, because its stream has ended or the agent has none.
func endsStream(err error) bool {
	return err == nil || picket.CodeOf(err) == picket.CodeStateConflict || picket.CodeOf(err) == picket.CodeNotAvailable
}

// listen takes the events of one stream. An agent without streams has no events.
func (f *follower) listen(ctx context.Context) error {
	if !f.streams {
		return nil
	}
	open, stop := context.WithCancel(ctx)
	defer stop()
	if f.reopen > 0 {
		open, stop = context.WithTimeout(open, f.reopen)
		defer stop()
	}
	for ev, err := range f.client.SubscribeToTask(open, &protocol.SubscribeToTaskRequest{ID: f.id}) {
		switch {
		case open.Err() != nil && ctx.Err() == nil:
			return nil
		case err != nil:
			err = f.explain(err)
			f.streams = picket.CodeOf(err) != picket.CodeNotAvailable
			return err
		}
		if err := f.take(ev); err != nil || f.done() {
			return err
		}
	}
	return nil
}

func (f *follower) read(ctx context.Context) error {
	t, err := f.task(ctx, f.id)
	if err != nil {
		return err
	}
	return f.take(t)
}

// take takes an event of the task, or the task itself.
func (f *follower) take(ev protocol.Event) error {
	f.away = false
	status := f.status
	switch ev := ev.(type) {
	case *protocol.Task:
		status = ev.Status
	case *protocol.TaskStatusUpdateEvent:
		status = ev.Status
	}
	f.moved = f.moved || status.State != f.status.State || said(status.Message) != said(f.status.Message)
	f.status = status
	f.failed = f.event(ev)
	return f.failed
}

// done reports whether there is nothing more to follow.
func (f *follower) done() bool {
	return f.status.State.Terminal() || f.untilAsked && interrupted(f.status.State)
}

// progress prints the events of a task for people: each new state, what the agent says about it, and each artifact.
type progress struct {
	w io.Writer
	// artifacts prints what they hold, too.
	artifacts bool
	last      string // the last line about the state
	failed    error
	status    protocol.TaskStatus
	shown     map[protocol.ArtifactID]int // bytes of the text of an artifact that were printed
}

func (p *progress) take(ev protocol.Event) error {
	switch ev := ev.(type) {
	case *protocol.Task:
		for _, a := range ev.Artifacts {
			p.artifact(a, false)
		}
		p.state(ev.Status)
	case *protocol.TaskStatusUpdateEvent:
		p.state(ev.Status)
	case *protocol.TaskArtifactUpdateEvent:
		p.artifact(ev.Artifact, ev.Append)
	case *protocol.Message:
		p.line("the agent says: " + said(ev))
	}
	return p.failed
}

func (p *progress) state(s protocol.TaskStatus) {
	p.status = s
	line := term.Painter(p.w).State(term.OneLine(stateName(s.State)))
	if text := said(s.Message); text != "" {
		line += ": " + text
	}
	if line != p.last {
		p.last = line
		p.line(line)
	}
}

func (p *progress) print(text string) {
	if _, err := io.WriteString(p.w, text); err != nil {
		p.failed = err
	}
}

func (p *progress) line(line string) { p.print(line + "\n") }

// maxShown is of how many artifacts a stream remembers what was printed.
const maxShown = 10_000

// artifact prints what is new of an artifact. A stream that was opened again begins with all of it.
func (p *progress) artifact(a *protocol.Artifact, appended bool) {
	if a == nil {
		return
	}
	var b strings.Builder
	printParts(&b, a.Parts)
	text, before := b.String(), p.shown[a.ID]
	switch {
	case before == 0:
		p.line("artifact " + term.OneLine(cmp.Or(a.Name, string(a.ID))))
	case !appended:
		text = text[min(before, len(text)):]
	}
	if p.artifacts {
		p.print(text)
	}
	if p.shown == nil || len(p.shown) >= maxShown {
		p.shown = map[protocol.ArtifactID]int{}
	}
	p.shown[a.ID] = before + max(len(text), 1)
}

// printing prints the events of a task in a format. For people it says how to answer a question.
func (a *agent) printing(cmd *cobra.Command, format string) func(protocol.Event) error {
	p := &progress{w: cmd.OutOrStdout(), artifacts: true}
	return func(ev protocol.Event) error {
		if format != "table" && format != "wide" {
			return printAnswer(p.w, format, protocol.StreamResponse{Event: ev}, string(ev.TaskInfo().TaskID), nil)
		}
		before := p.last
		err := p.take(ev)
		if s := p.status.State; p.last != before && interrupted(s) {
			a.suggest(cmd, ev.TaskInfo().TaskID, s)
		}
		return err
	}
}
