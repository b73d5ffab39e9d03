package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// adoptOnNewServer makes the namespace look as if it had come to another server, and
// has it adopted.
func (f *fixture) adoptOnNewServer(t *testing.T) {
	t.Helper()
	ok(t, f.raw.HSet(f.ctx, meta, "identity", "another server").Err())
	ok(t, orchestrator.EnsureAdopted(f.ctx, f.Engine))
}

func (f *fixture) setScore(t *testing.T, set, member string, score float64) {
	t.Helper()
	ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:"+set, redis.Z{Score: score, Member: member}).Err())
}

// coverFormat shows a store of a later version to the scripts that check it.
func coverFormat(t *testing.T, f *fixture) {
	t.Helper()
	f.setFormat(t, 7)
	_, err := f.Stats(f.ctx)
	refusedAsNewer(t, err)
	refusedAsNewer(t, orchestrator.EnsureAdopted(f.ctx, f.Engine))
	refusedAsNewer(t, orchestrator.AdoptUnseen(f.ctx, f.Engine))
	f.setFormat(t, 1)
}

func coverAdoption(t *testing.T, f *fixture) {
	ok(t, orchestrator.EnsureAdopted(f.ctx, f.Engine)) // it has one
	coverFormat(t, f)
	ok(t, f.raw.Del(f.ctx, meta).Err())
	_, err := f.Stats(f.ctx) // which is made again
	ok(t, err)
	ok(t, f.raw.HSet(f.ctx, meta, "identity", "another server").Err())
	_, err = f.Acquire(f.ctx, operator, picket.AcquireRequest{})
	ok(t, err)
	// Reclaimed, reclaimed again, and not reclaimed: within a batch and beyond.
	f.mustSubmit(t, picket.TaskSpec{})
	f.mustSubmit(t, picket.TaskSpec{})
	kept, left := f.acquireOne(t, picket.AcquireRequest{}), f.acquireOne(t, picket.AcquireRequest{})
	ok(t, f.raw.HIncrBy(f.ctx, meta, "granted", -1).Err()) // put back under a living server
	_, err = f.Acquire(f.ctx, operator, picket.AcquireRequest{Role: "nobody"})
	ok(t, err)
	f.callTwice(t, func() error { _, err := f.Reclaim(f.ctx, f.openLease(t, kept)); return err })
	_, _, err = f.Watch(f.ctx, f.openLease(t, left), 0)
	ok(t, err)
	f.adoptOnNewServer(t)
	f.mustRenew(t, left)
	f.adoptOnNewServer(t)
	f.jumpStoreTime(t, 20*time.Second)
	f.setScore(t, "deadlines", kept.TaskID, 1)
	f.runReaperFor(t, time.Second) // within the grace
	f.jumpStoreTime(t, 20*time.Second)
	f.setScore(t, "deadlines", kept.TaskID, 1)
	f.runReaperFor(t, time.Second)
	ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:deadlines", redis.Z{Score: 1e15, Member: noTask}).Err())
	_, err = f.RunChores(f.ctx, 100)
	ok(t, err)
	f.wantState(t, left.TaskID, picket.TaskQueued)
	_, err = f.Reclaim(f.ctx, f.openLease(t, left))
	refused(t, err, picket.CodeLeaseExpired)
	// More than one bite of the scan.
	many := make([]redis.Z, 2000)
	for i := range many {
		many[i] = redis.Z{Score: 1e15, Member: fmt.Sprint("task_", i)}
	}
	ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:deadlines", many...).Err())
	f.adoptOnNewServer(t)
	f.jumpStoreTime(t, 40*time.Second)
	for n := 10; n >= 10; {
		n, err = f.RunChores(f.ctx, 10)
		ok(t, err)
	}
	for _, z := range many {
		ok(t, f.raw.ZRem(f.ctx, "pk:{default}:deadlines", z.Member).Err())
	}
	// The tokens above a floor are used up: in the first lease, then in the second.
	f.cancelAll(t)
	for i, token := range []int64{1 << 60, 0, 1 << 60} {
		task := f.mustSubmit(t, picket.TaskSpec{Title: fmt.Sprint(i)})
		if token > 0 {
			stats, err := f.Stats(f.ctx)
			ok(t, err)
			ok(t, f.raw.HSet(f.ctx, "pk:{default}:task:"+task.TaskID, "token", stats.Floor+1<<21).Err())
		}
		if i != 1 {
			_, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{Max: ptr(2)})
			ok(t, err)
		}
	}
	ok(t, f.raw.Del(f.ctx, meta).Err())
	ok(t, orchestrator.InitNamespace(f.ctx, f.Engine))
	// Another process is faster.
	if err := orchestrator.AdoptUnseen(f.ctx, f.Engine); err == nil {
		t.Fatal("a store that was not looked at was adopted")
	}
}
