package orchestrator_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// acquireWithNewKey acquires n leases with a new key.
func (f *fixture) acquireWithNewKey(t *testing.T, n int) (key string) {
	t.Helper()
	k, err := f.CreateKey(f.ctx, operator, picket.KeyRequest{Name: "many", Scopes: []picket.Scope{picket.ScopeAgent}})
	ok(t, err)
	by := picket.Caller{Actor: k.KeyID, Key: k.KeyID}
	for i := range n {
		f.mustSubmit(t, picket.TaskSpec{Role: "many"})
		l, err := f.Acquire(f.ctx, by, picket.AcquireRequest{AgentID: fmt.Sprint("many-", i), Role: "many"})
		ok(t, err)
		if len(l) != 1 {
			t.Fatalf("leased %+v", l)
		}
	}
	return k.KeyID
}

// addOrphanLeases puts tasks that are gone into the list of a key, behind its leases.
func (f *fixture) addOrphanLeases(t *testing.T, key string, n int) {
	t.Helper()
	for i := range n {
		ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:leases-of:"+key,
			redis.Z{Score: 1e15, Member: fmt.Sprint("task_gone", i)}).Err())
	}
}

// The scanner looks at every lease of a key, in steps, also behind many that are
// as they should be.
func TestTheScannerSeesEveryLeaseOfAKey(t *testing.T) {
	rig.SkipShort(t)
	onBothStores(t, func(t *testing.T, f *fixture) {
		first := f.acquireWithNewKey(t, 1)
		many := f.acquireWithNewKey(t, 150)
		last := f.acquireWithNewKey(t, 2)
		for _, key := range []string{first, many, last} {
			f.addOrphanLeases(t, key, 3)
		}
		found, err := inspectAll(f.ctx, f.Engine, true)
		ok(t, err)
		if len(found) != 9 {
			t.Errorf("a pass found %d of 9 strays: %+v", len(found), found)
		}
		for key, want := range map[string]int64{first: 1, many: 150, last: 2} {
			if n := f.raw.ZCard(f.ctx, "pk:{default}:leases-of:"+key).Val(); n != want {
				t.Errorf("%d leases are listed with %s, want %d", n, key, want)
			}
		}
		f.addOrphanLeases(t, many, 3)
		for range 60 { // the reaper's small steps
			ok(t, f.InspectNext(f.ctx, 20))
		}
		if n := f.raw.ZCard(f.ctx, "pk:{default}:leases-of:"+many).Val(); n != 150 {
			t.Errorf("%d leases are listed after the steps of the reaper", n)
		}
		checkInvariants(t, f.Engine)
	})
}
