package orchestrator_test

import (
	"fmt"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
	"github.com/picket-dev/picket/orchestrator/store"
)

// A state that is put back under a living server shows itself in the
// number of grants.
func TestAStateThatWasPutBackIsNoticed(t *testing.T) {
	f := openFixture(t, rig.Real(t)) // the store in memory cannot dump a hash
	defer f.Close()
	task := f.MustSubmit(t, picket.TaskSpec{})
	before := f.readAllKeys(t)
	first := f.AcquireOne(t, picket.AcquireRequest{})
	f.restoreKeys(t, before)
	second := f.AcquireOne(t, picket.AcquireRequest{})
	if second.TaskID != task.TaskID || second.FencingToken <= first.FencingToken+1<<20 {
		t.Fatalf("granted %d after %d", second.FencingToken, first.FencingToken)
	}
}

// Until an orchestrator notices the restore, processes that grant nothing use the state that was
// put back, even after an adoption. From then on, tokens are above all earlier ones.
func TestWhoGrantsNothingDoesNotNoticeAStatePutBack(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	proxy := f.OpenProcess(t, f.RigStore, orchestrator.Config{}).Engine("default")
	f.MustSubmit(t, picket.TaskSpec{})
	l := f.AcquireOne(t, picket.AcquireRequest{})
	before := f.readAllKeys(t)
	f.AdoptOnNewServer(t)
	reclaimed := f.MustRenew(t, l).FencingToken
	f.restoreKeys(t, before)
	told, err := proxy.Renew(f.Ctx, f.OpenLease(t, l))
	kit.OK(t, err)
	if told.FencingToken != l.FencingToken || reclaimed <= l.FencingToken {
		t.Errorf("granted %d, reclaimed %d, then told %d", l.FencingToken, reclaimed, told.FencingToken)
	}
	_, err = f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{})
	kit.OK(t, err)
	told, err = proxy.Renew(f.Ctx, f.OpenLease(t, l))
	kit.OK(t, err)
	if told.FencingToken <= reclaimed {
		t.Errorf("reclaimed %d, and after it was noticed %d", reclaimed, told.FencingToken)
	}
}

// readAllKeys is every key as it is stored.
func (f *fixture) readAllKeys(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, key := range f.Raw.Keys(f.Ctx, "*").Val() {
		value, err := f.Raw.Dump(f.Ctx, key).Result()
		kit.OK(t, err)
		out[key] = value
	}
	return out
}

// restoreKeys is what restoring a backup into a running server does.
func (f *fixture) restoreKeys(t *testing.T, keys map[string]string) {
	t.Helper()
	kit.OK(t, f.Raw.FlushAll(f.Ctx).Err())
	for key, value := range keys {
		kit.OK(t, f.Raw.Restore(f.Ctx, key, 0, value).Err())
	}
}

// A store that was emptied and founded again by somebody who knew nothing of it
// is another one, even though both floors are 0.
func TestAReinitializedStoreIsAnotherOne(t *testing.T) {
	s := rig.Real(t)
	dir := t.TempDir()
	first := openFixture(t, s)
	joined := first.OpenProcess(t, s, orchestrator.Config{Witness: dir}) // its witness has seen floor 0 and no more
	first.MustSubmit(t, picket.TaskSpec{})
	last, err := joined.Engine("default").LastSeq(t.Context())
	kit.OK(t, err)
	kit.OK(t, joined.Close())
	first.Close()
	f := openFixture(t, s) // for its raw client
	defer f.Close()
	kit.OK(t, f.Raw.FlushAll(t.Context()).Err())
	f.OpenProcess(t, s, orchestrator.Config{Witness: t.TempDir(), Found: true})
	back := f.OpenProcess(t, s, orchestrator.Config{Witness: dir, Found: true}).Engine("default")
	stats, err := back.Stats(t.Context())
	kit.OK(t, err)
	if stats.Floor < 1<<21 || stats.LastSeq <= last {
		t.Fatalf("floor %d, sequence %d after %d", stats.Floor, stats.LastSeq, last)
	}
}

// A witness file that is damaged while the process runs is written again from
// what the process knows.
func TestAWitnessDamagedWhileRunningIsRewritten(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		dir := t.TempDir()
		e := f.OpenProcess(t, f.RigStore, orchestrator.Config{Witness: dir}).Engine("default")
		kit.OK(t, e.Tick(f.Ctx))
		path := kit.WitnessFile(dir)
		kit.OK(t, os.WriteFile(path, []byte("{"), 0o600))
		kit.OK(t, e.Ready(f.Ctx))
		if floor, known, err := store.WitnessedFloor(dir, "default", storeIdentity(t, e)); err != nil ||
			!known ||
			floor != 0 {
			t.Fatalf("floor %d, known %v, %v", floor, known, err)
		}
	})
}

func storeIdentity(t *testing.T, e *orchestrator.Engine) string {
	t.Helper()
	stats, err := e.Stats(t.Context())
	kit.OK(t, err)
	return stats.StoreID
}

// Two stores whose servers share a directory do not disturb each other.
func TestTwoStoresShareADirectory(t *testing.T) {
	dir := t.TempDir()
	var engines []*orchestrator.Engine
	for i := range 2 {
		s := rig.Real(t)
		s.Redis.Addrs = []string{fmt.Sprint("store", i, ":6379")}
		f := openFixture(t, s)
		defer f.Close()
		engines = append(engines, f.OpenProcess(t, s, orchestrator.Config{Witness: dir}).Engine("default"))
		kit.OK(t, f.Tick(t.Context()))
	}
	for range 3 {
		for _, e := range engines {
			kit.OK(t, e.Ready(t.Context()))
			stats, err := e.Stats(t.Context())
			kit.OK(t, err)
			if stats.Floor != 0 {
				t.Fatalf("%s was adopted for nothing", stats.StoreID)
			}
		}
	}
}

// A holder that was told a token by a store that is lost may go on showing it.
func TestATokenOfALostStoreMayBeShown(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	f.MustSubmit(t, picket.TaskSpec{})
	l := f.AcquireOne(t, picket.AcquireRequest{})
	f.AdoptOnNewServer(t)
	before := f.readAllKeys(t)
	h := f.OpenLease(t, l)
	h.Fence = f.MustRenew(t, l).FencingToken // of a reclaim that is lost
	f.restoreKeys(t, before)
	kit.OK(t, f.Raw.HSet(t.Context(), kit.Meta, "identity", "another server").Err())
	for range 2 {
		_, err := f.Report(t.Context(), h, "", picket.Progress{Summary: "going on"})
		kit.OK(t, err)
	}
	h.Fence += 1 << 40
	_, err := f.Report(t.Context(), h, "", picket.Progress{Summary: "never granted"})
	kit.Refused(t, err, picket.CodeUnknownFence)
}

// Two processes know nothing but the time. The second adopts the store after it
// has lost the adoption of the first, in the same second. Its floor is higher.
func TestFloorsRiseWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := rig.Memory()
		defer stop()
		raw := rig.Hashes(redis.NewUniversalClient(&s.Redis))
		defer raw.Close()
		last := int64(0)
		for range 3 {
			cfg := orchestrator.Config{
				Redis:   s.Redis,
				Memory:  s.Memory,
				Sealer:  rig.Sealer(),
				Witness: t.TempDir(),
				Log:     slog.New(slog.DiscardHandler),
			}
			cfg.Now = func() time.Time { return time.Now().AddDate(30, 0, 0) }
			store, err := orchestrator.Open(t.Context(), cfg)
			kit.OK(t, err)
			stats, err := store.Engine("default").Stats(t.Context())
			kit.OK(t, err)
			store.Close()
			if stats.Floor <= last {
				t.Errorf("floor %d after %d", stats.Floor, last)
			}
			last = stats.Floor
			kit.OK(t, raw.FlushAll(t.Context()).Err())
		}
	})
}
