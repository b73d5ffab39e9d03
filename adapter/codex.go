package adapter

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// codex is OpenAI's Codex CLI.
var codex = kind{
	program: "codex",
	title:   "Codex",
	install: "to install Codex: npm install -g @openai/codex",
	env: []string{"OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID",
		"CODEX_HOME"},
	models:    map[string]string{"openai": "/v1/responses"},
	keys:      []string{"CODEX_API_KEY", "OPENAI_API_KEY"},
	logins:    []string{".codex/auth.json"},
	arguments: codexArguments,
	reader:    newCodexReader,
}

func codexArguments(e *errand) ([]string, error) {
	args := []string{"exec"}
	id := e.session.resumed()
	if id != "" {
		args = append(args, "resume", id)
	}
	args = append(args, "--json", "--skip-git-repo-check", "-c", `sandbox_mode="workspace-write"`,
		"-c", "mcp_servers.picket={url="+strconv.Quote(e.mcpURL)+`,bearer_token_env_var="`+leaseVariable+
			`",required=true,default_tools_approval_mode="approve"}`)
	if url, ok := e.throughProxy("openai"); ok {
		args = append(args, "-c", `model_provider="picket"`, "-c",
			"model_providers.picket={name=\"picket\",base_url="+strconv.Quote(url+"/v1")+`,env_key="`+leaseVariable+
				`",wire_api="responses"}`)
		if !e.searches["openai"] { // it offers them unasked, and each of its calls would be refused
			args = append(args, "-c", `web_search="disabled"`)
		}
	} else if key := e.has("OPENAI_API_KEY"); key != "" && e.has("CODEX_API_KEY") == "" {
		e.set("CODEX_API_KEY", key) // the name under which codex exec looks for it
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

// newCodexReader reads the events of codex exec. It tells tokens only, those of
// all turns of its thread so far.
func newCodexReader() reader {
	thread := ""
	return func(line []byte) finding {
		if strings.Contains(string(line), "required MCP servers failed to initialize: picket") {
			return finding{
				doubt: "Codex has not reached Picket's tools, and did not begin. See that nothing on this machine keeps it from the address: proxy variables, a firewall, its sandbox",
			}
		}
		var in codexLine
		if json.Unmarshal(line, &in) != nil {
			return finding{}
		}
		switch in.Type {
		case "thread.started":
			thread = in.ThreadID
			return finding{session: thread}
		case "item.started":
			return finding{used: in.Item.Type == "mcp_tool_call" && in.Item.Server == "picket"}
		case "turn.completed":
			if in.Usage != nil {
				return finding{
					usage: &picket.UsageReport{
						Session: thread,
						Scope:   usageOfSession,
						Tokens:  sumOf(in.Usage.Input, in.Usage.Output),
					},
				}
			}
		case "turn.failed":
			return finding{note: "Codex stopped: " + clip(in.Error.Message+in.Message, 500)}
		}
		return finding{}
	}
}
