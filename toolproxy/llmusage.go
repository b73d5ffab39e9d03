package toolproxy

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket/budget"
)

// dialect is one way of asking a language model.
type dialect struct {
	list   string   // the member that holds the messages
	limits []string // members that limit the answer; the first is put in where there is none
	// event reads what an event of a stream, or a whole answer, says of usage.
	event func(t *tally, data jsontext.Value)
}

var (
	anthropicMessages = &dialect{list: "messages", limits: []string{"max_tokens"}, event: anthropicUsage}
	openAIChat        = &dialect{
		list:   "messages",
		limits: []string{"max_completion_tokens", "max_tokens"},
		event:  chatUsage,
	}
	openAIResponses = &dialect{list: "input", limits: []string{"max_output_tokens"}, event: responsesUsage}
)

// tally is the usage of one call as far as it was told.
type tally struct {
	tokens budget.Tokens
	aside  budget.Tokens // of a conversation that was shortened meanwhile
	uses   uses
	begun  bool // the model has been at work
	final  bool // all of them were told
	ended  bool // the stream has said that it is over
	only   bool // the last event told nothing but the usage
}

type anthropicCounts struct {
	Input      *int64                    `json:"input_tokens"`
	Output     *int64                    `json:"output_tokens"`
	CacheRead  *int64                    `json:"cache_read_input_tokens"`
	CacheWrite *int64                    `json:"cache_creation_input_tokens"`
	Kept       cacheKept                 `json:"cache_creation"`
	Tools      map[string]jsontext.Value `json:"server_tool_use"`
	Rounds     []anthropicRound          `json:"iterations"`
}

type anthropicRound struct {
	Type       string `json:"type"`
	Input      int64  `json:"input_tokens"`
	Output     int64  `json:"output_tokens"`
	CacheRead  int64  `json:"cache_read_input_tokens"`
	CacheWrite int64  `json:"cache_creation_input_tokens"`

	Kept cacheKept `json:"cache_creation"`
}

// cacheKept is how long what was written to the cache is kept there.
type cacheKept struct {
	Hour *int64 `json:"ephemeral_1h_input_tokens"`
}

func (k cacheKept) hour() int64 {
	if k.Hour == nil {
		return 0
	}
	return *k.Hour
}

// anthropicUsage: message_start has the input, each message_delta all that was
// used so far; a whole answer has it in usage.
func anthropicUsage(t *tally, data jsontext.Value) {
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
	for _, block := range append(usedIn(e.Content), usedIn(e.Block)...) {
		t.uses.saw(block.anthropic())
	}
	counts := e.Usage
	switch e.Type {
	case "message_start":
		counts, t.begun = e.Message.Usage, true
	case "message_delta", "message":
		t.begun = true
		t.final = counts != nil && counts.Output != nil
	case "message_stop":
		t.ended = true
	default:
		return
	}
	if counts == nil {
		return
	}
	for to, from := range map[*int64]*int64{
		&t.tokens.Input:      counts.Input,
		&t.tokens.Output:     counts.Output,
		&t.tokens.CacheRead:  counts.CacheRead,
		&t.tokens.CacheWrite: counts.CacheWrite,
		&t.tokens.CacheHour:  counts.Kept.Hour,
	} {
		if from != nil {
			*to = max(*from, 0)
		}
	}
	t.uses.tell(counts.Tools)
	t.shortened(counts.Rounds)
}

// shortened takes what it cost to shorten the conversation: the totals leave it
// out. Each event tells of all rounds so far.
func (t *tally) shortened(rounds []anthropicRound) {
	if rounds != nil {
		t.aside = budget.Tokens{}
	}
	for _, r := range rounds {
		if r.Type == "compaction" {
			t.aside = plus(t.aside, budget.Tokens{
				Input:      r.Input,
				Output:     r.Output,
				CacheRead:  r.CacheRead,
				CacheWrite: r.CacheWrite,
				CacheHour:  r.Kept.hour(),
			})
		}
	}
}

// all is what the call is charged for.
func (t *tally) all() budget.Tokens { return plus(t.tokens, t.aside) }

// plus adds figures that a vendor has told, whatever they are.
func plus(a, b budget.Tokens) budget.Tokens {
	sum := func(x, y int64) int64 { return min(max(x, 0), budget.MaxTokens) + min(max(y, 0), budget.MaxTokens) }
	return budget.Tokens{
		Input:      sum(a.Input, b.Input),
		Output:     sum(a.Output, b.Output),
		CacheRead:  sum(a.CacheRead, b.CacheRead),
		CacheWrite: sum(a.CacheWrite, b.CacheWrite),
		CacheHour:  sum(a.CacheHour, b.CacheHour),
	}
}

// chatUsage: a whole answer, or the chunk before the end of a stream.
func chatUsage(t *tally, data jsontext.Value) {
	var e struct {
		Choices []jsontext.Value `json:"choices"`
		Usage   *struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
			Details    struct {
				Cached int64 `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	t.only, t.ended = false, string(data) == "[DONE]"
	if json.Unmarshal(data, &e) != nil {
		return
	}
	t.begun = t.begun || len(e.Choices) > 0
	if e.Usage != nil {
		t.only = len(e.Choices) == 0
		t.counted(e.Usage.Prompt, e.Usage.Completion, e.Usage.Details.Cached)
	}
}

// responsesUsage: a whole answer, or the last event of a stream.
func responsesUsage(t *tally, data jsontext.Value) {
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
		for _, item := range usedIn(e.Item) {
			t.uses.saw(item.responses())
		}
	}
	told := e.Response
	if e.Object == "response" {
		told = &e.response
	}
	t.begun = t.begun || e.Type != "" && e.Type != "error" || e.Object == "response"
	if told != nil && told.Output != nil {
		t.uses.listed(usedIn(told.Output))
	}
	if told != nil && told.Usage != nil {
		t.counted(told.Usage.Input, told.Usage.Output, told.Usage.Details.Cached)
		t.ended = e.Type != ""
	}
}

// counted takes figures in which what was read from the cache is part of the
// input.
func (t *tally) counted(input, output, cached int64) {
	cached = min(max(cached, 0), max(input, 0))
	t.tokens = budget.Tokens{Input: max(input, 0) - cached, Output: max(output, 0), CacheRead: cached}
	t.begun, t.final = true, true
}

// input is what the prompt came to.
func (t *tally) input() int64 {
	return t.tokens.Input + t.tokens.CacheRead + t.tokens.CacheWrite
}
