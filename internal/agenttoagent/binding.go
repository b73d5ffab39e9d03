package agenttoagent

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/picket-dev/picket/internal/conformance"
)

// version is the version of the protocol that the rules are about.
const version = "1.0"

// binding is one of the bindings that a card offers in this version.
type binding struct {
	name string // needRPC or needREST
	url  string
}

// bindingsOf are the bindings that a card offers, each once, the preferred one first.
func bindingsOf(card fields) (all []binding) {
	names := map[string]string{"JSONRPC": needRPC, "HTTP+JSON": needREST}
	for _, i := range list(card, "supportedInterfaces") {
		name := names[text(i, "protocolBinding")]
		if name == "" || !strings.HasPrefix(text(i, "protocolVersion"), version) {
			continue
		}
		delete(names, text(i, "protocolBinding"))
		all = append(all, binding{name, strings.TrimRight(text(i, "url"), "/")})
	}
	return all
}

func (s *suite) binding(name string) *binding {
	for i := range s.bindings {
		if s.bindings[i].name == name {
			return &s.bindings[i]
		}
	}
	return nil
}

// caller is who speaks: a client over one binding.
type caller struct {
	*Trial
	b       binding
	by      keyName
	version string // of the header A2A-Version; empty: it is not sent
	headers []string
}

// as is the same over the same binding, by another key.
func (c caller) as(by keyName) caller {
	c.by = by
	return c
}

// with sends further headers: name, value, …
func (c caller) with(headers ...string) caller {
	c.headers = append(c.headers[:len(c.headers):len(c.headers)], headers...)
	return c
}

// speaking sends another version; empty: none.
func (c caller) speaking(version string) caller {
	c.version = version
	return c
}

// each runs a check over each binding that the endpoint has.
func each(check func(c caller)) func(*Trial) {
	return func(t *Trial) {
		for _, b := range t.s.bindings {
			check(caller{Trial: t, b: b, by: client, version: version})
		}
	}
}

// over runs a check over one binding.
func over(name string, check func(c caller)) func(*Trial) {
	return func(t *Trial) { check(caller{Trial: t, b: *t.s.binding(name), by: client, version: version}) }
}

func onRPC(check func(c caller)) func(*Trial) { return over(needRPC, check) }

func onREST(check func(c caller)) func(*Trial) { return over(needREST, check) }

// restRoutes are the operations of HTTP+JSON: method and path, in which names of params stand in braces.
var restRoutes = map[string]string{
	"SendMessage":                      "POST /message:send",
	"SendStreamingMessage":             "POST /message:stream",
	"GetTask":                          "GET /tasks/{id}",
	"ListTasks":                        "GET /tasks",
	"CancelTask":                       "POST /tasks/{id}:cancel",
	"SubscribeToTask":                  "POST /tasks/{id}:subscribe",
	"CreateTaskPushNotificationConfig": "POST /tasks/{taskId}/pushNotificationConfigs",
	"GetTaskPushNotificationConfig":    "GET /tasks/{taskId}/pushNotificationConfigs/{id}",
	"ListTaskPushNotificationConfigs":  "GET /tasks/{taskId}/pushNotificationConfigs",
	"DeleteTaskPushNotificationConfig": "DELETE /tasks/{taskId}/pushNotificationConfigs/{id}",
	"GetExtendedAgentCard":             "GET /extendedAgentCard",
}

// streamingOperations answer streams.
var streamingOperations = map[string]bool{"SendStreamingMessage": true, "SubscribeToTask": true}

// request is an operation as a request of the binding.
func (c caller) request(operation string, params fields) conformance.Request {
	if c.b.name == needRPC {
		return c.raw("POST", "", fields{"jsonrpc": "2.0", "id": rpcID, "method": operation, "params": params})
	}
	method, path, _ := strings.Cut(restRoutes[operation], " ")
	rest := merge(params)
	for name, value := range params {
		if hole := "{" + name + "}"; strings.Contains(path, hole) {
			path = strings.ReplaceAll(path, hole, url.PathEscape(fmt.Sprint(value)))
			delete(rest, name)
		}
	}
	if method == "POST" {
		return c.raw(method, path, rest)
	}
	q := url.Values{}
	for name, value := range rest {
		q.Set(name, fmt.Sprint(value))
	}
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return c.raw(method, path, nil)
}

// rpcID is the id of requests of JSON-RPC.
const rpcID = "request-1"

// raw is a request to a path below the URL of the binding.
func (c caller) raw(method, path string, body any) conformance.Request {
	headers := c.headers
	if c.version != "" {
		headers = append([]string{"A2A-Version", c.version}, headers...)
	}
	if streamingPath(path) || streamingBody(body) {
		headers = append([]string{"Accept", "text/event-stream"}, headers...)
	}
	return conformance.Request{By: c.by, Secret: c.s.Keys[c.by], KeyHeader: c.s.keyHeader, Method: method,
		URL: c.b.url + path, Body: body, Headers: headers}
}

func streamingPath(path string) bool {
	return strings.HasSuffix(path, ":stream") || strings.HasSuffix(path, ":subscribe")
}

func streamingBody(body any) bool {
	f, _ := body.(fields)
	return streamingOperations[text(f, "method")]
}

// reply is the answer to an operation.
type reply struct {
	*answer
	result fields   // of a success
	failed *failure // nil: a success
}

// failure is an error of the protocol.
type failure struct {
	code    int // of JSON-RPC; 0 with HTTP+JSON
	status  int // of HTTP
	message string
	details []any
}

// info is a member of the detail ErrorInfo.
func (f *failure) info(name string) string {
	for _, d := range f.details {
		if detail, _ := d.(fields); text(detail, "@type") == "type.googleapis.com/google.rpc.ErrorInfo" {
			return text(detail, name)
		}
	}
	return ""
}

// decode reads an answer as the binding has it. An answer that is neither a result nor an error is a failure of
// status 0 and code 0.
func (c caller) decode(a *answer) *reply {
	r := &reply{answer: a}
	failed, data := object(a.Body, "error"), "details"
	if c.b.name == needRPC {
		r.result, data = object(a.Body, "result"), "data"
	} else if a.Status/100 == 2 {
		r.result = a.Body
	}
	if r.result != nil && failed == nil {
		return r
	}
	r.failed = &failure{status: a.Status, message: text(failed, "message")}
	if c.b.name == needRPC {
		r.failed.code = conformance.Number(failed, "code")
	}
	v, _ := conformance.Member(failed, data)
	r.failed.details, _ = v.([]any)
	return r
}
