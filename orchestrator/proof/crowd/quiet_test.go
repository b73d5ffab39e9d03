package crowd

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Places that look odd and are not: the scanner is quiet in each of them.
func TestNoFalseAlarms(t *testing.T) {
	kit.OnBothStores(t, func(t *testing.T, f *kit.Fixture) {
		quiet := func() { t.Helper(); kit.CheckInvariants(t, f.Engine) }
		worker := picket.AcquireRequest{AgentID: "a1"}
		quiet() // nothing is there

		// Pinned to the agent whose lane is its own anyhow, while the pin lasts,
		// when it ends, and with a clock that steps back over that end.
		f.MustSubmit(t, picket.TaskSpec{Agent: "a1"})
		help, err := f.RequestHelp(f.Ctx, f.OpenLease(t, f.AcquireOne(t, worker)), picket.HelpRequest{Question: "?"})
		kit.OK(t, err)
		_, err = f.Answer(f.Ctx, kit.Operator, help.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(`1`)})
		kit.OK(t, err)
		quiet()
		f.RunReaperFor(t, 59*time.Second)
		quiet()
		f.RunReaperFor(t, 2*time.Second)
		quiet()
		f.CancelAll(t)
		quiet()

		// notBefore by the clock on the wall, store time behind it, and a clock
		// that is set back afterwards.
		late := f.MustSubmit(t, picket.TaskSpec{NotBefore: picket.InstantOf(time.Now().Add(time.Hour))})
		quiet()
		kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:starts", kit.ZMember(1, late.TaskID)).Err()) // its time has come
		kit.OK(t, f.Tick(f.Ctx))
		f.WantState(t, f.AcquireOne(t, worker).TaskID, picket.TaskLeased)
		quiet()
		f.CancelAll(t)

		// A process that is waited for, by its task and by a repeat of it.
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		_, err = f.Renew(f.Ctx, h)
		kit.OK(t, err)
		kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched}}))
		quiet()
		_, err = f.Expire(f.Ctx, kit.Operator, task.TaskID, "r")
		kit.OK(t, err)
		quiet()
		_, err = f.Cancel(f.Ctx, kit.Operator, task.TaskID, "r")
		kit.OK(t, err)
		_, err = f.Retry(f.Ctx, kit.Operator, task.TaskID, "r")
		kit.OK(t, err)
		quiet()
		kit.OK(t, f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitKilled}, ""))
		quiet()
		f.CancelAll(t)

		// The shortest window: its first deadline, and the grace of an adoption.
		f.MustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(2)})
		l := f.AcquireOne(t, worker)
		quiet()
		kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "identity", "another server").Err())
		kit.OK(t, kit.EnsureAdopted(f.Ctx, f.Engine))
		quiet()
		f.MoveStoreTime(t, 3*time.Second)
		_, err = f.ExpireDue(f.Ctx, 100)
		kit.OK(t, err)
		quiet()
		_, err = f.Reclaim(f.Ctx, f.OpenLease(t, l))
		kit.OK(t, err)
		quiet()
		kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "identity", "yet another server").Err())
		kit.OK(t, kit.EnsureAdopted(f.Ctx, f.Engine))
		f.RunReaperFor(t, 40*time.Second) // nobody reclaims
		_, err = f.RunChores(f.Ctx, 100)
		kit.OK(t, err)
		f.WantState(t, l.TaskID, picket.TaskQueued)
		quiet()
		f.AcquireOne(t, worker) // under a token far above the last
		quiet()

		// Everything old is deleted.
		f.CancelAll(t)
		f.JumpStoreTime(t, 100*24*time.Hour)
		_, err = f.ApplyRetention(f.Ctx, picket.Retention{}, 1000)
		kit.OK(t, err)
		quiet()
		if n := f.Raw.ZCard(f.Ctx, "pk:{default}:tasks").Val(); n != 0 {
			t.Errorf("%d tasks are left", n)
		}
	})
}

// A violation is a line of level error, once, whether the reaper found it or
// somebody looked.
func TestAViolationIsLoggedAsAnError(t *testing.T) {
	s, stop := rig.Memory()
	defer stop()
	var log bytes.Buffer
	store, err := orchestrator.Open(t.Context(),
		orchestrator.Config{Redis: s.Redis, Memory: true, Sealer: rig.Sealer(), Witness: t.TempDir(), Found: true,
			Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))})
	kit.OK(t, err)
	defer store.Close()
	raw := rig.Hashes(redis.NewUniversalClient(&s.Redis))
	defer raw.Close()
	e := store.Engine("default")
	task, err := e.Submit(t.Context(), kit.Operator, picket.TaskSpec{Title: "t"})
	kit.OK(t, err)
	kit.OK(t, raw.HSet(t.Context(), "pk:{default}:task:"+task.TaskID, "token", "7").Err())
	for range 3 {
		kit.OK(t, e.InspectNext(t.Context(), 100))
	}
	want := "level=ERROR msg=\"an invariant was violated\" namespace=default kind=token_differs subject=" + task.TaskID
	if n := strings.Count(log.String(), want); n != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%q stands %d times in the log:\n%s", want, n, log.String())
	}
}

// inspect goes over the store again and again while a crowd works on it:
// whatever it finds is a bug, in the engine or in the scanner.
func (c *crowd) inspect(ctx context.Context, e *orchestrator.Engine) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		found, err := kit.InspectAll(ctx, e, false)
		if ctx.Err() != nil {
			return
		}
		if err != nil || len(found) > 0 {
			c.t.Errorf("inspect: %v, %+v", err, found)
			return
		}
		c.mu.Lock()
		c.passes++
		c.mu.Unlock()
	}
}
