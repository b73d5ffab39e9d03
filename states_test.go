package picket

import "testing"

func TestTerminalStatesAreFrozen(t *testing.T) {
	reached := map[TaskState]bool{TaskQueued: true}
	TaskTransitions(func(from TaskState, verb string, to TaskState) {
		if from.Terminal() {
			t.Errorf("%s leads from %s to %s, but a closed task is frozen", verb, from, to)
		}
		if from != "" && !from.Valid() || !to.Valid() {
			t.Errorf("%s: %s -> %s is not between states", verb, from, to)
		}
		if !CanTransition(from, verb, to) {
			t.Errorf("%s: %s -> %s is listed but not allowed", verb, from, to)
		}
		reached[to] = true
	})
	for _, s := range TaskStates {
		if !reached[s] {
			t.Errorf("nothing leads to %s", s)
		}
	}
	if CanTransition(TaskCompleted, "retry", TaskQueued) || CanTransition(TaskQueued, "complete", TaskReview) ||
		CanTransition(TaskQueued, "nothing", TaskQueued) {
		t.Error("an illegal move is allowed")
	}
}
