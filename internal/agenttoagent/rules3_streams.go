package agenttoagent

import (
	"slices"

	"github.com/picket-dev/picket/internal/conformance"
)

// streamKinds are the members of a StreamResponse.
var streamKinds = []string{"task", "message", "statusUpdate", "artifactUpdate"}

// kindsIn are the members that a StreamResponse has.
func kindsIn(response fields) (found []string) {
	for _, k := range streamKinds {
		if has(response, k) {
			found = append(found, k)
		}
	}
	return found
}

// canceledStream is the stream of a task that is cancelled meanwhile, read to its end.
func (c caller) canceledStream() *stream {
	s := c.sends(c.message("tck-cancel"))
	task := s.task()
	if terminal(task) {
		c.NotRun("the agent has ended the task at once, so that nothing is left to follow")
	}
	c.cancels(text(task, "id"))
	s.rest()
	return s
}

// refusesStream expects a refusal, and not a stream.
func (c caller) refusesStream(operation string, params fields, k kind) {
	s := c.open(operation, params)
	c.Assert(s.failed != nil, s.answer, "%s, and not a stream", k.name)
	c.refused(s.reply, k)
}

// Sections 3.1.2 and 3.2.3: streams of messages.
var streamChecks = checks{
	"3.1.2/stream": each(func(c caller) { c.sends(c.message("tck-stream-001")).next() }),
	"3.1.2/begins": each(func(c caller) {
		first := c.sends(c.message("tck-stream-001")).next()
		c.holds("task or message first", has(first, "task") || has(first, "message"))
	}),
	"3.1.2/then-updates": each(func(c caller) {
		s := c.canceledStream()
		for _, response := range s.read[1:] {
			c.Assert(!has(response, "message"), s.answer, "updates after the task, and not a message")
		}
		c.Assert(len(s.read) > 1, s.answer, "an event after the task")
	}),
	"3.1.2/closes": each(func(c caller) {
		s := c.canceledStream()
		all := states(s.read)
		c.ExpectEqual("last state", all[len(all)-1], canceled)
	}),
	"3.1.2/closes-completed": each(func(c caller) {
		s := c.sends(c.message("tck-stream-003"))
		s.task()
		all := states(s.rest())
		c.ExpectEqual("last state", all[len(all)-1], completed)
	}),
	"3.1.2/message-only": each(func(c caller) {
		s := c.sends(c.message("tck-message-response", takesMessage))
		if !has(s.next(), "message") {
			c.NotRun("the agent answers with a task, and not with a message")
		}
		c.Assert(s.next() == nil, s.answer, "the end of the stream after the message")
	}),
	"3.1.2/progress": each(func(c caller) {
		s := c.sends(c.message("tck-delayed-complete"))
		s.task()
		c.Assert(slices.Contains(states(s.rest()), working), s.answer, "the state %s before the end", working)
	}),
	"3.1.2/artifacts": each(func(c caller) {
		s := c.sends(c.message("tck-stream-artifact-text"))
		s.task()
		found := slices.ContainsFunc(s.rest(), func(r fields) bool {
			return text(r, "artifactUpdate.artifact.artifactId") != "" || len(list(r, "task.artifacts")) > 0
		})
		c.Assert(found, s.answer, "an event with the artifact")
	}),
	"3.1.2/ended-task": each(func(c caller) {
		task := c.canceledTask()
		c.refusesStream("SendStreamingMessage", fields{"message": c.message("tck-stream-001",
			fields{"taskId": task["id"]})}, unsupported)
	}),
	"3.1.2/unknown-task": each(func(c caller) {
		c.refusesStream("SendStreamingMessage", fields{"message": c.message("tck-stream-001",
			fields{"taskId": c.ID("no-such-task")})}, taskNotFound)
	}),
	"3.1.2/unsupported-media": each(func(c caller) {
		c.refusesStream("SendStreamingMessage", fields{"message": c.message("tck-send-003", c.foreignPart())},
			contentType)
	}),
	"3.1.2/validation": each(func(c caller) {
		c.refusesStream("SendStreamingMessage", fields{"message": c.message("tck-stream-001", fields{"parts": nil})},
			invalidParams)
	}),
	"3.2.3/one-of": each(func(c caller) {
		for _, response := range c.canceledStream().read {
			c.ExpectEqual("number of members", len(kindsIn(response)), 1)
		}
	}),
	"3.2.2/streams-at-once": each(func(c caller) {
		s := c.streams("SendStreamingMessage", waiting(c.message("tck-cancel"), fields{"returnImmediately": false}))
		task := s.task()
		c.Assert(!terminal(task), s.answer, "the task before it ends")
	}),
}

// Section 3.1.6: following a task.
var subscribeChecks = checks{
	"3.1.6/task-first": each(func(c caller) {
		id := text(c.held(), "id")
		s := c.streams("SubscribeToTask", fields{"id": id})
		c.ExpectEqual("id", text(s.next(), "task.id"), id)
	}),
	"3.1.6/current": each(func(c caller) {
		task := c.held()
		s := c.streams("SubscribeToTask", fields{"id": task["id"]})
		c.ExpectEqual("state", stateOf(s.task()), stateOf(task))
	}),
	"3.1.6/updates": each(func(c caller) {
		id := text(c.held(), "id")
		s := c.subscribed(id)
		c.cancels(id)
		s.until(canceled)
	}),
	"3.1.6/ends": each(func(c caller) {
		id := text(c.held(), "id")
		s := c.subscribed(id)
		c.cancels(id)
		s.rest()
	}),
	"3.1.6/after-answer": each(func(c caller) {
		id := text(c.openTask(), "id")
		s := c.subscribed(id)
		c.gets("SendMessage", atOnce(c.message("tck-complete-task", fields{"taskId": id})))
		s.until(completed)
	}),
	"3.1.6/ended-task": each(func(c caller) {
		c.refusesStream("SubscribeToTask", fields{"id": c.canceledTask()["id"]}, unsupported)
	}),
	"3.1.6/completed-task": each(func(c caller) {
		c.refusesStream("SubscribeToTask", fields{"id": c.done("tck-complete-task")["id"]}, unsupported)
	}),
	"3.1.6/unknown-task": each(func(c caller) {
		c.refusesStream("SubscribeToTask", fields{"id": c.ID("no-such-task")}, taskNotFound)
	}),
}

// updates are the events after the first one.
func updates(responses []fields) string { return conformance.JSON(responses[1:]) }

// rank is the order in which states can follow each other, for a task that nothing interrupts.
func rank(state string) int {
	switch {
	case state == submitted:
		return 0
	case slices.Contains(terminalStates, state):
		return 2
	}
	return 1
}

// Section 3.5.2: delivery to several streams.
var deliveryChecks = checks{
	"3.5.2/order": each(func(c caller) {
		s := c.sends(c.message("tck-stream-ordering-001"))
		s.task()
		last := 0
		for _, state := range states(s.rest()) {
			c.Assert(rank(state) >= last, s.answer, "states in their order, and not %v", states(s.read))
			last = rank(state)
		}
		final := s.read[len(s.read)-1]
		c.Assert(rank(stateIn(final)) == 2, s.answer, "the last event tells the end")
	}),
	"3.5.2/broadcast": each(func(c caller) {
		id := text(c.held(), "id")
		one, two := c.subscribed(id), c.subscribed(id)
		c.cancels(id)
		one.until(canceled)
		two.until(canceled)
	}),
	"3.5.2/same-events": each(func(c caller) {
		id := text(c.held(), "id")
		one, two := c.subscribed(id), c.subscribed(id)
		c.cancels(id)
		c.ExpectEqual("events", updates(one.rest()), updates(two.rest()))
	}),
	"3.5.2/same-work": each(func(c caller) {
		id := text(c.begins("test-resubscribe-message-id"), "id")
		c.awaitState(id, working)
		one, two := c.subscribed(id), c.subscribed(id)
		c.ExpectEqual("events", updates(one.rest()), updates(two.rest()))
	}),
	"3.5.2/close-one": each(func(c caller) {
		id := text(c.held(), "id")
		one, two := c.subscribed(id), c.subscribed(id)
		one.close()
		c.cancels(id)
		two.until(canceled)
	}),
	"3.5.2/task-goes-on": each(func(c caller) {
		s := c.sends(c.message("tck-cancel"))
		id := text(s.task(), "id")
		s.close()
		c.holds("a task that has not ended", !terminal(c.read(id)))
	}),
	"3.5.2/reconnect": each(func(c caller) {
		s := c.sends(c.message("tck-cancel"))
		id := text(s.task(), "id")
		s.close()
		again := c.subscribed(id)
		c.cancels(id)
		again.until(canceled)
	}),
}
