package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// badPayloads is JSON that a lenient decoder takes and the API and the store do
// not.
var badPayloads = map[string]string{
	"a name twice":  `{"a":1,"a":2}`,
	"not UTF-8":     "{\"a\":\"\xff\"}",
	"deep":          strings.Repeat("[", 128) + strings.Repeat("]", 128),
	"two values":    `1},{"value":2`,
	"a second name": `1,"other":2`,
}

// What a person types is held to what the API takes, or one task nobody can be
// given keeps all behind it from being granted.
func TestInvalidPayloadsAreRefused(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		_, handoff := o.addHandoff("a question", twoOptions)
		page := "/console/handoffs/" + handoff
		for name, text := range badPayloads {
			if p := s.post("/console/tasks", "title", name, "input", text, "once", s.mustGet("/console/tasks/new").
				nonce(t)); p.status >= http.StatusInternalServerError {
				t.Errorf("input with %s: %d", name, p.status)
			}
			for _, fields := range [][]string{{"answer", "answer", "so", "edit", "1", "input", text, "inputAs", "json"},
				{"finish", "output", text, "as", "json"}} {
				if p := s.submit(page, page+"/"+fields[0], fields[1:]...); p.status != http.StatusBadRequest {
					t.Errorf("%s with %s: %d", fields[0], name, p.status)
				}
			}
		}
		if p := s.post("/console/tasks", "title", "t\xff", "once", s.mustGet("/console/tasks/new").
			nonce(t)); p.status != http.StatusBadRequest {
			t.Errorf("a title that is not UTF-8: %d", p.status)
		}
		made, err := o.Tasks(t.Context(), picket.TaskQuery{States: []picket.TaskState{picket.TaskQueued}})
		must(t, err)
		for range made.Tasks { // one at a time
			leases, err := o.Acquire(t.Context(), picket.Caller{Actor: "test"}, picket.AcquireRequest{AgentID: "b1"})
			if err != nil {
				t.Fatalf("the queue is blocked: %v", err)
			}
			for _, l := range leases {
				if text := string(l.Task.Input); !strings.HasPrefix(text, `"`) {
					t.Errorf("%s goes out as %.40s", l.Task.Title, text)
				}
			}
		}
		if len(made.Tasks) == 0 {
			t.Error("nothing was submitted")
		}
	})
}

// Indenting makes a deep structure a hundred times as long: it is shown as it
// came, on the lists and at full length too.
func TestDeepStructuresStayAsLongAsTheyAre(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		deep := picket.RawJSON(strings.Repeat("[", 120) + strings.Repeat("1,", 130_000) + "1" +
			strings.Repeat("]", 120))
		task := o.addReview(picket.TaskSpec{Title: "deep", Input: deep}, picket.Completion{Output: deep})
		for _, path := range []string{"/console/", "/console/reviews", "/console/reviews/" + task,
			"/console/tasks/" + task, "/console/tasks/" + task + "/output",
			"/console/reviews/" + task + "/full/output", "/console/reviews/" + task + "/full/input"} {
			if p := s.mustGet(path); len(p.body) > 512<<10 {
				t.Errorf("%s has %d KiB", path, len(p.body)>>10)
			}
		}
		flat := o.addReview(picket.TaskSpec{Title: "flat"},
			picket.Completion{Output: picket.RawJSON(`{"a":[1,{"b":"x,[{"}]}`)})
		if p := s.mustGet("/console/reviews/" + flat +
			"/full/output"); p.body != "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"x,[{\"\n    }\n  ]\n}" {
			t.Errorf("what is usual is shown as %s", p.body)
		}
	})
}
