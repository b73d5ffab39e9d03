package toolproxy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// openUses is how often a vendor's tool may be used in one answer when the
// request does not say.
const openUses = 8

// feePrefix begins the names under which the fees of vendors' tools stand in
// the price list.
const feePrefix = "llm_"

// fees is what the vendor's own tools may cost in one call.
type fees struct {
	list *budget.List
	most budget.Money // all uses together
}

// fees finds what the tools of a prompt may cost. One without a price is
// refused, and so is one that costs something and may be used without end.
func (q *prompt) fees(d *dialect, list *budget.List) (fees, error) {
	f := fees{list: list}
	for i := range q.hosted {
		h := &q.hosted[i]
		price, ok := list.Tool(feePrefix + h.name)
		switch {
		case !ok:
			return f, unpricedHosted(h.name)
		case price.Bound() == 0:
		case d == openAIResponses: // its limit is that of all tools together
			q.putCalls = q.calls == 0
			f.most = max(f.most, price.Times(cmp.Or(q.calls, openUses)))
		default:
			uses, err := q.usesOf(h, d)
			if err != nil {
				return f, err
			}
			f.most = f.most.Plus(price.Times(uses))
		}
	}
	return f, nil
}

// usesOf is how often a tool that costs something may be used.
func (q *prompt) usesOf(h *hosted, d *dialect) (int64, error) {
	limited := d == anthropicMessages && slices.Contains(limitedTools, h.name)
	switch {
	case d == openAIChat && h.name == "web_search": // once for each answer
		return q.copies, nil
	case limited && h.uses > 0:
		return h.uses, nil
	case limited && h.at > 0:
		h.put = true
		return openUses, nil
	}
	remedy := "Leave it out, or ask an operator to take no fee for it: tools.prices." + feePrefix + h.name +
		": {call: 0} in picket.yaml."
	if limited {
		remedy = "Give it max_uses."
	}
	return 0, picket.Refuse(picket.CodeUnpricedTool, remedy, "nothing limits how often %s may be used", h.name).
		With("tool", feePrefix+h.name)
}

// limitedTools are those of Anthropic's that take max_uses.
var limitedTools = []string{"web_search", "web_fetch", "advisor"}

// cost is what the uses of vendors' tools came to, and what they were.
func (f fees) cost(uses map[string]int64) (sum budget.Money, told string) {
	var names []string
	for name := range uses {
		names = append(names, name)
	}
	for _, name := range sorted(names) {
		if price, ok := f.list.Tool(feePrefix + name); ok && uses[name] > 0 {
			sum = sum.Plus(price.Times(uses[name]))
			told += fmt.Sprintf(" %s %d", name, uses[name])
		}
	}
	return sum, told
}

// unpricedHosted refuses a tool that the vendor runs for a fee nobody has named.
func unpricedHosted(name string) error {
	line := "tools.prices." + feePrefix + name + ": {call: 0.01}"
	return picket.Refuse(picket.CodeUnpricedTool,
		"Leave the tool out, or ask an operator to say in picket.yaml what one use costs, such as "+line+
			"; {call: 0} takes no fee.",
		"the vendor runs %s itself, and nobody has said what it takes for that", name).With("tool", feePrefix+name)
}

// searches says that a model of Chat Completions searches with each answer.
func searches(model string) bool {
	return strings.Contains(model, "-search-preview") || strings.Contains(model, "-search-api")
}
