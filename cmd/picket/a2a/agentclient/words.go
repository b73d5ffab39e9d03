package agentclient

import (
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/text"
)

// StateName is the name of a state for people, such as input-required.
func StateName(s protocol.TaskState) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(s.String(), "TASK_STATE_")), "_", "-")
}

// Interrupted reports whether a task waits for its client or for a person.
func Interrupted(s protocol.TaskState) bool {
	return s == protocol.TaskStateInputRequired || s == protocol.TaskStateAuthRequired
}

// Texts are the texts of a message. There are none if the message is nil.
func Texts(m *protocol.Message) (texts []string) {
	if m == nil {
		return nil
	}
	for _, p := range m.Parts {
		if p != nil && p.Text() != "" {
			texts = append(texts, p.Text())
		}
	}
	return texts
}

// Said is the text of a message, in one short line. It is empty if there is none.
func Said(m *protocol.Message) string {
	texts := Texts(m)
	if len(texts) == 0 {
		return ""
	}
	return Excerpt(strings.Join(texts, " "))
}

// Excerpt is a text of an agent for an error: in one line, and short.
func Excerpt(s string) string { return text.Excerpt(term.OneLine(s), 500) }
