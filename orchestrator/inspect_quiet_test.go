package orchestrator_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// Places that look odd and are not: the scanner is quiet in each of them.
func TestNoFalseAlarms(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		quiet := func() { t.Helper(); checkInvariants(t, f.Engine) }
		worker := picket.AcquireRequest{AgentID: "a1"}
		quiet() // nothing is there

		// Pinned to the agent whose lane is its own anyhow, while the pin lasts,
		// when it ends, and with a clock that steps back over that end.
		f.mustSubmit(t, picket.TaskSpec{Agent: "a1"})
		help, err := f.RequestHelp(f.ctx, f.openLease(t, f.acquireOne(t, worker)), picket.HelpRequest{Question: "?"})
		ok(t, err)
		_, err = f.Answer(f.ctx, operator, help.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(`1`)})
		ok(t, err)
		quiet()
		f.runReaperFor(t, 59*time.Second)
		quiet()
		f.runReaperFor(t, 2*time.Second)
		quiet()
		f.cancelAll(t)
		quiet()

		// notBefore by the clock on the wall, store time behind it, and a clock
		// that is set back afterwards.
		late := f.mustSubmit(t, picket.TaskSpec{NotBefore: picket.InstantOf(time.Now().Add(time.Hour))})
		quiet()
		ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:starts", zMember(1, late.TaskID)).Err()) // its time has come
		ok(t, f.Tick(f.ctx))
		f.wantState(t, f.acquireOne(t, worker).TaskID, picket.TaskLeased)
		quiet()
		f.cancelAll(t)

		// A process that is waited for, by its task and by a repeat of it.
		task, h := f.submitAndLease(t, picket.TaskSpec{})
		_, err = f.Renew(f.ctx, h)
		ok(t, err)
		ok(t, f.RunEvents(f.ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched}}))
		quiet()
		_, err = f.Expire(f.ctx, operator, task.TaskID, "r")
		ok(t, err)
		quiet()
		_, err = f.Cancel(f.ctx, operator, task.TaskID, "r")
		ok(t, err)
		_, err = f.Retry(f.ctx, operator, task.TaskID, "r")
		ok(t, err)
		quiet()
		ok(t, f.RunExit(f.ctx, h, picket.Exit{Class: picket.ExitKilled}, ""))
		quiet()
		f.cancelAll(t)

		// The shortest window: its first deadline, and the grace of an adoption.
		f.mustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: ptr(2)})
		l := f.acquireOne(t, worker)
		quiet()
		ok(t, f.raw.HSet(f.ctx, meta, "identity", "another server").Err())
		ok(t, orchestrator.EnsureAdopted(f.ctx, f.Engine))
		quiet()
		f.moveStoreTime(t, 3*time.Second)
		_, err = f.ExpireDue(f.ctx, 100)
		ok(t, err)
		quiet()
		_, err = f.Reclaim(f.ctx, f.openLease(t, l))
		ok(t, err)
		quiet()
		ok(t, f.raw.HSet(f.ctx, meta, "identity", "yet another server").Err())
		ok(t, orchestrator.EnsureAdopted(f.ctx, f.Engine))
		f.runReaperFor(t, 40*time.Second) // nobody reclaims
		_, err = f.RunChores(f.ctx, 100)
		ok(t, err)
		f.wantState(t, l.TaskID, picket.TaskQueued)
		quiet()
		f.acquireOne(t, worker) // under a token far above the last
		quiet()

		// Everything old is deleted.
		f.cancelAll(t)
		f.jumpStoreTime(t, 100*24*time.Hour)
		_, err = f.ApplyRetention(f.ctx, picket.Retention{}, 1000)
		ok(t, err)
		quiet()
		if n := f.raw.ZCard(f.ctx, "pk:{default}:tasks").Val(); n != 0 {
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
	ok(t, err)
	defer store.Close()
	raw := redis.NewUniversalClient(&s.Redis)
	defer raw.Close()
	e := store.Engine("default")
	task, err := e.Submit(t.Context(), operator, picket.TaskSpec{Title: "t"})
	ok(t, err)
	ok(t, raw.HSet(t.Context(), "pk:{default}:task:"+task.TaskID, "token", "7").Err())
	for range 3 {
		ok(t, e.InspectNext(t.Context(), 100))
	}
	want := "level=ERROR msg=\"an invariant was violated\" namespace=default kind=token_differs subject=" + task.TaskID
	if n := strings.Count(log.String(), want); n != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%q stands %d times in the log:\n%s", want, n, log.String())
	}
}
