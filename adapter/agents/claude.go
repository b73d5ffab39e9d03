package agents

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// claude is Claude Code.
var claude = presetSpec{
	program: "claude",
	title:   "Claude Code",
	install: "to install Claude Code: npm install -g @anthropic-ai/claude-code",
	env: []string{
		"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL",
		"ANTHROPIC_SMALL_FAST_MODEL",
		"CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
	},
	proxyProbes: map[string]string{"anthropic": "/v1/messages"},
	keys:        []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"},
	logins:      []string{".claude/.credentials.json"},
	arguments:   claudeArguments,
	newParser:   func() lineParser { return parseClaudeLine },

	staysBetweenPrompts: true,
	resumesAnywhere:     true,
}

// claudeTools are what Claude Code may do without asking: nobody is there to
// answer. What it may not is for its user's own settings to say.
const (
	claudeTools    = "mcp__picket," + claudeOwnTools
	claudeOwnTools = "Bash,Edit,Write,NotebookEdit,Read,Glob,Grep,WebFetch,WebSearch"
)

func claudeArguments(e *Setup) ([]string, error) {
	if e.outside != nil {
		return e.claudePrompt()
	}
	config, err := e.claudeServers()
	if err != nil {
		return nil, err
	}
	args := []string{"-p", e.prompt(), "--output-format", "stream-json", "--verbose", "--strict-mcp-config",
		"--mcp-config", config,
		"--permission-mode", "acceptEdits", "--allowedTools", claudeTools, "--max-budget-usd", e.Remaining.String()}
	if e.run.PicketPath != "" {
		settings, err := e.writeConfig("claude-settings.json", object{
			"hooks": object{
				"SessionStart": []object{{
					"matcher": "compact", "hooks": []object{{
						"type":    "command",
						"command": shellQuote(e.run.PicketPath) + " pinned",
					}},
				}},
			},
		})
		if err != nil {
			return nil, err
		}
		args = append(args, "--settings", settings)
	}
	if id := e.session.resume; id != "" {
		args = append(args, "--resume", id)
	}
	return e.claudeModels(args), nil
}

// claudeModels points Claude Code at the models of the tool proxy, if that serves them.
func (e *Setup) claudeModels(args []string) []string {
	url, ok := e.modelURL("anthropic")
	if !ok {
		return args
	}
	e.setEnv("ANTHROPIC_BASE_URL", url)
	e.setEnv("ANTHROPIC_AUTH_TOKEN", e.credential().Reveal())
	e.setEnv("ANTHROPIC_API_KEY", "")
	if !e.webSearch["anthropic"] {
		args = append(args, "--disallowedTools=WebSearch")
	}
	return args
}

// claudeServers writes the file that names Picket as the only MCP server.
func (e *Setup) claudeServers() (file string, err error) {
	return e.writeConfig("claude-mcp.json", object{"mcpServers": object{"picket": object{
		"type": "http", "url": e.mcpURL,
		"headers":    object{"Authorization": "Bearer ${" + e.credentialVariable() + "}"},
		"alwaysLoad": true, // or its tools are found by search only
	}}})
}

// claudePrompt are the arguments outside of any run.
func (e *Setup) claudePrompt() ([]string, error) {
	args := []string{"-p", "--output-format", "stream-json", "--verbose", "--strict-mcp-config",
		"--permission-mode", "acceptEdits", "--allowedTools", claudeOwnTools}
	if e.hasTools() {
		config, err := e.claudeServers()
		if err != nil {
			return nil, err
		}
		args[len(args)-1] = claudeTools
		args = append(args, "--mcp-config", config)
	}
	if e.outside.Resident == nil {
		args = slices.Insert(args, 1, e.prompt())
	} else {
		args = append(args, e.claudeResident()...)
	}
	if id := e.session.resume; id != "" {
		args = append(args, "--resume", id)
	}
	return e.claudeModels(args), nil
}

// claudeResident are the arguments of a process that stays between prompts. It repeats each line that it has begun to
// work on. What would have it begin a turn of its own between prompts is turned off.
func (e *Setup) claudeResident() []string {
	e.setEnv("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1")
	e.setEnv("CLAUDE_CODE_DISABLE_CRON", "1")
	return []string{"--input-format", "stream-json", "--replay-user-messages", "--disallowedTools=ScheduleWakeup,Monitor"}
}

// object is a JSON object of a configuration file.
type object = map[string]any

// shellQuote is a program for a line that a shell reads.
func shellQuote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

type claudeLine struct {
	Type       string `json:"type"`
	Subtype    string `json:"subtype"`
	SessionID  string `json:"session_id"`
	MCPServers []struct {
		Name   string `json:"name"`
		Status string `json:"status"`
	} `json:"mcp_servers"`
	Message struct {
		Content jsontext.Value `json:"content"`
	} `json:"message"`
	UUID       string         `json:"uuid"`
	IsReplay   bool           `json:"isReplay"` // of a line of the user, which the agent has taken
	Turns      int            `json:"num_turns"`
	IsError    bool           `json:"is_error"`
	Result     string         `json:"result"`
	Errors     []string       `json:"errors"`
	CostUSD    jsontext.Value `json:"total_cost_usd"`
	ModelUsage map[string]struct {
		Input      int64 `json:"inputTokens"`
		Output     int64 `json:"outputTokens"`
		CacheRead  int64 `json:"cacheReadInputTokens"`
		CacheWrite int64 `json:"cacheCreationInputTokens"`
	} `json:"modelUsage"`
}

// parseClaudeLine reads a line of stream-json. The cost stands in the result alone,
// at the very end: what goes with each answer before is a snapshot of it.
func parseClaudeLine(line []byte) lineFacts {
	var in claudeLine
	if json.Unmarshal(line, &in) != nil {
		return lineFacts{}
	}
	switch {
	case in.Type == "system" && in.Subtype == "init":
		return in.initFacts()
	case in.Type == "assistant":
		return lineFacts{usedTool: strings.Contains(string(in.Message.Content), `"mcp__picket__`)}
	case in.Type == "user" && in.IsReplay:
		return lineFacts{taken: in.UUID}
	case in.Type == "result":
		return in.resultFacts()
	}
	return lineFacts{}
}

func (in claudeLine) initFacts() lineFacts {
	status := "missing"
	for _, s := range in.MCPServers {
		if s.Name == "picket" {
			status = s.Status
		}
	}
	f := lineFacts{session: in.SessionID, began: true}
	switch status {
	case "connected":
	case "pending": // it may still come
		f.warning = "Claude Code began before it had reached Picket's tools, and never used one"
	default:
		f.fatal = "Claude Code has not reached Picket's tools: its MCP server picket is " + status +
			". See that nothing on this machine keeps it from the address: proxy variables, a firewall, a policy of managed settings"
	}
	return f
}

func (in claudeLine) resultFacts() lineFacts {
	f := lineFacts{ended: true}
	if in.IsError || len(in.Errors) > 0 {
		f.message = fmt.Sprintf("Claude Code stopped: %s",
			text.Head(strings.Join(append(in.Errors, in.Result), " "), 500))
	}
	usd, ok := parseDollars(in.CostUSD)
	lost := in.IsError && in.Turns == 0 // it repeats the id of a conversation that it has not found
	if !ok || lost {
		return f
	}
	u := picket.UsageReport{Session: in.SessionID, Scope: usageScopeSession, USD: usd}
	for _, m := range in.ModelUsage {
		u.Tokens += sumTokens(m.Input, m.Output, m.CacheRead, m.CacheWrite)
	}
	f.session, f.usage = in.SessionID, &u
	return f
}
