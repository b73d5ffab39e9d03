package agents

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/text"
)

// openCode is OpenCode.
var openCode = presetSpec{
	program: "opencode",
	title:   "OpenCode",
	install: "to install OpenCode: npm install -g opencode-ai",
	env: []string{
		"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "OPENROUTER_API_KEY",
		"OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_CONFIG_DIR",
	},
	proxyProbes: map[string]string{"anthropic": "/v1/messages", "openai": "/v1/responses"},
	keys: []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY",
		"OPENROUTER_API_KEY"},
	logins:    []string{".local/share/opencode/auth.json"},
	arguments: openCodeArguments,
	newParser: newOpenCodeParser,
}

// openCodeArguments adds a configuration to those of the user and the
// repository.
func openCodeArguments(e *Setup) ([]string, error) {
	args := []string{"run", "--format", "json"}
	if id := e.session.resume; id != "" {
		args = append(args, "--session", id)
	}
	if !e.hasTools() {
		return append(args, e.prompt()), nil
	}
	lease := "{env:" + e.credentialVariable() + "}"
	config := object{
		"$schema": "https://opencode.ai/config.json",
		"mcp": object{"picket": object{
			"type": "remote", "url": e.mcpURL, "headers": object{"Authorization": "Bearer " + lease}, "oauth": false,
		}},
	}
	models := object{}
	for _, provider := range []string{"anthropic", "openai"} {
		if url, ok := e.modelURL(provider); ok {
			models[provider] = object{"options": object{"baseURL": url + "/v1", "apiKey": lease}}
		}
	}
	if len(models) > 0 {
		config["provider"] = models
	}
	file, err := e.writeConfig("opencode.json", config)
	if err != nil {
		return nil, err
	}
	e.setEnv("OPENCODE_CONFIG", file)
	return append(args, e.prompt()), nil
}

type openCodeLine struct {
	Type      string         `json:"type"`
	SessionID string         `json:"sessionID"`
	Error     jsontext.Value `json:"error"`
	Part      struct {
		ID     string `json:"id"`
		Tool   string `json:"tool"`
		Tokens *struct {
			Input     int64 `json:"input"`
			Output    int64 `json:"output"`
			Reasoning int64 `json:"reasoning"`
			Cache     struct {
				Read  int64 `json:"read"`
				Write int64 `json:"write"`
			} `json:"cache"`
		} `json:"tokens"`
		Cost jsontext.Value `json:"cost"`
	} `json:"part"`
}

// newOpenCodeParser reads the events of a run. Each step tells what it has used
// itself.
func newOpenCodeParser() lineParser {
	seen := map[string]bool{} // a step may be told twice
	var tokens int64
	var usd budget.Money
	return func(line []byte) lineFacts {
		var in openCodeLine
		if json.Unmarshal(line, &in) != nil || in.SessionID == "" {
			return lineFacts{}
		}
		f := lineFacts{session: in.SessionID}
		switch {
		case in.Type == "tool_use":
			f.usedTool = strings.HasPrefix(in.Part.Tool, "picket_")
		case in.Type == "error":
			f.message = "OpenCode stopped: " + text.Head(string(in.Error), 500)
		case in.Type == "step_finish" && in.Part.Tokens != nil && !seen[in.Part.ID]:
			seen[in.Part.ID] = true
			t := in.Part.Tokens
			tokens = sumTokens(tokens, t.Input, t.Output, t.Reasoning, t.Cache.Read, t.Cache.Write)
			if cost, ok := parseDollars(in.Part.Cost); ok {
				usd += cost
			}
			f.usage = &picket.UsageReport{Session: in.SessionID, Tokens: tokens, USD: usd}
		}
		return f
	}
}
