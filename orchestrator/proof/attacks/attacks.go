package attacks

import (
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// AttackPhase shows a planted bug to attacks that are the same every time, on a store
// of their own.
func AttackPhase(attacks ...func(*Attacker)) func(*testing.T, *kit.ScriptPatch) kit.Verdict {
	return func(t *testing.T, bug *kit.ScriptPatch) (v kit.Verdict) {
		synctest.Test(t, func(t *testing.T) {
			v = kit.CheckProperty(t, func(rt *rapid.T, n int) {
				if n > 1 {
					return // once is enough
				}
				s, stop := rig.Memory()
				defer stop()
				runAttacks(rt, s, "default", SmallQuotas, bug, attacks...)
			})
		})
		return v
	}
}
