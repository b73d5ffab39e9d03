//go:build linux

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// An agent whose money does not cover a call asks for more and stops. The person
// is told the command that helps, and the next run makes the call.
func TestAnAgentAsksForMoneyAndStops(t *testing.T) {
	w := newTestEnv(t)
	w.put("config/picket/picket.yaml", "tools:\n  prices: {exec: {call: 0.30}}\n")
	w.up()
	w.ok("run", "-d", "--budget", "0.10", "--title", "asks for money", "--", "sh", "-c",
		"picket tool exec --argv true && exec picket tool mark_complete --output 1\n"+
			"exec picket tool request_human_help --kind budget --question 'A call costs $0.30. May I have it?'")
	task := w.tasks()[0]
	w.of(task.TaskID, picket.EventTaskHandoff)
	h := w.task(task.TaskID).Handoff
	if h == nil || h.Kind != picket.HandoffBudget {
		t.Fatalf("the hand-off is %+v", h)
	}
	shown := w.cli("handoff", "show", h.HandoffID)
	for what, text := range map[string]string{
		"handoff show": shown.errOut,
		"task explain": w.ok("task", "explain", task.TaskID),
	} {
		if !strings.Contains(text, "picket budget top-up "+task.TaskID+" --usd ") {
			t.Errorf("%s does not say how to top up:\n%s", what, text)
		}
	}
	w.ok("budget", "top-up", task.TaskID, "--usd", "0.20") // which answers it, too
	w.until("the result of the next run", func() bool { return w.task(task.TaskID).State == picket.TaskReview })
	if spent := w.task(task.TaskID).Spent.USD; spent != budget.Money(300_000_000) {
		t.Errorf("spent %s, want $0.30", spent.Dollars())
	}
	// It still has to say how its agent ended, for which it needs the server.
	w.until("the end of its adapter", func() bool {
		return !slices.ContainsFunc(processesOf(w.dir),
			func(p string) bool { return strings.Contains(p, " --for-task ") })
	})
}
