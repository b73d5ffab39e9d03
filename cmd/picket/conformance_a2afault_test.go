package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket/internal/sse"
)

// a2aMistake is one thing that an endpoint does wrong, and the rules that are about it.
type a2aMistake struct {
	name  string
	rules []string
	push  bool // of an endpoint that pushes notifications
	// request may change a request before it goes on. An answer that it returns is that of the endpoint.
	request func(x *a2aExchange) *http.Response
	// answer may change an answer that is not a stream.
	answer func(x *a2aExchange)
	// event returns what is sent instead of an event of a stream.
	event func(x *a2aExchange, data object) []object
	// end says what happens at the end of a stream. Defaults to its end.
	end func(x *a2aExchange)
}

// a2aFault stands between the suite and a good endpoint, and makes a mistake.
type a2aFault struct {
	next    http.RoundTripper
	mistake a2aMistake

	mu      sync.Mutex
	seen    map[string]any // what a mistake remembers
	streams []*io.PipeWriter
}

// a2aExchange is one request of the suite.
type a2aExchange struct {
	*a2aFault
	r      *http.Request
	rpc    bool
	op     string // the operation, such as GetTask; empty: none
	body   object // of the request
	sent   object // the params of the operation that are in the body
	res    *http.Response
	whole  object // the answer
	result object // nil: the operation has failed
	failed object // the error; nil: it has not
}

// a2aOperation finds the operation of a request of HTTP+JSON.
func a2aOperation(r *http.Request) string {
	_, path, _ := strings.Cut(r.URL.Path, "/a2a/")
	switch last := path[strings.LastIndex(path, "/")+1:]; {
	case path == "message:send":
		return "SendMessage"
	case path == "message:stream":
		return "SendStreamingMessage"
	case path == "tasks":
		return "ListTasks"
	case path == "extendedAgentCard":
		return "GetExtendedAgentCard"
	case strings.HasSuffix(path, ":cancel"):
		return "CancelTask"
	case strings.HasSuffix(path, ":subscribe"):
		return "SubscribeToTask"
	case strings.Contains(path, "pushNotificationConfigs"):
		return pushOperation(r)
	case r.Method == "GET" && path == "tasks/"+last:
		return "GetTask"
	case strings.HasSuffix(r.URL.Path, "agent-card.json"):
		return "card"
	}
	return ""
}

func (m *a2aFault) RoundTrip(r *http.Request) (*http.Response, error) {
	x := &a2aExchange{a2aFault: m, r: r.Clone(r.Context())}
	var raw []byte
	if r.Body != nil {
		var err error
		if raw, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
	}
	isObject := json.Unmarshal(raw, &x.body) == nil && x.body != nil
	if !isObject {
		x.body = nil // of what is not JSON
	}
	x.sent, x.op = x.body, a2aOperation(r)
	if x.rpc = strings.HasSuffix(r.URL.Path, "/a2a"); x.rpc {
		x.op, _ = x.body["method"].(string)
		x.sent, _ = x.body["params"].(object)
	}
	if m.mistake.request != nil {
		if res := x.locked(func() *http.Response { return m.mistake.request(x) }); res != nil {
			return res, nil
		}
	}
	if isObject {
		raw, _ = json.Marshal(x.body)
	}
	x.r.Body, x.r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	if len(raw) == 0 {
		x.r.Body = http.NoBody
	}
	res, err := m.next.RoundTrip(x.r)
	if err != nil {
		return nil, err
	}
	x.res = res
	if strings.HasPrefix(res.Header.Get("Content-Type"), sse.ContentType) {
		x.locked(func() *http.Response { x.finish(); return nil })
		x.stream()
		return res, nil
	}
	return res, x.change()
}

// locked makes one mistake at a time.
func (x *a2aExchange) locked(do func() *http.Response) *http.Response {
	x.mu.Lock()
	defer x.mu.Unlock()
	return do()
}

// change changes an answer that is not a stream.
func (x *a2aExchange) change() error {
	raw, err := io.ReadAll(x.res.Body)
	x.res.Body.Close()
	if err != nil {
		return err
	}
	isObject := json.Unmarshal(raw, &x.whole) == nil && x.whole != nil
	x.failed, _ = x.whole["error"].(object)
	if x.rpc {
		x.result, _ = x.whole["result"].(object)
	} else if x.res.StatusCode/100 == 2 {
		x.result = x.whole
	}
	x.locked(func() *http.Response { x.finish(); return nil })
	if isObject || x.whole != nil {
		raw, _ = json.Marshal(x.whole)
	}
	x.res.Body, x.res.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	x.res.Header.Del("Content-Length")
	return nil
}

func (x *a2aExchange) finish() {
	if x.mistake.answer != nil {
		x.mistake.answer(x)
	}
}

// stream changes the events of a stream.
func (x *a2aExchange) stream() {
	from := x.res.Body
	reader, writer := io.Pipe()
	x.locked(func() *http.Response { x.streams = append(x.streams, writer); return nil })
	x.res.Body = &a2aStream{PipeReader: reader, from: from}
	context.AfterFunc(x.r.Context(), func() { writer.CloseWithError(context.Canceled) })
	go func() {
		for r := sse.NewReader(from, 1<<20); ; {
			ev, err := r.Next()
			for _, out := range x.changeEvent(ev) {
				if _, werr := writer.Write(out); werr != nil {
					return
				}
			}
			if err == nil {
				continue
			}
			if x.mistake.end != nil {
				x.mistake.end(x)
				return
			}
			writer.CloseWithError(err)
			return
		}
	}()
}

// changeEvent is what is sent for an event.
func (x *a2aExchange) changeEvent(ev sse.Event) (out [][]byte) {
	var data object
	if len(ev.Data) == 0 || json.Unmarshal(ev.Data, &data) != nil {
		return nil
	}
	all := []object{data}
	if x.mistake.event != nil {
		x.locked(func() *http.Response { all = x.mistake.event(x, data); return nil })
	}
	for _, one := range all {
		raw, _ := json.Marshal(one)
		out = append(out, sse.Event{Data: raw}.AppendTo(nil))
	}
	return out
}

// a2aStream is the body of a changed stream.
type a2aStream struct {
	*io.PipeReader
	from io.Closer
}

func (s *a2aStream) Close() error {
	s.from.Close()
	return s.PipeReader.Close()
}

// responseIn is the StreamResponse in the data of an event.
func (x *a2aExchange) responseIn(data object) object {
	if x.rpc {
		response, _ := data["result"].(object)
		return response
	}
	return data
}

// refusal is an answer with an error in the form of the binding.
func (x *a2aExchange) refusal(code, status int) *http.Response {
	answer := object{"error": object{"code": status, "status": "X", "message": "no"}}
	if x.rpc {
		answer = object{"jsonrpc": "2.0", "id": x.body["id"], "error": object{"code": code, "message": "no"}}
		status = http.StatusOK
	}
	raw, _ := json.Marshal(answer)
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Request: x.r,
		Body: io.NopCloser(bytes.NewReader(raw)), ContentLength: int64(len(raw)), ProtoMajor: 1, ProtoMinor: 1}
}

// succeed turns an answer into a success with a result.
func (x *a2aExchange) succeed(result object) {
	x.res.StatusCode = http.StatusOK
	x.whole = result
	if x.rpc {
		x.whole = object{"jsonrpc": "2.0", "id": x.body["id"], "result": result}
	}
}

// drop leaves a parameter of an operation out, at any place where it can be.
func (x *a2aExchange) drop(name string) {
	q := x.r.URL.Query()
	q.Del(name)
	x.r.URL.RawQuery = q.Encode()
	for _, in := range []object{x.sent, x.inSent("configuration"), x.inSent("message")} {
		if in != nil {
			delete(in, name)
		}
	}
}

// inSent is an object in the params of an operation.
func (x *a2aExchange) inSent(name string) object {
	in, _ := x.sent[name].(object)
	return in
}

// tasks are the tasks in an answer.
func (x *a2aExchange) tasks() (all []object) {
	if task, ok := x.result["task"].(object); ok {
		all = append(all, task)
	}
	if x.result["status"] != nil {
		all = append(all, x.result)
	}
	list, _ := x.result["tasks"].([]any)
	for _, task := range list {
		all = append(all, task.(object))
	}
	return all
}

// messages are the messages in a task.
func messagesIn(task object) (all []object) {
	list, _ := task["history"].([]any)
	for _, m := range list {
		all = append(all, m.(object))
	}
	return all
}

// partsIn are the parts of the artifacts of a task.
func partsIn(task object) (all []object) {
	artifacts, _ := task["artifacts"].([]any)
	for _, a := range artifacts {
		parts, _ := a.(object)["parts"].([]any)
		for _, p := range parts {
			all = append(all, p.(object))
		}
	}
	return all
}

// statusIn is the status of a task or an update.
func statusIn(in object) object {
	status, _ := in["status"].(object)
	return status
}
