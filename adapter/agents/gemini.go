package agents

import (
	"cmp"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/files"
	"github.com/picket-dev/picket/internal/text"
)

// gemini is Gemini CLI.
var gemini = presetSpec{
	program: "gemini",
	title:   "Gemini CLI",
	install: "to install Gemini CLI: npm install -g @google/gemini-cli",
	env: []string{
		"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_CLOUD_PROJECT",
		"GOOGLE_CLOUD_LOCATION",
		"GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_GEMINI_BASE_URL", "GEMINI_MODEL",
	},
	keys:      []string{"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"},
	arguments: geminiArguments,
	newParser: newGeminiParser,
}

// geminiArguments gives Gemini CLI a place of its own for settings and sessions,
// which it would otherwise look for in the user's home and in the workspace.
func geminiArguments(e *Setup) ([]string, error) {
	home := cmp.Or(e.session.dir, filepath.Join(e.run.StateDir, "gemini"))
	auth := "gemini-api-key"
	if e.inheritedValue("GEMINI_API_KEY") == "" &&
		(e.inheritedValue("GOOGLE_GENAI_USE_VERTEXAI") != "" || e.inheritedValue("GOOGLE_API_KEY") != "") {
		auth = "vertex-ai"
	}
	settings := object{"security": object{"auth": object{"selectedType": auth}}}
	if e.hasTools() {
		settings["mcpServers"] = object{"picket": object{
			"httpUrl": e.mcpURL, "trust": true,
			"headers": object{"Authorization": "Bearer ${" + e.credentialVariable() + "}"},
		}}
	}
	if err := files.WritePrivateJSON(filepath.Join(home, ".gemini", "settings.json"), settings); err != nil {
		return nil, err
	}
	e.setEnv("GEMINI_CLI_HOME", home)
	args := []string{"-p", e.prompt(), "-o", "stream-json", "--approval-mode", "yolo", "--skip-trust"}
	if id := e.session.resume; id != "" {
		args = append(args, "--resume", id)
	}
	return args, nil
}

type geminiLine struct {
	Type      string         `json:"type"`
	SessionID string         `json:"session_id"`
	ToolName  string         `json:"tool_name"`
	Status    string         `json:"status"`
	Error     jsontext.Value `json:"error"`
	Stats     *struct {
		Total int64 `json:"total_tokens"`
	} `json:"stats"`
}

// newGeminiParser reads stream-json. It tells tokens only, those of one run.
func newGeminiParser() lineParser {
	session := ""
	return func(line []byte) lineFacts {
		if strings.HasPrefix(string(line), "MCP issues detected") {
			return lineFacts{
				warning: "Gemini CLI has not reached Picket's tools. See that nothing on this machine keeps it from the address: proxy variables, a firewall, mcp settings of the system",
			}
		}
		var in geminiLine
		if json.Unmarshal(line, &in) != nil {
			return lineFacts{}
		}
		switch in.Type {
		case "init":
			session = in.SessionID
			return lineFacts{session: session}
		case "tool_use":
			return lineFacts{usedTool: strings.HasPrefix(in.ToolName, "mcp_picket_")}
		case "result":
			var f lineFacts
			if in.Stats != nil {
				f.usage = &picket.UsageReport{Session: session, Tokens: max(in.Stats.Total, 0)}
			}
			if in.Status == "error" {
				f.message = "Gemini CLI stopped: " + text.Head(string(in.Error), 500)
			}
			return f
		}
		return lineFacts{}
	}
}
