package moves

import (
	"testing"

	"github.com/picket-dev/picket"
)

func TestTerminalStatesAreFrozen(t *testing.T) {
	reached := map[picket.TaskState]bool{picket.TaskQueued: true}
	TaskTransitions(func(from picket.TaskState, verb string, to picket.TaskState) {
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
	for _, s := range picket.TaskStates {
		if !reached[s] {
			t.Errorf("nothing leads to %s", s)
		}
	}
	if CanTransition(picket.TaskCompleted, "retry", picket.TaskQueued) ||
		CanTransition(picket.TaskQueued, "complete", picket.TaskReview) ||
		CanTransition(picket.TaskQueued, "nothing", picket.TaskQueued) {
		t.Error("an illegal move is allowed")
	}
}
