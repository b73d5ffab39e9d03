package llmstub

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket/internal/sse"
)

func readChat(_ string, body []byte) (Request, error) {
	var in struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Messages []struct {
			Role    string         `json:"role"`
			Content jsontext.Value `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Request{}, err
	}
	req := Request{API: Chat, Model: in.Model, Stream: in.Stream}
	for _, t := range in.Tools {
		req.Tools = append(req.Tools, t.Function.Name)
	}
	t := conversation{&req}
	for _, m := range in.Messages {
		switch m.Role {
		case "system", "developer":
			req.System += textOf(m.Content)
		case "user":
			t.userMessage(textOf(m.Content))
		case "assistant":
			t.assistantMessage()
		case "tool":
			t.toolMessage(textOf(m.Content))
		}
	}
	return req, nil
}

func writeChat(a *responseWriter) {
	said, finish := object{"role": "assistant", "content": a.turn.Say}, "stop"
	if a.tool != "" {
		finish = "tool_calls"
		said = object{
			"role":    "assistant",
			"content": nil,
			"tool_calls": []object{{
				"index":    0,
				"id":       "call_" + a.id,
				"type":     "function",
				"function": object{"name": a.tool, "arguments": a.args},
			}},
		}
	}
	usage := object{"prompt_tokens": a.turn.In, "completion_tokens": a.turn.Out, "total_tokens": a.turn.In + a.turn.Out}
	if !a.req.Stream {
		a.writeJSON(a.chatPiece("chat.completion", []object{{"index": 0, "message": said, "finish_reason": finish}},
			usage))
		return
	}
	const chunk = "chat.completion.chunk"
	a.writeEvent("", a.chatPiece(chunk, []object{{"index": 0, "delta": said, "finish_reason": nil}}, nil))
	a.writeEvent("", a.chatPiece(chunk, []object{{"index": 0, "delta": object{}, "finish_reason": finish}}, nil))
	a.writeEvent("", a.chatPiece(chunk, []object{}, usage))
	_ = sse.NewWriter(a.w, time.Minute).Write(sse.Event{Data: []byte("[DONE]")})
}

func (a *responseWriter) chatPiece(kind string, choices []object, usage object) object {
	piece := object{
		"id":      "chatcmpl-" + a.id,
		"object":  kind,
		"created": time.Now().Unix(),
		"model":   a.req.Model,
		"choices": choices,
	}
	if usage != nil {
		piece["usage"] = usage
	}
	return piece
}
