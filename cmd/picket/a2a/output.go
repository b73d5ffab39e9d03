package a2a

import (
	"cmp"
	stdjson "encoding/json"
	"fmt"
	"io"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// states are the names of the states of tasks, as they are shown and as --state takes them.
var states = []protocol.TaskState{protocol.TaskStateSubmitted, protocol.TaskStateWorking,
	protocol.TaskStateInputRequired, protocol.TaskStateAuthRequired, protocol.TaskStateCompleted,
	protocol.TaskStateFailed, protocol.TaskStateCanceled, protocol.TaskStateRejected}

// printAnswer prints one thing in a format. name is its id, and show prints it for people.
func printAnswer(w io.Writer, format string, thing any, name string, show func()) error {
	switch format {
	case "name":
		_, err := fmt.Fprintln(w, term.OneLine(name))
		return err
	case "json", "jsonl", "yaml":
		raw, err := stdjson.Marshal(thing)
		if err != nil {
			return agentclient.NotA2A("the answer of the agent cannot be written as JSON: %s", agentclient.Excerpt(err.Error()))
		}
		return term.PrintValue(w, format, raw)
	}
	show()
	return nil
}

// printTask shows a task as a person reads it.
func printTask(w io.Writer, t *protocol.Task) {
	d := term.NewDescription(w)
	d.Row("task", term.OneLine(string(t.ID)))
	d.Row("state", d.State(term.OneLine(agentclient.StateName(t.Status.State))))
	d.Add("context", term.OneLine(t.ContextID))
	d.Add("updated", ago(t.Status.Timestamp))
	d.Print()
	if t.Status.Message != nil {
		fmt.Fprintln(w, d.Dim("the agent says"))
		printParts(w, t.Status.Message.Parts)
	}
	for _, a := range t.Artifacts {
		printArtifact(w, a)
	}
}

func ago(at *time.Time) string {
	if at == nil {
		return ""
	}
	return term.Ago(picket.Instant(at.UnixMilli())) + " ago"
}

func printArtifact(w io.Writer, a *protocol.Artifact) {
	if a == nil {
		return
	}
	fmt.Fprintln(w, term.Painter(w).Dim("artifact")+" "+term.OneLine(cmp.Or(a.Name, string(a.ID))))
	printParts(w, a.Parts)
}

// printParts shows what a message or an artifact holds: text as lines, data as JSON, and files by their names.
func printParts(w io.Writer, parts protocol.ContentParts) {
	for _, p := range parts {
		if p != nil {
			term.Indented(w, partText(p))
		}
	}
}

// partText is a part as lines of text. It is untrusted.
func partText(p *protocol.Part) string {
	switch content := p.Content.(type) {
	case protocol.Text:
		return string(content)
	case protocol.Data:
		raw, err := stdjson.MarshalIndent(content.Value, "", "  ")
		if err != nil {
			return "data that cannot be written as JSON"
		}
		return string(raw)
	case protocol.URL:
		return "link " + term.OneLine(string(content)) + fileText(p)
	case protocol.Raw:
		return fmt.Sprintf("file of %d bytes%s", len(content), fileText(p))
	}
	return "a part of an unknown kind"
}

// fileText is the name and the type of a file, in front of which stands what kind of part it is.
func fileText(p *protocol.Part) string {
	text := ""
	if p.Filename != "" {
		text += ", " + term.OneLine(p.Filename)
	}
	if p.MediaType != "" {
		text += ", " + term.OneLine(p.MediaType)
	}
	return text
}
