package agenttoagent

// Sections 3.4 and 7.6: conversations of several turns.
var turnChecks = checks{
	"3.4.1/generated": each(func(c caller) {
		c.holds("a contextId", text(c.begins("tck-input-required"), "contextId") != "")
	}),
	"3.4.1/kept-or-refused": each(func(c caller) {
		mine := c.ID("context")
		r := c.do("SendMessage", atOnce(c.message("tck-input-required", fields{"contextId": mine})))
		if r.failed == nil {
			c.ExpectEqual("contextId", c.taskOf(r.result)["contextId"], mine)
		}
	}),
	"3.4.1/groups": each(func(c caller) {
		first := c.begins("tck-input-required")
		c.holds("a contextId", text(first, "contextId") != "")
		second := c.begins("tck-input-required", fields{"contextId": first["contextId"]})
		c.ExpectEqual("contextId", second["contextId"], first["contextId"])
		c.holds("another task", second["id"] != first["id"])
	}),
	"3.4.2/unique": each(func(c caller) {
		c.holds("two ids", c.begins("tck-input-required")["id"] != c.begins("tck-input-required")["id"])
	}),
	"3.4.2/not-by-client": each(func(c caller) {
		mine := c.ID("my-task")
		c.refuses("SendMessage", atOnce(c.message("tck-input-required", fields{"taskId": mine})), taskNotFound)
		c.refuses("GetTask", fields{"id": mine}, taskNotFound)
	}),
	"3.4.3/infers-context": each(func(c caller) {
		task := c.openTask()
		again := c.begins("tck-complete-task", fields{"taskId": task["id"]})
		c.ExpectEqual("id", again["id"], task["id"])
		c.ExpectEqual("contextId", again["contextId"], task["contextId"])
	}),
	"3.4.3/mismatch": each(func(c caller) {
		task := c.openTask()
		change := fields{"taskId": task["id"], "contextId": c.ID("other-context")}
		c.anyRefusal(c.do("SendMessage", atOnce(c.message("tck-complete-task", change))),
			"a message of another context")
	}),
	"3.4.3/match": each(func(c caller) {
		task := c.openTask()
		change := fields{"taskId": task["id"], "contextId": task["contextId"]}
		c.ExpectEqual("id", c.begins("tck-complete-task", change)["id"], task["id"])
	}),
	"3.4.3/references": each(func(c caller) {
		task := c.openTask()
		change := fields{"contextId": task["contextId"], "referenceTaskIds": []any{task["id"]}}
		c.holds("another task", c.begins("tck-input-required", change)["id"] != task["id"])
	}),
	"3.4.3/input-required": each(func(c caller) {
		c.ExpectEqual("state", stateOf(c.openTask()), inputRequired)
	}),
	"3.4.3/continues": each(func(c caller) {
		task := c.openTask()
		id := text(task, "id")
		c.gets("SendMessage", atOnce(c.message("tck-complete-task", fields{"taskId": id,
			"contextId": task["contextId"]})))
		c.ExpectEqual("state", stateOf(c.awaitEnd(id)), completed)
	}),
	"3.7/question": each(func(c caller) {
		said := object(c.openTask(), "status.message")
		c.ExpectEqual("role", said["role"], "ROLE_AGENT")
		c.holds("a message with parts", len(list(said, "parts")) > 0)
	}),
	"3.7/results-are-artifacts": each(func(c caller) {
		task := c.done("tck-artifact-text")
		found := false
		for _, a := range list(task, "artifacts") {
			for _, p := range list(a, "parts") {
				found = found || text(p, "text") == "Generated text content"
			}
		}
		c.holds("the result in an artifact", found)
	}),
	"7.6.1/task": each(func(c caller) {
		c.awaitState(text(c.begins("tck-auth-required"), "id"), authRequired)
	}),
	"7.6.1/message": each(func(c caller) {
		task := c.awaitState(text(c.begins("tck-auth-required"), "id"), authRequired)
		c.holds("a message that explains it", len(list(task, "status.message.parts")) > 0)
	}),
	"7.6.1/takes-messages": each(func(c caller) {
		task := c.awaitState(text(c.begins("tck-auth-required"), "id"), authRequired)
		c.begins("tck-auth-required", fields{"taskId": task["id"]})
	}),
	"7.6.1/stream-stays": each(func(c caller) {
		s := c.sends(c.message("tck-auth-required"))
		id := text(s.task(), "id")
		if stateIn(s.read[0]) != authRequired {
			s.until(authRequired)
		}
		c.cancels(id)
		s.until(terminalStates...)
	}),
}
