package orchestrator_test

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// A state that is put back under a living server shows itself in the
// number of grants.
func TestAStateThatWasPutBackIsNoticed(t *testing.T) {
	f := open(t, rig.Real(t)) // the store in memory cannot dump a hash
	defer f.close()
	task := f.submit(t, picket.TaskSpec{})
	before := f.dump(t)
	first := f.lease(t, picket.AcquireRequest{})
	f.putBack(t, before)
	second := f.lease(t, picket.AcquireRequest{})
	if second.TaskID != task.TaskID || second.FencingToken <= first.FencingToken+1<<20 {
		t.Fatalf("granted %d after %d", second.FencingToken, first.FencingToken)
	}
}

// dump is every key as it is stored.
func (f *fixture) dump(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, key := range f.raw.Keys(f.ctx, "*").Val() {
		value, err := f.raw.Dump(f.ctx, key).Result()
		ok(t, err)
		out[key] = value
	}
	return out
}

// putBack is what restoring a backup into a running server does.
func (f *fixture) putBack(t *testing.T, keys map[string]string) {
	t.Helper()
	ok(t, f.raw.FlushAll(f.ctx).Err())
	for key, value := range keys {
		ok(t, f.raw.Restore(f.ctx, key, 0, value).Err())
	}
}
