package agenttoagent

import (
	"slices"
	"strings"
)

// unknownMedia is a media type that no agent takes.
const unknownMedia = "application/x-conformance-unknown"

// foreignPart is a part of a type that the agent does not take. Without one, the rule is not run.
func (c caller) foreignPart() fields {
	modes := stringsIn(c.s.card["defaultInputModes"])
	for _, skill := range list(c.s.card, "skills") {
		modes = append(modes, stringsIn(skill["inputModes"])...)
	}
	if slices.Contains(modes, "*/*") || slices.Contains(modes, "application/*") {
		c.NotRun("the agent takes parts of any type")
	}
	return fields{"parts": []fields{{"raw": "dGNr", "mediaType": unknownMedia}}}
}

func stringsIn(v any) (all []string) {
	values, _ := v.([]any)
	for _, one := range values {
		if s, ok := one.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

// takesMessage is the metadata of a message whose client takes a message as the answer. Agents of Picket ask for it.
var takesMessage = fields{"metadata": fields{"reply": "message"}}

// Section 3.1.1: sending a message.
var sendChecks = checks{
	"3.1.1/task-or-message": each(func(c caller) {
		result := c.gets("SendMessage", atOnce(c.message("tck-complete-task")))
		c.holds("exactly one of task and message", has(result, "task") != has(result, "message"))
	}),
	"3.1.1/task-is-known": each(func(c caller) {
		task := c.begins("tck-complete-task")
		c.ExpectEqual("id", c.read(text(task, "id"))["id"], task["id"])
	}),
	"3.1.1/message": each(func(c caller) {
		request := waiting(c.message("tck-message-response", takesMessage))
		result := c.gets("SendMessage", request)
		if has(result, "task") {
			c.NotRun("the agent answers with a task, and not with a message")
		}
		c.ExpectEqual("what is wrong", wrongMessage(object(result, "message")), "")
		c.ExpectEqual("role", text(result, "message.role"), "ROLE_AGENT")
	}),
	"3.1.1/unsupported-media": each(func(c caller) {
		c.refuses("SendMessage", atOnce(c.message("tck-send-003", c.foreignPart())), contentType)
	}),
	"3.1.1/ended-task": each(func(c caller) {
		task := c.canceledTask()
		c.refuses("SendMessage", atOnce(c.message("tck-complete-task", fields{"taskId": task["id"]})), unsupported)
	}),
	"3.1.1/completed-task": each(func(c caller) {
		task := c.done("tck-complete-task")
		c.refuses("SendMessage", atOnce(c.message("tck-complete-task", fields{"taskId": task["id"]})), unsupported)
	}),
	"3.1.1/unknown-task": each(func(c caller) {
		c.refuses("SendMessage", atOnce(c.message("tck-complete-task", fields{"taskId": c.ID("no-such-task")})),
			taskNotFound)
	}),
}

// Section 3.1.3: reading a task.
var getChecks = checks{
	"3.1.3/current": each(func(c caller) {
		task := c.openTask()
		id := text(task, "id")
		c.cancels(id)
		c.holds("the state after the change", terminal(c.read(id)))
	}),
	"3.1.3/same-context": each(func(c caller) {
		task := c.begins("tck-input-required")
		c.ExpectEqual("contextId", c.read(text(task, "id"))["contextId"], task["contextId"])
	}),
	"3.1.3/artifacts": each(func(c caller) {
		task := c.done("tck-artifact-text")
		c.holds("at least one artifact", len(list(task, "artifacts")) > 0)
	}),
	"3.1.3/unknown-task": each(func(c caller) {
		c.refuses("GetTask", fields{"id": c.ID("no-such-task")}, taskNotFound)
	}),
}

// Section 3.1.5: cancelling a task, and section 3.3.1: idempotency.
var cancelChecks = checks{
	"3.1.5/canceled": each(func(c caller) {
		id := text(c.openTask(), "id")
		task := c.gets("CancelTask", fields{"id": id})
		c.ExpectEqual("id", task["id"], id)
		c.ExpectEqual("state", stateOf(c.awaitEnd(id)), canceled)
	}),
	"3.1.5/returns-state": each(func(c caller) {
		id := text(c.openTask(), "id")
		task := c.gets("CancelTask", fields{"id": id})
		c.holds("a task with its state", slices.Contains(allStates, stateOf(task)))
	}),
	"3.1.5/working-task": each(func(c caller) {
		id := text(c.held(), "id")
		c.cancels(id)
		c.ExpectEqual("state", stateOf(c.awaitEnd(id)), canceled)
	}),
	"3.1.5/ended-task": each(func(c caller) {
		task := c.done("tck-complete-task")
		c.refuses("CancelTask", fields{"id": task["id"]}, notCancelable)
	}),
	"3.1.5/unknown-task": each(func(c caller) {
		c.refuses("CancelTask", fields{"id": c.ID("no-such-task")}, taskNotFound)
	}),
	"3.3.1/get": each(func(c caller) {
		id := text(c.canceledTask(), "id")
		c.ExpectEqual("task", c.read(id), c.read(id))
	}),
	"3.3.1/list": each(func(c caller) {
		task := c.canceledTask()
		query := fields{"contextId": task["contextId"]}
		c.ExpectEqual("list", c.gets("ListTasks", query), c.gets("ListTasks", query))
	}),
	"3.3.1/cancel": each(func(c caller) {
		id := text(c.canceledTask(), "id")
		r := c.do("CancelTask", fields{"id": id})
		c.Assert(r.failed == nil || notCancelable.is(r.failed) || taskNotFound.is(r.failed), r.answer,
			"the task, %s or %s", notCancelable.name, taskNotFound.name)
		c.ExpectEqual("state", stateOf(c.read(id)), canceled)
	}),
	"3.3.1/message-id": each(func(c caller) {
		request := atOnce(c.message("tck-input-required"))
		first := c.taskOf(c.gets("SendMessage", request))
		c.ExpectEqual("id", c.taskOf(c.gets("SendMessage", request))["id"], first["id"])
	}),
	"3.3.1/message-id-conflict": each(func(c caller) {
		message := c.message("tck-input-required")
		c.gets("SendMessage", atOnce(message))
		again := merge(message, fields{"parts": []fields{{"text": "Something else."}}})
		c.refuses("SendMessage", atOnce(again), invalidParams)
	}),
}

// Section 3.2.2: whether a send waits.
var configChecks = checks{
	"3.2.2/at-once": each(func(c caller) {
		task := c.begins("tck-delayed-complete")
		c.holds("a task that has not ended yet", !terminal(task))
		c.awaitEnd(text(task, "id"))
	}),
	"3.2.2/waits": each(func(c caller) {
		task := c.taskOf(c.gets("SendMessage", waiting(c.message("tck-delayed-complete"))))
		c.holds("a task that has ended", terminal(task))
	}),
	"3.2.2/waits-until-interrupted": each(func(c caller) {
		task := c.taskOf(c.gets("SendMessage", waiting(c.message("tck-input-required"))))
		c.ExpectEqual("state", stateOf(task), inputRequired)
	}),
	"3.2.2/waits-until-authorization": each(func(c caller) {
		task := c.taskOf(c.gets("SendMessage", waiting(c.message("tck-auth-required"))))
		c.ExpectEqual("state", stateOf(task), authRequired)
	}),
	"3.2.2/answer-waits": each(func(c caller) {
		task := c.openTask()
		again := c.message("tck-complete-task", fields{"taskId": task["id"]})
		c.holds("a task that has ended", terminal(c.taskOf(c.gets("SendMessage", waiting(again)))))
	}),
	"3.2.2/latest-state": each(func(c caller) {
		task := c.taskOf(c.gets("SendMessage", waiting(c.message("tck-artifact-text"))))
		shown := c.read(text(task, "id"))
		c.ExpectEqual("status", task["status"], shown["status"])
		c.ExpectEqual("artifacts", task["artifacts"], shown["artifacts"])
	}),
}

// twoMessages is a task to which the client has sent two messages.
func (c caller) twoMessages() (id string) {
	id = text(c.openTask(), "id")
	c.gets("SendMessage", atOnce(c.message("tck-complete-task", fields{"taskId": id})))
	if c.s.missing[needWorker] == "" {
		c.awaitEnd(id)
	}
	return id
}

// history are the messages of the history of a task.
func history(task fields) []fields { return list(task, "history") }

// Section 3.2.4: how much of the history is shown.
var historyChecks = checks{
	"3.2.4/get-none": each(func(c caller) {
		task := c.read(c.twoMessages(), fields{"historyLength": 0})
		c.holds("no history", len(history(task)) == 0)
	}),
	"3.2.4/none-omitted": each(func(c caller) {
		task := c.read(c.twoMessages(), fields{"historyLength": 0})
		c.holds("no member history", !has(task, "history"))
	}),
	"3.2.4/get-limit": each(func(c caller) {
		task := c.read(c.twoMessages(), fields{"historyLength": 1})
		c.holds("at most one message", len(history(task)) <= 1)
	}),
	"3.2.4/most-recent": each(func(c caller) {
		id := c.twoMessages()
		all := history(c.read(id))
		if len(all) < 2 {
			c.NotRun("the agent keeps no history of two messages")
		}
		last := history(c.read(id, fields{"historyLength": 1}))
		c.ExpectEqual("history", last, all[len(all)-1:])
	}),
	"3.2.4/send-none": each(func(c caller) {
		task := c.taskOf(c.gets("SendMessage", atOnce(c.message("tck-input-required"), fields{"historyLength": 0})))
		c.holds("no history", len(history(task)) == 0)
	}),
	"3.2.4/send-limit": each(func(c caller) {
		id := text(c.openTask(), "id")
		again := c.message("tck-complete-task", fields{"taskId": id})
		task := c.taskOf(c.gets("SendMessage", atOnce(again, fields{"historyLength": 1})))
		c.holds("at most one message", len(history(task)) <= 1)
	}),
	"3.2.4/list-limit": each(func(c caller) {
		task := c.read(c.twoMessages())
		for _, one := range list(c.gets("ListTasks", fields{"contextId": task["contextId"], "historyLength": 1}),
			"tasks") {
			c.holds("at most one message", len(history(one)) <= 1)
		}
	}),
	"3.2.4/list-none": each(func(c caller) {
		task := c.read(c.twoMessages())
		for _, one := range list(c.gets("ListTasks", fields{"contextId": task["contextId"], "historyLength": 0}),
			"tasks") {
			c.holds("no history", len(history(one)) == 0)
		}
	}),
	"3.2.4/own-message": each(func(c caller) {
		message := c.message("tck-input-required")
		task := c.read(text(c.taskOf(c.gets("SendMessage", atOnce(message))), "id"))
		if len(history(task)) == 0 {
			c.NotRun("the agent keeps no history")
		}
		first := history(task)[0]
		c.ExpectEqual("messageId", first["messageId"], message["messageId"])
		c.ExpectEqual("role", first["role"], "ROLE_USER")
		parts, _ := first["parts"].([]any)
		c.holds("the parts of the message", len(parts) == 1 && strings.Contains(text(parts[0].(fields), "text"),
			"conformance run"))
	}),
}
