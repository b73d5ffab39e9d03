package toolproxy

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
)

// hosted is a tool that the vendor runs by itself while it answers, for a fee
// beside the tokens.
type hosted struct {
	name string // that of its price, without llm_
	uses int64  // most uses that its definition allows; 0: it does not say
	at   int    // in the body, behind the opening brace of its definition; 0: not to be changed
	put  bool   // a limit of its uses has to be put in there
}

// runHere are the kinds of tools that an agent runs itself, or that cost tokens
// only. A kind that is not known is one that the vendor runs.
var runHere = map[*dialect][]string{
	anthropicMessages: {"custom", "bash", "text_editor", "computer", "computer_toolset", "browser_toolset", "memory",
		"tool_search_tool_regex", "tool_search_tool_bm25"},
	openAIChat: {"function", "custom"},
	openAIResponses: {"function", "custom", "local_shell", "apply_patch", "computer", "computer_use_preview",
		"tool_search"},
}

// otherNames are kinds that have the price of another.
var otherNames = map[string]string{"web_search_preview": "web_search", "mcp_toolset": "mcp"}

var (
	toolDate = regexp.MustCompile(`_20\d\d_?\d\d_?\d\d$`)
	toolKind = regexp.MustCompile(`^[a-z0-9][a-z0-9_.:/-]{0,79}$`)
)

// kindOf is what a type of tool is called whatever its date.
func kindOf(word string) string {
	kind := toolDate.ReplaceAllString(word, "")
	if other := otherNames[kind]; other != "" {
		return other
	}
	return kind
}

// offer notes the tools of a list; at is where the list stands in the body, 0
// when it is within something that is not to be changed.
func (q *prompt) offer(list jsontext.Value, at int, d *dialect) error {
	if list.Kind() == 'n' {
		return nil
	}
	if list.Kind() != '[' {
		return badTool("tools is no list")
	}
	dec := jsontext.NewDecoder(bytes.NewReader(list))
	if _, err := dec.ReadToken(); err != nil {
		return badPrompt(err)
	}
	for dec.PeekKind() != ']' {
		tool, err := dec.ReadValue()
		if err != nil {
			return badPrompt(err)
		}
		inside := 0
		if at > 0 {
			inside = at + int(dec.InputOffset()) - len(tool) + 1
		}
		if err := q.offerOne(tool.Clone(), inside, d); err != nil {
			return err
		}
	}
	return nil
}

// offeredTool is what of a tool's definition says who runs it.
type offeredTool struct {
	Type     string         `json:"type"`
	Name     string         `json:"name"`
	Function jsontext.Value `json:"function"`
	Uses     *int64         `json:"max_uses"`
	Tools    jsontext.Value `json:"tools"` // of a namespace
	Where    struct {
		Type string `json:"type"`
	} `json:"environment"` // of a shell
}

func (q *prompt) offerOne(raw jsontext.Value, at int, d *dialect) error {
	var tool offeredTool
	if raw.Kind() != '{' || json.Unmarshal(raw, &tool) != nil {
		return badTool("the definition of a tool cannot be read")
	}
	members := map[string]jsontext.Value{}
	if json.Unmarshal(raw, &members) != nil {
		return badTool("the definition of a tool cannot be read")
	}
	if err := plainNames(members); err != nil {
		return err
	}
	kind := kindOf(tool.Type)
	switch {
	case tool.Type == "" && (tool.Name != "" || tool.Function != nil), slices.Contains(runHere[d], kind),
		kind == "shell" && tool.Where.Type == "local":
		return nil
	case kind == "namespace" && d == openAIResponses:
		return q.offer(tool.Tools, 0, d)
	case !toolKind.MatchString(kind):
		return badTool("a tool has the type %q", clip(tool.Type))
	}
	h := hosted{name: kind, at: at}
	if members["max_uses"] != nil {
		h.at = 0 // not twice
	}
	if tool.Uses != nil {
		if h.uses = *tool.Uses; h.uses < 1 || h.uses > picket.MaxNumber {
			return badTool("max_uses of a tool is out of range")
		}
	}
	q.hosted = append(q.hosted, h)
	return nil
}

// toolMembers say who runs a tool, and how often.
var toolMembers = []string{"type", "name", "function", "max_uses", "tools", "environment"}

// plainNames refuses members that some servers would read as others.
func plainNames(members map[string]jsontext.Value) error {
	for word := range members {
		if slices.ContainsFunc(toolMembers,
			func(name string) bool { return name != word && strings.EqualFold(name, word) }) {
			return badTool("%s of a tool is no member of the API", clip(word))
		}
	}
	return nil
}

func badTool(format string, args ...any) error {
	return picket.Invalid("/tools", "Send each tool as the API asks for it, with its type.", format, args...)
}

// takeTools notes a member that brings tools of the vendor's, or limits them.
func (q *prompt) takeTools(m member, d *dialect) (err error) {
	switch {
	case m.name == "tools":
		return q.offer(m.value, m.start, d)
	case m.name == d.list:
		return q.offerWithin(m.value, d)
	case m.name == "context_management" && d == anthropicMessages:
		if strings.Contains(string(m.value), "compact") { // the vendor reads and writes twice
			q.shortens, q.copies = true, 2
		}
	case m.name == "mcp_servers" && !isNothing(m.value):
		q.hosted, q.refers = append(q.hosted, hosted{name: "mcp"}), true
	case m.name == "web_search_options" && d == openAIChat && !isNothing(m.value),
		m.name == "model" && d == openAIChat && searches(q.model):
		if !q.brings("web_search") {
			q.hosted, q.refers = append(q.hosted, hosted{name: "web_search"}), true
		}
	case m.name == "max_tool_calls" && m.value.Kind() == 'n':
		q.uncalls = append(q.uncalls, m)
	case m.name == "max_tool_calls" && d == openAIResponses:
		if q.calls, err = wholeNumber(m.value); err == nil && q.calls < 1 {
			err = errors.New("out of range")
		}
	}
	return err
}

// offerWithin notes the tools that are brought along in the messages of a
// prompt.
func (q *prompt) offerWithin(messages jsontext.Value, d *dialect) error {
	if messages.Kind() != '[' {
		return nil
	}
	for _, item := range itemsOf(messages) {
		var message struct {
			Tools   jsontext.Value `json:"tools"`
			Content jsontext.Value `json:"content"`
		}
		if json.Unmarshal(item, &message) != nil {
			continue // the vendor refuses it
		}
		if d == openAIResponses && message.Tools != nil {
			if err := q.offer(message.Tools, 0, d); err != nil {
				return err
			}
		}
		if d == anthropicMessages && message.Content.Kind() == '[' {
			if err := q.offerChanged(itemsOf(message.Content), d); err != nil {
				return err
			}
		}
	}
	return nil
}

// offerChanged notes the tools that are defined in the middle of a
// conversation, or were before it was shortened.
func (q *prompt) offerChanged(blocks []jsontext.Value, d *dialect) error {
	type change struct {
		Tool jsontext.Value `json:"tool"`
	}
	for _, raw := range blocks {
		var block struct {
			change
			Changes jsontext.Value `json:"tool_changes"`
		}
		if json.Unmarshal(raw, &block) != nil {
			continue // a text, or what the vendor refuses
		}
		var changes []change
		if !isNothing(block.Changes) && json.Unmarshal(block.Changes, &changes) != nil {
			return badTool("tool_changes cannot be read")
		}
		for _, c := range append(changes, block.change) {
			var tool struct {
				Definition jsontext.Value `json:"definition"`
			}
			if c.Tool.Kind() != '{' || json.Unmarshal(c.Tool, &tool) != nil || tool.Definition == nil {
				continue // it refers to one that is defined elsewhere
			}
			if err := q.offerOne(tool.Definition, 0, d); err != nil {
				return err
			}
		}
	}
	return nil
}
