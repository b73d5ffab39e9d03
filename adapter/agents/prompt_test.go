package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// promptSetup is a second run of a task, with everything that a prompt tells.
func promptSetup(p Preset) *Setup {
	timeout, stall, option := 7200, 900, "the release branch"
	e := NewSetup(p, Run{Lease: picket.Lease{
		Task: picket.LeaseTask{
			Title:             "fix the flaky test",
			Input:             picket.RawJSON(`"It fails on Mondays."`),
			ReviewNote:        "The test still fails.",
			TimeoutSeconds:    &timeout,
			StallAfterSeconds: &stall,
		},
		Answers:      []picket.Answer{{Question: "Which branch?", Option: &option}},
		PreviousExit: &picket.Exit{Class: picket.ExitTimeout},
		LastReport: &picket.Report{Seq: 3, Progress: picket.Progress{
			Summary:   "found the race",
			Beliefs:   []string{"it is in Close"},
			Attempted: []picket.Attempted{{Action: "run with -race", Outcome: "fails 1 in 5"}},
			NextStep:  "guard Close",
			Blockers:  []string{"no Windows machine"},
		}},
	}})
	e.Remaining = budget.Money(500_000_000)
	return e
}

// The prompt is what an agent reads, so a change of it is looked at.
func TestPrompt(t *testing.T) {
	file := filepath.Join("testdata", "prompt.golden")
	got := promptSetup(PresetClaude).prompt()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the prompt is\n%s\nwant\n%s\nUPDATE_GOLDEN=1 writes it to %s", got, want, file)
	}
}

func TestDurationText(t *testing.T) {
	for seconds, want := range map[int]string{
		7200: "2h", 1800: "30m", 5400: "1h30m", 90: "1m30s", 1: "1s", 3601: "1h0m1s",
	} {
		if got := durationText(seconds); got != want {
			t.Errorf("%d s are %q, want %q", seconds, got, want)
		}
	}
}

// The standing instructions come before a task and before a prompt, and do not count for the bound of a task.
func TestInstructionsComeFirst(t *testing.T) {
	e := promptSetup(PresetClaude)
	task := e.prompt()
	e.run.Lease.Instructions = "Never push."
	want := "Standing instructions of your operators, which hold for all that you do:\nNever push.\n" +
		"(end of the standing instructions)\n\n"
	if got := e.prompt(); got != want+task {
		t.Errorf("the prompt is %.200s", got)
	}
	if got := WithInstructions("Never push.", "hello"); got != want+"hello" {
		t.Errorf("the prompt is %q", got)
	}
	if got := WithInstructions("", "hello"); got != "hello" {
		t.Errorf("without instructions it is %q", got)
	}
	e.run.Lease.Task.Input = picket.RawJSON(`"` + strings.Repeat("x", 2*maxPrompt) + `"`)
	e.run.Lease.Instructions = strings.Repeat("y", 16<<10)
	if got := e.prompt(); len(got) > 128<<10 || !strings.Contains(got, e.run.Lease.Instructions) {
		t.Errorf("a long task with long instructions has %d bytes", len(got))
	}
}
