package llmstub

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// groupSeparator separates the name of a group of tools from that of a tool in it.
const groupSeparator = "\x00_"

func readResponses(_ string, body []byte) (Request, error) {
	type tool struct {
		Type  string `json:"type"`
		Name  string `json:"name"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	var in struct {
		Model        string         `json:"model"`
		Instructions string         `json:"instructions"`
		Stream       bool           `json:"stream"`
		Input        jsontext.Value `json:"input"`
		Tools        []tool         `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Request{}, err
	}
	req := Request{API: Responses, Model: in.Model, System: in.Instructions, Stream: in.Stream}
	for _, t := range in.Tools {
		if t.Type == "namespace" {
			for _, inner := range t.Tools {
				req.Tools = append(req.Tools, t.Name+groupSeparator+inner.Name)
			}
			continue
		}
		req.Tools = append(req.Tools, cmp.Or(t.Name, t.Type)) // one of the vendor's has no name
	}
	return req, readItems(conversation{&req}, in.Input)
}

func readItems(t conversation, input jsontext.Value) error {
	var text string
	if json.Unmarshal(input, &text) == nil {
		t.userMessage(text)
		return nil
	}
	var items []struct {
		Type    string         `json:"type"`
		Role    string         `json:"role"`
		Content jsontext.Value `json:"content"`
		Output  jsontext.Value `json:"output"`
	}
	if err := json.Unmarshal(input, &items); err != nil {
		return err
	}
	for _, item := range items {
		switch {
		case item.Type == "function_call", item.Role == "assistant":
			t.assistantMessage()
		case item.Type == "function_call_output":
			t.toolMessage(textOf(item.Output))
		case item.Role == "user":
			t.userMessage(textOf(item.Content))
		}
	}
	return nil
}

func writeResponses(a *responseWriter) {
	item := object{
		"type": "message", "id": "msg_" + a.id, "role": "assistant", "status": "completed",
		"content": []object{{"type": "output_text", "text": a.turn.Say, "annotations": []object{}}},
	}
	if a.tool != "" {
		item = object{
			"type":      "function_call",
			"id":        "fc_" + a.id,
			"call_id":   "call_" + a.id,
			"name":      a.tool,
			"arguments": a.args,
			"status":    "completed",
		}
		if group, name, ok := strings.Cut(a.tool, groupSeparator); ok {
			item["namespace"], item["name"] = group, name
		}
	}
	items := append(a.searchItems(), item)
	response := object{
		"id":         "resp_" + a.id,
		"object":     "response",
		"created_at": time.Now().Unix(),
		"model":      a.req.Model,
		"status":     "completed",
		"output":     items,
		"usage": object{
			"input_tokens":          a.turn.In,
			"input_tokens_details":  object{"cached_tokens": 0},
			"output_tokens":         a.turn.Out,
			"output_tokens_details": object{"reasoning_tokens": 0},
			"total_tokens":          a.turn.In + a.turn.Out,
		},
	}
	if !a.req.Stream {
		a.writeJSON(response)
		return
	}
	begun := object{
		"id":         response["id"],
		"object":     "response",
		"created_at": response["created_at"],
		"model":      a.req.Model,
		"status":     "in_progress",
		"output":     []object{},
	}
	events := []object{{"type": "response.created", "response": begun}}
	at := len(items) - 1
	for n, search := range items[:at] {
		events = append(events, object{"type": "response.output_item.done", "output_index": n, "item": search})
	}
	events = append(events, object{"type": "response.output_item.added", "output_index": at, "item": startedItem(item)})
	if a.tool == "" {
		events = append(events, object{
			"type":          "response.output_text.delta",
			"item_id":       item["id"],
			"output_index":  at,
			"content_index": 0,
			"delta":         a.turn.Say,
		})
	} else {
		events = append(events,
			object{
				"type":         "response.function_call_arguments.delta",
				"item_id":      item["id"],
				"output_index": at,
				"delta":        a.args,
			},
			object{
				"type":         "response.function_call_arguments.done",
				"item_id":      item["id"],
				"output_index": at,
				"arguments":    a.args,
			})
	}
	events = append(events, object{"type": "response.output_item.done", "output_index": at, "item": item},
		object{"type": "response.completed", "response": response})
	for n, e := range events {
		e["sequence_number"] = n
		a.writeEvent(e["type"].(string), e)
	}
}

// searchItems are the items of those that were made.
func (a *responseWriter) searchItems() (items []object) {
	for n := range a.searchCount {
		items = append(items, object{
			"type":   "web_search_call",
			"id":     fmt.Sprintf("ws_%s%d", a.id, n),
			"status": "completed",
			"action": object{"type": "search", "query": "anything"},
		})
	}
	return items
}

// startedItem is an item at its beginning.
func startedItem(item object) object {
	begun := object{}
	for k, v := range item {
		begun[k] = v
	}
	begun["status"] = "in_progress"
	if _, message := begun["content"]; message {
		begun["content"] = []object{}
	} else {
		begun["arguments"] = ""
	}
	return begun
}
