package picket_test

import (
	"testing"

	"github.com/picket-dev/picket"
)

// What a person edited takes the place of what was submitted, and the latest
// edit that of the ones before; an answer without one changes nothing.
func TestCurrentInput(t *testing.T) {
	task := picket.Task{Input: picket.RawJSON(`1`)}
	for _, step := range []struct {
		edited string
		edits  bool
		want   string
	}{{"", false, `1`}, {"null", false, `1`}, {`2`, true, `2`}, {"null", false, `2`}, {`"three"`, true, `"three"`},
		{"null", true, "null"}, {"null", false, "null"}} {
		task.Answers = append(task.Answers, picket.Answer{Input: picket.RawJSON(step.edited), InputEdited: step.edits})
		if got := string(task.CurrentInput()); got != step.want {
			t.Errorf("after an answer with the input %q the next run is given %s, want %s", step.edited, got, step.want)
		}
	}
}

func TestDroppedReports(t *testing.T) {
	for want, list := range map[string][]picket.Report{
		"": {{Seq: 1}, {Seq: 2}},
		"the first 4 reports were dropped: a task keeps at most quota.reports reports, and fewer if they are long": {{Seq: 5}},
	} {
		if got := picket.DroppedReports(list); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := picket.DroppedReports(nil); got != "" {
		t.Errorf("without reports: %q", got)
	}
}
