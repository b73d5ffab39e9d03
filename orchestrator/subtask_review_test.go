package orchestrator_test

import (
	"testing"
)

// The run that delegated a task decides on what await_subtask has shown it.
func TestAParentDecidesOnWhatItWasShown(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) { f.ParentDecides(t) })
}
