package batch

import (
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/calls"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// onlyOnce are verbs whose repeated call is not the same as one call, because the engine never sends it again.
var onlyOnce = []string{"submit", "grant", "advance", "delegate", "prompt_session", "send_message"}

// Calls of many cases share batches at random, in a store that one of the cases has set up. Every batch is as its calls
// one by one.
func TestRandomBatchesReal(t *testing.T) {
	s, rnd := rig.Real(t), rig.Random(t)
	cases := slices.DeleteFunc(calls.All(), func(c calls.Case) bool {
		return kit.Builtin(t).Verbs[c.Script()].Alone || slices.Contains(othersAtWork, c.Name)
	})
	batches := 0
	for range rig.SoakRounds(t, "random batches, rounds of 12", 8, 400) {
		onHistory(t, s, cases[rnd.IntN(len(cases))], true, func(h *history) {
			own := len(h.items)
			for _, c := range cases {
				if rnd.IntN(3) == 0 {
					h.recordAny(c)
				}
			}
			pool := h.items
			for range 12 {
				h.items = nil
				for range 2 + rnd.IntN(5) {
					i := rnd.IntN(len(pool))
					if rnd.IntN(3) == 0 {
						i = rnd.IntN(own)
					}
					verb := strings.TrimPrefix(pool[i][1], h.library.Function(""))
					if !slices.Contains(onlyOnce, verb) || !slices.ContainsFunc(h.items, func(words []string) bool {
						return &words[0] == &pool[i][0]
					}) {
						h.items = append(h.items, pool[i])
					}
				}
				h.breaking = rnd.IntN(len(h.items))
				h.compareEach(0)
				batches++
			}
		})
	}
	t.Logf("%d random batches", batches)
}

// recordAny records the call of a case that has another setup, if it makes one.
func (h *history) recordAny(c calls.Case) {
	h.t.Helper()
	defer func() { _ = recover() }() // the case may need what its setup makes
	defer h.w.Faults.Plan(nil)
	h.record(c.Script(), func() { _, _ = c.Call(h.w, h.w.Via) })
}
