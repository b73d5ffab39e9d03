package toolproxy

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
)

// weighty are members that make a call dearer, or say what it is. An upstream
// that does not tell capitals would read one here that nobody has looked at.
var weighty = []string{"model", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens",
	"max_output_tokens",
	"messages", "input", "previous_response_id", "conversation", "thread", "container",
	"tools", "max_tool_calls", "web_search_options", "mcp_servers",
	"service_tier", "speed", "inference_geo", "prompt", "fallbacks", "models", "plugins", "betas", "anthropic_beta"}

// usual are the values for which vendors charge no more than their prices by
// token; any other may be dearer.
var usual = map[string][]string{
	"service_tier":  {"auto", "default", "flex", "scale", "standard", "standard_only"},
	"speed":         {"standard"},
	"inference_geo": {"global"},
}

// hiders are members that bring in models or tools nobody can see here.
var hiders = map[string]string{
	"prompt":    "a prompt that the vendor keeps may have a model and tools of its own",
	"fallbacks": "another model than the one that was asked for may answer",
	"models":    "another model than the one that was asked for may answer",
	"plugins":   "what the gateway adds to a call cannot be bounded",
}

// weigh refuses what would cost more than anybody can tell here.
func weigh(m member, d *dialect) error {
	if slices.ContainsFunc(weighty,
		func(name string) bool { return name != m.name && strings.EqualFold(name, m.name) }) {
		return picket.Invalid("/"+clip(m.name), "Write it in lower case.", "%s is no member of the API", clip(m.name))
	}
	if isNothing(m.value) {
		return nil
	}
	if values := usual[m.name]; values != nil {
		var value string
		if json.Unmarshal(m.value, &value) != nil || !slices.Contains(values, value) {
			return picket.Refuse(picket.CodeUnpricedTool, "Leave "+m.name+" out.", "nobody has said what %s %s costs",
				m.name, clip(string(m.value)))
		}
	}
	if why := hiders[m.name]; why != "" && (m.name != "prompt" || d == openAIResponses) {
		return picket.Refuse(picket.CodeUnpricedTool, "Leave "+m.name+" out.", "%s", why)
	}
	if m.name == "betas" || m.name == "anthropic_beta" {
		return longContext(string(m.value))
	}
	return nil
}

// isNothing says that a member is as good as not there.
func isNothing(v jsontext.Value) bool {
	switch v.Kind() {
	case 'n', jsontext.KindInvalid:
		return true
	case '[':
		return len(itemsOf(v)) == 0
	}
	return false
}

// longContext refuses the beta with which prompts above 200,000 tokens are let
// in, at twice the price.
func longContext(betas string) error {
	if !strings.Contains(strings.ToLower(betas), "context-1m") {
		return nil
	}
	return picket.Refuse(picket.CodeUnpricedTool,
		"Choose the model without its long context (in Claude Code, without [1m]): one that has it at its usual price needs no beta.",
		"with the beta context-1m a long prompt costs twice what the model's price says")
}
