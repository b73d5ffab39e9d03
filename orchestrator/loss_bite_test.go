package orchestrator_test

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket/orchestrator"
)

// The suite of state loss bites: with each of these bugs planted into the
// scripts it reports the promise that the bug breaks.
func TestStateLossBitesReal(t *testing.T) {
	for _, bug := range []struct {
		name, promise string
		swap          []string // texts and what stands in their place
	}{
		{"no floor", "tokens rise", []string{
			"math.max(num(t.token), floor) + 1", "num(t.token) + 1",
			"if mine <= floor then", "if false then",
		}},
		{"void tokens are let in", "no write under a void token", []string{"if mine <= floor then", "if false then"}},
		{"sequence numbers go on from what the store remembers", "no sequence number is used twice", []string{
			"'seq', F(math.max(num(m[4]), num(ARGV[7])))", "'seq', F(num(m[4]))",
		}},
		{"no grace", "the grace is 30 s", []string{"if due and num(due) <= now then", "if due then"}},
		{"an adoption counts a failure", "what nobody reclaims ends without a failure", []string{
			"local FAILURE = { ", "local FAILURE = { store_adopted = true, ",
		}},
	} {
		t.Run(bug.name, func(t *testing.T) {
			l := newLosses(t, func(s *orchestrator.Store) {
				found := map[string]bool{}
				orchestrator.Rewrite(s, func(source string) string {
					for i := 0; i < len(bug.swap); i += 2 {
						found[bug.swap[i]] = found[bug.swap[i]] || strings.Contains(source, bug.swap[i])
						source = strings.ReplaceAll(source, bug.swap[i], bug.swap[i+1])
					}
					return source
				})
				if len(found)*2 != len(bug.swap) {
					t.Errorf("the bug is planted nowhere: %v", found)
				}
				for text, is := range found {
					if !is {
						t.Errorf("no script says %q any more", text)
					}
				}
			})
			l.graces = true
			cycles := 0
			for cycles < 60 && l.mem.times(bug.promise) == 0 {
				l.cycle(l.plan())
				cycles++
			}
			if l.mem.times(bug.promise) == 0 {
				t.Fatalf("after %d cycles: %v", cycles, l.mem.broken)
			}
			t.Logf("found in cycle %d: %s", cycles, l.mem.example(bug.promise))
		})
	}
}
