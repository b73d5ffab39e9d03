package toolproxy_test

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket/toolproxy"
)

// fuzzBody feeds a route any body: no panic, no 5xx, an answer of bounded
// size, and the state of record is reached exactly when the answer is good.
func fuzzBody(f *testing.F, route string) {
	f.Add([]byte(goodRequests[route].body))
	for _, seed := range []string{``, `{}`, `null`, `[`, `{"x":1}`, `{"summary":"s","summary":"s"}`, "\xff",
		`{"output":` + strings.Repeat("[", 200), `{"events":[{}]}`, `{"exit":{"code":1e400}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d := &fakeBackend{}
		face := newProxyEnv(t, d).undescribed()
		call := goodRequests[route].with(face.token(), "")
		call.body = string(body)
		a := face.call(t, call)
		if a.status >= 500 || a.status < 200 || len(a.raw) > 64<<10 {
			t.Fatalf("%d with %d bytes: %.500s", a.status, len(a.raw), a.raw)
		}
		if good := a.status < 300; good != (d.count() == 1) {
			t.Fatalf("%d, and the state of record was asked %d times", a.status, d.count())
		}
		if a.status >= 400 && (a.code() == "" || a.remedy() == "") {
			t.Fatalf("a refusal without code or remedy: %s", a.raw)
		}
	})
}

func FuzzRenewBody(f *testing.F)    { fuzzBody(f, "renew") }
func FuzzReleaseBody(f *testing.F)  { fuzzBody(f, "release") }
func FuzzExitBody(f *testing.F)     { fuzzBody(f, "exit") }
func FuzzEventsBody(f *testing.F)   { fuzzBody(f, "events") }
func FuzzLogBody(f *testing.F)      { fuzzBody(f, "logs") }
func FuzzReportBody(f *testing.F)   { fuzzBody(f, "report_progress") }
func FuzzCompleteBody(f *testing.F) { fuzzBody(f, "mark_complete") }
func FuzzDelegateBody(f *testing.F) { fuzzBody(f, "delegate_subtask") }
func FuzzAwaitBody(f *testing.F)    { fuzzBody(f, "await_subtask") }
func FuzzReviewBody(f *testing.F)   { fuzzBody(f, "review_subtask") }
func FuzzFailBody(f *testing.F)     { fuzzBody(f, "mark_failed") }
func FuzzHelpBody(f *testing.F)     { fuzzBody(f, "request_human_help") }
func FuzzSendBody(f *testing.F)     { fuzzBody(f, "send_message") }
func FuzzReadBody(f *testing.F)     { fuzzBody(f, "read_messages") }
func FuzzFindBody(f *testing.F)     { fuzzBody(f, "find_agents") }
func FuzzGetTaskBody(f *testing.F)  { fuzzBody(f, "get_task") }

// FuzzCredential feeds the two headers anything. Only the one good capability
// passes, only with a fence that is a token.
func FuzzCredential(f *testing.F) {
	good := newSealer(f).LeaseToken("default", aTask, aRun).Reveal()
	for _, seed := range []string{"", "Bearer ", "Bearer " + good, "bearer  " + good, good, "Bearer pkk_default_x",
		"Bearer pkl_....", "Bearer " + good + "=", "Bearer " + strings.ToLower(good)} {
		f.Add(seed, "")
		f.Add(seed, "17")
	}
	// The MAC does not cover the task: the state of record refuses another one.
	f.Add("Bearer "+strings.Replace(good, aTask[5:], strings.Repeat("0", 26), 1), "1")
	_, run, _ := strings.Cut(good, aTask[5:])
	f.Add("Bearer "+good, "00")
	f.Add("Bearer "+good, "9007199254740992")
	f.Fuzz(func(t *testing.T, authorization, fence string) {
		d := &fakeBackend{}
		face := newProxyEnv(t, d).undescribed()
		a := face.call(t, request{path: "/v1/lease/renew", body: "{}",
			header: map[string]string{"Authorization": authorization, toolproxy.FenceHeader: fence}})
		switch {
		case !slices.Contains([]int{200, 400, 401, 503}, a.status):
			t.Fatalf("%d %s", a.status, a.raw)
		case a.status == 200 && !(strings.Contains(authorization, " pkl_default.") &&
			strings.HasSuffix(strings.TrimSpace(authorization), run)):
			t.Fatalf("%q passed", authorization)
		case a.status == 200 && (d.held[0].Fence < 1 || d.held[0].Fence > 1<<53-1):
			t.Fatalf("fence %q arrived as %d", fence, d.held[0].Fence)
		}
	})
}

// FuzzQuery feeds the routes with parameters anything.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"", "waitSeconds=50", "waitSeconds=0&waitSeconds=1", "stream=stdout&offset=0",
		"stream=%00", "offset=-1&stream=stderr", ";", "%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		for _, route := range []string{"watch", "logs"} {
			d := &fakeBackend{}
			face := newProxyEnv(t, d).undescribed()
			face.doc = nil
			call := goodRequests[route]
			path, _, _ := strings.Cut(call.path, "?")
			req := httptest.NewRequest(orPost(call.method), path, strings.NewReader(call.body))
			req.URL.RawQuery = raw
			req.Header.Set("Authorization", "Bearer "+face.token())
			req.Header.Set("Content-Type", "text/plain")
			rec := httptest.NewRecorder()
			face.e.ServeHTTP(rec, req)
			if rec.Code != 200 && rec.Code != 400 {
				t.Fatalf("%s?%s: %d %s", route, raw, rec.Code, rec.Body)
			}
		}
	})
}

func orPost(method string) string {
	if method == "" {
		return "POST"
	}
	return method
}
