package main

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket/internal/agenttoagent"
	"github.com/picket-dev/picket/internal/conformance"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/scriptedworker"
)

// a2aMistakes are all mistakes. Each rule that this server can be held against is in one of them.
func a2aMistakes() []a2aMistake {
	return slices.Concat(a2aErrorMistakes(), a2aAccessMistakes(), a2aTaskMistakes(), a2aListMistakes(),
		a2aSendMistakes(),
		a2aStreamMistakes(), a2aVersionMistakes(), a2aCardMistakes(), a2aRPCMistakes(), a2aRESTMistakes(),
		a2aPushMistakes())
}

// TestA2ASuiteFindsEveryMistake holds endpoints that do one thing wrong against the rules that are about it. Each rule
// can fail. A third of the endpoints are tried each day.
func TestA2ASuiteFindsEveryMistake(t *testing.T) {
	f, pushes := startA2A(t, rig.Real(t), false), startA2A(t, rig.Real(t), false, withPush(t))
	for _, server := range []*a2aServer{f, pushes} {
		ctx, stop := context.WithCancel(t.Context())
		worked := make(chan error, 1)
		go func() {
			worked <- scriptedworker.Run(ctx, scriptedworker.Config{URL: server.url, Key: server.worker,
				Role: "builder", Delay: 500 * time.Millisecond})
		}()
		t.Cleanup(func() { stop(); <-worked })
	}
	named := map[string]bool{}
	t.Run("Mistakes", func(t *testing.T) {
		for i, b := range a2aMistakes() {
			if named["mistake "+b.name] {
				t.Errorf("%q is there twice", b.name)
			}
			named["mistake "+b.name] = true
			for _, rule := range b.rules {
				named[rule] = true
			}
			if !rig.OfToday(i, 3) {
				continue
			}
			t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				if b.push {
					findA2AMistake(t, pushes, b)
					return
				}
				findA2AMistake(t, f, b)
			})
		}
	})
	for _, r := range agenttoagent.Rules() {
		elsewhere := slices.Contains(a2aWrongNotifications, r.Name())
		if !named[r.Name()] && r.Check != nil && !elsewhere {
			t.Errorf("no mistake is found by %s", r.Name())
		}
	}
}

func findA2AMistake(t *testing.T, f *a2aServer, b a2aMistake) {
	cfg := f.config(t)
	cfg.WorkerKey, cfg.Scripted, cfg.Slack = "", true, 3*time.Second
	cfg.HTTP = &http.Client{Transport: &a2aFault{next: f.http.Transport, mistake: b, seen: map[string]any{}}}
	cfg.Only = func(r agenttoagent.Rule) bool { return slices.Contains(b.rules, r.Name()) }
	report, err := agenttoagent.Run(t.Context(), cfg)
	if err != nil || len(report.Results) != len(b.rules) {
		t.Fatalf("%d results of %d rules, %v", len(report.Results), len(b.rules), err)
	}
	for _, r := range report.Results {
		if r.Outcome != conformance.Failed {
			t.Errorf("an endpoint that %s passes %s/%s: %s %s", b.name, r.Section, r.ID, r.Outcome, r.Why)
		}
	}
}

// forgive turns each error into an empty success.
func forgive(x *a2aExchange) {
	if x.failed != nil || x.res.StatusCode >= 400 && x.op != "card" && x.whole != nil {
		x.succeed(object{})
	}
}

func a2aErrorMistakes() []a2aMistake {
	return []a2aMistake{
		{name: "forgives everything", answer: forgive, rules: []string{"3.1.1/unsupported-media", "3.1.1/ended-task",
			"3.1.1/completed-task", "3.1.1/unknown-task", "3.1.2/ended-task", "3.1.2/unknown-task",
			"3.1.2/unsupported-media", "3.1.2/validation", "3.1.3/unknown-task", "3.1.4/page-size-zero",
			"3.1.4/page-size-negative", "3.1.4/page-size-above", "3.1.5/ended-task", "3.1.5/unknown-task",
			"3.1.6/ended-task", "3.1.6/completed-task", "3.1.6/unknown-task", "3.3.1/message-id-conflict",
			"3.3.2/no-message", "3.3.2/no-parts", "3.3.2/empty-parts", "3.3.2/no-message-id", "3.3.2/no-role",
			"3.3.2/unknown-role", "3.3.2/empty-part", "3.3.2/two-contents", "3.3.2/wrong-type", "3.3.2/history-length",
			"3.3.2/status", "3.3.2/page-token", "3.3.2/timestamp", "3.3.2/nothing-done", "3.3.4/push-create",
			"3.3.4/push-get", "3.3.4/push-list", "3.3.4/push-delete", "3.3.4/push-in-message", "3.3.4/extended-card",
			"3.4.2/not-by-client", "3.4.3/mismatch", "3.6.2/unsupported", "3.6.2/unsupported-send",
			"3.6.2/unsupported-stream", "3.6.2/parameter", "5.1/same-errors", "5.4/task-not-found",
			"5.4/task-not-cancelable", "5.4/push-not-supported", "5.4/unsupported-operation", "5.4/content-type",
			"5.4/version", "9.1/wrong-content-type", "9.1/old-names", "9.5/parse", "9.5/no-request",
			"9.5/unknown-method", "9.5/params", "9.5/stream-error", "11.1/wrong-content-type", "11.2/header-case",
			"11.3/unknown-path", "11.3/wrong-verb", "11.4/not-json", "11.5/number", "11.6/reasons", "11.7/error"}},
		{name: "has one code for all errors", rules: []string{"5.4/task-not-found", "5.4/version", "9.5/params",
			"3.1.5/unknown-task", "3.3.1/cancel", "9.5/a2a-codes"}, answer: func(x *a2aExchange) {
			if x.failed != nil {
				x.failed["code"] = -32603
				if !x.rpc {
					x.res.StatusCode, x.failed["code"] = 500, 500
				}
			}
		}},
		{name: "has no texts for errors", rules: []string{"3.3.2/text", "9.5/message", "11.6/message"},
			answer: ofErrors(func(e object) { e["message"] = "" })},
		{name: "does not name a parameter", rules: []string{"3.3.2/names-parameter"}, answer: ofErrors(func(e object) {
			e["message"] = "no"
			delete(e, "data")
			delete(e, "details")
		})},
		{name: "has details without a type", rules: []string{"3.3.2/detail-types", "9.5/details", "9.5/error-info",
			"11.6/details", "11.6/error-info", "11.6/reasons"}, answer: ofDetails(func(d object) {
			delete(d,
				"@type")
		})},
		{name: "has a domain of its own", rules: []string{"9.5/error-info", "11.6/error-info"},
			answer: ofDetails(func(d object) { d["domain"] = "example.com" })},
		{name: "has no status in errors", rules: []string{"11.6/code", "11.6/status"}, answer: ofErrors(func(e object) {
			e["code"] = 0
			delete(e, "status")
		})},
		{name: "is gentle to clients without parts", rules: []string{"3.3.2/nothing-done", "3.3.2/empty-parts",
			"3.3.2/no-parts", "3.1.2/validation", "3.3.2/names-parameter"},
			request: func(x *a2aExchange) *http.Response {
				if m := x.inSent("message"); m != nil {
					if parts, _ := m["parts"].([]any); len(parts) == 0 {
						m["parts"] = []any{object{"text": "nothing"}}
					}
				}
				return nil
			}},
		{name: "pushes notifications to nobody", rules: []string{"3.3.4/push-in-message"},
			request: func(x *a2aExchange) *http.Response { x.drop("taskPushNotificationConfig"); return nil }},
	}
}

// ofErrors changes errors.
func ofErrors(change func(e object)) func(*a2aExchange) {
	return func(x *a2aExchange) {
		if x.failed != nil {
			change(x.failed)
		}
	}
}

// ofDetails changes the details of errors.
func ofDetails(change func(d object)) func(*a2aExchange) {
	return ofErrors(func(e object) {
		for _, name := range []string{"data", "details"} {
			list, _ := e[name].([]any)
			for _, d := range list {
				change(d.(object))
			}
		}
	})
}

func a2aAccessMistakes() []a2aMistake {
	let := func(strangers bool) func(x *a2aExchange) *http.Response {
		return func(x *a2aExchange) *http.Response {
			key := x.r.Header.Get("X-API-Key")
			if strings.HasPrefix(key, "pkk_") && x.seen["client"] == nil {
				x.seen["client"] = key // the first who speaks
			}
			known, _ := x.seen["client"].(string)
			if strings.HasPrefix(key, "pkk_") == strangers && known != "" {
				x.r.Header.Set("X-API-Key", known)
			}
			return nil
		}
	}
	return []a2aMistake{
		{name: "lets everybody in", request: let(false), rules: []string{"3.3.2/no-key", "3.3.2/wrong-key",
			"7.4/every-operation", "7.4/no-stream", "7.4/challenge"}},
		{name: "shows everybody everything", request: let(true), rules: []string{"13.1/get", "13.1/cancel", "13.1/send",
			"13.1/subscribe", "13.1/stream", "13.1/list", "13.1/list-context", "13.1/context", "13.1/unharmed",
			"3.3.2/not-found-alike"}},
		{name: "tells that a task is of somebody else", rules: []string{"3.3.2/not-found-alike"},
			answer: func(x *a2aExchange) {
				id, _ := x.sent["id"].(string)
				if x.failed != nil && strings.Contains(id+x.r.URL.Path, "task_") {
					x.failed["message"] = "this task is not yours"
				}
			}},
		{name: "does not say how to authenticate", rules: []string{"3.3.2/challenge"},
			answer: func(x *a2aExchange) { x.res.Header.Del("WWW-Authenticate") }},
	}
}

// ofTasks changes the tasks in answers, also those in events.
func ofTasks(name string, change func(task object), rules ...string) a2aMistake {
	return a2aMistake{name: name, rules: rules,
		answer: func(x *a2aExchange) {
			for _, task := range x.tasks() {
				change(task)
			}
		},
		event: func(x *a2aExchange, data object) []object {
			if task, ok := x.responseIn(data)["task"].(object); ok {
				change(task)
			}
			return []object{data}
		}}
}

// ofOperation changes the results of one operation.
func ofOperation(op, name string, change func(x *a2aExchange), rules ...string) a2aMistake {
	return a2aMistake{name: name, rules: rules, answer: func(x *a2aExchange) {
		if x.op == op && x.result != nil {
			change(x)
		}
	}}
}

// hidesState shows a state as another one.
func hidesState(from, as string) func(task object) {
	return func(task object) {
		if s := statusIn(task); s != nil && (from == "" || s["state"] == from) {
			s["state"] = as
		}
	}
}

// a2aTaskMistakes are about what tasks look like.
func a2aTaskMistakes() []a2aMistake {
	calls := 0
	return []a2aMistake{
		ofOperation("SendMessage", "answers a message beside the task", func(x *a2aExchange) {
			x.result["message"] = object{"messageId": "m", "role": "ROLE_AGENT", "parts": []any{object{"text": "a"}}}
		}, "3.1.1/task-or-message"),
		ofOperation("SendMessage", "answers neither a task nor a message", func(x *a2aExchange) {
			delete(x.result, "task")
		}, "3.1.1/task-or-message", "9.4.1/result", "11.4/wrapper"),
		ofOperation("SendMessage", "answers with a message that says nothing", func(x *a2aExchange) {
			if m, ok := x.result["message"].(object); ok {
				delete(m, "parts")
			}
		}, "3.1.1/message"),
		ofOperation("GetTask", "shows another task", func(x *a2aExchange) { x.result["id"] = "task_other" },
			"3.1.1/task-is-known", "9.4.3/task"),
		ofOperation("GetTask", "shows another context", func(x *a2aExchange) { x.result["contextId"] = "other" },
			"3.1.3/same-context"),
		ofOperation("GetTask", "shows old states", func(x *a2aExchange) {
			hidesState("", "TASK_STATE_WORKING")(x.result)
		}, "3.1.3/current", "3.1.5/canceled", "3.1.5/working-task", "4.1.3/canceled", "4.1.3/completed",
			"4.1.3/rejected", "3.4.3/continues", "3.4.3/input-required", "5.1/one-store"),
		ofTasks("has no artifacts", func(task object) { delete(task, "artifacts") }, "3.1.3/artifacts",
			"3.1.4/artifacts", "3.7/results-are-artifacts", "4.1.6/text", "4.1.6/raw", "4.1.6/url", "4.1.6/data",
			"4.1.7/artifacts", "11.5/boolean"),
		ofOperation("SendMessage", "forgets the artifacts in the first answer", func(x *a2aExchange) {
			for _, task := range x.tasks() {
				delete(task, "artifacts")
			}
		}, "3.2.2/latest-state"),
		ofOperation("CancelTask", "tells nothing of the canceled task", func(x *a2aExchange) { clear(x.result) },
			"3.1.5/returns-state", "3.1.5/canceled", "11.3.2/cancel"),
		{name: "does not cancel", rules: []string{"3.1.5/canceled", "3.1.5/working-task", "3.1.3/current"},
			request: func(x *a2aExchange) *http.Response {
				if x.op == "CancelTask" && x.rpc {
					x.body["method"] = "GetTask"
				}
				return nil
			}},
		ofTasks("changes what it shows", func(task object) {
			calls++
			task["metadata"] = object{"calls": calls}
		}, "3.3.1/get", "3.3.1/list", "5.1/same-task", "5.1/same-list"),
		{name: "refuses to cancel twice in its own way", rules: []string{"3.3.1/cancel"}, answer: func(x *a2aExchange) {
			if x.op == "CancelTask" && x.failed != nil {
				x.failed["code"], x.res.StatusCode = -32603, 500
			}
		}},
		ofTasks("has no contexts", func(task object) { delete(task, "contextId") }, "3.4.1/generated", "3.4.1/groups"),
		ofTasks("has one id for all tasks", func(task object) {
			if statusIn(task)["state"] != "TASK_STATE_CANCELED" {
				task["id"] = "task_one"
			}
		}, "3.4.2/unique"),
		ofTasks("has no ids", func(task object) { delete(task, "id") }, "4.1.1/id"),
		ofTasks("has no status", func(task object) { delete(task, "status") }, "4.1.1/status"),
		ofTasks("has no state", func(task object) { delete(statusIn(task), "state") }, "4.1.2/state"),
		ofTasks("has states of its own", hidesState("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_ASKING"), "4.1.3/values",
			"3.4.3/input-required", "3.2.2/waits-until-interrupted"),
		ofTasks("completes what its agent rejects", hidesState("TASK_STATE_REJECTED", "TASK_STATE_COMPLETED"),
			"4.1.3/rejected"),
		ofTasks("never works", hidesState("TASK_STATE_WORKING", "TASK_STATE_SUBMITTED"), "4.1.3/working"),
		ofTasks("writes states in small letters", func(task object) {
			if s, _ := statusIn(task)["state"].(string); s == "TASK_STATE_COMPLETED" {
				statusIn(task)["state"] = "completed"
			}
		}, "5.5/enums"),
		ofTasks("asks for input instead of authorization", hidesState("TASK_STATE_AUTH_REQUIRED",
			"TASK_STATE_INPUT_REQUIRED"), "7.6.1/task", "3.2.2/waits-until-authorization"),
		ofTasks("does not say what it asks", func(task object) { delete(statusIn(task), "message") }, "3.7/question",
			"7.6.1/message"),
		ofTasks("has instants with an offset", func(task object) {
			statusIn(task)["timestamp"] = "2026-01-02T15:04:05.000+00:00"
		}, "5.6.1/utc"),
		ofTasks("has names in snake case", func(task object) { task["context_id"] = "x" }, "5.5/camel-case"),
		ofTasks("has a kind", func(task object) { task["kind"] = "task" }, "A.2.1/no-kind"),
		ofTasks("has messages without ids", ofMessages(func(m object) { delete(m, "messageId") }), "4.1.4/messages",
			"3.2.4/own-message"),
		ofTasks("has messages of other tasks", ofMessages(func(m object) { m["taskId"] = "task_other" }), "4.1.4/ids"),
		ofTasks("has messages of other contexts", ofMessages(func(m object) { m["contextId"] = "other" }), "4.1.4/ids"),
		ofTasks("forgets the data of clients", ofMessages(func(m object) { m["parts"] = []any{object{"text": "?"}} }),
			"4.1.6/client-data", "3.2.4/own-message"),
		ofTasks("has artifacts without ids", func(task object) {
			list, _ := task["artifacts"].([]any)
			for _, a := range list {
				delete(a.(object), "artifactId")
			}
		}, "4.1.7/artifacts"),
		ofTasks("has parts with two contents", func(task object) {
			for _, p := range partsIn(task) {
				p["text"], p["data"] = "a", 1
			}
		}, "4.1.7/artifacts", "4.1.6/text"),
		ofTasks("writes bytes as they are", func(task object) {
			for _, p := range partsIn(task) {
				p["raw"] = "tck"
			}
		}, "4.1.6/raw"),
		ofTasks("forgets the names of files", func(task object) {
			for _, p := range partsIn(task) {
				delete(p, "filename")
			}
		}, "4.1.6/raw", "4.1.6/url"),
		ofTasks("writes data as a text", func(task object) {
			for _, p := range partsIn(task) {
				p["data"] = "a text"
			}
		}, "4.1.6/data"),
		ofTasks("puts results into messages", func(task object) {
			if parts := partsIn(task); len(parts) > 0 {
				parts[0]["text"] = "see the message"
			}
		}, "3.7/results-are-artifacts"),
	}
}

// ofMessages changes the messages of the history of a task.
func ofMessages(change func(m object)) func(task object) {
	return func(task object) {
		for _, m := range messagesIn(task) {
			change(m)
		}
		if said, ok := statusIn(task)["message"].(object); ok {
			change(said)
		}
	}
}
