package agents

import (
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket/internal/text"
)

// Readable is a writer for the output of the agent. It passes on to w what a person wants to see:
// the agent's words, and the tools that it calls, one on each line. What is not understood passes
// as it is. PresetExec's output is not touched.
func (p Preset) Readable(w io.Writer) io.Writer {
	if !p.CodingAgent() {
		return w
	}
	return &lineWriter{to: io.Discard, each: func(line []byte) {
		if text := readableLine(line); text != "" {
			fmt.Fprintln(w, text)
		}
	}}
}

// printedLine is a line of any of the agents, as far as people are concerned.
type printedLine struct {
	Type     string         `json:"type"`
	Role     string         `json:"role"`
	Content  string         `json:"content"`
	ToolName string         `json:"tool_name"`
	Params   jsontext.Value `json:"parameters"`
	Message  struct {
		Content []struct {
			Type  string         `json:"type"`
			Text  string         `json:"text"`
			Name  string         `json:"name"`
			Input jsontext.Value `json:"input"`
		} `json:"content"`
	} `json:"message"`
	Item struct {
		Type    string         `json:"type"`
		Text    string         `json:"text"`
		Tool    string         `json:"tool"`
		Command string         `json:"command"`
		Args    jsontext.Value `json:"arguments"`
	} `json:"item"`
	Part struct {
		Text  string `json:"text"`
		Tool  string `json:"tool"`
		State struct {
			Input jsontext.Value `json:"input"`
		} `json:"state"`
	} `json:"part"`
}

// readableLine is what a line says; empty for lines that say nothing to people.
func readableLine(line []byte) string {
	var kind struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(line, &kind) != nil || kind.Type == "" {
		return string(line)
	}
	var in printedLine
	if json.Unmarshal(line, &in) != nil {
		return "" // such as the result of a tool
	}
	switch in.Type {
	case "assistant": // Claude Code
		var all []string
		for _, c := range in.Message.Content {
			if c.Type == "tool_use" {
				all = append(all, toolCallText(c.Name, c.Input))
			} else if c.Text != "" {
				all = append(all, c.Text)
			}
		}
		return strings.Join(all, "\n")
	case "item.completed", "item.started": // Codex
		return in.codexItem()
	case "message": // Gemini CLI
		if in.Role == "assistant" {
			return in.Content
		}
	case "tool_use": // Gemini CLI, OpenCode
		if in.ToolName != "" {
			return toolCallText(in.ToolName, in.Params)
		}
		return toolCallText(in.Part.Tool, in.Part.State.Input)
	case "text": // OpenCode
		return in.Part.Text
	}
	return ""
}

func (in printedLine) codexItem() string {
	begun := in.Type == "item.started"
	switch {
	case begun && in.Item.Type == "mcp_tool_call":
		return toolCallText(in.Item.Tool, in.Item.Args)
	case begun && in.Item.Type == "command_execution":
		return "> " + text.Head(in.Item.Command, maxShownArgs)
	case !begun && in.Item.Type == "agent_message":
		return in.Item.Text
	}
	return ""
}

// maxShownArgs bounds the arguments of a call that are shown, in bytes.
const maxShownArgs = 160

// toolCallText is the call of a tool in one line.
func toolCallText(tool string, input jsontext.Value) string {
	for _, prefix := range []string{"mcp__picket__", "mcp_picket_", "picket_"} {
		tool = strings.TrimPrefix(tool, prefix)
	}
	args := string(input)
	if short := text.Head(args, maxShownArgs); short != args {
		args = short + "…"
	}
	return "> " + tool + " " + args
}
