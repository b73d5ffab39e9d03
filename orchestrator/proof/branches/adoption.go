package branches

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverFormat shows a store of a later version to the scripts that check it.
func coverFormat(t *testing.T, f *fixture) {
	t.Helper()
	f.SetFormat(t, 7)
	_, err := f.Stats(f.Ctx)
	kit.RefusedAsNewer(t, err)
	kit.RefusedAsNewer(t, kit.EnsureAdopted(f.Ctx, f.Engine))
	kit.RefusedAsNewer(t, kit.AdoptUnseen(f.Ctx, f.Engine))
	f.SetFormat(t, kit.Format)
}

// coverMigration converts a store of an earlier format.
func coverMigration(t *testing.T, f *fixture) {
	t.Helper()
	step := func(keys, records int) bool {
		t.Helper()
		done, err := kit.Migrate(f.Ctx, f.Engine, keys, records)
		kit.OK(t, err)
		return done
	}
	if !step(1, 1) {
		t.Error("there is something to convert")
	}
	for range 6 {
		f.MustSubmit(t, picket.TaskSpec{})
	}
	_, err := kit.ToFormat1(f.Ctx, f.Raw, "default")
	kit.OK(t, err)
	kit.RefusedAsMigrating(t, kit.AdoptUnseen(f.Ctx, f.Engine))
	_, err = f.Records().RunUnchecked(f.Ctx, "take_mark", "", "", "", "m1")
	kit.RefusedAsMigrating(t, err)
	step(10, 1)
	step(10_000, 2)
	_, err = f.Records().RunUnchecked(f.Ctx, "tick")
	kit.RefusedAsMigrating(t, err)
	for !step(10_000, 1000) { // as often as it takes
	}
	_, err = kit.ToFormat2(f.Ctx, f.Raw, "default")
	kit.OK(t, err)
	if !step(1, 1) {
		t.Error("a store of format 2 needs more than one step")
	}
	f.SetFormat(t, 7)
	_, err = kit.Migrate(f.Ctx, f.Engine, 1, 1)
	kit.RefusedAsNewer(t, err)
	f.SetFormat(t, kit.Format)
	f.CancelAll(t)
}

// coverStopMark stops a store under a mark and starts it again.
func coverStopMark(t *testing.T, f *fixture) {
	stats, err := f.Stats(f.Ctx)
	kit.OK(t, err)
	for _, refused := range []error{kit.MarkStop(f.Ctx, f.Engine, stats.Floor+1, 0, "m1"),
		kit.MarkStop(f.Ctx, f.Engine, stats.Floor, 1<<40, "m1"),
		kit.TakeMark(f.Ctx, f.Engine, stats.Floor, "m1")} {
		kit.Refused(t, refused, picket.CodeUnavailable)
	}
	f.SetFormat(t, 7)
	_, err = f.Records().RunUnchecked(f.Ctx, "take_mark", "", "", "", "m1")
	kit.RefusedAsNewer(t, err)
	f.SetFormat(t, kit.Format)
	kit.OK(t, kit.MarkStop(f.Ctx, f.Engine, stats.Floor, 0, "m1"))
	kit.OK(t, kit.TakeMark(f.Ctx, f.Engine, stats.Floor, "m1"))
}

func coverAdoption(t *testing.T, f *fixture) {
	kit.OK(t, kit.EnsureAdopted(f.Ctx, f.Engine)) // it has one
	coverFormat(t, f)
	coverMigration(t, f)
	coverStopMark(t, f)
	kit.OK(t, f.Raw.Del(f.Ctx, kit.Meta).Err())
	_, err := f.Stats(f.Ctx) // which is made again
	kit.OK(t, err)
	kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "identity", "another server").Err())
	_, err = f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{})
	kit.OK(t, err)
	// Reclaimed, reclaimed again, and not reclaimed: within a batch and beyond.
	f.MustSubmit(t, picket.TaskSpec{})
	f.MustSubmit(t, picket.TaskSpec{})
	kept, left := f.AcquireOne(t, picket.AcquireRequest{}), f.AcquireOne(t, picket.AcquireRequest{})
	kit.OK(t, f.Raw.HIncrBy(f.Ctx, kit.Meta, "granted", -1).Err()) // put back under a living server
	_, err = f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{Role: "nobody"})
	kit.OK(t, err)
	f.CallTwice(t, func() error { _, err := f.Reclaim(f.Ctx, f.OpenLease(t, kept)); return err })
	_, _, err = f.Watch(f.Ctx, f.OpenLease(t, left), 0)
	kit.OK(t, err)
	f.AdoptOnNewServer(t)
	f.MustRenew(t, left)
	f.AdoptOnNewServer(t)
	f.JumpStoreTime(t, 20*time.Second)
	f.SetScore(t, "deadlines", kept.TaskID, 1)
	f.RunReaperFor(t, time.Second) // within the grace
	f.JumpStoreTime(t, 20*time.Second)
	f.SetScore(t, "deadlines", kept.TaskID, 1)
	f.RunReaperFor(t, time.Second)
	kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:deadlines", redis.Z{Score: 1e15, Member: kit.NoTask}).Err())
	_, err = f.RunChores(f.Ctx, 100)
	kit.OK(t, err)
	f.WantState(t, left.TaskID, picket.TaskQueued)
	_, err = f.Reclaim(f.Ctx, f.OpenLease(t, left))
	kit.Refused(t, err, picket.CodeLeaseExpired)
	// More than one bite of the scan.
	many := make([]redis.Z, 2000)
	for i := range many {
		many[i] = redis.Z{Score: 1e15, Member: fmt.Sprint("task_", i)}
	}
	kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:deadlines", many...).Err())
	f.AdoptOnNewServer(t)
	f.JumpStoreTime(t, 40*time.Second)
	for n := 10; n >= 10; {
		n, err = f.RunChores(f.Ctx, 10)
		kit.OK(t, err)
	}
	for _, z := range many {
		kit.OK(t, f.Raw.ZRem(f.Ctx, "pk:{default}:deadlines", z.Member).Err())
	}
	// The tokens above a floor are used up: in the first lease, then in the second.
	f.CancelAll(t)
	for i, token := range []int64{1 << 60, 0, 1 << 60} {
		task := f.MustSubmit(t, picket.TaskSpec{Title: fmt.Sprint(i)})
		if token > 0 {
			stats, err := f.Stats(f.Ctx)
			kit.OK(t, err)
			kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:task:"+task.TaskID, "token", stats.Floor+1<<21).Err())
		}
		if i != 1 {
			_, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{Max: kit.Ptr(2)})
			kit.OK(t, err)
		}
	}
	kit.OK(t, f.Raw.Del(f.Ctx, kit.Meta, "pk:{default}:events", "pk:{default}:audit").Err())
	kit.OK(t, kit.InitNamespace(f.Ctx, f.Engine))
	// Another process is faster.
	if err := kit.AdoptUnseen(f.Ctx, f.Engine); err == nil {
		t.Fatal("a store that was not looked at was adopted")
	}
}
