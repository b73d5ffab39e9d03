package invariants

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Damage rarely comes alone. Whatever comes together, a few passes repair all
// that can be repaired, and none of them makes it worse.
func TestRandomDamageIsRepaired(t *testing.T) {
	rig.SkipShort(t)
	seed := rig.Seed(t)
	kit.OnBothStores(t, func(t *testing.T, f *kit.Fixture) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		planted, repaired, passes := 0, 0, 0
		record, err := f.Raw.HGetAll(f.Ctx, kit.Meta).Result()
		kit.OK(t, err)
		rounds := rig.Rounds(30, 1000)
		for round := range rounds {
			// Fewer grants than the engine has seen would make it adopt the store,
			// which waits for the next second.
			granted := f.Raw.HGet(f.Ctx, kit.Meta, "granted").Val()
			kit.OK(t, f.Raw.FlushDB(f.Ctx).Err())
			kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, record).Err())
			kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "granted", granted).Err())
			s := NewInspectFixture(t, f)
			var story []string
			for range 1 + rnd.IntN(6) {
				d := randomDamage(rnd)
				d.Plant(s)
				planted++
				story = append(story, d.name())
			}
			n, fixed := s.repairUntilClean(fmt.Sprintf("round %d, %v", round, story))
			passes = max(passes, n)
			repaired += fixed
		}
		t.Logf("%d stores, %d damages, %d repairs, at most %d passes until nothing but alarms was left", rounds,
			planted, repaired, passes)
	})
}

// repairUntilClean repairs until a pass has nothing to repair.
func (s *inspectFixture) repairUntilClean(what string) (passes, repaired int) {
	s.t.Helper()
	for passes = 1; passes <= 4; passes++ {
		found := s.InspectPass(true)
		fixed := 0
		for _, v := range found {
			if v.Repaired {
				fixed++
			} else if picket.InvariantKinds[v.Kind] {
				s.t.Fatalf("%s: not repaired: %+v", what, v)
			}
		}
		if fixed == 0 {
			return passes, repaired
		}
		repaired += fixed
	}
	s.t.Fatalf("%s: still repairing after %d passes: %+v", what, passes-1, s.InspectPass(true))
	return 0, 0
}
