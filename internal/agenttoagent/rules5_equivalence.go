package agenttoagent

import "github.com/picket-dev/picket/internal/conformance"

// both runs a check with the two bindings.
func both(check func(rpc, rest caller)) func(*Trial) {
	return onRPC(func(rpc caller) {
		rest := rpc
		rest.b = *rpc.s.binding(needREST)
		check(rpc, rest)
	})
}

// sameRefusal does an operation over both bindings, and expects a failure of one kind.
func sameRefusal(operation string, params fields, k kind) func(*Trial) {
	return both(func(rpc, rest caller) {
		rpc.refuses(operation, params, k)
		rest.refuses(operation, params, k)
	})
}

// Section 5: what the bindings have in common.
var equivalenceChecks = checks{
	"5.1/same-task": both(func(rpc, rest caller) {
		id := text(rpc.canceledTask(), "id")
		rpc.ExpectEqual("task", rest.read(id), rpc.read(id))
	}),
	"5.1/same-list": both(func(rpc, rest caller) {
		contextID, ids := rpc.conversation(2)
		for _, id := range ids {
			rpc.cancels(id)
			rpc.awaitEnd(id)
		}
		rpc.ExpectEqual("list", rest.lists(contextID), rpc.lists(contextID))
	}),
	"5.1/one-store": both(func(rpc, rest caller) {
		id := text(rest.openTask(), "id")
		rpc.cancels(id)
		rest.holds("a task that has ended", terminal(rest.awaitEnd(id)))
	}),
	"5.1/same-errors": both(func(rpc, rest caller) {
		task := fields{"id": rpc.ID("no-such-task")}
		sameRefusal("GetTask", task, taskNotFound)(rpc.Trial)
		sameRefusal("CancelTask", task, taskNotFound)(rpc.Trial)
		sameRefusal("ListTasks", fields{"pageSize": 0}, invalidParams)(rpc.Trial)
		sameRefusal("ListTasks", fields{"status": "TASK_STATE_RUNNING"}, invalidParams)(rpc.Trial)
	}),
	"5.1/same-key": both(func(rpc, rest caller) {
		rpc.gets("ListTasks", fields{})
		rest.gets("ListTasks", fields{})
	}),
	"5.1/same-events": both(func(rpc, rest caller) {
		id := text(rpc.held(), "id")
		one, two := rpc.subscribed(id), rest.subscribed(id)
		rpc.cancels(id)
		rpc.ExpectEqual("events", updates(one.rest()), updates(two.rest()))
	}),
	"5.3/operations": each(func(c caller) {
		for operation, params := range someOperations(fields{}) {
			if streamingOperations[operation] {
				continue
			}
			r := c.do(operation, params)
			c.Assert(r.failed == nil || r.failed.code != noMethod.code && r.Status != 405 &&
				(r.Status != 404 || r.failed.info("reason") != "" || operation == "GetExtendedAgentCard"), r.answer,
				"the operation %s", operation)
		}
	}),
	"5.4/task-not-found": each(func(c caller) {
		c.exactly(c.do("GetTask", fields{"id": c.ID("no-such-task")}), taskNotFound)
	}),
	"5.4/task-not-cancelable": each(func(c caller) {
		c.exactly(c.do("CancelTask", fields{"id": c.done("tck-complete-task")["id"]}), notCancelable)
	}),
	"5.4/push-not-supported": each(func(c caller) {
		c.exactly(c.do("GetTaskPushNotificationConfig", c.pushTask()), noPush)
	}),
	"5.4/unsupported-operation": each(func(c caller) {
		task := c.canceledTask()
		c.exactly(c.do("SendMessage", atOnce(c.message("tck-complete-task", fields{"taskId": task["id"]}))),
			unsupported)
	}),
	"5.4/content-type": each(func(c caller) {
		c.exactly(c.do("SendMessage", atOnce(c.message("tck-send-003", c.foreignPart()))), contentType)
	}),
	"5.4/version": each(func(c caller) {
		c.exactly(c.speaking("99.0").do("ListTasks", fields{}), wrongVersion)
	}),
}

// exactly expects a failure of a kind, with the status, code and reason that the binding has for it.
func (c caller) exactly(r *reply, k kind) {
	f := c.refused(r, k)
	if c.b.name == needRPC {
		c.ExpectEqual("code", f.code, k.code)
		return
	}
	c.ExpectEqual("status", r.Status, k.status)
	c.ExpectEqual("reason", f.info("reason"), k.reason)
}

// Section 13.1: what other clients see.
var isolationChecks = checks{
	"13.1/get": foreign(func(c caller, id string) { c.refuses("GetTask", fields{"id": id}, taskNotFound) }),
	"13.1/cancel": foreign(func(c caller, id string) {
		c.refuses("CancelTask", fields{"id": id}, taskNotFound)
	}),
	"13.1/send": foreign(func(c caller, id string) {
		c.refuses("SendMessage", atOnce(c.message("tck-complete-task", fields{"taskId": id})), taskNotFound)
	}),
	"13.1/subscribe": foreign(func(c caller, id string) {
		c.refusesStream("SubscribeToTask", fields{"id": id}, taskNotFound)
	}),
	"13.1/stream": foreign(func(c caller, id string) {
		c.refusesStream("SendStreamingMessage", fields{"message": c.message("tck-stream-001", fields{"taskId": id})},
			taskNotFound)
	}),
	"13.1/list": foreign(func(c caller, id string) {
		raw := conformance.JSON(c.gets("ListTasks", fields{"pageSize": 100}))
		c.holds("a list without the task of another client", !contains(raw, id))
	}),
	"13.1/list-context": each(func(c caller) {
		contextID := text(c.openTask(), "contextId")
		page := c.as(other).lists(contextID)
		c.ExpectEqual("ids", idsIn(page), []string(nil))
		c.ExpectEqual("totalSize", page["totalSize"], 0)
	}),
	"13.1/context": each(func(c caller) {
		contextID := text(c.openTask(), "contextId")
		r := c.as(other).do("SendMessage", atOnce(c.message("tck-input-required", fields{"contextId": contextID})))
		if r.failed == nil {
			c.holds("one task in the context of its client", len(idsIn(c.lists(contextID))) == 1)
		}
	}),
	"13.1/unharmed": each(func(c caller) {
		task := c.openTask()
		id := text(task, "id")
		c.as(other).do("CancelTask", fields{"id": id})
		c.as(other).do("SendMessage", atOnce(c.message("tck-complete-task", fields{"taskId": id})))
		c.ExpectEqual("state", stateOf(c.read(id)), stateOf(task))
	}),
}

// foreign runs a check with the task of another client.
func foreign(check func(c caller, id string)) func(*Trial) {
	return each(func(c caller) {
		check(c.as(other), text(c.openTask(), "id"))
	})
}
