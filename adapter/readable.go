package adapter

import (
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Readable is a writer for what the agent prints, which passes on to w what a
// person wants to see of it: its words, and the tools that it calls, a line
// each. What is not understood passes as it is. PresetExec's output is not
// touched.
func (p Preset) Readable(w io.Writer) io.Writer {
	if !p.CodingAgent() {
		return w
	}
	return &lines{to: io.Discard, each: func(line []byte) {
		if text := readable(line); text != "" {
			fmt.Fprintln(w, text)
		}
	}}
}

// utterance is a line of any of the agents, as far as people are concerned.
type utterance struct {
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

// readable is what a line says; empty for lines that say nothing to people.
func readable(line []byte) string {
	var kind struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(line, &kind) != nil || kind.Type == "" {
		return string(line)
	}
	var in utterance
	if json.Unmarshal(line, &in) != nil {
		return "" // such as the result of a tool
	}
	switch in.Type {
	case "assistant": // Claude Code
		var all []string
		for _, c := range in.Message.Content {
			if c.Type == "tool_use" {
				all = append(all, calling(c.Name, c.Input))
			} else if c.Text != "" {
				all = append(all, c.Text)
			}
		}
		return strings.Join(all, "\n")
	case "item.completed", "item.started": // Codex
		return in.item()
	case "message": // Gemini CLI
		if in.Role == "assistant" {
			return in.Content
		}
	case "tool_use": // Gemini CLI, OpenCode
		if in.ToolName != "" {
			return calling(in.ToolName, in.Params)
		}
		return calling(in.Part.Tool, in.Part.State.Input)
	case "text": // OpenCode
		return in.Part.Text
	}
	return ""
}

func (in utterance) item() string {
	begun := in.Type == "item.started"
	switch {
	case begun && in.Item.Type == "mcp_tool_call":
		return calling(in.Item.Tool, in.Item.Args)
	case begun && in.Item.Type == "command_execution":
		return "> " + clip(in.Item.Command, maxShown)
	case !begun && in.Item.Type == "agent_message":
		return in.Item.Text
	}
	return ""
}

// maxShown bounds the arguments of a call that are shown, in bytes.
const maxShown = 160

// calling is the call of a tool in one line.
func calling(tool string, input jsontext.Value) string {
	for _, prefix := range []string{"mcp__picket__", "mcp_picket_", "picket_"} {
		tool = strings.TrimPrefix(tool, prefix)
	}
	text := string(input)
	if short := clip(text, maxShown); short != text {
		text = short + "…"
	}
	return "> " + tool + " " + text
}
