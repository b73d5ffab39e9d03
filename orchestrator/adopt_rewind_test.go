package orchestrator_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
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

// A store that was emptied and founded anew by somebody who knew nothing of it
// is another one, even though both floors are 0.
func TestAStoreFoundedAnewIsAnotherOne(t *testing.T) {
	s := rig.Real(t)
	dir := t.TempDir()
	first := open(t, s)
	joined := first.beside(t, s, orchestrator.Config{Witness: dir}) // its witness has seen floor 0 and no more
	first.submit(t, picket.TaskSpec{})
	last, err := joined.Engine("default").LastSeq(t.Context())
	ok(t, err)
	ok(t, joined.Close())
	first.close()
	f := open(t, s) // for its raw client
	defer f.close()
	ok(t, f.raw.FlushAll(t.Context()).Err())
	f.beside(t, s, orchestrator.Config{Witness: t.TempDir(), Found: true})
	back := f.beside(t, s, orchestrator.Config{Witness: dir, Found: true}).Engine("default")
	stats, err := back.Stats(t.Context())
	ok(t, err)
	if stats.Floor < 1<<21 || stats.LastSeq <= last {
		t.Fatalf("floor %d, sequence %d after %d", stats.Floor, stats.LastSeq, last)
	}
}

// A witness file that is damaged while the process runs is written anew from
// what the process knows.
func TestAWitnessDamagedAtWorkIsWrittenAnew(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		dir := t.TempDir()
		e := f.beside(t, f.where, orchestrator.Config{Witness: dir}).Engine("default")
		ok(t, e.Tick(f.ctx))
		path := filepath.Join(dir, "default.json")
		ok(t, os.WriteFile(path, []byte("{"), 0o600))
		ok(t, e.Ready(f.ctx))
		if floor, known, err := orchestrator.WitnessedFloor(dir, "default"); err != nil || !known || floor != 0 {
			t.Fatalf("floor %d, known %v, %v", floor, known, err)
		}
	})
}
