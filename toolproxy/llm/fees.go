package llm

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

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
