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
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// stores runs a test on both kinds of store, with what it needs to open more
// processes beside the first.
func stores(t *testing.T, test func(t *testing.T, f *fixture, s rig.Store)) {
	t.Helper()
	onBothStores(t, func(t *testing.T, f *fixture) { test(t, f, f.RigStore) })
}

func TestAHolderGoesOnAfterAnAdoption(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		l := f.AcquireOne(t, picket.AcquireRequest{})
		h := f.OpenLease(t, l)
		f.AdoptOnNewServer(t)
		stats, err := f.Stats(f.Ctx)
		kit.OK(t, err)
		if stats.Floor < 1<<21 || stats.AdoptedAt.IsZero() {
			t.Fatalf("floor %d, adopted %v", stats.Floor, stats.AdoptedAt)
		}
		// The agent shows the token it was given; nothing is asked of it.
		h.Fence = l.FencingToken
		_, err = f.Report(f.Ctx, h, "", picket.Progress{Summary: "going on"})
		kit.OK(t, err)
		task := f.WantState(t, l.TaskID, picket.TaskLeased)
		if task.FencingToken <= stats.Floor || task.LastReport.FencingToken != task.FencingToken {
			t.Fatalf("token %d, report under %d, floor %d", task.FencingToken, task.LastReport.FencingToken,
				stats.Floor)
		}
		again, err := f.Reclaim(f.Ctx, h)
		kit.OK(t, err)
		if again.FencingToken != task.FencingToken {
			t.Fatalf("a repeated reclaim moved the token from %d to %d", task.FencingToken, again.FencingToken)
		}
		_, err = f.Complete(f.Ctx, h, picket.Completion{Summary: "done"})
		kit.OK(t, err)
		if got := kit.CountEventsOf(t, f.Fixture, picket.EventLeaseReclaimed); got != 1 {
			t.Fatalf("%d reclaims in the log", got)
		}
	})
}

// Either credential of a lease with two goes on after an adoption: the adapter
// reclaims, and the agent's calls go on.
func TestBothSidesGoOnAfterAnAdoption(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		l := f.AcquireOne(t, picket.AcquireRequest{SeparateCredentials: true})
		f.AdoptOnNewServer(t)
		again, err := f.Reclaim(f.Ctx, f.OpenLease(t, l))
		kit.OK(t, err)
		agent, err := f.Sealer.OpenLeaseToken(l.AgentToken.Reveal())
		kit.OK(t, err)
		reported, err := f.Report(f.Ctx, agent, "", picket.Progress{Summary: "going on"})
		kit.OK(t, err)
		if task := f.WantState(t, l.TaskID, picket.TaskLeased); task.FencingToken != again.FencingToken {
			t.Errorf("token %d, reclaimed as %d, reported %+v", task.FencingToken, again.FencingToken, reported)
		}
	})
}

// A lease that nobody reclaims ends 30 s of store time after the adoption, as
// no failure of the task; one that was reclaimed goes on.
func TestLeasesThatNobodyReclaimsEnd(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		window := kit.Ptr(600)
		f.MustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: window})
		f.MustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: window})
		kept, left := f.AcquireOne(t, picket.AcquireRequest{}), f.AcquireOne(t, picket.AcquireRequest{})
		f.MustRenew(t, kept)
		f.MustRenew(t, left)
		f.AdoptOnNewServer(t)
		f.MustRenew(t, kept)
		f.RunReaperFor(t, 29*time.Second)
		_, err := f.RunChores(f.Ctx, 100)
		kit.OK(t, err)
		f.WantState(t, left.TaskID, picket.TaskLeased)
		f.RunReaperFor(t, 2*time.Second)
		_, err = f.RunChores(f.Ctx, 100)
		kit.OK(t, err)
		task := f.WantState(t, left.TaskID, picket.TaskQueued)
		if task.Failures != 0 || task.Runs[0].Exit.Class != picket.ExitStoreAdopted {
			t.Fatalf("%d failures, class %s", task.Failures, task.Runs[0].Exit.Class)
		}
		f.WantState(t, kept.TaskID, picket.TaskLeased)
		_, err = f.Reclaim(f.Ctx, f.OpenLease(t, left))
		kit.Refused(t, err, picket.CodeLeaseExpired)
	})
}

// Time that passed while the store was away costs no holder its lease.
func TestAnAdoptedLeaseOutlivesItsDeadline(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(10)})
		l := f.AcquireOne(t, picket.AcquireRequest{})
		f.AdoptOnNewServer(t)
		f.RunReaperFor(t, 15*time.Second)
		if r := f.MustRenew(t, l); r.LeaseTTLMs < 9000 {
			t.Fatalf("reclaimed for %d ms only", r.LeaseTTLMs)
		}
	})
}

// What was ended is not revived by a reclaim.
func TestReclaimRevivesNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		l := f.AcquireOne(t, picket.AcquireRequest{})
		_, err := f.Expire(f.Ctx, kit.Operator, l.TaskID, "")
		kit.OK(t, err)
		f.AdoptOnNewServer(t)
		_, err = f.Reclaim(f.Ctx, f.OpenLease(t, l))
		kit.Refused(t, err, picket.CodeLeaseExpired)
		next := f.AcquireOne(t, picket.AcquireRequest{})
		_, err = f.Reclaim(f.Ctx, f.OpenLease(t, l))
		kit.Refused(t, err, picket.CodeStaleFence)
		stats, err := f.Stats(f.Ctx)
		kit.OK(t, err)
		if next.FencingToken <= stats.Floor {
			t.Fatalf("granted %d at floor %d", next.FencingToken, stats.Floor)
		}
	})
}

// Witnesses differ: the higher one wins, no matter who meets the store first.
func TestWitnessesDiffer(t *testing.T) {
	stores(t, func(t *testing.T, f *fixture, s rig.Store) {
		floor := func(store *orchestrator.Store) int64 {
			stats, err := store.Engine("default").Stats(f.Ctx)
			kit.OK(t, err)
			return stats.Floor
		}
		dir := t.TempDir()
		behind := f.OpenProcess(t, s, orchestrator.Config{Witness: dir})
		if got := floor(behind); got != 0 {
			t.Fatalf("a server that joined raised the floor to %d", got)
		}
		f.AdoptOnNewServer(t)
		raised := floor(f.Store)
		f.MustSubmit(t, picket.TaskSpec{})
		leases, err := behind.Engine("default").Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{})
		kit.OK(t, err)
		if len(leases) != 1 || leases[0].FencingToken != raised+1 {
			t.Fatalf("granted %v at floor %d", leases, raised)
		}
		if text, err := os.ReadFile(kit.WitnessFile(dir)); err != nil ||
			!strings.Contains(string(text), fmt.Sprint(raised)) {
			t.Fatalf("the floor used is not in the witness: %s %v", text, err)
		}
		// The store forgets the adoption; the witness does not.
		kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "floor", "0").Err())
		f.MustSubmit(t, picket.TaskSpec{})
		leases, err = behind.Engine("default").Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{})
		kit.OK(t, err)
		if got := leases[0].FencingToken; got <= raised+1<<21 {
			t.Fatalf("granted %d, witnessed floor %d", got, raised)
		}
	})
}

// A process without a witness serves nothing until another has adopted the
// store, and goes on automatically then.
func TestAFollowerWaitsForAnAdoption(t *testing.T) {
	stores(t, func(t *testing.T, f *fixture, s rig.Store) {
		kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "identity", "another server").Err())
		follower := f.OpenProcess(t, s, orchestrator.Config{}).Engine("default")
		_, err := follower.Stats(f.Ctx)
		kit.Refused(t, err, picket.CodeUnavailable)
		if errors.Is(err, picket.ErrUnknown) {
			t.Fatal("a refusal before anything was sent is not an unknown outcome")
		}
		kit.OK(t, kit.EnsureAdopted(f.Ctx, f.Engine))
		_, err = follower.Stats(f.Ctx)
		kit.OK(t, err)
		_, err = follower.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{})
		kit.Refused(t, err, picket.CodeUnavailable)
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
				e := f.OpenProcess(t, s, orchestrator.Config{Witness: dir, Fault: func(at string) error {
					if at == broken {
						return errors.New("planted")
					}
					return nil
				}}).Engine("default")
				f.MustSubmit(t, picket.TaskSpec{})
				kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "identity", "another server").Err())
				broken = point
				leases, err := e.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{})
				broken = ""
				// An adoption whose reply was lost is found to have happened.
				if err == nil && point != "redis.adopt.after" {
					t.Fatalf("granted %v", leases)
				}
				if err == nil {
					f.MustSubmit(t, picket.TaskSpec{})
				}
				leases, err = e.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{})
				kit.OK(t, err)
				stats, err := e.Stats(f.Ctx)
				kit.OK(t, err)
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
	kit.OK(t, err)
	kit.OK(t, store.Close())
	kit.OK(t, os.WriteFile(kit.WitnessFile(dir), []byte(`{"namespace":"default","floor":`), 0o600))
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
		kit.OK(t, err)
		defer store.Close()
		stats, err := store.Engine("default").Stats(t.Context())
		kit.OK(t, err)
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
		f.MustSubmit(t, picket.TaskSpec{})
		last, err := f.LastSeq(f.Ctx)
		kit.OK(t, err)
		kit.OK(t, f.Raw.FlushAll(f.Ctx).Err())
		ctx, cancel := context.WithTimeout(f.Ctx, time.Minute)
		defer cancel()
		f.MustSubmit(t, picket.TaskSpec{})
		page, err := f.Events(ctx, picket.EventQuery{After: last, Limit: 10})
		kit.OK(t, err)
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
		e := f.OpenProcess(t, s, orchestrator.Config{Witness: dir}).Engine("default")
		kit.OK(t, e.Tick(f.Ctx))
		kit.OK(t, e.Ready(f.Ctx))
		path := kit.WitnessFile(dir)
		before, err := os.ReadFile(path)
		kit.OK(t, err)
		kit.OK(t, os.Remove(path))
		kit.OK(t, e.Ready(f.Ctx))
		if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
			t.Fatalf("the witness is %q, was %q (%v)", after, before, err)
		}
		kit.OK(t, os.RemoveAll(dir))
		kit.Refused(t, e.Ready(f.Ctx), picket.CodeUnavailable)
	})
}

// One namespace that nobody has founded yet does not keep a process from
// serving the others.
func TestAMissingNamespaceStandsAlone(t *testing.T) {
	stores(t, func(t *testing.T, f *fixture, s rig.Store) {
		both := f.OpenProcess(t, s, orchestrator.Config{Namespaces: []string{"default", "later"}})
		_, err := both.Engine("default").Stats(f.Ctx)
		kit.OK(t, err)
		_, err = both.Engine("later").Stats(f.Ctx)
		kit.Refused(t, err, picket.CodeUnavailable)
		f.OpenProcess(t, s, orchestrator.Config{Namespaces: []string{"later"}, Witness: t.TempDir(), Found: true})
		_, err = both.Engine("later").Stats(f.Ctx)
		kit.OK(t, err)
	})
}
