package toolproxy_test

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/toolproxy"
)

func TestBadBodiesNameTheField(t *testing.T) {
	big := strings.Repeat("x", picket.MaxPayload+1)
	deep := strings.Repeat(`[`, 10_000) + strings.Repeat(`]`, 10_000)
	for _, c := range []struct {
		route   string
		body    string
		status  int
		code    string
		pointer string
	}{
		{"renew", `{"x":1}`, 400, "validation_failed", "/x"},
		{"renew", `[]`, 400, "validation_failed", ""},
		{"release", `{"exit":{"class":"success"}}`, 400, "validation_failed", "/exit/class"},
		{"release", `{"exit":{"class":"crash","code":"1"}}`, 400, "validation_failed", "/exit/code"},
		{"release", `{"exit":{"class":"crash","code":9999999999}}`, 400, "validation_failed", "/exit/code"},
		{"release", `{"exit":{"class":"crash","signal":"rm -rf"}}`, 400, "validation_failed", "/exit/signal"},
		{"release", `{"exit":{"class":"crash","durationMs":-1}}`, 400, "validation_failed", "/exit/durationMs"},
		{"release", `{"exit":{}}`, 400, "validation_failed", "/exit/class"},
		{"release", `{"detail":"` + strings.Repeat("x", 20_000) + `"}`, 413, "too_large", ""},
		{"exit", `{}`, 400, "validation_failed", "/class"},
		{"exit", `{"class":"cancelled"}`, 400, "validation_failed", "/class"},
		{"exit", `{"class":"success","containment":"jail"}`, 400, "validation_failed", "/containment"},
		{"events", `{}`, 400, "validation_failed", "/events"},
		{"events", `{"events":[{"type":"task.submitted"}]}`, 400, "validation_failed", "/events/0/type"},
		{"events", `{"events":[{"type":"run.exited"}]}`, 400, "validation_failed", "/events/0/type"},
		{"events", `{"events":[{"type":"agent-heartbeat","agent":"a"}]}`, 400, "validation_failed",
			"/events/0/elapsedSeconds"},
		{"events", `{"events":[{"type":"agent-heartbeat","agent":"a{b}","elapsedSeconds":1}]}`, 400,
			"validation_failed", "/events/0/agent"},
		{"events", `{"events":[{"type":"agent-heartbeat","agent":"a","elapsedSeconds":-1}]}`, 400, "validation_failed",
			"/events/0/elapsedSeconds"},
		{"events", `{"events":[{"type":"run.launched","id":"` + strings.Repeat("x", 65) + `"}]}`, 400,
			"validation_failed", "/events/0/id"},
		{"events", `{"events":[{"type":"run.launched","id":"a b"}]}`, 400, "validation_failed", "/events/0/id"},
		{"events", `{"events":[{"type":"run.launched","idleSeconds":1}]}`, 400, "validation_failed",
			"/events/0/idleSeconds"},
		{"events", `{"events":[{"type":"run.stalled"}]}`, 400, "validation_failed", "/events/0/idleSeconds"},
		{"events", `{"events":[{"type":"run.stalled","idleSeconds":-1}]}`, 400, "validation_failed",
			"/events/0/idleSeconds"},
		{"events", `{"events":[{"type":"run.stalled","idleSeconds":1,"agent":"a"}]}`, 400, "validation_failed",
			"/events/0"},
		{"events", `{"events":[{"type":"agent-timed-out","agent":"a"}]}`, 400, "validation_failed",
			"/events/0/timeoutSeconds"},
		{"events",
			`{"events":[{"type":"run.launched"},{"type":"run.launched","taskId":"task_01JZZZZZZZZZZZZZZZZZZZZZZX"}]}`,
			400, "validation_failed", "/events/1/taskId"},
		{"events", `{"events":[` + strings.TrimSuffix(strings.Repeat(`{"type":"run.launched"},`, 101), ",") + `]}`, 400,
			"validation_failed", "/events"},
		{"report_progress", `{}`, 400, "validation_failed", "/summary"},
		{"report_progress", `{"summary":"s","summary":"t"}`, 400, "validation_failed", "/summary"},
		{"report_progress", `{"summary":"s","beliefs":"x"}`, 400, "validation_failed", "/beliefs"},
		{"report_progress", `{"summary":"s","attempted":[{"act":1}]}`, 400, "validation_failed", "/attempted/0/act"},
		{"report_progress", `{"Summary":"s"}`, 400, "validation_failed", "/Summary"},
		{"report_progress", "{\"summary\":\"\xff\"}", 400, "validation_failed", "/summary"},
		{"report_progress", `{"summary":"` + big + `"}`, 413, "too_large", ""},
		{"emit", `{}`, 400, "validation_failed", "/parts"},
		{"emit", `{"parts":[{}]}`, 400, "validation_failed", "/parts/0"},
		{"emit", `{"parts":[{"text":"a"},{"text":"a","data":1}]}`, 400, "validation_failed", "/parts/1"},
		{"emit", `{"parts":[{"raw":"AA=","text":"a"}]}`, 400, "validation_failed", "/parts/0/raw"},
		{"emit", `{"parts":[{"data":null}]}`, 400, "validation_failed", "/parts/0"},
		{"emit", `{"parts":[{"raw":"%"}]}`, 400, "validation_failed", "/parts/0/raw"},
		{"emit", `{"parts":[{"url":"x"}]}`, 400, "validation_failed", "/parts/0/url"},
		{"emit", `{"parts":[{"text":"a","metadata":1}]}`, 400, "validation_failed", "/parts/0/metadata"},
		{"emit", `{"parts":[{"text":"a","kind":"text"}]}`, 400, "validation_failed", "/parts/0/kind"},
		{"emit", `{"parts":[` + strings.Repeat(`{"text":"a"},`, 100) + `{"text":"a"}]}`, 400, "validation_failed",
			"/parts"},
		{"emit", `{"parts":[{"text":"` + strings.Repeat("x", picket.MaxEmission) + `"}]}`, 413, "too_large", "/parts"},
		{"emit", `{"artifactId":"a b","parts":[{"text":"a"}]}`, 400, "validation_failed", "/artifactId"},
		{"emit", `{"artifactId":"` + strings.Repeat("x", 129) + `","parts":[{"text":"a"}]}`, 400, "validation_failed",
			"/artifactId"},
		{"emit", `{"name":"` + strings.Repeat("x", 257) + `","parts":[{"text":"a"}]}`, 413, "too_large", "/name"},
		{"emit_status", `{}`, 400, "validation_failed", "/message"},
		{"emit_status", `{"message":" "}`, 400, "validation_failed", "/message"},
		{"emit_status", `{"message":"` + strings.Repeat("x", 16<<10+1) + `"}`, 413, "too_large", "/message"},
		{"mark_complete", `{"summary":"no output"}`, 400, "validation_failed", "/output"},
		{"mark_complete", `{"output":1,"children":"adopt"}`, 400, "validation_failed", "/children"},
		{"delegate_subtask", `{"title":" "}`, 400, "validation_failed", "/title"},
		{"delegate_subtask", `{"title":"t","agent":"a1"}`, 400, "validation_failed", "/agent"},
		{"delegate_subtask", `{"title":"t","budgetEnvelope":{"usd":-1}}`, 400, "validation_failed", "/budgetEnvelope"},
		{"delegate_subtask", `{"title":"t","budgetEnvelope":{"usd":0.0000000001}}`, 400, "validation_failed",
			"/budgetEnvelope/usd"},
		{"delegate_subtask", `{"title":"t","input":"` + big + `"}`, 413, "too_large", "/input"},
		{"await_subtask", `{"taskId":"x"}`, 400, "validation_failed", "/taskId"},
		{"await_subtask", `{"taskId":"` + aTask + `","waitSeconds":51}`, 400, "validation_failed", "/waitSeconds"},
		{"await_subtask", `{"taskId":"` + aTask + `","waitSeconds":-1}`, 400, "validation_failed", "/waitSeconds"},
		{"review_subtask", `{"taskId":"` + aTask + `","decision":"maybe"}`, 400, "validation_failed", "/decision"},
		{"review_subtask", `{"taskId":"` + aTask + `","decision":"reject","note":"` + strings.Repeat("x", 20_000) +
			`"}`, 413, "too_large", "/note"},
		{"mark_complete", `{"output":"` + big + `"}`, 413, "too_large", "/output"},
		{"mark_complete", `{"output":` + deep + `}`, 400, "validation_failed", ""},
		{"mark_complete", `{"output":1,"summary":"` + strings.Repeat("x", 20_000) + `"}`, 413, "too_large", "/summary"},
		{"reply", `{}`, 400, "validation_failed", "/parts"},
		{"reply", `{"parts":[{}]}`, 400, "validation_failed", "/parts/0"},
		{"reply", `{"parts":[{"text":"a"}],"children":"adopt"}`, 400, "validation_failed", "/children"},
		{"reply", `{"parts":[{"text":"` + big + `"}]}`, 413, "too_large", "/parts"},
		{"reply", `{"parts":[{"text":"a"}],"summary":"s"}`, 400, "validation_failed", "/summary"},
		{"mark_failed", `{}`, 400, "validation_failed", "/reason"},
		{"mark_failed", `{"reason":"r","retryable":"yes"}`, 400, "validation_failed", "/retryable"},
		{"mark_failed", `{"reason":"r","class":"crash"}`, 400, "validation_failed", "/class"},
		{"mark_failed", `{"reason":"r","class":"rejected","retryable":true}`, 400, "validation_failed", "/retryable"},
		{"request_human_help", `{}`, 400, "validation_failed", "/question"},
		{"request_human_help", `{"question":"q","kind":"escalation"}`, 400, "validation_failed", "/kind"},
		{"request_human_help", `{"question":"q","onDeadline":"deny"}`, 400, "validation_failed", "/deadlineSeconds"},
		{"request_human_help", `{"question":"q","deadlineSeconds":0}`, 400, "validation_failed", "/deadlineSeconds"},
		{"find_agents", `{"role":"a b"}`, 400, "validation_failed", "/role"},
		{"find_agents", `{"needs":["a b"]}`, 400, "validation_failed", "/needs/0"},
		{"send_message", `{}`, 400, "validation_failed", "/body"},
		{"send_message", `{"body":" "}`, 400, "validation_failed", "/body"},
		{"send_message", `{"body":"a\u0000b"}`, 400, "validation_failed", "/body"},
		{"send_message", `{"body":"x","to":"a b"}`, 400, "validation_failed", "/to"},
		{"send_message", `{"body":"x","to":""}`, 400, "validation_failed", "/to"},
		{"send_message", `{"body":"x","type":"a b"}`, 400, "validation_failed", "/type"},
		{"send_message", `{"body":"x","replyTo":"1"}`, 400, "validation_failed", "/replyTo"},
		{"send_message", `{"body":"x","messageId":"1"}`, 400, "validation_failed", "/messageId"},
		{"send_message", `{"body":"x","from":"admin"}`, 400, "validation_failed", "/from"},
		{"send_message", `{"body":"` + strings.Repeat("x", picket.MaxMessage+1) + `"}`, 413, "too_large", "/body"},
		{"read_messages", `{"max":51}`, 400, "validation_failed", "/max"},
		{"read_messages", `{"max":-1}`, 400, "validation_failed", "/max"},
		{"read_messages", `{"waitSeconds":51}`, 400, "validation_failed", "/waitSeconds"},
		{"find_agents", `{"agent":"x"}`, 400, "validation_failed", "/agent"},
		{"get_task", `{"taskId":"x"}`, 400, "validation_failed", "/taskId"},
	} {
		d := &fakeBackend{}
		f := newProxyEnv(t, d)
		call := goodRequests[c.route].with(f.token(), "")
		call.body = c.body
		a := f.call(t, call)
		if a.status != c.status || a.code() != c.code || a.field() != c.pointer || a.remedy() == "" {
			t.Errorf("%s %.80s: %d %.400s", c.route, c.body, a.status, a.raw)
		}
		if d.count() != 0 {
			t.Errorf("%s %.80s reached the state of record: %v", c.route, c.body, d.asked)
		}
	}
}

func TestBadQueriesMethodsAndTypes(t *testing.T) {
	token := newProxyEnv(t, nil).token()
	for _, c := range []struct {
		r      request
		status int
		code   string
	}{
		{request{method: "GET", path: "/v1/lease/watch?waitSeconds=51"}, 400, "validation_failed"},
		{request{method: "GET", path: "/v1/lease/watch?waitSeconds=-1"}, 400, "validation_failed"},
		{request{method: "GET", path: "/v1/lease/watch?waitSeconds="}, 400, "validation_failed"},
		{request{method: "GET", path: "/v1/lease/watch?waitSeconds=1&waitSeconds=2"}, 400, "validation_failed"},
		{request{method: "GET", path: "/v1/lease/watch?wait=1"}, 400, "validation_failed"},
		{request{method: "GET", path: "/v1/lease/watch?%zz"}, 400, "validation_failed"},
		{request{path: "/v1/run/logs?offset=0", body: "x", kind: "text/plain"}, 400, "validation_failed"},
		{request{path: "/v1/run/logs?stream=stdin&offset=0", body: "x", kind: "text/plain"}, 400, "validation_failed"},
		{request{path: "/v1/run/logs?stream=stdout", body: "x", kind: "text/plain"}, 400, "validation_failed"},
		{request{path: "/v1/run/logs?stream=stdout&offset=9007199254740992", body: "x", kind: "text/plain"}, 400,
			"validation_failed"},
		{request{path: "/v1/run/logs?stream=stdout&offset=0", body: "{}"}, 415, "unsupported_media_type"},
		{request{
			path: "/v1/run/logs?stream=stdout&offset=0",
			body: strings.Repeat("x", toolproxy.MaxLogChunk+1),
			kind: "text/plain",
		}, 413, "too_large"},
		{request{path: "/v1/run/evidence", body: `{"diff":"+x"}`}, 400, "validation_failed"},
		{request{path: "/v1/run/evidence", body: `{"branch":"b","at":"2026-04-11T10:42:17.000Z"}`}, 400,
			"validation_failed"},
		{request{
			path: "/v1/run/evidence",
			body: `{"branch":"b","diff":"` + strings.Repeat("x", picket.MaxPayload) + `"}`,
		}, 413, "too_large"},
		{request{path: "/v1/tools/report_progress", body: `summary=s`, kind: "application/x-www-form-urlencoded"}, 415,
			"unsupported_media_type"},
		{request{method: "GET", path: "/v1/tools/report_progress"}, 405, "method_not_allowed"},
		{request{method: "DELETE", path: "/v1/lease/renew"}, 405, "method_not_allowed"},
		{request{path: "/v1/lease/steal", body: "{}"}, 404, "not_found"},
	} {
		d := &fakeBackend{}
		f := newProxyEnv(t, d)
		a := f.call(t, c.r.with(token, ""))
		if a.status != c.status || a.code() != c.code || a.remedy() == "" || d.count() != 0 {
			t.Errorf("%s %s: %d %.300s, reached %v", c.r.method, c.r.path, a.status, a.raw, d.asked)
		}
		if c.status == 405 && a.header.Get("Allow") == "" {
			t.Errorf("%s %s: 405 without Allow", c.r.method, c.r.path)
		}
	}
}

func TestLogsTakeBytesThatAreNoText(t *testing.T) {
	d := &fakeBackend{}
	f := newProxyEnv(t, d)
	a := f.call(t, request{
		path:   "/v1/run/logs?stream=stderr&offset=5",
		bearer: f.token(),
		body:   "\xff\x00\xfe",
		kind:   "application/octet-stream",
	})
	if a.status != 200 || a.raw != `{"next":8}` {
		t.Fatalf("%d %s", a.status, a.raw)
	}
}

func TestOutputKeepsItsDigits(t *testing.T) {
	for _, output := range []string{`{"n":12345678901234567890}`, `null`, `"text"`, `1.00`, `[]`} {
		d := &fakeBackend{}
		f := newProxyEnv(t, d)
		a := f.call(t, request{path: "/v1/tools/mark_complete", bearer: f.token(), body: `{"output":` + output + `}`})
		if a.status != 200 || len(d.outputs) != 1 || d.outputs[0] != output {
			t.Errorf("%s arrived as %v: %d %s", output, d.outputs, a.status, a.raw)
		}
	}
}

func TestAReleaseWithoutExitIsVoluntary(t *testing.T) {
	d := &fakeBackend{}
	f := newProxyEnv(t, d)
	if a := f.call(t, request{
		path:   "/v1/lease/release",
		bearer: f.token(),
		body:   `{"detail":"not mine"}`,
	}); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	if d.exits[0].Class != picket.ExitReleased || d.exits[0].Detail != "not mine" {
		t.Fatalf("%+v", d.exits[0])
	}
}
