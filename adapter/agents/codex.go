package agents

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// codex is OpenAI's Codex CLI.
var codex = presetSpec{
	program: "codex",
	title:   "Codex",
	install: "to install Codex: npm install -g @openai/codex",
	env: []string{"OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID",
		"CODEX_HOME"},
	proxyProbes: map[string]string{"openai": "/v1/responses"},
	keys:        []string{"CODEX_API_KEY", "OPENAI_API_KEY"},
	logins:      []string{".codex/auth.json"},
	arguments:   codexArguments,
	newParser:   newCodexParser,

	resumesAnywhere: true,
}

func codexArguments(e *Setup) ([]string, error) {
	args := []string{"exec"}
	id := e.session.resume
	if id != "" {
		args = append(args, "resume", id)
	}
	args = append(args, "--json", "--skip-git-repo-check", "-c", `sandbox_mode="workspace-write"`)
	if e.hasTools() {
		required := strconv.FormatBool(e.outside == nil) // a prompt can be answered without them
		args = append(args, "-c", "mcp_servers.picket={url="+strconv.Quote(e.mcpURL)+`,bearer_token_env_var="`+
			e.credentialVariable()+`",required=`+required+`,default_tools_approval_mode="approve"}`)
	}
	if url, ok := e.modelURL("openai"); ok {
		args = append(args, "-c", `model_provider="picket"`, "-c",
			"model_providers.picket={name=\"picket\",base_url="+strconv.Quote(url+"/v1")+`,env_key="`+
				e.credentialVariable()+`",wire_api="responses"}`)
		if !e.webSearch["openai"] { // it offers them unasked, and each of its calls would be refused
			args = append(args, "-c", `web_search="disabled"`)
		}
	} else if key := e.inheritedValue("OPENAI_API_KEY"); key != "" && e.inheritedValue("CODEX_API_KEY") == "" {
		e.setEnv("CODEX_API_KEY", key) // the name under which codex exec looks for it
	}
	return append(args, e.prompt()), nil
}

type codexLine struct {
	Type     string `json:"type"`
	ThreadID string `json:"thread_id"`
	Usage    *struct {
		Input  int64 `json:"input_tokens"` // what was read from the cache is among them
		Output int64 `json:"output_tokens"`
	} `json:"usage"`
	Item struct {
		Type   string `json:"type"`
		Server string `json:"server"`
	} `json:"item"`
	Message string `json:"message"`
	Error   struct {
		Message string `json:"message"`
	} `json:"error"`
}

// newCodexParser reads the events of codex exec. It tells tokens only, those of
// all turns of its thread so far.
func newCodexParser() lineParser {
	thread := ""
	return func(line []byte) lineFacts {
		if strings.Contains(string(line), "required MCP servers failed to initialize: picket") {
			return lineFacts{
				warning: "Codex has not reached Picket's tools, and did not begin. See that nothing on this machine keeps it from the address: proxy variables, a firewall, its sandbox",
			}
		}
		var in codexLine
		if json.Unmarshal(line, &in) != nil {
			return lineFacts{}
		}
		switch in.Type {
		case "thread.started":
			thread = in.ThreadID
			return lineFacts{session: thread}
		case "item.started":
			return lineFacts{usedTool: in.Item.Type == "mcp_tool_call" && in.Item.Server == "picket"}
		case "turn.completed":
			if in.Usage != nil {
				return lineFacts{
					usage: &picket.UsageReport{
						Session: thread,
						Scope:   usageScopeSession,
						Tokens:  sumTokens(in.Usage.Input, in.Usage.Output),
					},
				}
			}
		case "turn.failed":
			return lineFacts{message: "Codex stopped: " + text.Head(in.Error.Message+in.Message, 500)}
		}
		return lineFacts{}
	}
}
