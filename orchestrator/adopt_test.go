package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// openProcess opens another process on the store of a fixture.
func (f *fixture) openProcess(t *testing.T, s rig.Store, cfg orchestrator.Config) *orchestrator.Store {
	t.Helper()
	cfg.Redis, cfg.Memory, cfg.Sealer, cfg.Log = s.Redis, s.Memory, f.sealer, slog.New(slog.DiscardHandler)
	store, err := orchestrator.Open(f.ctx, cfg)
	ok(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// stores runs a test on both kinds of store, with what it needs to open more
// processes beside the first.
func stores(t *testing.T, test func(t *testing.T, f *fixture, s rig.Store)) {
	t.Helper()
	onBothStores(t, func(t *testing.T, f *fixture) { test(t, f, f.rigStore) })
}

func TestAHolderGoesOnAfterAnAdoption(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustSubmit(t, picket.TaskSpec{})
		l := f.acquireOne(t, picket.AcquireRequest{})
		h := f.openLease(t, l)
		f.adoptOnNewServer(t)
		stats, err := f.Stats(f.ctx)
		ok(t, err)
		if stats.Floor < 1<<21 || stats.AdoptedAt.IsZero() {
			t.Fatalf("floor %d, adopted %v", stats.Floor, stats.AdoptedAt)
		}
		// The agent shows the token it was given; nothing is asked of it.
		h.Fence = l.FencingToken
		_, err = f.Report(f.ctx, h, "", picket.Progress{Summary: "going on"})
		ok(t, err)
		task := f.wantState(t, l.TaskID, picket.TaskLeased)
		if task.FencingToken <= stats.Floor || task.LastReport.FencingToken != task.FencingToken {
			t.Fatalf("token %d, report under %d, floor %d", task.FencingToken, task.LastReport.FencingToken,
				stats.Floor)
		}
		again, err := f.Reclaim(f.ctx, h)
		ok(t, err)
		if again.FencingToken != task.FencingToken {
			t.Fatalf("a repeated reclaim moved the token from %d to %d", task.FencingToken, again.FencingToken)
		}
		_, err = f.Complete(f.ctx, h, picket.Completion{Summary: "done"})
		ok(t, err)
		if got := countEventsOf(t, f, picket.EventLeaseReclaimed); got != 1 {
			t.Fatalf("%d reclaims in the log", got)
		}
	})
}

// Either credential of a lease with two goes on after an adoption: the adapter
// reclaims, and the agent's calls go on.
func TestBothSidesGoOnAfterAnAdoption(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustSubmit(t, picket.TaskSpec{})
		l := f.acquireOne(t, picket.AcquireRequest{SeparateCredentials: true})
		f.adoptOnNewServer(t)
		again, err := f.Reclaim(f.ctx, f.openLease(t, l))
		ok(t, err)
		agent, err := f.sealer.OpenLeaseToken(l.AgentToken.Reveal())
		ok(t, err)
		reported, err := f.Report(f.ctx, agent, "", picket.Progress{Summary: "going on"})
		ok(t, err)
		if task := f.wantState(t, l.TaskID, picket.TaskLeased); task.FencingToken != again.FencingToken {
			t.Errorf("token %d, reclaimed as %d, reported %+v", task.FencingToken, again.FencingToken, reported)
		}
	})
}

func countEventsOf(t *testing.T, f *fixture, kind string) int {
	t.Helper()
	page, err := f.Events(f.ctx, picket.EventQuery{Types: []string{kind}, Limit: 1000})
	ok(t, err)
	return len(page.Events)
}

// A lease that nobody reclaims ends 30 s of store time after the adoption, as
// no failure of the task; one that was reclaimed goes on.
func TestLeasesThatNobodyReclaimsEnd(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		window := ptr(600)
		f.mustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: window})
		f.mustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: window})
		kept, left := f.acquireOne(t, picket.AcquireRequest{}), f.acquireOne(t, picket.AcquireRequest{})
		f.mustRenew(t, kept)
		f.mustRenew(t, left)
		f.adoptOnNewServer(t)
		f.mustRenew(t, kept)
		f.runReaperFor(t, 29*time.Second)
		_, err := f.RunChores(f.ctx, 100)
		ok(t, err)
		f.wantState(t, left.TaskID, picket.TaskLeased)
		f.runReaperFor(t, 2*time.Second)
		_, err = f.RunChores(f.ctx, 100)
		ok(t, err)
		task := f.wantState(t, left.TaskID, picket.TaskQueued)
		if task.Failures != 0 || task.Runs[0].Exit.Class != picket.ExitStoreAdopted {
			t.Fatalf("%d failures, class %s", task.Failures, task.Runs[0].Exit.Class)
		}
		f.wantState(t, kept.TaskID, picket.TaskLeased)
		_, err = f.Reclaim(f.ctx, f.openLease(t, left))
		refused(t, err, picket.CodeLeaseExpired)
	})
}

func (f *fixture) mustRenew(t *testing.T, l picket.Lease) picket.Renewal {
	t.Helper()
	r, err := f.Renew(f.ctx, f.openLease(t, l))
	ok(t, err)
	return r
}

// Time that passed while the store was away costs no holder its lease.
func TestAnAdoptedLeaseOutlivesItsDeadline(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: ptr(10)})
		l := f.acquireOne(t, picket.AcquireRequest{})
		f.adoptOnNewServer(t)
		f.runReaperFor(t, 15*time.Second)
		if r := f.mustRenew(t, l); r.LeaseTTLMs < 9000 {
			t.Fatalf("reclaimed for %d ms only", r.LeaseTTLMs)
		}
	})
}

// What was ended is not revived by a reclaim.
func TestReclaimRevivesNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustSubmit(t, picket.TaskSpec{})
		l := f.acquireOne(t, picket.AcquireRequest{})
		_, err := f.Expire(f.ctx, operator, l.TaskID, "")
		ok(t, err)
		f.adoptOnNewServer(t)
		_, err = f.Reclaim(f.ctx, f.openLease(t, l))
		refused(t, err, picket.CodeLeaseExpired)
		next := f.acquireOne(t, picket.AcquireRequest{})
		_, err = f.Reclaim(f.ctx, f.openLease(t, l))
		refused(t, err, picket.CodeStaleFence)
		stats, err := f.Stats(f.ctx)
		ok(t, err)
		if next.FencingToken <= stats.Floor {
			t.Fatalf("granted %d at floor %d", next.FencingToken, stats.Floor)
		}
	})
}

// Witnesses differ: the higher one wins, no matter who meets the store first.
func TestWitnessesDiffer(t *testing.T) {
	stores(t, func(t *testing.T, f *fixture, s rig.Store) {
		floor := func(store *orchestrator.Store) int64 {
			stats, err := store.Engine("default").Stats(f.ctx)
			ok(t, err)
			return stats.Floor
		}
		dir := t.TempDir()
		behind := f.openProcess(t, s, orchestrator.Config{Witness: dir})
		if got := floor(behind); got != 0 {
			t.Fatalf("a server that joined raised the floor to %d", got)
		}
		f.adoptOnNewServer(t)
		raised := floor(f.store)
		f.mustSubmit(t, picket.TaskSpec{})
		leases, err := behind.Engine("default").Acquire(f.ctx, operator, picket.AcquireRequest{})
		ok(t, err)
		if len(leases) != 1 || leases[0].FencingToken != raised+1 {
			t.Fatalf("granted %v at floor %d", leases, raised)
		}
		if text, err := os.ReadFile(witnessFile(dir)); err != nil ||
			!strings.Contains(string(text), fmt.Sprint(raised)) {
			t.Fatalf("the floor used is not in the witness: %s %v", text, err)
		}
		// The store forgets the adoption; the witness does not.
		ok(t, f.raw.HSet(f.ctx, meta, "floor", "0").Err())
		f.mustSubmit(t, picket.TaskSpec{})
		leases, err = behind.Engine("default").Acquire(f.ctx, operator, picket.AcquireRequest{})
		ok(t, err)
		if got := leases[0].FencingToken; got <= raised+1<<21 {
			t.Fatalf("granted %d, witnessed floor %d", got, raised)
		}
	})
}

// A process without a witness serves nothing until another has adopted the
// store, and goes on automatically then.
func TestAFollowerWaitsForAnAdoption(t *testing.T) {
	stores(t, func(t *testing.T, f *fixture, s rig.Store) {
		ok(t, f.raw.HSet(f.ctx, meta, "identity", "another server").Err())
		follower := f.openProcess(t, s, orchestrator.Config{}).Engine("default")
		_, err := follower.Stats(f.ctx)
		refused(t, err, picket.CodeUnavailable)
		if errors.Is(err, picket.ErrUnknown) {
			t.Fatal("a refusal before anything was sent is not an unknown outcome")
		}
		ok(t, orchestrator.EnsureAdopted(f.ctx, f.Engine))
		_, err = follower.Stats(f.ctx)
		ok(t, err)
		_, err = follower.Acquire(f.ctx, operator, picket.AcquireRequest{})
		refused(t, err, picket.CodeUnavailable)
	})
}

// The floor is on disk before it is in the store: whichever write fails, no
// token is granted that could be granted again.
func TestAWitnessThatCannotBeWrittenGrantsNothing(t *testing.T) {
	for _, point := range []string{"witness.write", "witness.fsync", "witness.rename", "witness.dirsync",
		"redis.adopt.before", "redis.adopt.after"} {
		t.Run(point, func(t *testing.T) {
			stores(t, func(t *testing.T, f *fixture, s rig.Store) {
				broken := ""
				dir := t.TempDir()
				e := f.openProcess(t, s, orchestrator.Config{Witness: dir, Fault: func(at string) error {
					if at == broken {
						return errors.New("planted")
					}
					return nil
				}}).Engine("default")
				f.mustSubmit(t, picket.TaskSpec{})
				ok(t, f.raw.HSet(f.ctx, meta, "identity", "another server").Err())
				broken = point
				leases, err := e.Acquire(f.ctx, operator, picket.AcquireRequest{})
				broken = ""
				// An adoption whose reply was lost is found to have happened.
				if err == nil && point != "redis.adopt.after" {
					t.Fatalf("granted %v", leases)
				}
				if err == nil {
					f.mustSubmit(t, picket.TaskSpec{})
				}
				leases, err = e.Acquire(f.ctx, operator, picket.AcquireRequest{})
				ok(t, err)
				stats, err := e.Stats(f.ctx)
				ok(t, err)
				if leases[0].FencingToken != stats.Floor+1 {
					t.Fatalf("granted %d at floor %d", leases[0].FencingToken, stats.Floor)
				}
			})
		})
	}
}

func TestADamagedWitnessIsNotBelieved(t *testing.T) {
	dir := t.TempDir()
	s, stop := rig.Memory()
	defer stop()
	cfg := orchestrator.Config{
		Redis:   s.Redis,
		Memory:  true,
		Sealer:  rig.Sealer(),
		Witness: dir,
		Log:     slog.New(slog.DiscardHandler),
	}
	store, err := orchestrator.Open(t.Context(), cfg)
	ok(t, err)
	ok(t, store.Close())
	ok(t, os.WriteFile(witnessFile(dir), []byte(`{"namespace":"default","floor":`), 0o600))
	_, err = orchestrator.Open(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Fatalf("opened with a damaged witness: %v", err)
	}
}

// Without Found an unknown namespace may have existed once.
func TestTheFloorOfTheClock(t *testing.T) {
	s := rig.Real(t)
	open := func(witness string) int64 {
		store, err := orchestrator.Open(t.Context(),
			orchestrator.Config{
				Redis:   s.Redis,
				Sealer:  rig.Sealer(),
				Witness: witness,
				Log:     slog.New(slog.DiscardHandler),
			})
		ok(t, err)
		defer store.Close()
		stats, err := store.Engine("default").Stats(t.Context())
		ok(t, err)
		return stats.Floor
	}
	before := time.Since(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) / time.Second << 21
	if floor := open(t.TempDir()); floor < int64(before) || floor >= 1<<53 {
		t.Fatalf("floor %d, the clock's is %d", floor, before)
	}
}

// A connection that is made while an adoption is under way waits for it; a
// consumer of events reads of the adoption before anything that follows.
func TestConsumersReadOfTheAdoptionFirst(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustSubmit(t, picket.TaskSpec{})
		last, err := f.LastSeq(f.ctx)
		ok(t, err)
		ok(t, f.raw.FlushAll(f.ctx).Err())
		ctx, cancel := context.WithTimeout(f.ctx, time.Minute)
		defer cancel()
		f.mustSubmit(t, picket.TaskSpec{})
		page, err := f.Events(ctx, picket.EventQuery{After: last, Limit: 10})
		ok(t, err)
		if len(page.Events) != 2 || page.Events[0].Type != picket.EventStoreAdopted || page.Events[0].Seq <= last {
			t.Fatalf("after %d: %+v", last, page.Events)
		}
	})
}

// A witness that is lost while the process runs is put back; where it cannot
// be, readiness reports it.
func TestALostWitnessIsPutBack(t *testing.T) {
	stores(t, func(t *testing.T, f *fixture, s rig.Store) {
		dir := filepath.Join(t.TempDir(), "witness")
		e := f.openProcess(t, s, orchestrator.Config{Witness: dir}).Engine("default")
		ok(t, e.Tick(f.ctx))
		ok(t, e.Ready(f.ctx))
		path := witnessFile(dir)
		before, err := os.ReadFile(path)
		ok(t, err)
		ok(t, os.Remove(path))
		ok(t, e.Ready(f.ctx))
		if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
			t.Fatalf("the witness is %q, was %q (%v)", after, before, err)
		}
		ok(t, os.RemoveAll(dir))
		refused(t, e.Ready(f.ctx), picket.CodeUnavailable)
	})
}

// One namespace that nobody has founded yet does not keep a process from
// serving the others.
func TestAMissingNamespaceStandsAlone(t *testing.T) {
	stores(t, func(t *testing.T, f *fixture, s rig.Store) {
		both := f.openProcess(t, s, orchestrator.Config{Namespaces: []string{"default", "later"}})
		_, err := both.Engine("default").Stats(f.ctx)
		ok(t, err)
		_, err = both.Engine("later").Stats(f.ctx)
		refused(t, err, picket.CodeUnavailable)
		f.openProcess(t, s, orchestrator.Config{Namespaces: []string{"later"}, Witness: t.TempDir(), Found: true})
		_, err = both.Engine("later").Stats(f.ctx)
		ok(t, err)
	})
}
