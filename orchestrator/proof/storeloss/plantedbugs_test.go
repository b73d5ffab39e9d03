package storeloss

import (
	"testing"

	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The suite of state loss bites: with each of these bugs planted into the
// scripts it reports the promise that the bug breaks.
func TestStateLossFindsPlantedBugsReal(t *testing.T) {
	for _, bug := range []struct {
		name    string
		promise string
		lines   []kit.MarkedLine
	}{
		{"no floor", "tokens rise", []kit.MarkedLine{{"token-rises", "local token = num(t.token) + 1"}, voidTokens}},
		{"void tokens are let in", "no write under a void token", []kit.MarkedLine{voidTokens}},
		{"sequence numbers go on from what the store remembers", "no sequence number is used twice",
			[]kit.MarkedLine{{"numbers-rise", "meta.seq = F(num(meta.seq))"}}},
		{"no grace", "the grace is 30 s",
			[]kit.MarkedLine{{"grace-is-over", "if due then return end_void_leases(actor, limit) end"}}},
		{"an adoption counts a failure", "what nobody reclaims ends without a failure",
			[]kit.MarkedLine{{"a-failure", "local FAILURE = { store_adopted = true, crash = true, timeout = true, stalled = true, no_result = true, agent_failed = true,"}}},
	} {
		t.Run(bug.name, func(t *testing.T) {
			l := newLossHistory(t, plantMarked(t, bug.lines...))
			l.graces = true
			cycles := 0
			for cycles < 60 && l.promises.brokenCount(bug.promise) == 0 {
				l.cycle(l.plan())
				cycles++
			}
			if l.promises.brokenCount(bug.promise) == 0 {
				t.Fatalf("after %d cycles: %v", cycles, l.promises.broken)
			}
			t.Logf("found in cycle %d: %s", cycles, l.promises.example(bug.promise))
		})
	}
}

// The suite of failovers bites, too: without a floor both sides of a cut give
// the same tokens.
func TestFailoverFindsPlantedBugsReal(t *testing.T) {
	f := newFailoverHistory(t, plantMarked(t, kit.MarkedLine{"token-rises", "local token = num(t.token) + 1"},
		voidTokens))
	for i := 0; i < 20 && f.l.promises.brokenCount("tokens rise") == 0; i++ {
		f.round(i)
	}
	if f.l.promises.brokenCount("tokens rise") == 0 {
		t.Fatalf("nothing was found: %v", f.l.promises.broken)
	}
	t.Logf("found: %s", f.l.promises.example("tokens rise"))
}

// voidTokens lets writes in that an adoption has made void.
var voidTokens = kit.MarkedLine{"above-floor", "if false then"}

// plantMarked puts bugs into the scripts of a store.
func plantMarked(t *testing.T, lines ...kit.MarkedLine) func(*orchestrator.Store) {
	changes, err := kit.PlantMarked(kit.LuaTexts(t), lines...)
	kit.OK(t, err)
	return func(s *orchestrator.Store) { kit.Rewrite(s, changes.Apply) }
}
