package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// unreadable is JSON that a lenient decoder takes and the API and the store do
// not.
var unreadable = map[string]string{
	"a name twice":  `{"a":1,"a":2}`,
	"not UTF-8":     "{\"a\":\"\xff\"}",
	"deep":          strings.Repeat("[", 128) + strings.Repeat("]", 128),
	"two values":    `1},{"value":2`,
	"a second name": `1,"other":2`,
}

// What a person types is held to what the API takes, or one task nobody can be
// given keeps all behind it from being granted.
func TestNoFormPoisonsTheQueue(t *testing.T) {
	open(t, func(t *testing.T, o *office) {
		s := o.sit(picket.ScopeOperator)
		_, handoff := o.asks("a question", which)
		page := "/console/handoffs/" + handoff
		for name, text := range unreadable {
			if p := s.post("/console/tasks", "title", name, "input", text, "once", s.want("/console/tasks/new").once(t)); p.status >= http.StatusInternalServerError {
				t.Errorf("input with %s: %d", name, p.status)
			}
			for _, fields := range [][]string{{"answer", "answer", "so", "edit", "1", "input", text, "inputAs", "json"}, {"finish", "output", text, "as", "json"}} {
				if p := s.submit(page, page+"/"+fields[0], fields[1:]...); p.status != http.StatusBadRequest {
					t.Errorf("%s with %s: %d", fields[0], name, p.status)
				}
			}
		}
		if p := s.post("/console/tasks", "title", "t\xff", "once", s.want("/console/tasks/new").once(t)); p.status != http.StatusBadRequest {
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
