package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// ignores leaves a parameter of an operation out.
func ignores(op string, names ...string) func(x *a2aExchange) *http.Response {
	return func(x *a2aExchange) *http.Response {
		if op == "" || x.op == op {
			for _, name := range names {
				x.drop(name)
			}
		}
		return nil
	}
}

// ofLists changes the pages of lists.
func ofLists(name string, change func(page object), rules ...string) a2aMistake {
	return ofOperation("ListTasks", name, func(x *a2aExchange) { change(x.result) }, rules...)
}

func a2aListMistakes() []a2aMistake {
	return []a2aMistake{
		ofLists("leaves totals out", func(p object) { delete(p, "totalSize") }, "3.1.4/members", "3.1.4/total"),
		ofLists("leaves the last token out", func(p object) {
			if p["nextPageToken"] == "" {
				delete(p, "nextPageToken")
			}
		}, "3.1.4/members", "3.1.4/token-last"),
		ofLists("has null for no tasks", func(p object) {
			if list, _ := p["tasks"].([]any); len(list) == 0 {
				p["tasks"] = nil
			}
		}, "3.1.4/empty"),
		{name: "lists all contexts", request: ignores("ListTasks", "contextId"), rules: []string{"3.1.4/filter-context",
			"3.1.4/empty", "11.5/context", "11.5/enum", "11.5/escaped"}},
		{name: "lists all states", request: ignores("ListTasks", "status"), rules: []string{"3.1.4/filter-status",
			"3.3.2/status"}},
		{name: "lists all instants", request: ignores("ListTasks", "statusTimestampAfter"),
			rules: []string{"3.1.4/filter-time", "3.3.2/timestamp"}},
		{name: "ignores the size of pages", request: ignores("ListTasks", "pageSize"),
			rules: []string{"3.1.4/page-size",
				"3.1.4/token-more", "3.1.4/page-size-zero", "3.1.4/page-size-negative", "3.1.4/page-size-above"}},
		ofLists("has large pages", func(p object) {
			if list, _ := p["tasks"].([]any); len(list) > 0 {
				p["tasks"] = slices.Repeat(list[:1], 51)
			}
		}, "3.1.4/page-size-default"),
		{name: "repeats the first page", request: ignores("ListTasks", "pageToken"), rules: []string{"3.1.4/cursor",
			"3.1.4/cursor-holds", "3.3.2/page-token"}},
		ofLists("counts a page only", func(p object) {
			list, _ := p["tasks"].([]any)
			p["totalSize"] = len(list)
		}, "3.1.4/total"),
		ofLists("lists the oldest task first", func(p object) {
			list, _ := p["tasks"].([]any)
			slices.Reverse(list)
		}, "3.1.4/sorted", "3.1.4/sorted-by-change"),
		{name: "shows artifacts in lists", rules: []string{"3.1.4/no-artifacts"},
			request: func(x *a2aExchange) *http.Response {
				if x.op == "ListTasks" && x.rpc {
					x.sent["includeArtifacts"] = true
				}
				return nil
			}},
		ofLists("shows empty artifacts in lists", func(p object) {
			list, _ := p["tasks"].([]any)
			for _, task := range list {
				task.(object)["artifacts"] = []any{}
			}
		}, "3.1.4/no-artifacts", "3.1.4/artifacts"),
	}
}

func a2aSendMistakes() []a2aMistake {
	changesMessage := func(name string, change func(m object), rules ...string) a2aMistake {
		return a2aMistake{name: name, rules: rules, request: func(x *a2aExchange) *http.Response {
			if m := x.inSent("message"); m != nil {
				change(m)
			}
			return nil
		}}
	}
	made := 0
	return []a2aMistake{
		{name: "never waits", rules: []string{"3.2.2/waits", "3.2.2/waits-until-interrupted",
			"3.2.2/waits-until-authorization", "3.2.2/answer-waits", "3.2.2/latest-state"},
			request: func(x *a2aExchange) *http.Response {
				if x.op == "SendMessage" && x.inSent("configuration") != nil {
					x.inSent("configuration")["returnImmediately"] = true
				}
				return nil
			}},
		{name: "always waits", request: ignores("SendMessage", "returnImmediately"), rules: []string{"3.2.2/at-once"}},
		{name: "shows the whole history", request: ignores("", "historyLength"), rules: []string{"3.2.4/get-none",
			"3.2.4/none-omitted", "3.2.4/get-limit", "3.2.4/most-recent", "3.2.4/send-none", "3.2.4/send-limit",
			"11.5/history", "3.3.2/history-length"}},
		ofLists("shows histories in lists", func(p object) {
			list, _ := p["tasks"].([]any)
			for _, task := range list {
				task.(object)["history"] = []any{object{"messageId": "1"}, object{"messageId": "2"}}
			}
		}, "3.2.4/list-limit", "3.2.4/list-none"),
		ofTasks("shows an empty history", func(task object) {
			if task["history"] == nil {
				task["history"] = []any{}
			}
		}, "3.2.4/none-omitted"),
		ofTasks("shows the latest message first", func(task object) {
			list, _ := task["history"].([]any)
			slices.Reverse(list)
		}, "3.2.4/most-recent"),
		changesMessage("takes a repeated message as another one", func(m object) {
			made++
			m["messageId"] = fmt.Sprint(m["messageId"], "-again-", made)
		}, "3.3.1/message-id", "3.3.1/message-id-conflict", "3.2.4/own-message"),
		changesMessage("makes contexts of its own", func(m object) { delete(m, "contextId") }, "3.4.1/kept-or-refused",
			"3.4.1/groups", "3.4.3/mismatch"),
		changesMessage("makes a task of each message", func(m object) { delete(m, "taskId") }, "3.4.3/infers-context",
			"3.4.3/match", "3.4.2/not-by-client", "3.1.1/ended-task", "3.1.6/after-answer"),
		changesMessage("takes a reference for a task", func(m object) {
			if list, _ := m["referenceTaskIds"].([]any); len(list) > 0 {
				m["taskId"] = list[0]
			}
		}, "3.4.3/references"),
		{name: "refuses messages to waiting tasks", rules: []string{"7.6.1/takes-messages", "3.4.3/continues"},
			request: func(x *a2aExchange) *http.Response {
				if m := x.inSent("message"); m["taskId"] != nil {
					return x.refusal(-32004, 400)
				}
				return nil
			}},
		{name: "refuses members that it does not know", rules: []string{"5.7/unknown-members"},
			request: func(x *a2aExchange) *http.Response {
				if x.sent["favoriteColor"] != nil || x.inSent("message")["favoriteColor"] != nil {
					return x.refusal(-32602, 400)
				}
				return nil
			}},
	}
}

// isVersion reports whether a request asks for a version.
func isVersion(x *a2aExchange, version string) bool { return x.r.Header.Get("A2A-Version") == version }

func a2aVersionMistakes() []a2aMistake {
	return []a2aMistake{
		{name: "has every version", rules: []string{"3.6.2/unsupported", "3.6.2/unsupported-send",
			"3.6.2/unsupported-stream", "3.6.2/parameter", "5.4/version", "11.2/header-case"},
			request: func(x *a2aExchange) *http.Response {
				x.r.Header.Del("A2A-Version")
				x.drop("A2A-Version")
				return nil
			}},
		{name: "has another version", rules: []string{"3.6.2/supported", "3.6/patch", "8.3.1/answers", "5.1/same-key"},
			request: func(x *a2aExchange) *http.Response {
				if strings.HasPrefix(x.r.Header.Get("A2A-Version"), "1.0") && x.op != "card" {
					x.r.Header.Set("A2A-Version", "2.0")
				}
				return nil
			}},
		{name: "counts patch numbers", rules: []string{"3.6/patch"}, request: func(x *a2aExchange) *http.Response {
			if isVersion(x, "1.0.7") {
				x.r.Header.Set("A2A-Version", "1.7")
			}
			return nil
		}},
	}
}
