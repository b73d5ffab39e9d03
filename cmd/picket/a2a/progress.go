package a2a

import (
	"cmp"
	"io"
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

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
		p.line("the agent says: " + agentclient.Said(ev))
	}
	return p.failed
}

func (p *progress) state(s protocol.TaskStatus) {
	p.status = s
	line := term.Painter(p.w).State(term.OneLine(agentclient.StateName(s.State)))
	if text := agentclient.Said(s.Message); text != "" {
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
		if s := p.status.State; p.last != before && agentclient.Interrupted(s) {
			a.suggest(cmd, ev.TaskInfo().TaskID, s)
		}
		return err
	}
}
