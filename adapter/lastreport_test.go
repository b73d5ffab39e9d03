//go:build unix

package adapter_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/picket-dev/picket/adapter/agents"
)

// Every agent gets the last report of the run before, be its session continued or begun again. A
// coding agent reads it in its prompt, any other program in a file. The first run has none.
func TestEveryAgentGetsTheLastReport(t *testing.T) {
	for _, preset := range agents.Presets {
		for _, session := range []string{"continued", "begun again"} {
			if session == "continued" && !preset.CodingAgent() {
				continue
			}
			t.Run(fmt.Sprintf("%s, its session %s", preset, session), func(t *testing.T) {
				t.Parallel()
				script := "cp \"$PICKET_LAST_REPORT\" $OUT/last\n"
				if session == "continued" {
					script += "cat $RECORDED/" + string(preset) + "-done.jsonl\n"
				}
				r := newRecordedAgent(t, preset, script+"$TEST agent report && exec $TEST agent fail")
				if !preset.CodingAgent() {
					r.cfg.PicketPath = ""
				}
				task := r.task()
				for run := range 2 {
					r.run(t, task)
					told, args := r.read(t, "last"), r.args(t)
					if preset.CodingAgent() {
						told = strings.Join(args, "\n")
						if strings.Contains(strings.Join(args, " "), "You go on with the task") !=
							(session == "continued" && run == 1) {
							t.Errorf("run %d was started with %q", run+1, args)
						}
						checkRules(t, told)
					}
					if strings.Contains(told, "half way") != (run == 1) {
						t.Errorf("run %d was told %s", run+1, told)
					}
				}
			})
		}
	}
}

// checkRules looks for what a prompt teaches. Its whole text is in a golden file.
func checkRules(t *testing.T, prompt string) {
	t.Helper()
	for _, words := range []string{"report_progress at five moments", "delegate_subtask", "budget_exceeded",
		"await_top_up", `contains "nudge"`, "ended 2h after its start", "$1.00 left"} {
		if !strings.Contains(prompt, words) {
			t.Errorf("the prompt does not say %q: %s", words, prompt)
		}
	}
}
