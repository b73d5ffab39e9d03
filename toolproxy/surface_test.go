package toolproxy_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/toolproxy"
)

// calls are one good request for each route and tool.
var calls = map[string]request{
	"renew":              {path: "/v1/lease/renew", body: `{}`},
	"release":            {path: "/v1/lease/release", body: `{"exit":{"class":"crash","code":137,"signal":"SIGKILL"},"detail":"last lines"}`},
	"watch":              {method: "GET", path: "/v1/lease/watch?waitSeconds=0"},
	"exit":               {path: "/v1/run/exit", body: `{"class":"success","code":0,"signal":null,"containment":"group","durationMs":12}`},
	"logs":               {path: "/v1/run/logs?stream=stdout&offset=0", body: "hello\n", kind: "text/plain; charset=utf-8"},
	"events":             {path: "/v1/run/events", body: `{"events":[{"type":"run.launched","containment":"group"}]}`},
	"get_task":           {path: "/v1/tools/get_task", body: `{}`},
	"report_progress":    {path: "/v1/tools/report_progress", body: `{"summary":"s","beliefs":["b"],"attempted":[{"action":"a","outcome":"o"}],"nextStep":"n","blockers":[]}`},
	"mark_complete":      {path: "/v1/tools/mark_complete", body: `{"output":{"n":12345678901234567890},"summary":"done"}`},
	"mark_failed":        {path: "/v1/tools/mark_failed", body: `{"reason":"no compiler","retryable":false}`},
	"request_human_help": {path: "/v1/tools/request_human_help", body: `{"question":"which?","options":["a","b"],"kind":"question","deadlineSeconds":null,"onDeadline":"wait"}`},
}

// with returns the request with the credential of a lease.
func (r request) with(bearer, fence string) request {
	r.bearer, r.fence = bearer, fence
	return r
}

func TestEveryRouteReachesItsVerbWithTheCredential(t *testing.T) {
	for name, call := range calls {
		d := &desk{}
		f := newFace(t, d)
		a := f.call(t, call.with(f.token(), "17"))
		if a.status != http.StatusOK || len(d.asked) != 1 || d.asked[0] != name {
			t.Errorf("%s: %d %s, reached %v", name, a.status, a.raw, d.asked)
			continue
		}
		h := d.held[0]
		if h.Namespace != "default" || h.TaskID != aTask || h.RunID != aRun || h.Fence != 17 ||
			h.Secret != f.sealer.Fingerprint("default", aRun) {
			t.Errorf("%s: the credential arrived as %+v", name, h)
		}
	}
}

func TestABadCredentialReachesNothing(t *testing.T) {
	f := newFace(t, &desk{})
	good := f.token()
	other := newFaceWithKey(t, 9).token()
	for what, header := range map[string]map[string]string{
		"missing":      nil,
		"empty":        {"Authorization": "Bearer "},
		"other scheme": {"Authorization": "Basic " + good},
		"bare":         {"Authorization": good},
		"API key":      {"Authorization": "Bearer pkk_default_abc"},
		"X-API-Key":    {"X-API-Key": good},
		"edited MAC":   {"Authorization": "Bearer " + good[:len(good)-2] + flip(good[len(good)-2:])},
		"cut":          {"Authorization": "Bearer " + good[:len(good)-1]},
		"longer":       {"Authorization": "Bearer " + good + "A"},
		"other run":    {"Authorization": "Bearer " + strings.Replace(good, "ZB.", "ZC.", 1)},
		"other space":  {"Authorization": "Bearer " + strings.Replace(good, "default", "another", 1)},
		"other key":    {"Authorization": "Bearer " + other},
		"huge":         {"Authorization": "Bearer pkl_" + strings.Repeat("A", 5000)},
	} {
		for name, call := range calls {
			d := &desk{}
			f := newFace(t, d)
			call.header = header
			a := f.call(t, call)
			if a.status != 401 || a.code() != "unauthenticated" || a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s with %s: %d %s", name, what, a.status, a.raw)
			}
			if d.count() != 0 || len(d.refused) != 0 {
				t.Errorf("%s with %s reached %v, recorded %v", name, what, d.asked, d.refused)
			}
			if !strings.Contains(a.remedy(), "PICKET_LEASE_TOKEN") {
				t.Errorf("%s with %s: the remedy does not name the token: %q", name, what, a.remedy())
			}
		}
	}
}

func flip(s string) string {
	if strings.HasPrefix(s, "A") {
		return "B" + s[1:]
	}
	return "A" + s[1:]
}

func newFaceWithKey(t *testing.T, b byte) *face {
	t.Helper()
	s, err := picket.NewSealer([]byte(strings.Repeat(string(rune(b)), 32)))
	if err != nil {
		t.Fatal(err)
	}
	return &face{sealer: s}
}

func TestAGarbledFenceIsABadRequest(t *testing.T) {
	for _, fence := range []string{"0", "-1", "+1", "01", "1.0", "1e3", "0x11", " ", "x", "९", "9007199254740992", "99999999999999999999", "1,2"} {
		d := &desk{}
		f := newFace(t, d)
		a := f.call(t, calls["report_progress"].with(f.token(), fence))
		if a.status != 400 || a.code() != "validation_failed" || a.field() != toolproxy.FenceHeader || d.count() != 0 {
			t.Errorf("fence %q: %d %s, reached %v", fence, a.status, a.raw, d.asked)
		}
	}
	for fence, want := range map[string]int64{"1": 1, "9007199254740991": 1<<53 - 1, "": 0} {
		d := &desk{}
		f := newFace(t, d)
		if a := f.call(t, calls["renew"].with(f.token(), fence)); a.status != 200 || d.held[0].Fence != want {
			t.Errorf("fence %q: %d %s", fence, a.status, a.raw)
		}
	}
}

func TestANamespaceServedElsewhere(t *testing.T) {
	d := &desk{}
	f := newFace(t, d)
	a := f.call(t, calls["renew"].with(f.sealer.Seal("tenant", aTask, aRun).Reveal(), ""))
	if a.status != 503 || a.code() != "orchestrator_unavailable" || a.header.Get("Retry-After") == "" || d.count() != 0 {
		t.Fatalf("%d %v %s", a.status, a.header, a.raw)
	}
	if !strings.Contains(a.remedy(), "proxyUrl") {
		t.Errorf("the remedy does not say where to go: %q", a.remedy())
	}
}

func TestBadBodiesNameTheField(t *testing.T) {
	big := strings.Repeat("x", picket.MaxPayload+1)
	deep := strings.Repeat(`[`, 10_000) + strings.Repeat(`]`, 10_000)
	for _, c := range []struct {
		route, body   string
		status        int
		code, pointer string
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
		{"exit", `{"class":"success","containment":"cgroup"}`, 400, "not_available", "/containment"},
		{"exit", `{"class":"success","containment":"jail"}`, 400, "validation_failed", "/containment"},
		{"events", `{}`, 400, "validation_failed", "/events"},
		{"events", `{"events":[{"type":"task.submitted"}]}`, 400, "validation_failed", "/events/0/type"},
		{"events", `{"events":[{"type":"run.exited"}]}`, 400, "validation_failed", "/events/0/type"},
		{"events", `{"events":[{"type":"agent-heartbeat","agent":"a"}]}`, 400, "validation_failed", "/events/0/elapsedSeconds"},
		{"events", `{"events":[{"type":"agent-heartbeat","agent":"a{b}","elapsedSeconds":1}]}`, 400, "validation_failed", "/events/0/agent"},
		{"events", `{"events":[{"type":"agent-heartbeat","agent":"a","elapsedSeconds":-1}]}`, 400, "validation_failed", "/events/0/elapsedSeconds"},
		{"events", `{"events":[{"type":"agent-timed-out","agent":"a"}]}`, 400, "validation_failed", "/events/0/timeoutSeconds"},
		{"events", `{"events":[{"type":"run.launched"},{"type":"run.launched","taskId":"task_01JZZZZZZZZZZZZZZZZZZZZZZX"}]}`, 400, "validation_failed", "/events/1/taskId"},
		{"events", `{"events":[` + strings.TrimSuffix(strings.Repeat(`{"type":"run.launched"},`, 101), ",") + `]}`, 400, "validation_failed", "/events"},
		{"report_progress", `{}`, 400, "validation_failed", "/summary"},
		{"report_progress", `{"summary":"s","summary":"t"}`, 400, "validation_failed", "/summary"},
		{"report_progress", `{"summary":"s","beliefs":"x"}`, 400, "validation_failed", "/beliefs"},
		{"report_progress", `{"summary":"s","attempted":[{"act":1}]}`, 400, "validation_failed", "/attempted/0/act"},
		{"report_progress", `{"Summary":"s"}`, 400, "validation_failed", "/Summary"},
		{"report_progress", "{\"summary\":\"\xff\"}", 400, "validation_failed", "/summary"},
		{"report_progress", `{"summary":"` + big + `"}`, 413, "too_large", ""},
		{"mark_complete", `{"summary":"no output"}`, 400, "validation_failed", "/output"},
		{"mark_complete", `{"output":1,"children":"detach"}`, 400, "not_available", "/children"},
		{"mark_complete", `{"output":"` + big + `"}`, 413, "too_large", "/output"},
		{"mark_complete", `{"output":` + deep + `}`, 400, "validation_failed", ""},
		{"mark_complete", `{"output":1,"summary":"` + strings.Repeat("x", 20_000) + `"}`, 413, "too_large", "/summary"},
		{"mark_failed", `{}`, 400, "validation_failed", "/reason"},
		{"mark_failed", `{"reason":"r","retryable":"yes"}`, 400, "validation_failed", "/retryable"},
		{"request_human_help", `{}`, 400, "validation_failed", "/question"},
		{"request_human_help", `{"question":"q","kind":"budget"}`, 400, "not_available", "/kind"},
		{"request_human_help", `{"question":"q","onDeadline":"deny"}`, 400, "validation_failed", "/deadlineSeconds"},
		{"request_human_help", `{"question":"q","deadlineSeconds":0}`, 400, "validation_failed", "/deadlineSeconds"},
		{"get_task", `{"taskId":"x"}`, 400, "validation_failed", "/taskId"},
	} {
		d := &desk{}
		f := newFace(t, d)
		call := calls[c.route].with(f.token(), "")
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
	token := newFace(t, nil).token()
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
		{request{path: "/v1/run/logs?stream=stdout&offset=9007199254740992", body: "x", kind: "text/plain"}, 400, "validation_failed"},
		{request{path: "/v1/run/logs?stream=stdout&offset=0", body: "{}"}, 415, "unsupported_media_type"},
		{request{path: "/v1/run/logs?stream=stdout&offset=0", body: strings.Repeat("x", toolproxy.MaxLogChunk+1), kind: "text/plain"}, 413, "too_large"},
		{request{path: "/v1/tools/report_progress", body: `summary=s`, kind: "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"},
		{request{method: "GET", path: "/v1/tools/report_progress"}, 405, "method_not_allowed"},
		{request{method: "DELETE", path: "/v1/lease/renew"}, 405, "method_not_allowed"},
		{request{path: "/v1/lease/steal", body: "{}"}, 404, "not_found"},
	} {
		d := &desk{}
		f := newFace(t, d)
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
	d := &desk{}
	f := newFace(t, d)
	a := f.call(t, request{path: "/v1/run/logs?stream=stderr&offset=5", bearer: f.token(), body: "\xff\x00\xfe", kind: "application/octet-stream"})
	if a.status != 200 || a.raw != `{"next":8}` {
		t.Fatalf("%d %s", a.status, a.raw)
	}
}

func TestOutputKeepsItsDigits(t *testing.T) {
	for _, output := range []string{`{"n":12345678901234567890}`, `null`, `"text"`, `1.00`, `[]`} {
		d := &desk{}
		f := newFace(t, d)
		a := f.call(t, request{path: "/v1/tools/mark_complete", bearer: f.token(), body: `{"output":` + output + `}`})
		if a.status != 200 || len(d.outputs) != 1 || d.outputs[0] != output {
			t.Errorf("%s arrived as %v: %d %s", output, d.outputs, a.status, a.raw)
		}
	}
}

func TestAReleaseWithoutExitIsVoluntary(t *testing.T) {
	d := &desk{}
	f := newFace(t, d)
	if a := f.call(t, request{path: "/v1/lease/release", bearer: f.token(), body: `{"detail":"not mine"}`}); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	if d.exits[0].Class != picket.ExitReleased || d.exits[0].Detail != "not mine" {
		t.Fatalf("%+v", d.exits[0])
	}
}

func TestReportsKeepTheirIdempotencyKey(t *testing.T) {
	d := &desk{}
	f := newFace(t, d)
	for _, key := range []string{"a", "a", "b", "", ""} {
		r := calls["report_progress"].with(f.token(), "")
		if key != "" {
			r.header = map[string]string{"Idempotency-Key": key}
		}
		if a := f.call(t, r); a.status != 200 {
			t.Fatalf("key %q: %d %s", key, a.status, a.raw)
		}
	}
	if d.keys[0] != d.keys[1] || d.keys[0] == d.keys[2] || d.keys[3] == d.keys[4] || slices.Contains(d.keys, "") {
		t.Fatalf("request ids: %q", d.keys)
	}
	r := calls["report_progress"].with(f.token(), "")
	r.header = map[string]string{"Idempotency-Key": strings.Repeat("k", 256)}
	if a := f.call(t, r); a.status != 400 || a.field() != "Idempotency-Key" {
		t.Fatalf("%d %s", a.status, a.raw)
	}
}

func TestToolsAreListedAndTheListIsTrue(t *testing.T) {
	d := &desk{}
	f := newFace(t, d)
	a := f.call(t, request{method: "GET", path: "/v1/tools", bearer: f.token()})
	list, _ := a.body["tools"].([]any)
	if a.status != 200 || len(list) != len(toolproxy.Tools()) || len(list) != 5 {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	for _, tool := range toolproxy.Tools() {
		call, ok := calls[tool.Name]
		if !ok {
			t.Errorf("%s is listed without a test", tool.Name)
			continue
		}
		if a := f.call(t, call.with(f.token(), "")); a.status != 200 {
			t.Errorf("%s is listed but answers %d", tool.Name, a.status)
		}
		if len(tool.Description) < 60 {
			t.Errorf("%s: a model cannot use it by %q", tool.Name, tool.Description)
		}
	}
}

func TestSchemasAgreeWithTheDecoders(t *testing.T) {
	f := newFace(t, &desk{})
	for _, tool := range toolproxy.Tools() {
		var schema struct {
			Type                 string                    `json:"type"`
			Properties           map[string]jsontext.Value `json:"properties"`
			Required             []string                  `json:"required"`
			AdditionalProperties bool                      `json:"additionalProperties"`
		}
		if err := json.Unmarshal(tool.InputSchema, &schema); err != nil || schema.Type != "object" || schema.AdditionalProperties {
			t.Errorf("%s: not the schema of a strict object: %v", tool.Name, err)
		}
		call := calls[tool.Name].with(f.token(), "")
		for property := range schema.Properties {
			call.body = `{"` + property + `":null}`
			if a := f.call(t, call); strings.Contains(a.raw, "not a known field") {
				t.Errorf("%s: the schema has %s, the decoder does not", tool.Name, property)
			}
		}
		var sent map[string]jsontext.Value
		if err := json.Unmarshal([]byte(calls[tool.Name].body), &sent); err != nil {
			t.Fatal(err)
		}
		for property := range sent {
			if _, ok := schema.Properties[property]; !ok {
				t.Errorf("%s: the decoder takes %s, the schema does not have it", tool.Name, property)
			}
		}
		for _, property := range schema.Required {
			call.body = `{}`
			if a := f.call(t, call); a.status != 400 || a.field() != "/"+property {
				t.Errorf("%s: %s is required by the schema, but without it: %d %s", tool.Name, property, a.status, a.raw)
			}
		}
	}
}

func TestUnknownAndLaterTools(t *testing.T) {
	d := &desk{}
	f := newFace(t, d)
	a := f.call(t, request{path: "/v1/tools/rm_rf", bearer: f.token(), body: `{"whatever":1}`})
	if a.status != 404 || a.code() != "not_found" || !strings.Contains(a.remedy(), "report_progress") {
		t.Errorf("unknown tool: %d %s", a.status, a.raw)
	}
	if tools, _ := a.body["tools"].([]any); len(tools) != 5 {
		t.Errorf("the tools are not listed: %s", a.raw)
	}
	for path, subject := range map[string]string{
		"/v1/tools/delegate_subtask": "delegation", "/v1/tools/await_subtask": "delegation", "/v1/tools/review_subtask": "delegation",
		"/v1/tools/await_top_up": "metered budgets", "/v1/tools/exec": "metered tools", "/v1/tools/http_request": "metered tools", "/v1/tools/sql": "metered tools",
		"/v1/lease/reclaim": "adoption of a restored store", "/v1/run/usage": "metering", "/v1/run/evidence": "workspace evidence", "/v1/run/exec/call_1": "metered tools",
	} {
		a := f.call(t, request{path: path, bearer: f.token(), body: `{"title":"x"}`})
		if a.status != 400 || a.code() != "not_available" || text(a.body["subject"]) != subject || a.remedy() == "" {
			t.Errorf("%s: %d %s", path, a.status, a.raw)
		}
		for _, tool := range toolproxy.Tools() {
			if strings.HasSuffix(path, "/"+tool.Name) {
				t.Errorf("%s is refused and listed", tool.Name)
			}
		}
	}
	if d.count() != 0 {
		t.Errorf("reached %v", d.asked)
	}
}

// writes are the calls whose refusal belongs into the event log.
var writes = []string{"events", "exit", "logs", "mark_complete", "mark_failed", "release", "report_progress", "request_human_help"}

func TestRefusedWritesAreRecordedReadsAreNot(t *testing.T) {
	var recorded []string
	for name, call := range calls {
		d := &desk{err: picket.Refuse(picket.CodeStaleFence, "Stop writing and exit.", "superseded")}
		f := newFace(t, d)
		if a := f.call(t, call.with(f.token(), "")); a.status != 412 || a.code() != "stale_fence" || a.remedy() == "" {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
		for _, r := range d.refused {
			if r != name+" stale_fence" {
				t.Errorf("%s was recorded as %q", name, r)
			}
			recorded = append(recorded, name)
		}
	}
	slices.Sort(recorded)
	if !slices.Equal(recorded, writes) {
		t.Errorf("recorded %v, want %v", recorded, writes)
	}
}

func TestOnlyTheFenceMakesARefusedWrite(t *testing.T) {
	for _, err := range []error{
		picket.Refuse(picket.CodeUnavailable, "Wait.", "away").Because(picket.ErrUnknown),
		picket.Refuse(picket.CodeIdempotencyConflict, "Use another key.", "other body"),
		picket.Refuse(picket.CodeOffset, "Go on at expected.", "gap"),
		errors.New("a bug"),
	} {
		for name, call := range calls {
			d := &desk{err: err}
			f := newFace(t, d)
			a := f.call(t, call.with(f.token(), ""))
			if a.status != picket.CodeOf(err).Status() || len(d.refused) != 0 {
				t.Errorf("%s with %v: %d %s, recorded %v", name, err, a.status, a.raw, d.refused)
			}
			if a.status == 503 && a.header.Get("Retry-After") == "" {
				t.Errorf("%s: 503 without Retry-After", name)
			}
			if strings.Contains(a.raw, "a bug") {
				t.Errorf("%s shows an internal error: %s", name, a.raw)
			}
		}
	}
}

func TestANewerWatchDisplacesTheOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{watch: func(ctx context.Context, wait time.Duration) (picket.Watch, bool, error) {
			select {
			case <-ctx.Done():
				return picket.Watch{}, false, picket.Refuse(picket.CodeUnavailable, "", "cut short").Because(ctx.Err())
			case <-time.After(wait):
				return picket.Watch{}, false, nil
			}
		}}
		f := newFace(t, d)
		began := time.Now()
		ended := make(chan string, 4)
		start := func(name, token string) {
			go func() {
				a := f.call(t, request{method: "GET", path: "/v1/lease/watch", bearer: token})
				ended <- name + " " + http.StatusText(a.status) + " " + time.Since(began).String()
			}()
			synctest.Wait()
		}
		start("first", f.token())
		time.Sleep(10 * time.Second)
		start("another run", f.sealer.Seal("default", aTask, "run_01JZZZZZZZZZZZZZZZZZZZZZZC").Reveal())
		// A capability whose task was edited is not this run's watch.
		start("edited task", f.sealer.Seal("default", "task_01JZZZZZZZZZZZZZZZZZZZZZZX", aRun).Reveal())
		start("second", f.token())
		want := map[string]bool{"first No Content 10s": true, "second No Content 1m0s": true, "another run No Content 1m0s": true, "edited task No Content 1m0s": true}
		got := map[string]bool{}
		for range 4 {
			got[<-ended] = true
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%v", got)
		}
	})
}

func TestAWatchEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{watch: func(ctx context.Context, _ time.Duration) (picket.Watch, bool, error) {
			<-ctx.Done()
			return picket.Watch{}, false, ctx.Err()
		}}
		f := newFace(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			f.callWith(t, ctx, request{method: "GET", path: "/v1/lease/watch", bearer: f.token()})
			close(ended)
		}()
		synctest.Wait()
		cancel()
		<-ended
	})
}

func TestTheBearerIsNeverShown(t *testing.T) {
	for _, err := range []error{nil, errors.New("boom"), picket.Refuse(picket.CodeStaleFence, "Stop.", "old")} {
		for name, call := range calls {
			d := &desk{err: err}
			f := newFace(t, d)
			good := f.token()
			forged := good[:len(good)-2] + flip(good[len(good)-2:])
			for _, token := range []string{good, forged} {
				a := f.call(t, call.with(token, "17"))
				_, mac, _ := strings.Cut(token, aRun[4:]+".")
				for where, text := range map[string]string{"the answer": a.raw, "the log": f.log.String()} {
					if strings.Contains(text, mac) {
						t.Errorf("%s: the lease token stands in %s", name, where)
					}
				}
			}
		}
	}
}

func TestNewRefusesAnIncompleteConfiguration(t *testing.T) {
	for _, cfg := range []toolproxy.Config{{}, {Sealer: newSealer(t)}, {Door: func(string) toolproxy.Door { return nil }}} {
		if _, err := toolproxy.New(cfg); err == nil {
			t.Errorf("taken: %+v", cfg)
		}
	}
}
