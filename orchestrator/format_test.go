package orchestrator_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
	"github.com/picket-dev/picket/orchestrator/store"
)

func (f *fixture) format(t *testing.T) string {
	t.Helper()
	got, err := f.Raw.HGet(f.Ctx, kit.Meta, "format").Result()
	kit.OK(t, err)
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
		f.MustSubmit(t, picket.TaskSpec{})
		f.AcquireOne(t, picket.AcquireRequest{})
		f.SetFormat(t, 2)
		before := metaAndAllKeys(t, f)
		for _, name := range kit.ScriptNames() {
			err := kit.CallRaw(f.Ctx, f.Raw, f.Store, f.RigStore, name, "1", "1", "1", "1", "1", "1", "1", "1")
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
		f.MustSubmit(t, picket.TaskSpec{})
		l := f.AcquireOne(t, picket.AcquireRequest{})
		f.SetFormat(t, 7)
		_, err := f.Renew(f.Ctx, f.OpenLease(t, l))
		kit.RefusedAsNewer(t, err)
		kit.RefusedAsNewer(t, kit.EnsureAdopted(f.Ctx, f.Engine))
		f.SetFormat(t, 1)
		f.MustRenew(t, l)
	})
}

func metaAndAllKeys(t *testing.T, f *fixture) string {
	t.Helper()
	text, err := kit.Dump(f.Ctx, f.Raw, nil)
	kit.OK(t, err)
	return text
}

// No process starts on a newer store, whether it may adopt stores or not, and
// the namespace is not adopted on the way.
func TestNoProcessStartsOnANewerStore(t *testing.T) {
	stores(t, func(t *testing.T, f *fixture, s rig.Store) {
		f.SetFormat(t, 7)
		for _, identity := range []string{"", "another server"} {
			if identity != "" {
				kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "identity", identity).Err())
			}
			before := metaAndAllKeys(t, f)
			for _, witness := range []string{"", t.TempDir()} {
				store, err := orchestrator.Open(f.Ctx,
					orchestrator.Config{Redis: s.Redis, Memory: s.Memory, Sealer: f.Sealer, Witness: witness,
						Log: slog.New(slog.DiscardHandler)})
				if err == nil {
					_ = store.Close()
				}
				kit.RefusedAsNewer(t, err)
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
		f.MustSubmit(t, picket.TaskSpec{})
		l := f.AcquireOne(t, picket.AcquireRequest{})
		kit.OK(t, f.Raw.HDel(f.Ctx, kit.Meta, "format").Err())
		kit.OK(t, kit.EnsureAdopted(f.Ctx, f.Engine))
		kit.OK(t, f.Raw.HIncrBy(f.Ctx, kit.Meta, "raw", -time.Second.Milliseconds()).Err())
		kit.OK(t, f.Tick(f.Ctx))
		if got := f.format(t); got != "1" {
			t.Errorf("format %q, want 1", got)
		}
		if r := f.MustRenew(t, l); r.FencingToken != l.FencingToken {
			t.Errorf("the token moved from %d to %d", l.FencingToken, r.FencingToken)
		}
	})
}

// An adoption writes the format as well.
func TestAnAdoptionWritesTheFormat(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		kit.OK(t, f.Raw.HDel(f.Ctx, kit.Meta, "format").Err())
		f.AdoptOnNewServer(t)
		kit.OK(t, kit.EnsureAdopted(f.Ctx, f.Engine))
		if got := f.format(t); got != "1" {
			t.Errorf("format %q, want 1", got)
		}
	})
}

func TestCheckFormatReal(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	kit.OK(t, store.CheckFormat(f.Ctx, f.RigStore.Redis, []string{"default", "nobody-made-this"}))
	f.SetFormat(t, 7)
	kit.RefusedAsNewer(t, store.CheckFormat(f.Ctx, f.RigStore.Redis, []string{"default"}))
}
