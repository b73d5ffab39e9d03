package orchestrator_test

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/store"
)

func (f *fixture) setFormat(t *testing.T, format int) {
	t.Helper()
	ok(t, f.raw.HSet(f.ctx, meta, "format", format).Err())
}

func (f *fixture) format(t *testing.T) string {
	t.Helper()
	got, err := f.raw.HGet(f.ctx, meta, "format").Result()
	ok(t, err)
	return got
}

// A new namespace says its format from its first record on.
func TestANewStoreSaysItsFormat(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		if got := f.format(t); got != "1" {
			t.Errorf("format %q, want 1", got)
		}
	})
}

// A store that a later version has written is refused by every script, and
// none of them changes anything in it.
func TestEveryScriptRefusesANewerStore(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustSubmit(t, picket.TaskSpec{})
		f.acquireOne(t, picket.AcquireRequest{})
		f.setFormat(t, 2)
		before := metaAndAllKeys(t, f)
		sources := orchestrator.SourcesOf(f.rigStore.Memory)
		for _, name := range slices.Sorted(maps.Keys(sources)) {
			err := f.raw.Eval(f.ctx, sources[name], []string{meta}, "1", "1", "1", "1", "1", "1", "1", "1").Err()
			if err == nil || !strings.HasPrefix(err.Error(), "store_newer format=2 known=1") {
				t.Errorf("%s.lua: got %v, want store_newer", name, err)
			}
		}
		if after := metaAndAllKeys(t, f); before != after {
			t.Errorf("the store was changed:\n%s\n%s", before, after)
		}
	})
}

// A running process answers orchestrator_unavailable with the remedy, and goes
// on once the store has a format that it knows.
func TestARunningProcessStopsAtANewerStore(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustSubmit(t, picket.TaskSpec{})
		l := f.acquireOne(t, picket.AcquireRequest{})
		f.setFormat(t, 7)
		_, err := f.Renew(f.ctx, f.openLease(t, l))
		refusedAsNewer(t, err)
		refusedAsNewer(t, orchestrator.EnsureAdopted(f.ctx, f.Engine))
		f.setFormat(t, 1)
		f.mustRenew(t, l)
	})
}

func metaAndAllKeys(t *testing.T, f *fixture) string {
	t.Helper()
	text, err := dump(f.ctx, f.raw, nil)
	ok(t, err)
	return text
}

func refusedAsNewer(t *testing.T, err error) {
	t.Helper()
	refused(t, err, picket.CodeUnavailable)
	if text := err.Error(); !strings.Contains(text,
		"the store has format 7, and this version of picket knows formats up to 1") {
		t.Errorf("the error says %q", text)
	}
}

// No process starts on a newer store, whether it may adopt stores or not, and
// the namespace is not adopted on the way.
func TestNoProcessStartsOnANewerStore(t *testing.T) {
	stores(t, func(t *testing.T, f *fixture, s rig.Store) {
		f.setFormat(t, 7)
		for _, identity := range []string{"", "another server"} {
			if identity != "" {
				ok(t, f.raw.HSet(f.ctx, meta, "identity", identity).Err())
			}
			before := metaAndAllKeys(t, f)
			for _, witness := range []string{"", t.TempDir()} {
				store, err := orchestrator.Open(f.ctx,
					orchestrator.Config{Redis: s.Redis, Memory: s.Memory, Sealer: f.sealer, Witness: witness,
						Log: slog.New(slog.DiscardHandler)})
				if err == nil {
					_ = store.Close()
				}
				refusedAsNewer(t, err)
			}
			if after := metaAndAllKeys(t, f); before != after {
				t.Errorf("the store was changed:\n%s\n%s", before, after)
			}
		}
	})
}

// A store from before there were formats gets one, without an adoption: the
// leases in it go on.
func TestAStoreWithoutAFormatGetsOne(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustSubmit(t, picket.TaskSpec{})
		l := f.acquireOne(t, picket.AcquireRequest{})
		ok(t, f.raw.HDel(f.ctx, meta, "format").Err())
		ok(t, orchestrator.EnsureAdopted(f.ctx, f.Engine))
		ok(t, f.raw.HIncrBy(f.ctx, meta, "raw", -time.Second.Milliseconds()).Err())
		ok(t, f.Tick(f.ctx))
		if got := f.format(t); got != "1" {
			t.Errorf("format %q, want 1", got)
		}
		if r := f.mustRenew(t, l); r.FencingToken != l.FencingToken {
			t.Errorf("the token moved from %d to %d", l.FencingToken, r.FencingToken)
		}
	})
}

// An adoption writes the format as well.
func TestAnAdoptionWritesTheFormat(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		ok(t, f.raw.HDel(f.ctx, meta, "format").Err())
		f.adoptOnNewServer(t)
		ok(t, orchestrator.EnsureAdopted(f.ctx, f.Engine))
		if got := f.format(t); got != "1" {
			t.Errorf("format %q, want 1", got)
		}
	})
}

func TestCheckFormatReal(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.close()
	ok(t, store.CheckFormat(f.ctx, f.rigStore.Redis, []string{"default", "nobody-made-this"}))
	f.setFormat(t, 7)
	refusedAsNewer(t, store.CheckFormat(f.ctx, f.rigStore.Redis, []string{"default"}))
}
