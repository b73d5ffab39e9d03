package attach

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/picket-dev/picket"
)

// One notice a change, whatever else becomes of the task meanwhile.
func TestOneNoticePerChange(t *testing.T) {
	var mu sync.Mutex
	var told []string
	d := &desktopNotifier{show: func(title, text string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, title+" | "+text)
	}}
	asks := func(id, question string, kind picket.HandoffKind) picket.Task {
		return picket.Task{
			Title:   "tidy up",
			State:   picket.TaskHandoff,
			Handoff: &picket.Handoff{HandoffID: id, Kind: kind, Question: question, State: picket.HandoffOpen},
		}
	}
	for _, task := range []picket.Task{
		{State: picket.TaskQueued},
		{State: picket.TaskLeased},
		asks("handoff_1", "Which\x1b]0;x\a?", picket.HandoffQuestion),
		asks("handoff_1", "Which?", picket.HandoffQuestion),
		{State: picket.TaskLeased},
		asks("handoff_2", "More money?", picket.HandoffBudget),
		asks("handoff_3", "it failed", picket.HandoffEscalation),
		{Title: strings.Repeat("x", 300), State: picket.TaskReview, FencingToken: 3, Output: picket.RawJSON(`"a\nb"`)},
		{Title: "tidy up", State: picket.TaskReview, FencingToken: 3},
		{Title: "tidy up", State: picket.TaskFailed, Reason: "out of attempts"},
		{Title: "tidy up", State: picket.TaskFailed, Reason: "out of attempts"},
	} {
		d.taskChanged(task)
		d.wait()
	}
	d.handleEvent(picket.Event{Type: picket.EventHandoffOverdue}, picket.Task{Title: "tidy up"})
	d.handleEvent(picket.Event{Type: picket.EventTaskProgress}, picket.Task{Title: "tidy up"})
	d.wait()
	want := []string{
		"Picket: an agent asks | tidy up · Which]0;x?", "Picket: an agent asks | tidy up · More money?",
		"Picket: a task needs you | tidy up · it failed",
		"Picket: ready for review | " + strings.Repeat("x", 79) + "… · a b",
		"Picket: failed | tidy up · out of attempts",
		"Picket: still waits for an answer | tidy up · the time for it is over",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
}

// What agents wrote is never a part of a program or of its options.
func TestNoticeTextIsNeverExecuted(t *testing.T) {
	const hostile = `--x" & (do shell script "id") & "`
	if got := notifySendArgs("t", hostile); !slices.Equal(got[1:3], []string{"--", "t"}) ||
		strings.Contains(got[3], "& (") {
		t.Errorf("notify-send %q", got)
	}
	got := osascriptArgs("t", hostile)
	if i := slices.Index(got, "--"); i < 0 || got[len(got)-1] != hostile || slices.Index(got, hostile) < i {
		t.Errorf("osascript %q", got)
	}
}
