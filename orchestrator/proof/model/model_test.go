package model

import (
	"fmt"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func TestModelVirtual(t *testing.T) {
	rig.SkipShort(t)
	flags := kit.NewRapidFlags(t)
	// rapid stops after a day, which on the virtual clock is a minute of ours:
	// every portion has a clock and a seed of its own.
	const portion = 200
	for left, seed := flags.Checks, flags.Seed; left > 0 && !t.Failed(); left, seed = left-portion, seed+1 {
		flags.Set("rapid.checks", fmt.Sprint(min(left, portion)))
		flags.Set("rapid.seed", fmt.Sprint(seed))
		flags.Log()
		synctest.Test(t, func(t *testing.T) {
			// A test in a bubble may not ask for its deadline: rapid gets one that has none.
			rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) {
				store, stop := rig.Memory()
				defer stop()
				Run(rt, store, "default", true, &kit.NoPatch)
			})
		})
	}
}

func TestModelReal(t *testing.T) {
	kit.NewRapidFlags(t).Log()
	store := rig.Real(t)
	n := 0
	defer kit.LifecycleTotals.Log(t)
	rapid.Check(t, func(rt *rapid.T) {
		n++
		Run(rt, store, fmt.Sprintf("model-%d", n), false, &kit.NoPatch)
	})
}
