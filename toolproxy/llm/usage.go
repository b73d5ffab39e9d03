package llm

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket/budget"
)

// usageReaders read what an event of a stream, or a whole answer, says of usage.
var usageReaders = map[*dialect]func(t *usageTally, data jsontext.Value){
	anthropicMessages: anthropicUsage,
	openAIChat:        chatUsage,
	openAIResponses:   responsesUsage,
}

// usageTally is the usage of one call as far as it was told.
type usageTally struct {
	tokens     budget.TokenUsage
	compaction budget.TokenUsage // of a conversation that was shortened meanwhile
	uses       toolUses
	started    bool // the model has been at work
	failed     bool // the vendor has reported an error
	complete   bool // all of them were told
	ended      bool // the stream has said that it is over
	usageOnly  bool // the last event told nothing but the usage
}

// anthropicCounts is a usage as Anthropic reports it. A count that is absent leaves what
// was reported before.
type anthropicCounts struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
	Kept       struct {
		Hour *int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"` // how long what was written to the cache is kept there
	Tools  map[string]jsontext.Value `json:"server_tool_use"`
	Rounds []struct {
		Type string `json:"type"`
		anthropicCounts
	} `json:"iterations"`
}

func (c *anthropicCounts) setIn(sum *budget.TokenUsage) {
	for to, from := range map[*int64]*int64{
		&sum.Input:          c.Input,
		&sum.Output:         c.Output,
		&sum.CacheRead:      c.CacheRead,
		&sum.CacheWrite:     c.CacheWrite,
		&sum.CacheWriteHour: c.Kept.Hour,
	} {
		if from != nil {
			*to = max(*from, 0)
		}
	}
}

// anthropicUsage: message_start has the input, each message_delta all that was
// used so far; a whole answer has it in usage.
func anthropicUsage(t *usageTally, data jsontext.Value) {
	var e struct {
		Type    string `json:"type"`
		Message struct {
			Usage *anthropicCounts `json:"usage"`
		} `json:"message"`
		Usage   *anthropicCounts `json:"usage"`
		Block   jsontext.Value   `json:"content_block"`
		Content jsontext.Value   `json:"content"`
	}
	if json.Unmarshal(data, &e) != nil {
		return
	}
	for _, block := range append(toolUsesIn(e.Content), toolUsesIn(e.Block)...) {
		t.uses.count(block.anthropicName())
	}
	counts := e.Usage
	switch e.Type {
	case "message_start":
		counts, t.started = e.Message.Usage, true
	case "message_delta", "message":
		t.started = true
		t.complete = counts != nil && counts.Output != nil
	case "message_stop":
		t.ended = true
	case "error":
		t.failed = true
	default:
		return
	}
	if counts == nil {
		return
	}
	counts.setIn(&t.tokens)
	t.uses.setReported(counts.Tools)
	// The totals leave out what it cost to shorten the conversation. Each event
	// contains all rounds so far.
	if counts.Rounds != nil {
		t.compaction = budget.TokenUsage{}
	}
	for _, r := range counts.Rounds {
		if r.Type == "compaction" {
			var round budget.TokenUsage
			r.setIn(&round)
			t.compaction = addTokens(t.compaction, round)
		}
	}
}

// total is what the call is charged for.
func (t *usageTally) total() budget.TokenUsage { return addTokens(t.tokens, t.compaction) }

// addTokens adds figures that a vendor reported, and bounds each of them.
func addTokens(a, b budget.TokenUsage) budget.TokenUsage {
	sum := func(x, y int64) int64 { return min(max(x, 0), budget.MaxTokens) + min(max(y, 0), budget.MaxTokens) }
	return budget.TokenUsage{
		Input:          sum(a.Input, b.Input),
		Output:         sum(a.Output, b.Output),
		CacheRead:      sum(a.CacheRead, b.CacheRead),
		CacheWrite:     sum(a.CacheWrite, b.CacheWrite),
		CacheWriteHour: sum(a.CacheWriteHour, b.CacheWriteHour),
	}
}

// chatUsage: a whole answer, or the chunk before the end of a stream.
func chatUsage(t *usageTally, data jsontext.Value) {
	var e struct {
		Choices []jsontext.Value `json:"choices"`
		Error   jsontext.Value   `json:"error"`
		Usage   *struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
			Details    struct {
				Cached int64 `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	t.usageOnly, t.ended = false, string(data) == "[DONE]"
	if json.Unmarshal(data, &e) != nil {
		return
	}
	t.started = t.started || len(e.Choices) > 0
	t.failed = t.failed || e.Error.Kind() == '{'
	if e.Usage != nil {
		t.usageOnly = len(e.Choices) == 0
		t.setCounts(e.Usage.Prompt, e.Usage.Completion, e.Usage.Details.Cached)
	}
}

// responsesUsage: a whole answer, or the last event of a stream.
func responsesUsage(t *usageTally, data jsontext.Value) {
	type response struct {
		Output jsontext.Value `json:"output"`
		Usage  *struct {
			Input   int64 `json:"input_tokens"`
			Output  int64 `json:"output_tokens"`
			Details struct {
				Cached int64 `json:"cached_tokens"`
			} `json:"input_tokens_details"`
		} `json:"usage"`
	}
	var e struct {
		Type     string         `json:"type"`
		Object   string         `json:"object"`
		Response *response      `json:"response"`
		Item     jsontext.Value `json:"item"`
		response
	}
	if json.Unmarshal(data, &e) != nil {
		return
	}
	if e.Type == "response.output_item.done" {
		for _, item := range toolUsesIn(e.Item) {
			t.uses.count(item.responsesName())
		}
	}
	told := e.Response
	if e.Object == "response" {
		told = &e.response
	}
	failed := e.Type == "error" || e.Type == "response.failed"
	t.failed = t.failed || failed
	t.started = t.started || e.Type != "" && !failed || e.Object == "response"
	if told != nil && told.Output != nil {
		t.uses.countAll(toolUsesIn(told.Output))
	}
	if told != nil && told.Usage != nil {
		t.setCounts(told.Usage.Input, told.Usage.Output, told.Usage.Details.Cached)
		t.ended = e.Type != ""
	}
}

// setCounts takes figures in which what was read from the cache is part of the
// input.
func (t *usageTally) setCounts(input, output, cached int64) {
	cached = min(max(cached, 0), max(input, 0))
	t.tokens = budget.TokenUsage{Input: max(input, 0) - cached, Output: max(output, 0), CacheRead: cached}
	t.started, t.complete = true, true
}

// promptTokens is what the prompt came to.
func (t *usageTally) promptTokens() int64 {
	return t.tokens.Input + t.tokens.CacheRead + t.tokens.CacheWrite
}

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
