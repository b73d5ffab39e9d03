package main

import (
	"io"
	"net/http"
	"slices"
)

// ofEvents changes the StreamResponse of each event. false leaves the event out.
func ofEvents(name string, change func(x *a2aExchange, response object) bool, rules ...string) a2aMistake {
	return a2aMistake{name: name, rules: rules, event: func(x *a2aExchange, data object) []object {
		if response := x.responseIn(data); response != nil && !change(x, response) {
			return nil
		}
		return []object{data}
	}}
}

// stateInEvent is the state that an event tells.
func stateInEvent(response object) string {
	for _, name := range []string{"task", "statusUpdate"} {
		if in, ok := response[name].(object); ok {
			state, _ := statusIn(in)["state"].(string)
			return state
		}
	}
	return ""
}

var terminalOfA2A = []string{"TASK_STATE_COMPLETED", "TASK_STATE_CANCELED", "TASK_STATE_FAILED", "TASK_STATE_REJECTED"}

func isEnd(response object) bool { return slices.Contains(terminalOfA2A, stateInEvent(response)) }

// ofUpdates changes the updates of a kind.
func ofUpdates(kind, name string, change func(update object), rules ...string) a2aMistake {
	return ofEvents(name, func(_ *a2aExchange, response object) bool {
		if update, ok := response[kind].(object); ok {
			change(update)
		}
		return true
	}, rules...)
}

func a2aStreamMistakes() []a2aMistake {
	serial := 0
	return []a2aMistake{
		{name: "opens no stream", rules: []string{"3.1.2/stream", "11.3.1/stream", "3.1.6/task-first",
			"11.3.2/subscribe", "9.4.6/stream"}, request: func(x *a2aExchange) *http.Response {
			if x.op == "SendStreamingMessage" || x.op == "SubscribeToTask" {
				return x.refusal(-32004, 400)
			}
			return nil
		}},
		ofEvents("begins with an update", func(_ *a2aExchange, response object) bool {
			if task, ok := response["task"]; ok {
				response["statusUpdate"] = task
				delete(response, "task")
			}
			return true
		}, "3.1.2/begins", "3.1.6/task-first", "3.1.6/current"),
		ofEvents("tells each change as a message", func(_ *a2aExchange, response object) bool {
			if response["task"] == nil {
				clear(response)
				response["message"] = object{"messageId": "m", "role": "ROLE_AGENT"}
			}
			return true
		}, "3.1.2/then-updates", "3.1.2/closes", "3.1.6/updates"),
		{name: "keeps streams open", rules: []string{"3.1.2/closes", "3.1.2/closes-completed", "3.1.6/ends",
			"3.1.2/then-updates"}, end: func(*a2aExchange) {}},
		{name: "breaks streams off", rules: []string{"3.1.2/closes", "3.1.6/ends"}, end: func(x *a2aExchange) {
			for _, w := range x.streams {
				w.CloseWithError(io.ErrUnexpectedEOF)
			}
		}},
		ofEvents("does not tell the end", func(_ *a2aExchange, response object) bool { return !isEnd(response) },
			"3.1.2/closes", "3.1.2/closes-completed", "3.1.6/updates", "3.5.2/broadcast", "3.5.2/close-one",
			"3.5.2/reconnect", "3.5.2/order", "3.1.6/after-answer", "7.6.1/stream-stays"),
		{name: "goes on after a message", rules: []string{"3.1.2/message-only"},
			event: func(_ *a2aExchange, data object) []object { return []object{data, data} }},
		ofEvents("does not tell that it works", func(_ *a2aExchange, response object) bool {
			return stateInEvent(response) != "TASK_STATE_WORKING"
		}, "3.1.2/progress"),
		ofEvents("streams no artifacts", func(_ *a2aExchange, response object) bool {
			return response["artifactUpdate"] == nil
		}, "3.1.2/artifacts"),
		ofEvents("has two things in an event", func(_ *a2aExchange, response object) bool {
			response["artifactUpdate"] = object{}
			return true
		}, "3.2.3/one-of", "11.7/events"),
		ofEvents("shows old states first", func(_ *a2aExchange, response object) bool {
			if task, ok := response["task"].(object); ok {
				hidesState("", "TASK_STATE_COMPLETED")(task)
			}
			return true
		}, "3.1.6/current", "3.2.2/streams-at-once"),
		{name: "tells what happened before in the end", rules: []string{"3.5.2/order"},
			event: func(x *a2aExchange, data object) []object {
				key := x.r.URL.String() + conformanceMessageID(x)
				if stateInEvent(x.responseIn(data)) == "TASK_STATE_WORKING" {
					x.seen[key] = data
					return nil
				}
				if held, ok := x.seen[key].(object); ok && isEnd(x.responseIn(data)) {
					return []object{data, held}
				}
				return []object{data}
			}},
		ofEvents("tells each stream something else", func(_ *a2aExchange, response object) bool {
			serial++
			for _, name := range []string{"statusUpdate", "artifactUpdate"} {
				if update, ok := response[name].(object); ok {
					update["metadata"] = object{"serial": serial}
				}
			}
			return true
		}, "3.5.2/same-events", "3.5.2/same-work", "5.1/same-events"),
		ofEvents("tells one stream only", func(x *a2aExchange, response object) bool {
			if response["task"] != nil {
				x.seen["last"] = x
			}
			return response["task"] != nil || x.seen["last"] == x
		}, "3.5.2/broadcast"),
		{name: "ends all streams with the first one", rules: []string{"3.5.2/close-one"},
			event: func(x *a2aExchange, data object) []object {
				if x.r.Context().Err() == nil && len(x.streams) > 1 && isEnd(x.responseIn(data)) {
					return nil
				}
				return []object{data}
			}},
		{name: "ends a task with its stream", rules: []string{"3.5.2/task-goes-on"}, answer: func(x *a2aExchange) {
			if x.op == "GetTask" && x.result != nil {
				hidesState("", "TASK_STATE_CANCELED")(x.result)
			}
		}},
		ofUpdates("statusUpdate", "does not name the task of an update", func(u object) { delete(u, "taskId") },
			"4.2.1/members"),
		ofUpdates("statusUpdate", "does not name the context of an update", func(u object) { delete(u, "contextId") },
			"4.2.1/members"),
		ofUpdates("artifactUpdate", "does not name the task of an artifact", func(u object) { delete(u, "taskId") },
			"4.2.2/members"),
		ofUpdates("artifactUpdate", "streams artifacts without parts", func(u object) {
			delete(u["artifact"].(object), "parts")
		}, "4.2.2/members"),
		ofEvents("closes the stream when it asks", func(x *a2aExchange, response object) bool {
			key := "asked" + conformanceMessageID(x)
			if x.seen[key] != nil {
				return false
			}
			if stateInEvent(response) == "TASK_STATE_AUTH_REQUIRED" {
				x.seen[key] = true
			}
			return true
		}, "7.6.1/stream-stays"),
		{name: "closes the stream when it has asked", rules: []string{"3.1.6/after-answer"},
			event: func(x *a2aExchange, data object) []object {
				if x.op == "SubscribeToTask" && x.responseIn(data)["task"] == nil {
					return nil
				}
				return []object{data}
			}},
	}
}

// conformanceMessageID is the id of the message in a request; empty: none.
func conformanceMessageID(x *a2aExchange) string {
	id, _ := x.inSent("message")["messageId"].(string)
	return id
}

// ofRPC changes the answers of JSON-RPC.
func ofRPC(name string, change func(x *a2aExchange), rules ...string) a2aMistake {
	return a2aMistake{name: name, rules: rules, answer: func(x *a2aExchange) {
		if x.rpc && x.whole != nil {
			change(x)
		}
	}}
}

func a2aRPCMistakes() []a2aMistake {
	contentType := func(x *a2aExchange) { x.res.Header.Set("Content-Type", "application/jsonrpc+json") }
	return []a2aMistake{
		ofRPC("has a type of its own for JSON-RPC", contentType, "9.1/content-type", "9.1/error-content-type"),
		ofRPC("speaks JSON-RPC 1.0", func(x *a2aExchange) { x.whole["jsonrpc"] = "1.0" }, "9.3/jsonrpc"),
		ofRPC("answers other requests", func(x *a2aExchange) { x.whole["id"] = "other" }, "9.3/id-text",
			"9.3/id-number",
			"9.3/id-of-error", "9.5/stream-error"),
		ofRPC("answers results with errors", func(x *a2aExchange) { x.whole["result"] = object{} },
			"9.3/result-or-error"),
		ofRPC("wraps tasks", func(x *a2aExchange) {
			if x.op == "GetTask" && x.result != nil {
				x.whole["result"] = object{"task": x.result}
			}
		}, "9.4.3/task"),
		{name: "wants params always", rules: []string{"9.4.8/no-params"}, request: func(x *a2aExchange) *http.Response {
			if x.rpc && x.op != "" && x.sent == nil {
				return x.refusal(-32602, 400)
			}
			return nil
		}},
		{name: "streams answers to other requests", rules: []string{"9.4.2/stream", "9.4.6/stream"},
			event: func(_ *a2aExchange, data object) []object {
				if data["jsonrpc"] != nil {
					data["id"] = "other"
				}
				return []object{data}
			}},
		{name: "has no method to read tasks", rules: []string{"5.3/operations"},
			request: func(x *a2aExchange) *http.Response {
				if x.op == "GetTask" && x.rpc {
					return x.refusal(-32601, 404)
				}
				return nil
			}},
		{name: "reads what is not JSON", rules: []string{"9.5/parse", "11.4/not-json"},
			request: func(x *a2aExchange) *http.Response {
				if x.body == nil && x.r.Method == "POST" {
					return x.refusal(-32602, 500)
				}
				return nil
			}},
		{name: "knows old names", rules: []string{"9.1/old-names"}, request: func(x *a2aExchange) *http.Response {
			if x.op == "tasks/get" {
				return x.refusal(-32602, 400)
			}
			return nil
		}},
	}
}

// withoutRoute has no route for an operation over HTTP+JSON.
func withoutRoute(op string, rules ...string) a2aMistake {
	return a2aMistake{name: "has no route for " + op, rules: rules, request: func(x *a2aExchange) *http.Response {
		if x.op == op && !x.rpc {
			return x.refusal(0, http.StatusNotFound)
		}
		return nil
	}}
}

func a2aRESTMistakes() []a2aMistake {
	refusing := func(name, contentType string, rules ...string) a2aMistake {
		return a2aMistake{name: name, rules: rules, request: func(x *a2aExchange) *http.Response {
			if !x.rpc && x.r.Header.Get("Content-Type") == contentType {
				return x.refusal(0, http.StatusUnsupportedMediaType)
			}
			return nil
		}}
	}
	return []a2aMistake{
		{name: "answers plain JSON", rules: []string{"11.1/content-type", "11.1/error-content-type"},
			answer: func(x *a2aExchange) { x.res.Header.Set("Content-Type", "application/json") }},
		refusing("does not take its own type", "application/a2a+json", "11.1/accepts"),
		refusing("does not take plain JSON", "application/json", "11.1/accepts-json"),
		withoutRoute("SendMessage", "11.3.1/send", "11.4/wrapper"),
		withoutRoute("SendStreamingMessage", "11.3.1/stream"),
		withoutRoute("GetTask", "11.3.2/get", "5.1/same-task"),
		withoutRoute("ListTasks", "11.3.2/list", "8.3.1/answers", "5.1/same-key", "5.1/same-list"),
		withoutRoute("CancelTask", "11.3.2/cancel", "11.3.2/cancel-body", "11.3.2/cancel-no-body"),
		withoutRoute("SubscribeToTask", "11.3.2/subscribe"),
		withoutRoute("GetExtendedAgentCard", "11.3.4/card"),
		{name: "keeps the bindings apart", rules: []string{"5.1/one-store", "5.1/same-task"},
			request: func(x *a2aExchange) *http.Response {
				id, _ := x.sent["id"].(string)
				if x.rpc && x.op == "CancelTask" && id != "" {
					return x.refusal(-32001, 404)
				}
				return nil
			}},
		{name: "streams envelopes", rules: []string{"11.7/events"}, event: func(x *a2aExchange, data object) []object {
			if !x.rpc {
				data["jsonrpc"] = "2.0"
			}
			return []object{data}
		}},
		{name: "wants a body to cancel", rules: []string{"11.3.2/cancel-no-body"},
			request: func(x *a2aExchange) *http.Response {
				if x.op == "CancelTask" && !x.rpc && x.body == nil {
					return x.refusal(0, 400)
				}
				return nil
			}},
		{name: "answers unknown paths", rules: []string{"11.3/unknown-path", "11.3/wrong-verb"},
			answer: func(x *a2aExchange) {
				if x.res.StatusCode == 404 {
					x.res.StatusCode = 400
				}
			}},
	}
}
