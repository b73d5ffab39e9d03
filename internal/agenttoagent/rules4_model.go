package agenttoagent

import (
	"encoding/base64"
	"slices"
	"strings"
)

// eventOf is an event of the stream of a canceled task that has a member.
func (c caller) eventOf(responses []fields, member string) fields {
	for _, r := range responses {
		if has(r, member) {
			return object(r, member)
		}
	}
	return nil
}

// partOf is the first part of an artifact that has a content.
func (c caller) partOf(task fields, content string) fields {
	for _, a := range list(task, "artifacts") {
		for _, p := range list(a, "parts") {
			if has(p, content) {
				return p
			}
		}
	}
	c.Fail("an artifact with a part that has "+content, c.Last.String())
	return nil
}

// Sections 4.1, 4.2 and 5.5 to 5.7: data.
var modelChecks = checks{
	"4.1.1/id":     each(func(c caller) { c.holds("an id", text(c.openTask(), "id") != "") }),
	"4.1.1/status": each(func(c caller) { c.holds("a status", object(c.openTask(), "status") != nil) }),
	"4.1.2/state":  each(func(c caller) { c.holds("a state", stateOf(c.openTask()) != "") }),
	"4.1.3/values": each(func(c caller) {
		c.holds("a known state", slices.Contains(allStates,
			stateOf(c.openTask())))
	}),
	"4.1.3/canceled":  each(func(c caller) { c.ExpectEqual("state", stateOf(c.canceledTask()), canceled) }),
	"4.1.3/completed": each(func(c caller) { c.ExpectEqual("state", stateOf(c.done("tck-complete-task")), completed) }),
	"4.1.3/working": each(func(c caller) {
		c.awaitState(text(c.begins("tck-cancel"), "id"), working)
	}),
	"4.1.3/rejected": each(func(c caller) {
		state := stateOf(c.awaitEnd(text(c.begins("tck-reject-task"), "id")))
		c.holds(rejected+" or "+failed, state == rejected || state == failed)
	}),
	"4.1.4/messages": each(func(c caller) {
		task := c.read(c.twoMessages())
		for _, m := range messagesOf(task) {
			c.ExpectEqual("what is wrong", wrongMessage(m), "")
		}
	}),
	"4.1.4/ids": each(func(c caller) {
		task := c.read(c.twoMessages())
		for _, m := range messagesOf(task) {
			if text(m, "role") == "ROLE_AGENT" {
				c.ExpectEqual("contextId", m["contextId"], task["contextId"])
			}
			c.holds("no taskId, or that of the task", !has(m, "taskId") || m["taskId"] == task["id"])
		}
	}),
	"4.1.6/text": each(func(c caller) {
		part := c.partOf(c.done("tck-artifact-text"), "text")
		c.ExpectEqual("text", part["text"], "Generated text content")
	}),
	"4.1.6/raw": each(func(c caller) {
		part := c.partOf(c.done("tck-artifact-file"), "raw")
		content, err := base64.StdEncoding.DecodeString(text(part, "raw"))
		c.holds("base64", err == nil && string(content) == "tck")
		c.ExpectEqual("filename", part["filename"], "output.txt")
		c.ExpectEqual("mediaType", part["mediaType"], "text/plain")
	}),
	"4.1.6/url": each(func(c caller) {
		part := c.partOf(c.done("tck-artifact-file-url"), "url")
		c.ExpectEqual("url", part["url"], "https://example.com/output.txt")
		c.ExpectEqual("filename", part["filename"], "output.txt")
	}),
	"4.1.6/data": each(func(c caller) {
		part := c.partOf(c.done("tck-artifact-data"), "data")
		c.ExpectEqual("data", part["data"], fields{"key": "value", "count": 42})
	}),
	"4.1.6/client-data": each(func(c caller) {
		parts := []fields{{"text": "Some data."}, {"data": fields{"list": []any{1.0, "two", nil}}}}
		task := c.begins("tck-input-required", fields{"parts": parts})
		if len(history(task)) == 0 {
			c.NotRun("the agent keeps no history")
		}
		shown := list(history(task)[0], "parts")
		c.holds("two parts", len(shown) == 2)
		c.ExpectEqual("data", shown[1]["data"], parts[1]["data"])
	}),
	"4.1.7/artifacts": each(func(c caller) {
		seen := map[string]bool{}
		for _, a := range list(c.done("tck-artifact-text"), "artifacts") {
			id := text(a, "artifactId")
			c.holds("an artifactId that is not there twice", id != "" && !seen[id])
			seen[id] = true
			c.ExpectEqual("what is wrong", wrongParts(a), "")
		}
		c.holds("an artifact", len(seen) > 0)
	}),
	"4.2.1/members": each(func(c caller) {
		s := c.canceledStream()
		update := c.eventOf(s.read, "statusUpdate")
		c.Assert(update != nil, s.answer, "a statusUpdate")
		c.ExpectEqual("taskId", update["taskId"], s.read[0]["task"].(fields)["id"])
		c.ExpectEqual("contextId", update["contextId"], s.read[0]["task"].(fields)["contextId"])
		c.holds("a status with a state", slices.Contains(allStates, text(update, "status.state")))
	}),
	"4.2.2/members": each(func(c caller) {
		s := c.sends(c.message("tck-stream-artifact-text"))
		task := s.task()
		update := c.eventOf(s.rest(), "artifactUpdate")
		if update == nil {
			c.NotRun("the agent was done before the stream began")
		}
		c.ExpectEqual("taskId", update["taskId"], task["id"])
		c.ExpectEqual("contextId", update["contextId"], task["contextId"])
		c.ExpectEqual("what is wrong", wrongParts(object(update, "artifact")), "")
	}),
	"5.5/camel-case": each(func(c caller) {
		c.expectNames(c.read(c.twoMessages()), "names in camel case", camelCase)
	}),
	"5.5/enums": each(func(c caller) {
		task := c.read(c.twoMessages())
		c.holds("TASK_STATE_…", strings.HasPrefix(stateOf(task), "TASK_STATE_"))
		for _, m := range messagesOf(task) {
			c.holds("ROLE_…", strings.HasPrefix(text(m, "role"), "ROLE_"))
		}
	}),
	"5.6.1/utc": each(func(c caller) {
		at, there := object(c.openTask(), "status")["timestamp"].(string)
		if !there {
			c.NotRun("the status has no timestamp")
		}
		c.holds("an instant of ISO 8601 in UTC, with Z at its end", utcInstant.MatchString(at))
	}),
	"5.7/unknown-members": each(func(c caller) {
		task := c.begins("tck-input-required", fields{"favoriteColor": "red"})
		c.gets("GetTask", fields{"id": task["id"]})
		r := c.do("SendMessage", merge(atOnce(c.message("tck-input-required")), fields{"favoriteColor": "red"}))
		c.ok(r)
	}),
	"A.2.1/no-kind": each(func(c caller) {
		task := c.read(c.twoMessages())
		c.expectNames(task, "no member kind", func(name string) bool { return name != "kind" })
	}),
}
