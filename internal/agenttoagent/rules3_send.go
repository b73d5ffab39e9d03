package agenttoagent

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
}

// Section 3.1.3: reading a task.
var getChecks = checks{
	"3.1.3/unknown-task": each(func(c caller) {
		c.refuses("GetTask", fields{"id": c.ID("no-such-task")}, taskNotFound)
	}),
}
