package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/agenttoagent"
	"github.com/picket-dev/picket/internal/conformance"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/a2a"
	"github.com/picket-dev/picket/reaper/push"
)

// pushOperation finds the operation of a request of HTTP+JSON about push configurations.
func pushOperation(r *http.Request) string {
	all := strings.HasSuffix(r.URL.Path, "/pushNotificationConfigs")
	switch {
	case r.Method == http.MethodPost:
		return "CreateTaskPushNotificationConfig"
	case r.Method == http.MethodDelete:
		return "DeleteTaskPushNotificationConfig"
	case all:
		return "ListTaskPushNotificationConfigs"
	}
	return "GetTaskPushNotificationConfig"
}

// sentPush is the push configuration in a request, of its own or in a message, or nil.
func (x *a2aExchange) sentPush() object {
	if x.op == "CreateTaskPushNotificationConfig" {
		return x.sent
	}
	c, _ := x.inSent("configuration")["taskPushNotificationConfig"].(object)
	return c
}

// ofSentPush changes the push configurations that clients send.
func ofSentPush(name string, change func(c object), rules ...string) a2aMistake {
	return a2aMistake{name: name, rules: rules, push: true, request: func(x *a2aExchange) *http.Response {
		if c := x.sentPush(); c != nil {
			change(c)
		}
		return nil
	}}
}

// ofPushAnswer changes the answers to an operation of push configurations.
func ofPushAnswer(op, name string, change func(x *a2aExchange), rules ...string) a2aMistake {
	return a2aMistake{name: name, rules: rules, push: true, answer: func(x *a2aExchange) {
		if x.op == op {
			change(x)
		}
	}}
}

// unlessFound makes a success of a failure.
func unlessFound(result object) func(x *a2aExchange) {
	return func(x *a2aExchange) {
		if x.failed != nil || x.res.StatusCode >= 400 {
			x.succeed(result)
		}
	}
}

// ofDeletion changes the requests that delete a push configuration.
func ofDeletion(name string, change func(x *a2aExchange) *http.Response, rules ...string) a2aMistake {
	return a2aMistake{name: name, rules: rules, push: true, request: func(x *a2aExchange) *http.Response {
		if x.op == "DeleteTaskPushNotificationConfig" {
			return change(x)
		}
		return nil
	}}
}

// a2aPushMistakes are mistakes of an endpoint that pushes notifications.
func a2aPushMistakes() []a2aMistake {
	return []a2aMistake{
		ofPushAnswer("GetTaskPushNotificationConfig", "forgets the address of a push configuration",
			func(x *a2aExchange) { delete(x.result, "url") }, "3.1.7/creates", "3.1.8/gets"),
		ofPushAnswer("CreateTaskPushNotificationConfig", "gives a push configuration no id",
			func(x *a2aExchange) { delete(x.result, "id") }, "3.1.7/creates", "3.1.7/assigns-id"),
		ofPushAnswer("CreateTaskPushNotificationConfig", "takes every push configuration",
			unlessFound(object{"id": "x", "url": "https://example.com"}), "3.1.7/unknown-task", "13.1/push",
			"13.2/private"),
		ofPushAnswer("GetTaskPushNotificationConfig", "finds every push configuration",
			unlessFound(object{"id": "x", "url": "https://example.com"}), "3.1.8/unknown", "3.1.10/deletes"),
		ofPushAnswer("ListTaskPushNotificationConfigs", "lists no push configuration",
			func(x *a2aExchange) { x.result["configs"] = []any{} }, "3.1.9/lists", "3.2.2/push-configuration"),
		ofDeletion("keeps a push configuration that was deleted", func(x *a2aExchange) *http.Response {
			if x.rpc {
				x.sent["id"] = "another"
			} else {
				x.r.URL.Path += "another"
			}
			return nil
		}, "3.1.10/deletes", "3.1.10/silent"),
		ofDeletion("refuses to delete again", func(x *a2aExchange) *http.Response {
			again := x.seen["deleted"] != nil
			if x.seen["deleted"] = true; again {
				return x.refusal(-32001, http.StatusNotFound)
			}
			return nil
		}, "3.1.10/again"),
		ofSentPush("pushes notifications to another address", func(c object) {
			c["url"] = c["url"].(string) + "/elsewhere"
		}, "4.3.3/delivers"),
		ofSentPush("pushes notifications without credentials", func(c object) { delete(c, "authentication") },
			"4.3.3/credentials"),
	}
}

// a2aWrongNotifications are the rules that notifications of a wrong form break.
var a2aWrongNotifications = []string{"4.3.3/payload", "4.3.3/media-type"}

// TestA2ASuiteFindsWrongNotifications holds an endpoint whose notifications have a wrong form against the rules that
// are about it.
func TestA2ASuiteFindsWrongNotifications(t *testing.T) {
	f := startA2A(t, rig.Real(t), false, withPush(t, func(cfg *push.Config) {
		cfg.ContentType = "application/json"
		cfg.Render = func(task picket.Task, u picket.TaskUpdate) ([]byte, error) {
			body, err := a2a.PushBody(task, u)
			if body == nil || err != nil {
				return body, err
			}
			return append([]byte(`{"message":{},`), body[1:]...), nil
		}
	}))
	cfg := f.config(t)
	cfg.Slack = 10 * time.Second
	cfg.Only = func(r agenttoagent.Rule) bool { return slices.Contains(a2aWrongNotifications, r.Name()) }
	report, err := agenttoagent.Run(t.Context(), cfg)
	noError(t, err)
	if len(report.Results) != len(a2aWrongNotifications) {
		t.Errorf("%d results", len(report.Results))
	}
	for _, r := range report.Results {
		if r.Outcome != conformance.Failed {
			t.Errorf("%s/%s is %s %s", r.Section, r.ID, r.Outcome, r.Why)
		}
	}
}
