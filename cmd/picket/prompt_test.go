package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// TestEndOfInputAtAQuestion is a Ctrl-D at "answer>": nothing typed later could
// arrive, so the prompt goes and the command to answer with is told.
func TestEndOfInputAtAQuestion(t *testing.T) {
	var out bytes.Buffer
	cmd := newRoot()
	cmd.SetErr(&out)
	a := &attachment{cmd: cmd, line: newLiveLine(&out), prompt: newPrompt(strings.NewReader(""), &out)}
	a.prompt.possible = true
	a.task = picket.Task{State: picket.TaskHandoff, Handoff: &picket.Handoff{
		HandoffID: "handoff_1", State: picket.HandoffOpen, Kind: picket.HandoffQuestion, Question: "Which?", Options: []string{"this"},
	}}
	a.question()
	if _, open := <-a.prompt.lines; open {
		t.Fatal("an empty input had a line")
	}
	a.unanswered()
	if got := out.String(); a.prompt.open || !strings.Contains(got, "the question stands") || !strings.Contains(got, "picket handoff answer handoff_1 --option 1") {
		t.Errorf("prompt open %v, said %q", a.prompt.open, got)
	}
	a.said.handoff = ""
	if a.question(); a.prompt.open {
		t.Error("asked again, where nobody can answer")
	}
}
