package llm

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// toolUses counts how often vendors' tools were used in one answer, by the names of
// their prices.
type toolUses struct {
	reported map[string]int64 // by the usage: it knows best
	observed map[string]int64 // in the answer
}

// toolUse is a piece of an answer that may be the use of a tool.
type toolUse struct {
	Type   string         `json:"type"`
	Name   string         `json:"name"`
	Action jsontext.Value `json:"action"`
}

// toolUsesIn reads the pieces of an answer, or the only one.
func toolUsesIn(v jsontext.Value) (list []toolUse) {
	if v == nil {
		return nil
	}
	for _, item := range itemsOf(v) {
		var u toolUse
		if json.Unmarshal(item, &u) == nil {
			list = append(list, u)
		}
	}
	return list
}

// isSearch reports whether the use was a search. A use without a known action counts as
// one.
func (u toolUse) isSearch() bool {
	var action struct {
		Type string `json:"type"`
	}
	return json.Unmarshal(u.Action, &action) != nil || action.Type == "" || action.Type == "search"
}

// partOfTool are uses that belong to another tool.
var partOfTool = map[string]string{
	"bash_code_execution": "code_execution", "text_editor_code_execution": "code_execution",
	"program": "programmatic_tool_calling",
}

// anthropicName is the tool that a block of a message has used; "" when it has used
// none of the vendor's.
func (u toolUse) anthropicName() string {
	switch u.Type {
	case "server_tool_use":
		return priceNameOf(u.Name)
	case "mcp_tool_use":
		return "mcp"
	}
	return ""
}

// responsesName is the tool that an item of a response has used. A search that only
// opens a page it has found takes no fee.
func (u toolUse) responsesName() string {
	name, called := strings.CutSuffix(u.Type, "_call")
	if !called && u.Type != "program" || name == "web_search" && !u.isSearch() {
		return ""
	}
	return priceNameOf(name)
}

func priceNameOf(word string) string {
	if whole := partOfTool[word]; whole != "" {
		return whole
	}
	return toolKindOf(word)
}

// count counts a use in an answer.
func (u *toolUses) count(name string) {
	if name == "" {
		return
	}
	if u.observed == nil {
		u.observed = map[string]int64{}
	}
	u.observed[name]++
}

// countAll takes the items of a whole response; a stream may have shown them
// before, and at times only one of the two has them.
func (u *toolUses) countAll(items []toolUse) {
	var all toolUses
	for _, item := range items {
		all.count(item.responsesName())
	}
	for name, n := range all.observed {
		if u.observed == nil {
			u.observed = map[string]int64{}
		}
		u.observed[name] = max(u.observed[name], n)
	}
}

// setReported takes the counts of a usage, such as web_search_requests. Each event
// tells all uses so far.
func (u *toolUses) setReported(counts map[string]jsontext.Value) {
	for word, v := range counts {
		n, err := wholeNumber(v)
		if name, ok := strings.CutSuffix(word, "_requests"); ok && err == nil {
			if u.reported == nil {
				u.reported = map[string]int64{}
			}
			u.reported[priceNameOf(name)] = max(n, 0)
		}
	}
}
