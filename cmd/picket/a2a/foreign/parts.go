package foreign

import (
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
	"github.com/picket-dev/picket/internal/text"
)

// partsIn are the parts that JSON of a task stands for: those of the member parts, a string as text, or anything else
// as data.
func partsIn(raw picket.RawJSON) protocol.ContentParts {
	var plain string
	var object struct {
		Parts []exactPart `json:"parts"`
	}
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil
	case stdjson.Unmarshal(raw, &plain) == nil:
		return protocol.ContentParts{protocol.NewTextPart(plain)}
	case stdjson.Unmarshal(raw, &object) == nil && len(object.Parts) > 0:
		if parts, ok := partsOf(object.Parts); ok {
			return parts
		}
	}
	return protocol.ContentParts{protocol.NewDataPart(raw)}
}

// taskParts are what a foreign agent is sent of a task: its input, or with its title if that has no text. The standing
// instructions of operators stay here.
func taskParts(t picket.LeaseTask) protocol.ContentParts {
	parts := partsIn(t.Input)
	hasText := slices.ContainsFunc(parts, func(p *protocol.Part) bool { return strings.TrimSpace(p.Text()) != "" })
	if !hasText {
		parts = slices.Insert(parts, 0, protocol.NewTextPart(t.Title))
	}
	if t.ReviewNote != "" {
		parts = append(parts, protocol.NewTextPart("An earlier result was rejected by its reviewer: "+t.ReviewNote))
	}
	return parts
}

// answerParts are what a foreign agent is sent of an answer.
func answerParts(a picket.Answer) protocol.ContentParts {
	parts := partsIn(a.Answer)
	if a.Option != nil {
		parts = slices.Insert(parts, 0, protocol.NewTextPart(*a.Option))
	}
	if len(parts) == 0 {
		parts = protocol.ContentParts{protocol.NewTextPart("(no answer)")}
	}
	if a.InputEdited {
		parts = append(parts, protocol.NewTextPart("The input of the task is now:"))
		parts = append(parts, partsIn(a.Input)...)
	}
	return parts
}

// outputOf is the output of a task with these parts: null if there are none.
func outputOf(parts protocol.ContentParts) (picket.RawJSON, error) {
	if len(parts) == 0 {
		return picket.RawJSON("null"), nil
	}
	raw, err := stdjson.Marshal(map[string]any{"parts": parts})
	if err != nil {
		return nil, fmt.Errorf("its result is not valid JSON: %s", agentclient.Excerpt(err.Error()))
	}
	return raw, nil
}

// statusText is what a foreign agent says about its state, without control characters, in at most so many bytes.
func statusText(s protocol.TaskStatus, most int) string {
	said := strings.Join(agentclient.Texts(s.Message), "\n")
	return text.Excerpt(strings.TrimSpace(text.Printable(said)), most)
}

const (
	maxQuestion = 16 << 10 // bytes of a question
	maxOptions  = 20
	maxOption   = 200 // bytes
)

// questionOf is a question of a foreign agent, and the answers that it offers, which another Picket names in a data
// part.
func questionOf(s protocol.TaskStatus) (question string, options []string) {
	if question = statusText(s, maxQuestion); question == "" {
		question = "The foreign agent needs an answer, and does not say to what."
	}
	if s.Message == nil {
		return question, nil
	}
	for _, p := range s.Message.Parts {
		if p == nil {
			continue
		}
		object, _ := p.Data().(map[string]any)
		list, _ := object["options"].([]any)
		for _, o := range list {
			option, isText := o.(string)
			if option = strings.TrimSpace(text.OneLine(option)); isText && option != "" && len(option) <= maxOption &&
				len(options) < maxOptions && !slices.Contains(options, option) {
				options = append(options, option)
			}
		}
	}
	return question, options
}

// picketMetadata is the member of the metadata of a task in which another Picket reports what it has spent.
const picketMetadata = "picket"

// spentOf is what another Picket reports that a task has spent.
func spentOf(t *protocol.Task) (spent budget.Envelope, ok bool) {
	raw, err := stdjson.Marshal(t.Metadata[picketMetadata])
	if err != nil {
		return spent, false
	}
	var m struct {
		Spent *budget.Envelope `json:"spent"`
	}
	if stdjson.Unmarshal(raw, &m) != nil || m.Spent == nil {
		return spent, false
	}
	return *m.Spent, m.Spent.USD > 0 || m.Spent.Tokens > 0
}
