package orchestrator_test

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// A store that was emptied, or that came back with an older state, gives no
// incarnation twice: whoever held one before is not taken for a later one.
func TestIncarnationsRiseWhenTheStoreForgetsReal(t *testing.T) {
	f := open(t, rig.Real(t))
	defer f.close()
	f.register(t, picket.Registration{AgentID: "a1"})
	older, err := f.raw.HGetAll(f.ctx, meta).Result()
	ok(t, err)
	last := f.register(t, picket.Registration{AgentID: "a2"}).Incarnation
	for _, lose := range []func(){
		func() {
			ok(t, f.raw.HSet(f.ctx, meta, older).Err())
			ok(t, f.raw.HSet(f.ctx, meta, "identity", "another server").Err())
		},
		func() { ok(t, f.raw.FlushDB(f.ctx).Err()) },
	} {
		lose()
		ok(t, orchestrator.Greet(f.ctx, f.Engine))
		a := f.register(t, picket.Registration{AgentID: "later"})
		if a.Incarnation <= last {
			t.Errorf("incarnation %d was given after %d", a.Incarnation, last)
		}
		last = a.Incarnation
		_, err := f.Deregister(f.ctx, owner, "later", nil)
		ok(t, err)
	}
	mustHold(t, f.Engine)
}
