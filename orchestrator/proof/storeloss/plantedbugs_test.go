package storeloss

import (
	"strings"
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
		swap    []string // texts and what stands in their place
	}{
		{"no floor", "tokens rise", []string{
			"math.max(num(t.token), floor) + 1", "num(t.token) + 1",
			"if mine <= floor and not reclaiming then", "if false then",
		}},
		{"void tokens are let in", "no write under a void token",
			[]string{"if mine <= floor and not reclaiming then", "if false then"}},
		{"sequence numbers go on from what the store remembers", "no sequence number is used twice", []string{
			"F(math.max(num(meta.seq), num(ARGV[7])))", "F(num(meta.seq))",
		}},
		{"no grace", "the grace is 30 s", []string{"if due and num(due) <= now then", "if due then"}},
		{"an adoption counts a failure", "what nobody reclaims ends without a failure", []string{
			"local FAILURE = { ", "local FAILURE = { store_adopted = true, ",
		}},
	} {
		t.Run(bug.name, func(t *testing.T) {
			l := newLossHistory(t, plantEdits(t, bug.swap...))
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
	f := newFailoverHistory(t, plantEdits(t, "math.max(num(t.token), floor) + 1", "num(t.token) + 1",
		"if mine <= floor and not reclaiming then", "if false then"))
	for i := 0; i < 20 && f.l.promises.brokenCount("tokens rise") == 0; i++ {
		f.round(i)
	}
	if f.l.promises.brokenCount("tokens rise") == 0 {
		t.Fatalf("nothing was found: %v", f.l.promises.broken)
	}
	t.Logf("found: %s", f.l.promises.example("tokens rise"))
}

// plantEdits puts bugs into the scripts of a store: texts, each followed by what
// stands in its place.
func plantEdits(t *testing.T, swap ...string) func(*orchestrator.Store) {
	return func(s *orchestrator.Store) {
		found := map[string]bool{}
		kit.Rewrite(s, func(source string) string {
			for i := 0; i < len(swap); i += 2 {
				found[swap[i]] = found[swap[i]] || strings.Contains(source, swap[i])
				source = strings.ReplaceAll(source, swap[i], swap[i+1])
			}
			return source
		})
		for text, is := range found {
			if !is {
				t.Errorf("no script says %q any more, so the bug is planted nowhere", text)
			}
		}
	}
}
