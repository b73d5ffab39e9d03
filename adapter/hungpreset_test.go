//go:build unix

package adapter_test

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/agents"
)

// A coding agent that hangs is ended although neither its task nor its worker sets a limit. The
// defaults are used as they are, only shorter by a factor.
func TestAHungCodingAgentIsStalledByDefault(t *testing.T) {
	adapter.ScalePresetLimits(t, 450) // 15 minutes become 2 seconds
	r := newRecordedAgent(t, agents.PresetClaude, "exec sleep 600")
	v := r.run(t, r.task())
	if len(v.Runs) != 1 {
		t.Fatalf("%d runs", len(v.Runs))
	}
	if exit := v.Runs[0].Released; exit == nil || exit.Class != picket.ExitStalled {
		t.Errorf("the run ended as %+v", exit)
	}
}

// One that keeps printing is ended by the timeout.
func TestACodingAgentTimesOutByDefault(t *testing.T) {
	adapter.ScalePresetLimits(t, 2400) // 2 hours become 3 seconds; the silence would be below the least
	r := newRecordedAgent(t, agents.PresetCodex, "while :; do echo busy; sleep 1; done")
	r.cfg.StallAfter = -1
	v := r.run(t, r.task())
	if exit := v.Runs[0].Released; exit == nil || exit.Class != picket.ExitTimeout {
		t.Errorf("the run ended as %+v", exit)
	}
}
