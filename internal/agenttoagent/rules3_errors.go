package agenttoagent

import (
	"strings"

	"github.com/picket-dev/picket/internal/conformance"
)

// refusesMessage expects that a message with a change is refused.
func refusesMessage(change fields) func(*Trial) {
	return each(func(c caller) {
		c.refuses("SendMessage", atOnce(c.message("tck-complete-task", change)), invalidParams)
	})
}

// someOperations are operations that a stranger could try, each with params.
func someOperations(message fields) map[string]fields {
	task := fields{"id": "no-such-task"}
	return map[string]fields{
		"SendMessage":          atOnce(message),
		"SendStreamingMessage": {"message": message},
		"GetTask":              task,
		"ListTasks":            {},
		"CancelTask":           task,
		"SubscribeToTask":      task,
		"GetExtendedAgentCard": {},
	}
}

// Section 3.3.2 and section 7.4: errors.
var errorChecks = checks{
	"3.3.2/no-key": each(func(c caller) {
		c.unauthorized(c.as(nobody).do("ListTasks", fields{}), "a request without a key")
	}),
	"3.3.2/wrong-key": each(func(c caller) {
		c.unauthorized(c.as(unknownKey).do("ListTasks", fields{}), "a request with an unknown key")
	}),
	"3.3.2/challenge": each(func(c caller) {
		r := c.as(nobody).do("ListTasks", fields{})
		if r.Status != 401 {
			c.NotRun("the server refuses requests without a key with status %d", r.Status)
		}
		c.holds("a header WWW-Authenticate", r.Header.Get("WWW-Authenticate") != "")
	}),
	"3.3.2/no-message":    each(func(c caller) { c.refuses("SendMessage", fields{}, invalidParams) }),
	"3.3.2/no-parts":      refusesMessage(fields{"parts": nil}),
	"3.3.2/empty-parts":   refusesMessage(fields{"parts": []fields{}}),
	"3.3.2/no-message-id": refusesMessage(fields{"messageId": nil}),
	"3.3.2/no-role":       refusesMessage(fields{"role": nil}),
	"3.3.2/unknown-role":  refusesMessage(fields{"role": "ROLE_JUDGE"}),
	"3.3.2/empty-part":    refusesMessage(fields{"parts": []fields{{}}}),
	"3.3.2/two-contents":  refusesMessage(fields{"parts": []fields{{"text": "a", "data": fields{"b": 1}}}}),
	"3.3.2/wrong-type":    refusesMessage(fields{"parts": "text"}),
	"3.3.2/history-length": each(func(c caller) {
		id := text(c.openTask(), "id")
		c.refuses("GetTask", fields{"id": id, "historyLength": -1}, invalidParams)
	}),
	"3.3.2/status":     refusesQuery("status", "TASK_STATE_RUNNING"),
	"3.3.2/page-token": refusesQuery("pageToken", "no-such-token"),
	"3.3.2/timestamp":  refusesQuery("statusTimestampAfter", "yesterday"),
	"3.3.2/names-parameter": each(func(c caller) {
		f := c.refuses("SendMessage", atOnce(c.message("tck-complete-task", fields{"parts": []fields{}})),
			invalidParams)
		c.holds("an error that names parts", strings.Contains(f.message+conformance.JSON(f.details), "parts"))
	}),
	"3.3.2/text": each(func(c caller) {
		f := c.refuses("GetTask", fields{"id": c.ID("no-such-task")}, taskNotFound)
		c.holds("an error with a text", f.message != "")
	}),
	"3.3.2/detail-types": each(func(c caller) {
		for _, r := range []*reply{
			c.do("GetTask", fields{"id": c.ID("no-such-task")}),
			c.do("SendMessage", atOnce(c.message("tck-complete-task", fields{"parts": []fields{}}))),
		} {
			for _, d := range c.anyRefusal(r, "the request").details {
				detail, _ := d.(fields)
				c.Assert(text(detail, "@type") != "", r.answer, "@type in each detail of the error")
			}
		}
	}),
	"3.3.2/nothing-done": each(func(c caller) {
		contextID := text(c.openTask(), "contextId")
		c.refuses("SendMessage", atOnce(c.message("tck-complete-task", fields{"contextId": contextID,
			"parts": []fields{}})), invalidParams)
		c.holds("one task of the context", len(idsIn(c.lists(contextID))) == 1)
	}),
	"3.3.2/not-found-alike": each(func(c caller) {
		id := text(c.openTask(), "id")
		foreign := c.as(other).refuses("GetTask", fields{"id": id}, taskNotFound)
		nothing := c.as(other).refuses("GetTask", fields{"id": strings.ToUpper(c.ID("x"))}, taskNotFound)
		c.ExpectEqual("text", strings.ReplaceAll(foreign.message, id, ""),
			strings.ReplaceAll(nothing.message, strings.ToUpper(c.ID("x")), ""))
	}),
	"7.4/every-operation": each(func(c caller) {
		for operation, params := range someOperations(c.message("tck-complete-task")) {
			c.unauthorized(c.as(nobody).do(operation, params), operation+" without a key")
		}
	}),
	"7.4/no-stream": each(func(c caller) {
		s := c.as(unknownKey).open("SendStreamingMessage", fields{"message": c.message("tck-stream-001")})
		c.Assert(s.failed != nil, s.answer, "a refusal, and not a stream")
		c.unauthorized(s.reply, "a stream with an unknown key")
	}),
	"7.4/challenge": each(func(c caller) {
		r := c.as(unknownKey).do("ListTasks", fields{})
		c.holds("status 401, or an error of JSON-RPC", r.Status == 401 || r.failed != nil && r.failed.code != 0)
	}),
}

// pushTask is where push configurations are asked for.
func (c caller) pushTask() fields {
	return fields{"taskId": c.openTask()["id"], "id": "config-1"}
}

// Section 3.3.4: what the card does not offer.
var capabilityChecks = checks{
	"3.3.4/push-create": each(func(c caller) {
		c.refuses("CreateTaskPushNotificationConfig", merge(c.pushTask(),
			fields{"url": "https://example.com/hook"}), noPush)
	}),
	"3.3.4/push-get": each(func(c caller) { c.refuses("GetTaskPushNotificationConfig", c.pushTask(), noPush) }),
	"3.3.4/push-list": each(func(c caller) {
		c.refuses("ListTaskPushNotificationConfigs", merge(c.pushTask(), fields{"id": nil}), noPush)
	}),
	"3.3.4/push-delete": each(func(c caller) { c.refuses("DeleteTaskPushNotificationConfig", c.pushTask(), noPush) }),
	"3.3.4/push-in-message": each(func(c caller) {
		c.refuses("SendMessage", atOnce(c.message("tck-complete-task"), fields{
			"taskPushNotificationConfig": fields{"url": "https://example.com/hook"}}), noPush)
	}),
	"3.3.4/streaming": each(func(c caller) {
		s := c.open("SendStreamingMessage", fields{"message": c.message("tck-stream-001")})
		c.Assert(s.failed != nil, s.answer, "a refusal, and not a stream")
		c.refused(s.reply, unsupported)
	}),
	"3.3.4/extended-card": each(func(c caller) { c.refuses("GetExtendedAgentCard", fields{}, unsupported) }),
	"3.3.4/extension": each(func(c caller) {
		c.refuses("SendMessage", atOnce(c.message("tck-complete-task")), noExtension)
	}),
	"3.1.11/card": each(func(c caller) {
		card := c.gets("GetExtendedAgentCard", fields{})
		c.holds("a card with a name and interfaces", text(card, "name") != "" && len(list(card,
			"supportedInterfaces")) > 0)
	}),
	"13.3/extended-card-key": each(func(c caller) {
		c.unauthorized(c.as(nobody).do("GetExtendedAgentCard", fields{}), "the extended card without a key")
	}),
}
