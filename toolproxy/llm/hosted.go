package llm

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/lazyregexp"
	"github.com/picket-dev/picket/internal/web"
)

// clientTools are the kinds of tools that an agent runs itself, or that cost only tokens.
// The vendor is assumed to run any other kind.
var clientTools = map[*dialect][]string{
	anthropicMessages: {"custom", "bash", "text_editor", "computer", "computer_toolset", "browser_toolset", "memory",
		"tool_search_tool_regex", "tool_search_tool_bm25"},
	openAIChat: {"function", "custom"},
	openAIResponses: {"function", "custom", "local_shell", "apply_patch", "computer", "computer_use_preview",
		"tool_search"},
}

// toolAliases are kinds that have the price of another.
var toolAliases = map[string]string{"web_search_preview": "web_search", "mcp_toolset": "mcp"}

var (
	toolDatePattern = lazyregexp.New(`_20\d\d_?\d\d_?\d\d$`)
	toolKindPattern = lazyregexp.New(`^[a-z0-9][a-z0-9_.:/-]{0,79}$`)
)

// toolKindOf is the name of a type of tool without its date.
func toolKindOf(word string) string {
	kind := toolDatePattern().ReplaceAllString(word, "")
	if other := toolAliases[kind]; other != "" {
		return other
	}
	return kind
}

// addTools notes the tools of a list; at is where the list stands in the body, 0
// when it is within something that is not to be changed.
func (q *request) addTools(list jsontext.Value, at int, d *dialect) error {
	if list.Kind() == 'n' {
		return nil
	}
	if list.Kind() != '[' {
		return invalidTool("tools is not a list")
	}
	dec := jsontext.NewDecoder(bytes.NewReader(list))
	if _, err := dec.ReadToken(); err != nil {
		return invalidBody(err)
	}
	for dec.PeekKind() != ']' {
		tool, err := dec.ReadValue()
		if err != nil {
			return invalidBody(err)
		}
		inside := 0
		if at > 0 {
			inside = at + int(dec.InputOffset()) - len(tool) + 1
		}
		if err := q.addTool(tool.Clone(), inside, d); err != nil {
			return err
		}
	}
	return nil
}

// toolDefinition is what of a tool's definition says who runs it.
type toolDefinition struct {
	Type     string         `json:"type"`
	Name     string         `json:"name"`
	Function jsontext.Value `json:"function"`
	Uses     *int64         `json:"max_uses"`
	Tools    jsontext.Value `json:"tools"` // of a namespace
	Where    struct {
		Type string `json:"type"`
	} `json:"environment"` // of a shell
}

func (q *request) addTool(raw jsontext.Value, at int, d *dialect) error {
	var tool toolDefinition
	if raw.Kind() != '{' || json.Unmarshal(raw, &tool) != nil {
		return invalidTool("the definition of a tool cannot be read")
	}
	members := map[string]jsontext.Value{}
	if json.Unmarshal(raw, &members) != nil {
		return invalidTool("the definition of a tool cannot be read")
	}
	if err := checkMemberNames(members); err != nil {
		return err
	}
	kind := toolKindOf(tool.Type)
	switch {
	case tool.Type == "" && (tool.Name != "" || tool.Function != nil), slices.Contains(clientTools[d], kind),
		kind == "shell" && tool.Where.Type == "local":
		return nil
	case kind == "namespace" && d == openAIResponses:
		return q.addTools(tool.Tools, 0, d)
	case !toolKindPattern().MatchString(kind):
		return invalidTool("a tool has the type %q", web.Shortened(tool.Type))
	}
	h := hostedTool{name: kind, limitAt: at}
	if members["max_uses"] != nil {
		h.limitAt = 0 // not twice
	}
	if tool.Uses != nil {
		if h.uses = *tool.Uses; h.uses < 1 || h.uses > picket.MaxNumber {
			return invalidTool("max_uses of a tool is out of range")
		}
	}
	q.hosted = append(q.hosted, h)
	return nil
}

// toolMembers say who runs a tool, and how often.
var toolMembers = []string{"type", "name", "function", "max_uses", "tools", "environment"}

// checkMemberNames refuses members that some servers would read as others.
func checkMemberNames(members map[string]jsontext.Value) error {
	for word := range members {
		if slices.ContainsFunc(toolMembers,
			func(name string) bool { return name != word && strings.EqualFold(name, word) }) {
			return invalidTool("%s of a tool is not a member of the API", web.Shortened(word))
		}
	}
	return nil
}

func invalidTool(format string, args ...any) error {
	return picket.Invalid("/tools", "Send each tool as the API asks for it, with its type.", format, args...)
}

// takeTools notes a member that brings tools of the vendor's, or limits them.
func (q *request) takeTools(m bodyMember, d *dialect) (err error) {
	switch {
	case m.name == "tools":
		return q.addTools(m.value, m.start, d)
	case m.name == d.messagesMember:
		return q.addMessageTools(m.value, d)
	case m.name == "context_management" && d == anthropicMessages:
		if strings.Contains(string(m.value), "compact") { // the vendor reads and writes twice
			q.compacts, q.choices = true, 2
		}
	case m.name == "mcp_servers" && !isEmptyValue(m.value):
		q.hosted, q.usesExternal = append(q.hosted, hostedTool{name: "mcp"}), true
	case m.name == "web_search_options" && d == openAIChat && !isEmptyValue(m.value),
		m.name == "model" && d == openAIChat && isSearchModel(q.model):
		if !q.hasHostedTool("web_search") {
			q.hosted, q.usesExternal = append(q.hosted, hostedTool{name: "web_search"}), true
		}
	case m.name == "max_tool_calls" && m.value.Kind() == 'n':
		q.nullToolCalls = append(q.nullToolCalls, m)
	case m.name == "max_tool_calls" && d == openAIResponses:
		if q.maxToolCalls, err = wholeNumber(m.value); err == nil && q.maxToolCalls < 1 {
			err = errors.New("out of range")
		}
	}
	return err
}

// addMessageTools notes the tools that are brought along in the messages of a
// prompt.
func (q *request) addMessageTools(messages jsontext.Value, d *dialect) error {
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
			if err := q.addTools(message.Tools, 0, d); err != nil {
				return err
			}
		}
		if d == anthropicMessages && message.Content.Kind() == '[' {
			if err := q.addChangedTools(itemsOf(message.Content), d); err != nil {
				return err
			}
		}
	}
	return nil
}

// addChangedTools notes the tools that are defined in the middle of a
// conversation, or were before it was shortened.
func (q *request) addChangedTools(blocks []jsontext.Value, d *dialect) error {
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
		if !isEmptyValue(block.Changes) && json.Unmarshal(block.Changes, &changes) != nil {
			return invalidTool("tool_changes cannot be read")
		}
		for _, c := range append(changes, block.change) {
			var tool struct {
				Definition jsontext.Value `json:"definition"`
			}
			if c.Tool.Kind() != '{' || json.Unmarshal(c.Tool, &tool) != nil || tool.Definition == nil {
				continue // it refers to one that is defined elsewhere
			}
			if err := q.addTool(tool.Definition, 0, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// isSearchModel reports whether a model of Chat Completions searches with each answer.
func isSearchModel(model string) bool {
	return strings.Contains(model, "-search-preview") || strings.Contains(model, "-search-api")
}

// defaultMaxUses is how often a vendor's tool may be used in one answer when the
// request does not say.
const defaultMaxUses = 8

// hostedToolPrefix begins the names under which the fees of vendors' tools stand in
// the price list.
const hostedToolPrefix = "llm_"

// toolFees is what the vendor's own tools may cost in one call.
type toolFees struct {
	list *budget.PriceList
	most budget.Money // all uses together
}

// fees finds what the hosted tools of a prompt may cost. A tool without a price is
// refused, and so is a tool with a fee whose uses nothing limits.
func (q *request) fees(d *dialect, list *budget.PriceList) (toolFees, error) {
	f := toolFees{list: list}
	for i := range q.hosted {
		h := &q.hosted[i]
		price, ok := list.Tool(hostedToolPrefix + h.name)
		switch {
		case !ok:
			return f, unpricedHostedTool(h.name)
		case price.MaxCost() == 0:
		case d == openAIResponses: // its limit is that of all tools together
			q.insertToolCalls = q.maxToolCalls == 0
			f.most = max(f.most, price.MaxCostOf(cmp.Or(q.maxToolCalls, defaultMaxUses)))
		default:
			uses, err := q.maxUsesOf(h, d)
			if err != nil {
				return f, err
			}
			f.most = f.most.Add(price.MaxCostOf(uses))
		}
	}
	return f, nil
}

// maxUsesOf is how often a tool that costs something may be used.
func (q *request) maxUsesOf(h *hostedTool, d *dialect) (int64, error) {
	limited := d == anthropicMessages && slices.Contains(limitedTools, h.name)
	switch {
	case d == openAIChat && h.name == "web_search": // once for each answer
		return q.choices, nil
	case limited && h.uses > 0:
		return h.uses, nil
	case limited && h.limitAt > 0:
		h.insertLimit = true
		return defaultMaxUses, nil
	}
	remedy := "Leave it out, or ask an operator to take no fee for it: tools.prices." + hostedToolPrefix + h.name +
		": {call: 0} in picket.yaml."
	if limited {
		remedy = "Give it max_uses."
	}
	return 0, picket.Refuse(picket.CodeUnpricedTool, remedy, "nothing limits how often %s may be used", h.name).
		With("tool", hostedToolPrefix+h.name)
}

// limitedTools are those of Anthropic's that take max_uses.
var limitedTools = []string{"web_search", "web_fetch", "advisor"}

// cost is what the uses of vendors' tools came to, and what they were.
func (f toolFees) cost(uses map[string]int64) (sum budget.Money, told string) {
	for _, name := range slices.Sorted(maps.Keys(uses)) {
		if price, ok := f.list.Tool(hostedToolPrefix + name); ok && uses[name] > 0 {
			sum = sum.Add(price.MaxCostOf(uses[name]))
			told += fmt.Sprintf(" %s %d", name, uses[name])
		}
	}
	return sum, told
}

// unpricedHostedTool refuses a hosted tool without a price.
func unpricedHostedTool(name string) error {
	line := "tools.prices." + hostedToolPrefix + name + ": {call: 0.01}"
	return picket.Refuse(picket.CodeUnpricedTool,
		"Leave the tool out, or ask an operator to say in picket.yaml what one use costs, such as "+line+
			"; {call: 0} takes no fee.",
		"the vendor runs %s itself, and there is no price for that", name).
		With("tool", hostedToolPrefix+name)
}
