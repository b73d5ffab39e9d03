package orchestrator_test

import (
	"slices"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// wantOneWake lets minutes pass. The scheduler has to wake the session once, for an occasion.
func (f *fixture) wantOneWake(t *testing.T, n int64, id, occasion string) {
	t.Helper()
	before := f.wakeRows(t)
	woken := 0
	for range 8 {
		f.cycleAfter(t, n, id, 70*time.Second)
		if f.takeWake(t, n) {
			woken++
		}
	}
	rows, want := f.wakeRows(t), "sent/wake_sent scheduler "+occasion+" x1"
	if woken != 1 || !slices.Contains(rows[:max(0, len(rows)-len(before))], want) {
		t.Errorf("the session is woken %d times, rows %q", woken, rows)
	}
}

// Each task that comes wakes the session once, also if as many tasks waited at the wake before.
func TestTheSchedulerWakesForEachTask(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		for range 2 {
			f.MustSubmit(t, picket.TaskSpec{})
			f.wantOneWake(t, n, id, "work")
			_, err := f.Complete(f.Ctx, f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})),
				picket.Completion{})
			kit.OK(t, err)
		}
	})
}

// A person who wakes a session shows it the work that waits. The scheduler does not wake it again for that.
func TestAWakeByAPersonShowsTheWork(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		f.MustSubmit(t, picket.TaskSpec{})
		f.wantOneWake(t, n, id, "work")
		for range 2 { // the second wake shows a task more
			d, err := f.wakeWith(t, n, picket.PromptAccepted, "")
			kit.OK(t, err)
			kit.OK(t, f.result(n, d.WakeID, picket.PromptAnswered, ""))
			for range 4 {
				f.cycleAfter(t, n, id, 40*time.Minute)
				if got := f.pendingWakes(t, n); len(got) != 0 {
					t.Fatalf("the session is woken again: %+v, rows %q", got, f.wakeRows(t))
				}
			}
			f.MustSubmit(t, picket.TaskSpec{})
		}
		f.wantOneWake(t, n, id, "work")
	})
}

// Each answer of a person wakes the session for which the task waits after that.
func TestTheSchedulerWakesForEachAnswer(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		f.MustSubmit(t, picket.TaskSpec{})
		for range 2 {
			held := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
			help, err := f.RequestHelp(f.Ctx, held, picket.HelpRequest{Question: "?"})
			kit.OK(t, err)
			_, err = f.Answer(f.Ctx, kit.Operator, help.HandoffID,
				picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)})
			kit.OK(t, err)
			f.wantOneWake(t, n, id, "handoff")
		}
	})
}
