package llm

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// caseSensitiveMembers are members that decide the price of a call. An upstream that
// ignores case would read a member that was not checked here.
var caseSensitiveMembers = []string{"model", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens",
	"max_output_tokens", "messages", "input", "previous_response_id", "conversation", "thread", "container", "tools",
	"max_tool_calls", "web_search_options", "mcp_servers", "service_tier", "speed", "inference_geo", "prompt",
	"fallbacks", "models", "plugins", "betas", "anthropic_beta", "audio", "modalities"}

// standardValues are the values for which vendors charge no more than their prices by
// token. Other values may cost more.
var standardValues = map[string][]string{
	"service_tier":  {"auto", "default", "flex", "scale", "standard", "standard_only"},
	"speed":         {"standard"},
	"inference_geo": {"global"},
	"modalities":    {"text"},
}

// unboundableMembers are members that bring in models or tools that are not visible here.
var unboundableMembers = map[string]string{
	"prompt":    "a prompt that the vendor keeps may have a model and tools of its own",
	"fallbacks": "another model than the one that was asked for may answer",
	"models":    "another model than the one that was asked for may answer",
	"plugins":   "what the gateway adds to a call cannot be bounded",
	"audio":     "nobody has said what an answer in sound costs",
}

// checkPriceable refuses a member whose cost cannot be bounded.
func checkPriceable(m bodyMember, d *dialect) error {
	if slices.ContainsFunc(caseSensitiveMembers,
		func(name string) bool { return name != m.name && strings.EqualFold(name, m.name) }) {
		return picket.Invalid("/"+web.Shortened(m.name), "Write it in lower case.", "%s is not a member of the API",
			web.Shortened(m.name))
	}
	if isEmptyValue(m.value) {
		return nil
	}
	if values := standardValues[m.name]; values != nil {
		unpriced := func(v jsontext.Value) bool {
			var value string
			return json.Unmarshal(v, &value) != nil || !slices.Contains(values, value)
		}
		if slices.ContainsFunc(itemsOf(m.value), unpriced) {
			return picket.Refuse(picket.CodeUnpricedTool, "Leave "+m.name+" out.", "nobody has said what %s %s costs",
				m.name, web.Shortened(string(m.value)))
		}
	}
	if why := unboundableMembers[m.name]; why != "" && (m.name != "prompt" || d == openAIResponses) {
		return picket.Refuse(picket.CodeUnpricedTool, "Leave "+m.name+" out.", "%s", why)
	}
	if m.name == "betas" || m.name == "anthropic_beta" {
		return refuseLongContext(string(m.value))
	}
	return nil
}

// refuseLongContext refuses the beta with which prompts above 200,000 tokens are let
// in, at twice the price.
func refuseLongContext(betas string) error {
	if !strings.Contains(strings.ToLower(betas), "context-1m") {
		return nil
	}
	return picket.Refuse(picket.CodeUnpricedTool,
		"Choose the model without its long context (in Claude Code, without [1m]): one that has it at its usual price needs no beta.",
		"with the beta context-1m a long prompt costs twice what the model's price says")
}
