package orchestrator_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The cost of a heartbeat does not depend on how many agents there are. Neither does the work of a
// reaper while all of them are healthy. Both are measured by the server's own count of commands,
// including those inside scripts, which has no noise.
func TestAgentsCostTheSameInAnyNumberReal(t *testing.T) {
	const calls = 40
	var beats, ticks []map[string]int
	for _, n := range []int{10, 2_000} {
		f := openFixture(t, rig.Real(t))
		defer f.Close()
		for i := range n {
			_, err := f.Register(f.Ctx, kit.Operator,
				picket.Registration{AgentID: fmt.Sprintf("agent-%d", i), RoleID: fmt.Sprintf("role-%d", i%7)})
			kit.OK(t, err)
		}
		round := func(do func(i int)) map[string]int {
			do(0) // loads the scripts
			before := commandCalls(t, f.Raw)
			for i := range calls {
				do(i)
			}
			spent := commandCalls(t, f.Raw)
			maps.DeleteFunc(spent, func(name string, _ int) bool {
				spent[name] -= before[name]
				return spent[name] == 0 || name == "info"
			})
			// Store time is written when a tenth of a second has passed since the
			// last call: that is one more, however many agents there are.
			if spent["hset"] > 2*calls {
				t.Errorf("%d writes in %d calls", spent["hset"], calls)
			}
			delete(spent, "hset")
			return spent
		}
		beats = append(beats, round(func(i int) {
			_, err := f.Heartbeat(f.Ctx, kit.Operator, fmt.Sprintf("agent-%d", i*n/calls),
				picket.Heartbeat{Status: picket.AgentActive, ClientTimestamp: picket.Instant(time.Now().UnixMilli())})
			kit.OK(t, err)
		}))
		ticks = append(ticks, round(func(int) {
			kit.OK(t, f.Tick(f.Ctx))
			judged, err := f.JudgeAgents(f.Ctx, 100)
			kit.OK(t, err)
			if judged != 0 {
				t.Errorf("%d healthy agents were judged", judged)
			}
		}))
	}
	for name, is := range map[string][]map[string]int{"heartbeats": beats, "ticks of a reaper": ticks} {
		if is[0]["fcall"] < calls || !maps.Equal(is[0], is[1]) {
			t.Errorf("%d %s among 10 agents cost %v, among 2,000 %v", calls, name, is[0], is[1])
		}
		t.Logf("%d %s: %v", calls, name, is[1])
	}
}
