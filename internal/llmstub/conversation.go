package llmstub

import (
	"crypto/rand"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// object is a JSON object to be written.
type object = map[string]any

// newID names an answer or a call: providers never give the same twice.
func newID() string { return strings.ToLower(rand.Text()[:16]) }

// block is a piece of a message, in the words of all wires.
type block struct {
	Type      string         `json:"type"`
	Text      string         `json:"text"`
	Content   jsontext.Value `json:"content"`
	ToolUseID string         `json:"tool_use_id"`
}

// blocks reads the content of a message: a text, or a list of pieces.
func blocks(content jsontext.Value) []block {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []block{{Type: "text", Text: text}}
	}
	var list []block
	_ = json.Unmarshal(content, &list)
	return list
}

// textOf joins the texts of a content.
func textOf(content jsontext.Value) string {
	var all []string
	for _, b := range blocks(content) {
		if b.Text != "" {
			all = append(all, b.Text)
		}
	}
	return strings.Join(all, "\n")
}

// conversation follows a conversation in its order.
type conversation struct{ req *Request }

// userMessage takes a message of the user's.
func (t conversation) userMessage(text string) { t.req.Prompt, t.req.Step, t.req.Result = text, 0, "" }

// assistantMessage takes an answer of the model's.
func (t conversation) assistantMessage() { t.req.Step++ }

// toolMessage takes the result of a tool.
func (t conversation) toolMessage(text string) { t.req.Result = text }
