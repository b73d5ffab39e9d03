package a2a

import (
	stdjson "encoding/json"
	"mime"
	"slices"
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// messageInput is the input of a task, or the answer to a question, that a client's message becomes if it is more than
// text. An agent finds all of the message in it.
type messageInput struct {
	Parts               exactParts        `json:"parts"`
	Metadata            exactObject       `json:"metadata,omitempty"`
	Extensions          []string          `json:"extensions,omitempty"`
	ReferenceTaskIDs    []protocol.TaskID `json:"referenceTaskIds,omitempty"`
	AcceptedOutputModes []string          `json:"acceptedOutputModes,omitempty"`
}

// inputOf is what an agent gets of a message: a string if the message is plain text, else a messageInput.
func inputOf(m *protocol.Message, outputModes []string) (picket.RawJSON, error) {
	if isPlain(m) && len(outputModes) == 0 {
		return stdjson.Marshal(textOf(m.Parts))
	}
	return stdjson.Marshal(messageInput{
		Parts:               exactParts(m.Parts),
		Metadata:            m.Metadata,
		Extensions:          m.Extensions,
		ReferenceTaskIDs:    m.ReferenceTasks,
		AcceptedOutputModes: outputModes,
	})
}

// isPlain reports whether a message says nothing but text.
func isPlain(m *protocol.Message) bool {
	if len(m.Metadata) > 0 || len(m.Extensions) > 0 || len(m.ReferenceTasks) > 0 {
		return false
	}
	return !slices.ContainsFunc(m.Parts, func(p *protocol.Part) bool {
		_, isText := p.Content.(protocol.Text)
		return !isText || p.Filename != "" || p.MediaType != "" && p.MediaType != "text/plain" || len(p.Metadata) > 0
	})
}

// textOf joins the text of parts, a line each.
func textOf(parts protocol.ContentParts) string {
	var lines []string
	for _, p := range parts {
		if s, ok := p.Content.(protocol.Text); ok {
			lines = append(lines, string(s))
		}
	}
	return strings.Join(lines, "\n")
}

// titleOf is a title for the task that a message becomes: the beginning of its text.
func titleOf(parts protocol.ContentParts) string {
	line := strings.TrimSpace(text.OneLine(textOf(parts)))
	if line == "" {
		return "Message of a client"
	}
	return text.Excerpt(line, 100)
}

// partsOf are the parts that JSON of a task stands for. A string is one text part. An object with the member parts has
// its parts as they are. Anything else is one data part. nil stands for nothing.
func partsOf(raw picket.RawJSON) protocol.ContentParts {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var plain string
	if stdjson.Unmarshal(raw, &plain) == nil {
		return protocol.ContentParts{protocol.NewTextPart(plain)}
	}
	if m, ok := structured(raw); ok {
		return protocol.ContentParts(m.Parts)
	}
	if !stdjson.Valid(raw) {
		return nil
	}
	return protocol.ContentParts{protocol.NewDataPart(exactValue(raw))}
}

// structured decodes an object with the member parts, of which there is at least one.
func structured(raw picket.RawJSON) (m messageInput, ok bool) {
	var parts struct {
		Parts []stdjson.RawMessage `json:"parts"`
	}
	if stdjson.Unmarshal(raw, &parts) != nil || len(parts.Parts) == 0 || stdjson.Unmarshal(raw, &m) != nil {
		return messageInput{}, false
	}
	return m, !slices.Contains(m.Parts, nil)
}

// checkMessage refuses a message that an agent could not be given.
func checkMessage(m *protocol.Message, modes []string) error {
	switch {
	case m == nil:
		return picket.Invalid("/message", "Send the message.", "message is required")
	case m.Role != protocol.MessageRoleUser:
		return picket.Invalid("/message/role", "Send ROLE_USER.", "a message of a client has the role ROLE_USER")
	case m.ID == "" || len(m.ID) > maxClientID:
		return picket.Invalid("/message/messageId", "Send an id of your own, such as a UUID.",
			"messageId needs 1 to %d bytes", maxClientID)
	case len(m.ContextID) > maxClientID || strings.ContainsRune(m.ContextID, 0):
		return picket.Invalid("/message/contextId", "Send a shorter id.", "contextId has at most %d bytes", maxClientID)
	case len(m.Parts) == 0 || slices.Contains(m.Parts, nil):
		return picket.Invalid("/message/parts", `Send at least one part, such as {"text": "…"}.`,
			"parts needs at least one part")
	case len(m.Parts) > maxParts:
		return picket.Invalid("/message/parts", "Send fewer parts.", "a message has at most %d parts", maxParts)
	}
	for _, p := range m.Parts {
		if err := checkPart(p, modes); err != nil {
			return err
		}
	}
	return nil
}

// checkPart refuses a part whose media type the pool does not take. Text and JSON need none.
func checkPart(p *protocol.Part, modes []string) error {
	kind := p.MediaType
	if kind == "" {
		switch p.Content.(type) {
		case protocol.Text, protocol.Data:
			return nil
		}
		kind = "application/octet-stream"
	}
	base, _, err := mime.ParseMediaType(kind)
	if err == nil && (slices.Contains(modes, base) || slices.Contains(modes, "*/*")) {
		return nil
	}
	return picket.Refuse(picket.CodeUnsupportedMedia, "Send one of: "+strings.Join(modes, ", ")+".",
		"parts of type %.64q are not accepted", kind)
}
