package agenttoagent

import (
	"fmt"
	"mime"
	"strings"
	"time"
)

// pushCreate and the others are the operations of push configurations.
const (
	pushCreate = "CreateTaskPushNotificationConfig"
	pushGet    = "GetTaskPushNotificationConfig"
	pushList   = "ListTaskPushNotificationConfigs"
	pushDelete = "DeleteTaskPushNotificationConfig"
)

// pushPlace is a path of the receiver that nothing else uses, and its address. Without a receiver the address has a
// name that does not exist.
func (c caller) pushPlace() (path, address string) {
	c.made++
	path = fmt.Sprintf("%s%d", c.Prefix, c.made)
	if c.s.receiver == nil {
		return path, "https://receiver.invalid/" + path
	}
	return path, c.s.receiver.url + "/" + path
}

// pushConfig is a configuration with secrets.
func pushConfig(address string) fields {
	return fields{"id": "config-1", "url": address, "token": "token-of-a-conformance-run",
		"authentication": fields{"scheme": "Bearer", "credentials": "credentials-of-a-conformance-run"}}
}

// configured is an open task with one configuration, and the params that name the configuration.
func (c caller) configured() (of fields, address string) {
	task := text(c.openTask(), "id")
	_, address = c.pushPlace()
	made := c.createPush(merge(pushConfig(address), fields{"taskId": task}))
	return fields{"taskId": task, "id": made["id"]}, address
}

// createPush creates a configuration. The rule is not run if the server does not take the address of the receiver.
func (c caller) createPush(params fields) fields {
	r := c.do(pushCreate, params)
	if r.failed != nil && invalidParams.is(r.failed) && c.s.receiver != nil {
		c.NotRun("the server refuses the address of the receiver: %s", r.failed.message)
	}
	return c.ok(r)
}

// pushed sends a message with a configuration, and answers its task and the path of the receiver.
func (c caller) pushed(prefix string) (task, path string) {
	path, address := c.pushPlace()
	r := c.do("SendMessage", atOnce(c.message(prefix), fields{"taskPushNotificationConfig": pushConfig(address)}))
	if r.failed != nil && invalidParams.is(r.failed) {
		c.NotRun("the server refuses the address of the receiver: %s", r.failed.message)
	}
	return text(c.taskOf(c.ok(r)), "id"), path
}

// awaitEndAt waits until a path of the receiver is told that a task has ended, and returns what it was told.
func (c caller) awaitEndAt(path string) []notification {
	for end := time.Now().Add(c.s.cfg.Slack); ; c.Sleep(poll) {
		got := c.s.receiver.at(path)
		for _, n := range got {
			for _, state := range terminalStates {
				if n.state() == state {
					return got
				}
			}
		}
		c.Assert(time.Now().Before(end), c.Last, "a notification that the task has ended within %s, and not %d others",
			c.s.cfg.Slack, len(got))
	}
}

// configIDs are the ids and the URLs in a list of configurations.
func (c caller) configIDs(task string) map[string]string {
	ids := map[string]string{}
	for _, one := range list(c.gets(pushList, fields{"taskId": task}), "configs") {
		ids[text(one, "id")] = text(one, "url")
	}
	return ids
}

// Sections 3.1.7 to 3.1.10, 4.3.3 and 13.2: push notifications.
var pushChecks = checks{
	"3.1.7/creates": each(func(c caller) {
		of, address := c.configured()
		c.holds("a configuration with an id", text(of, "id") != "")
		c.ExpectEqual("url", text(c.gets(pushGet, of), "url"), address)
	}),
	"3.1.7/assigns-id": each(func(c caller) {
		task := text(c.openTask(), "id")
		_, address := c.pushPlace()
		made := c.createPush(fields{"taskId": task, "url": address})
		c.holds("a configuration with an id that the server made", text(made, "id") != "")
	}),
	"3.1.7/unknown-task": each(func(c caller) {
		_, address := c.pushPlace()
		c.refuses(pushCreate, merge(pushConfig(address), fields{"taskId": c.ID("no-such-task")}), taskNotFound)
	}),
	"3.1.8/gets": each(func(c caller) {
		of, address := c.configured()
		got := c.gets(pushGet, of)
		c.ExpectEqual("id", got["id"], of["id"])
		c.ExpectEqual("url", text(got, "url"), address)
	}),
	"3.1.8/unknown": each(func(c caller) {
		of, _ := c.configured()
		c.refuses(pushGet, merge(of, fields{"id": "no-such-config"}), taskNotFound)
	}),
	"3.1.9/lists": each(func(c caller) {
		of, address := c.configured()
		task := text(of, "taskId")
		_, second := c.pushPlace()
		c.createPush(fields{"taskId": task, "id": "config-2", "url": second})
		ids := c.configIDs(task)
		c.holds("both configurations", len(ids) == 2 && ids[text(of, "id")] == address && ids["config-2"] == second)
	}),
	"3.1.10/deletes": each(func(c caller) {
		of, _ := c.configured()
		c.gets(pushDelete, of)
		c.refuses(pushGet, of, taskNotFound)
		c.ExpectEqual("configurations", len(c.configIDs(text(of, "taskId"))), 0)
	}),
	"3.1.10/again": each(func(c caller) {
		of, _ := c.configured()
		c.gets(pushDelete, of)
		c.gets(pushDelete, of)
	}),
	"3.1.10/silent": each(func(c caller) {
		task := text(c.openTask(), "id")
		path, address := c.pushPlace()
		made := c.createPush(merge(pushConfig(address), fields{"taskId": task}))
		last, address := c.pushPlace() // which is told, so that the first one would have been, too
		c.createPush(fields{"taskId": task, "id": "config-2", "url": address})
		c.gets(pushDelete, fields{"taskId": task, "id": made["id"]})
		c.gets("CancelTask", fields{"id": task})
		c.awaitEndAt(last)
		c.holds("nothing at the deleted configuration", len(c.s.receiver.at(path)) == 0)
	}),
	"3.2.2/push-configuration": each(func(c caller) {
		_, address := c.pushPlace()
		r := c.do("SendMessage", atOnce(c.message("tck-input-required"), fields{
			"taskPushNotificationConfig": pushConfig(address)}))
		if r.failed != nil && invalidParams.is(r.failed) && c.s.receiver != nil {
			c.NotRun("the server refuses the address of the receiver: %s", r.failed.message)
		}
		task := text(c.taskOf(c.ok(r)), "id")
		c.ExpectEqual("url", c.configIDs(task)["config-1"], address)
	}),
	"4.3.3/delivers": each(func(c caller) {
		_, path := c.pushed("tck-complete-task")
		got := c.awaitEndAt(path)
		c.ExpectEqual("the last state", got[len(got)-1].state(), completed)
	}),
	"4.3.3/payload": each(func(c caller) {
		task, path := c.pushed("tck-complete-task")
		for _, n := range c.awaitEndAt(path) {
			wrong := n.wrong(task)
			c.Assert(wrong == "", c.Last, "a StreamResponse about the task, and not %s", wrong)
		}
	}),
	"4.3.3/credentials": each(func(c caller) {
		_, path := c.pushed("tck-complete-task")
		for _, n := range c.awaitEndAt(path) {
			c.ExpectEqual("Authorization", n.header.Get("Authorization"), "Bearer credentials-of-a-conformance-run")
		}
	}),
	"4.3.3/media-type": each(func(c caller) {
		_, path := c.pushed("tck-complete-task")
		for _, n := range c.awaitEndAt(path) {
			kind, _, _ := mime.ParseMediaType(n.header.Get("Content-Type"))
			c.ExpectEqual("Content-Type", kind, "application/a2a+json")
		}
	}),
	"13.1/push": each(func(c caller) {
		of, address := c.configured()
		stranger := c.as(other)
		stranger.refuses(pushCreate, fields{"taskId": of["taskId"], "id": "theirs", "url": address}, taskNotFound)
		stranger.refuses(pushGet, of, taskNotFound)
		stranger.refuses(pushList, fields{"taskId": of["taskId"]}, taskNotFound)
		stranger.refuses(pushDelete, of, taskNotFound)
		c.ExpectEqual("configurations", len(c.configIDs(text(of, "taskId"))), 1)
	}),
	"13.2/private": each(func(c caller) {
		task := text(c.openTask(), "id")
		for _, host := range strings.Fields("127.0.0.2 10.0.0.1 172.16.0.1 192.168.0.1 localhost 169.254.169.254") {
			r := c.do(pushCreate, fields{"taskId": task, "id": "private", "url": "https://" + host + ":9/"})
			c.Assert(r.failed != nil, r.answer, "a refusal of %s", host)
		}
	}),
}
