package toolproxy

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// uses counts how often vendors' tools were used in one answer, by the names of
// their prices.
type uses struct {
	told map[string]int64 // by the usage: it knows best
	seen map[string]int64 // in the answer
}

// usedTool is a piece of an answer that may be the use of a tool.
type usedTool struct {
	Type   string         `json:"type"`
	Name   string         `json:"name"`
	Action jsontext.Value `json:"action"`
}

// usedIn reads the pieces of an answer, or the only one.
func usedIn(v jsontext.Value) (list []usedTool) {
	if v == nil {
		return nil
	}
	for _, item := range itemsOf(v) {
		var u usedTool
		if json.Unmarshal(item, &u) == nil {
			list = append(list, u)
		}
	}
	return list
}

// searched says that what was done was a search; what is not said counts as
// one.
func (u usedTool) searched() bool {
	var action struct {
		Type string `json:"type"`
	}
	return json.Unmarshal(u.Action, &action) != nil || action.Type == "" || action.Type == "search"
}

// parts are uses that belong to another tool.
var parts = map[string]string{
	"bash_code_execution": "code_execution", "text_editor_code_execution": "code_execution",
	"program": "programmatic_tool_calling",
}

// anthropic is the tool that a block of a message has used; "" when it has used
// none of the vendor's.
func (u usedTool) anthropic() string {
	switch u.Type {
	case "server_tool_use":
		return nameOf(u.Name)
	case "mcp_tool_use":
		return "mcp"
	}
	return ""
}

// responses is the tool that an item of a response has used. A search that only
// opens a page it has found takes no fee.
func (u usedTool) responses() string {
	name, called := strings.CutSuffix(u.Type, "_call")
	if !called && u.Type != "program" || name == "web_search" && !u.searched() {
		return ""
	}
	return nameOf(name)
}

func nameOf(word string) string {
	if whole := parts[word]; whole != "" {
		return whole
	}
	return kindOf(word)
}

// saw counts a use in an answer.
func (u *uses) saw(name string) {
	if name == "" {
		return
	}
	if u.seen == nil {
		u.seen = map[string]int64{}
	}
	u.seen[name]++
}

// listed takes the items of a whole response; a stream may have shown them
// before, and at times only one of the two has them.
func (u *uses) listed(items []usedTool) {
	var all uses
	for _, item := range items {
		all.saw(item.responses())
	}
	for name, n := range all.seen {
		if u.seen == nil {
			u.seen = map[string]int64{}
		}
		u.seen[name] = max(u.seen[name], n)
	}
}

// tell takes the counts of a usage, such as web_search_requests. Each event
// tells all uses so far.
func (u *uses) tell(counts map[string]jsontext.Value) {
	for word, v := range counts {
		n, err := wholeNumber(v)
		if name, ok := strings.CutSuffix(word, "_requests"); ok && err == nil {
			if u.told == nil {
				u.told = map[string]int64{}
			}
			u.told[nameOf(name)] = max(n, 0)
		}
	}
}

// used is how often each tool was used that the vendor takes a fee for. What a
// prompt refers to may have brought tools that it does not name itself.
func (x *thought) used(t *tally) map[string]int64 {
	all := maps.Clone(t.uses.seen)
	if all == nil {
		all = map[string]int64{}
	}
	maps.Copy(all, t.uses.told)
	for name := range all {
		if !x.prompt.brings(name) && (name == "shell" || slices.Contains(runHere[x.dialect], name)) {
			delete(all, name)
		}
	}
	if x.dialect == openAIChat && x.prompt.brings("web_search") { // with each answer, and none says so
		all["web_search"] = x.prompt.copies
	}
	return all
}

// brings says that a prompt offers a tool of the vendor's.
func (q *prompt) brings(name string) bool {
	return slices.ContainsFunc(q.hosted, func(h hosted) bool { return h.name == name })
}
