package llmstub

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

func readAnthropic(_ string, body []byte) (Request, error) {
	var in struct {
		Model    string         `json:"model"`
		System   jsontext.Value `json:"system"`
		Stream   bool           `json:"stream"`
		Messages []struct {
			Role    string         `json:"role"`
			Content jsontext.Value `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Request{}, err
	}
	req := Request{API: Anthropic, Model: in.Model, System: textOf(in.System), Stream: in.Stream}
	for _, t := range in.Tools {
		req.Tools = append(req.Tools, t.Name)
	}
	t := conversation{&req}
	for _, m := range in.Messages {
		result, returned := toolResult(m.Content)
		switch {
		case m.Role == "assistant":
			t.assistantMessage()
		case returned:
			t.toolMessage(result)
		case m.Role == "user":
			t.userMessage(textOf(m.Content))
		}
	}
	return req, nil
}

func toolResult(content jsontext.Value) (text string, found bool) {
	for _, b := range blocks(content) {
		if b.Type == "tool_result" {
			text, found = textOf(b.Content), true
		}
	}
	return text, found
}

func writeAnthropic(a *responseWriter) {
	piece, stop := object{"type": "text", "text": a.turn.Say}, "end_turn"
	if a.tool != "" {
		piece, stop = object{
			"type":  "tool_use",
			"id":    "toolu_" + a.id,
			"name":  a.tool,
			"input": jsontext.Value(a.args),
		}, "tool_use"
	}
	message := object{
		"id": "msg_" + a.id, "type": "message", "role": "assistant", "model": a.req.Model, "content": []object{piece},
		"stop_reason": stop, "stop_sequence": nil, "usage": a.anthropicUsage(),
	}
	if !a.req.Stream {
		a.writeJSON(message)
		return
	}
	message["content"], message["stop_reason"] = []object{}, nil
	message["usage"] = object{"input_tokens": a.turn.In, "output_tokens": 1}
	a.writeEvent("message_start", object{"type": "message_start", "message": message})
	a.anthropicBlock(piece)
	a.writeEvent("message_delta", object{
		"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil},
		"usage": a.anthropicUsage(),
	})
	a.writeEvent("message_stop", object{"type": "message_stop"})
}

func (a *responseWriter) anthropicUsage() object {
	usage := object{"input_tokens": a.turn.In, "output_tokens": a.turn.Out}
	if a.searchCount > 0 {
		usage["server_tool_use"] = object{"web_search_requests": a.searchCount}
	}
	return usage
}

func (a *responseWriter) anthropicBlock(piece object) {
	delta := object{"type": "text_delta", "text": a.turn.Say}
	if a.tool != "" {
		piece["input"] = object{}
		delta = object{"type": "input_json_delta", "partial_json": a.args}
	} else {
		piece["text"] = ""
	}
	a.writeEvent("content_block_start", object{"type": "content_block_start", "index": 0, "content_block": piece})
	a.writeEvent("content_block_delta", object{"type": "content_block_delta", "index": 0, "delta": delta})
	a.writeEvent("content_block_stop", object{"type": "content_block_stop", "index": 0})
}
