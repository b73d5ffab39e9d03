package agenttoagent

import (
	"mime"
	"strings"
)

// rpc sends a request of JSON-RPC as it is written.
func (c caller) rpc(body any) *reply { return c.decode(c.Send(c.raw("POST", "", body))) }

// call is a request of JSON-RPC, with changes.
func call(method string, params any, change ...fields) fields {
	return merge(append([]fields{{"jsonrpc": "2.0", "id": rpcID, "method": method, "params": params}}, change...)...)
}

// echoes expects that an answer has the id of its request.
func echoes(id any) func(*Trial) {
	return onRPC(func(c caller) {
		r := c.rpc(call("ListTasks", fields{}, fields{"id": id}))
		c.ExpectEqual("id", r.Body["id"], id)
	})
}

func contains(s, part string) bool { return strings.Contains(s, part) }

// contentTypeOf is the media type of an answer.
func contentTypeOf(a *answer) string {
	kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	return kind
}

// Section 9: JSON-RPC.
var rpcChecks = checks{
	"9.1/content-type": onRPC(func(c caller) {
		c.ExpectEqual("content type", contentTypeOf(c.rpc(call("ListTasks", fields{})).answer), "application/json")
	}),
	"9.1/error-content-type": onRPC(func(c caller) {
		c.ExpectEqual("content type", contentTypeOf(c.rpc(call("NoSuchMethod", fields{})).answer), "application/json")
	}),
	"9.1/wrong-content-type": onRPC(func(c caller) {
		r := c.raw("POST", "", call("ListTasks", fields{}))
		r.Headers = append(r.Headers, "Content-Type", "text/plain")
		reply := c.decode(c.Send(r))
		c.anyRefusal(reply, "a request of type text/plain")
	}),
	"9.1/old-names": onRPC(func(c caller) {
		for _, name := range []string{"message/send", "tasks/get", "sendMessage", "Send_Message"} {
			c.refused(c.rpc(call(name, fields{})), noMethod)
		}
	}),
	"9.3/jsonrpc": onRPC(func(c caller) {
		for _, method := range []string{"ListTasks", "NoSuchMethod"} {
			c.ExpectEqual("jsonrpc", c.rpc(call(method, fields{})).Body["jsonrpc"], "2.0")
		}
	}),
	"9.3/id-text":   echoes("a text"),
	"9.3/id-number": echoes(17),
	"9.3/id-of-error": onRPC(func(c caller) {
		c.ExpectEqual("id", c.rpc(call("NoSuchMethod", fields{}, fields{"id": "x-1"})).Body["id"], "x-1")
	}),
	"9.3/result-or-error": onRPC(func(c caller) {
		for _, method := range []string{"ListTasks", "NoSuchMethod"} {
			body := c.rpc(call(method, fields{})).Body
			c.holds("exactly one of result and error", has(body, "result") != has(body, "error"))
		}
	}),
	"9.4.1/result": onRPC(func(c caller) {
		result := c.gets("SendMessage", atOnce(c.message("tck-complete-task")))
		c.holds("a result with the member task or message", has(result, "task") || has(result, "message"))
	}),
	"9.4.2/stream": onRPC(func(c caller) {
		s := c.canceledStream()
		for _, data := range s.whole {
			c.ExpectEqual("jsonrpc", data["jsonrpc"], "2.0")
			c.ExpectEqual("id", data["id"], rpcID)
		}
	}),
	"9.4.3/task": onRPC(func(c caller) {
		id := text(c.openTask(), "id")
		c.ExpectEqual("result.id", c.rpc(call("GetTask", fields{"id": id})).Str("result.id"), id)
	}),
	"9.4.6/stream": onRPC(func(c caller) {
		s := c.subscribed(text(c.held(), "id"))
		c.ExpectEqual("id", s.whole[0]["id"], rpcID)
	}),
	"9.5/parse": onRPC(func(c caller) { c.refused(c.rpc(`{"jsonrpc": "2.0", "id": 1,`), parseError) }),
	"9.5/no-request": onRPC(func(c caller) {
		c.refused(c.rpc(call("ListTasks", fields{}, fields{"jsonrpc": "1.0"})), invalidRequest)
		c.refused(c.rpc(call("ListTasks", fields{}, fields{"jsonrpc": nil})), invalidRequest)
		c.refused(c.rpc(call("ListTasks", fields{}, fields{"method": nil})), invalidRequest)
		c.refused(c.rpc(`"a text"`), invalidRequest)
	}),
	"9.5/unknown-method": onRPC(func(c caller) { c.refused(c.rpc(call("NoSuchMethod", fields{})), noMethod) }),
	"9.5/params": onRPC(func(c caller) {
		c.refused(c.rpc(call("GetTask", fields{"id": 17})), invalidParams)
		c.refused(c.rpc(call("SendMessage", fields{"message": "a text"})), invalidParams)
		c.refused(c.rpc(call("GetTask", []any{"a", "list"})), invalidParams)
	}),
	"9.5/message": onRPC(func(c caller) {
		c.holds("a text", c.refused(c.rpc(call("NoSuchMethod", fields{})), noMethod).message != "")
	}),
	"9.5/details": onRPC(func(c caller) {
		r := c.rpc(call("GetTask", fields{"id": c.ID("no-such-task")}))
		data, there := r.At("error.data")
		details, isArray := data.([]any)
		c.holds("data as an array, if it is there", !there || isArray)
		for _, d := range details {
			f, _ := d.(fields)
			c.holds("@type in each detail", text(f, "@type") != "")
		}
	}),
	"9.5/error-info": onRPC(func(c caller) {
		f := c.refused(c.rpc(call("GetTask", fields{"id": c.ID("no-such-task")})), taskNotFound)
		c.ExpectEqual("reason", f.info("reason"), taskNotFound.reason)
		c.ExpectEqual("domain", f.info("domain"), "a2a-protocol.org")
	}),
	"9.5/a2a-codes": onRPC(func(c caller) {
		f := c.refused(c.rpc(call("CancelTask", fields{"id": c.ID("no-such-task")})), taskNotFound)
		c.holds("a code from -32099 to -32001", f.code >= -32099 && f.code <= -32001)
	}),
	"9.5/stream-error": onRPC(func(c caller) {
		s := c.open("SubscribeToTask", fields{"id": c.ID("no-such-task")})
		c.Assert(s.failed != nil, s.answer, "an error, and not a stream")
		c.ExpectEqual("id", s.Body["id"], rpcID)
		c.refused(s.reply, taskNotFound)
	}),
	"9.4.8/no-params": onRPC(func(c caller) {
		r := c.rpc(call("GetExtendedAgentCard", nil))
		c.Assert(r.failed == nil || r.failed.code != invalidParams.code, r.answer, "a call without params is valid")
	}),
}
