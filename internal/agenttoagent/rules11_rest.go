package agenttoagent

import (
	"net/url"
	"strings"
)

// rest sends a request of HTTP+JSON as it is written.
func (c caller) rest(method, path string, body any, headers ...string) *reply {
	return c.decode(c.Send(c.with(headers...).raw(method, path, body)))
}

// a2aJSON is the media type of the binding.
const a2aJSON = "application/a2a+json"

// Section 11: HTTP+JSON.
var restChecks = checks{
	"11.1/content-type": onREST(func(c caller) {
		c.ExpectEqual("content type", contentTypeOf(c.rest("GET", "/tasks", nil).answer), a2aJSON)
	}),
	"11.1/error-content-type": onREST(func(c caller) {
		c.ExpectEqual("content type", contentTypeOf(c.rest("GET", "/tasks/"+c.ID("no-such-task"), nil).answer), a2aJSON)
	}),
	"11.1/accepts": onREST(func(c caller) {
		r := c.rest("POST", "/message:send", atOnce(c.message("tck-input-required")), "Content-Type", a2aJSON)
		c.own(r.result, r.failed)
		c.ok(r)
	}),
	"11.1/accepts-json": onREST(func(c caller) {
		r := c.rest("POST", "/message:send", atOnce(c.message("tck-input-required")), "Content-Type",
			"application/json")
		c.own(r.result, r.failed)
		c.ok(r)
	}),
	"11.1/wrong-content-type": onREST(func(c caller) {
		r := c.rest("POST", "/message:send", atOnce(c.message("tck-input-required")), "Content-Type", "text/plain")
		c.own(r.result, r.failed)
		c.anyRefusal(r, "a request of type text/plain")
	}),
	"11.3/unknown-path": onREST(func(c caller) {
		c.holds("status 404", c.rest("GET", "/no-such-path", nil).Status == 404)
	}),
	"11.3/wrong-verb": onREST(func(c caller) {
		id := text(c.openTask(), "id")
		r := c.rest("DELETE", "/tasks/"+id, nil)
		c.holds("status 404 or 405", r.Status == 404 || r.Status == 405)
	}),
	"11.3.1/send": onREST(func(c caller) {
		c.gets("SendMessage", atOnce(c.message("tck-input-required")))
	}),
	"11.3.1/stream": onREST(func(c caller) { c.sends(c.message("tck-cancel")).next() }),
	"11.3.2/get":    onREST(func(c caller) { c.read(text(c.openTask(), "id")) }),
	"11.3.2/list":   onREST(func(c caller) { c.gets("ListTasks", fields{}) }),
	"11.3.2/cancel": onREST(func(c caller) {
		id := text(c.openTask(), "id")
		c.ExpectEqual("id", c.gets("CancelTask", fields{"id": id})["id"], id)
	}),
	"11.3.2/cancel-body": onREST(func(c caller) {
		id := text(c.openTask(), "id")
		r := c.rest("POST", "/tasks/"+id+":cancel", fields{"metadata": fields{"why": "a conformance run"}})
		c.ok(r)
	}),
	"11.3.2/cancel-no-body": onREST(func(c caller) {
		id := text(c.openTask(), "id")
		c.ok(c.rest("POST", "/tasks/"+id+":cancel", nil))
	}),
	"11.3.2/subscribe": onREST(func(c caller) { c.subscribed(text(c.held(), "id")) }),
	"11.3.4/card": onREST(func(c caller) {
		r := c.rest("GET", "/extendedAgentCard", nil)
		c.Assert(r.failed == nil || unsupported.is(r.failed), r.answer, "the card, or %s", unsupported.name)
	}),
	"11.4/wrapper": onREST(func(c caller) {
		result := c.gets("SendMessage", atOnce(c.message("tck-input-required")))
		c.holds("the member task or message", has(result, "task") || has(result, "message"))
	}),
	"11.4/not-json": onREST(func(c caller) {
		c.holds("status 400", c.rest("POST", "/message:send", `{"message": `).Status == 400)
	}),
	"11.5/context": onREST(func(c caller) {
		contextID, ids := c.conversation(1)
		page := c.ok(c.rest("GET", "/tasks?contextId="+url.QueryEscape(contextID), nil))
		c.ExpectEqual("ids", idsIn(page), ids)
	}),
	"11.5/history": onREST(func(c caller) {
		id := c.twoMessages()
		c.holds("no history", len(history(c.ok(c.rest("GET", "/tasks/"+id+"?historyLength=0", nil)))) == 0)
	}),
	"11.5/boolean": onREST(func(c caller) {
		task := c.done("tck-artifact-text")
		query := "/tasks?includeArtifacts=true&contextId=" + url.QueryEscape(text(task, "contextId"))
		page := c.ok(c.rest("GET", query, nil))
		c.holds("one task", len(list(page, "tasks")) == 1)
		c.holds("its artifacts", len(list(list(page, "tasks")[0], "artifacts")) > 0)
	}),
	"11.5/enum": onREST(func(c caller) {
		task := c.canceledTask()
		query := "/tasks?status=TASK_STATE_CANCELED&contextId=" + url.QueryEscape(text(task, "contextId"))
		c.ExpectEqual("ids", idsIn(c.ok(c.rest("GET", query, nil))), []string{text(task, "id")})
	}),
	"11.5/escaped": onREST(func(c caller) {
		mine := c.ID("a context & more")
		r := c.do("SendMessage", atOnce(c.message("tck-input-required", fields{"contextId": mine})))
		if r.failed != nil {
			c.NotRun("the agent takes no contextId of a client")
		}
		c.holds("one task", len(idsIn(c.ok(c.rest("GET", "/tasks?contextId="+url.QueryEscape(mine), nil)))) == 1)
	}),
	"11.5/number": onREST(func(c caller) {
		c.refused(c.rest("GET", "/tasks?pageSize=many", nil), invalidParams)
	}),
	"11.6/code": onREST(func(c caller) {
		r := c.do("GetTask", fields{"id": c.ID("no-such-task")})
		c.ExpectEqual("error.code", r.Num("error.code"), r.Status)
	}),
	"11.6/status": onREST(func(c caller) {
		c.ExpectEqual("error.status", c.do("GetTask", fields{"id": c.ID("no-such-task")}).Str("error.status"),
			"NOT_FOUND")
		r := c.do("SendMessage", atOnce(c.message("tck-complete-task", fields{"parts": []fields{}})))
		c.ExpectEqual("error.status", r.Str("error.status"), "INVALID_ARGUMENT")
	}),
	"11.6/message": onREST(func(c caller) {
		c.holds("error.message", c.do("GetTask", fields{"id": c.ID("no-such-task")}).Str("error.message") != "")
	}),
	"11.6/details": onREST(func(c caller) {
		for _, d := range c.refuses("GetTask", fields{"id": c.ID("no-such-task")}, taskNotFound).details {
			f, _ := d.(fields)
			c.holds("@type in each detail", text(f, "@type") != "")
		}
	}),
	"11.6/error-info": onREST(func(c caller) {
		f := c.refuses("GetTask", fields{"id": c.ID("no-such-task")}, taskNotFound)
		c.ExpectEqual("reason", f.info("reason"), taskNotFound.reason)
		c.ExpectEqual("domain", f.info("domain"), "a2a-protocol.org")
	}),
	"11.6/reasons": onREST(func(c caller) {
		id := text(c.canceledTask(), "id")
		f := c.refuses("CancelTask", fields{"id": id}, notCancelable)
		c.ExpectEqual("reason", f.info("reason"), notCancelable.reason)
		f = c.refuses("SendMessage", atOnce(c.message("tck-complete-task", fields{"taskId": id})), unsupported)
		c.ExpectEqual("reason", f.info("reason"), unsupported.reason)
	}),
	"11.7/events": onREST(func(c caller) {
		for _, data := range c.canceledStream().whole {
			c.ExpectEqual("number of members", len(kindsIn(data)), 1)
			c.holds("a StreamResponse without an envelope", !has(data, "jsonrpc") && !has(data, "result"))
		}
	}),
	"11.7/error": onREST(func(c caller) {
		s := c.open("SubscribeToTask", fields{"id": c.ID("no-such-task")})
		c.Assert(s.failed != nil && s.Status == 404, s.answer, "status 404, and not a stream")
	}),
	"11.2/header-case": onREST(func(c caller) {
		r := c.speaking("").request("ListTasks", fields{})
		r.Headers = append(r.Headers, strings.ToLower("A2A-Version"), "99.0")
		c.refused(c.decode(c.Send(r)), wrongVersion)
	}),
}
