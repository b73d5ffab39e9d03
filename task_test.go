package picket_test

import (
	"testing"

	"github.com/picket-dev/picket"
)

// What a person edited takes the place of what was submitted, and the latest
// edit that of the ones before; an answer without one changes nothing.
func TestInputNow(t *testing.T) {
	task := picket.Task{Input: picket.RawJSON(`1`)}
	for _, step := range []struct{ edited, want string }{{"", `1`}, {"null", `1`}, {`2`, `2`}, {"null", `2`}, {`"three"`, `"three"`}} {
		task.Answers = append(task.Answers, picket.Answer{Input: picket.RawJSON(step.edited)})
		if got := string(task.InputNow()); got != step.want {
			t.Errorf("after an answer with the input %q the next run is given %s, want %s", step.edited, got, step.want)
		}
	}
}
