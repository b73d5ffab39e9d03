package clock

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// clockRun is a namespace on a store whose clock jumps. Those who hold leases
// have a clock of their own, which does not.
type clockRun struct {
	t      *testing.T
	ctx    context.Context
	e      *orchestrator.Engine
	raw    redis.UniversalClient
	random *rand.Rand
	own    time.Duration // on the holders' clock
	wall   time.Duration // on the server's
	store  int64         // store time read last, ms
	help   string        // a task that waits for a person

	holders map[string]*clockHolder // by task
	later   map[string]delayedStart
	count   clockCount
}

type clockCount struct {
	jumps    int
	grants   int
	renewals int
	expired  int
	started  int
}

// clockHolder is who has a lease, as it sees it itself.
type clockHolder struct {
	lease  picket.Lease
	held   picket.LeaseCredential
	sent   time.Duration // the last request that extended the lease was sent
	window time.Duration
	dead   bool // it will not renew
}

// deadline is when a holder gives up on its own, before anybody else may start.
func (h *clockHolder) deadline() time.Duration {
	return h.sent + h.window - max(h.window*3/100, time.Second)
}

// delayedStart is a task with a notBefore: when it comes by the wall, and when as much
// time has passed as was missing at first.
type delayedStart struct {
	wall time.Duration
	own  time.Duration
}

const clockStep = 400 * time.Millisecond // at most, between two ticks of a reaper

var clockJumps = []time.Duration{-time.Hour, -3 * time.Second, 3 * time.Second, time.Hour, 10 * 365 * 24 * time.Hour}

// The server's clock jumps at a random point of many random lives. No task gets a second holder
// while the first believes in its lease. A holder that renews in time is never refused, and one
// that does not is replaced soon. Store time moves by a second at most, notBefore uses the wall
// clock, and nothing is deleted or overdue.
func TestClockJumpsInRandomLives(t *testing.T) {
	rig.SkipShort(t)
	seed, lives := rig.Seed(t), rig.SoakRounds(t, "clock jumps, of each of 5 kinds", 4, 200)
	run := func(t *testing.T, s rig.Store, lives int) {
		began, total := time.Now(), clockCount{}
		for i, jump := range clockJumps {
			for n := range lives {
				l := newClockRun(t, s, rand.New(rand.NewPCG(seed, uint64(i*lives+n))))
				l.runWithJump(jump)
				total.add(l.count)
				if t.Failed() {
					t.Fatalf("it was life %d with a jump of %s", n, jump)
				}
			}
		}
		t.Logf("clock jumps: %d jumps of %d kinds in %d lives: %d grants, %d renewals, %d leases that ran out, %d notBefore, in %.1f s",
			total.jumps, len(clockJumps), lives*len(clockJumps), total.grants, total.renewals, total.expired,
			total.started, time.Since(began).Seconds())
	}
	t.Run("Memory", func(t *testing.T) {
		s, stop := rig.Memory()
		defer stop()
		run(t, s, lives/10) // the same scripts, but slowly
	})
	t.Run("Real", func(t *testing.T) { run(t, rig.Real(t), lives) })
}

func (c *clockCount) add(o clockCount) {
	c.jumps, c.grants, c.renewals, c.expired, c.started = c.jumps+o.jumps, c.grants+o.grants, c.renewals+o.renewals,
		c.expired+o.expired, c.started+o.started
}

func newClockRun(t *testing.T, s rig.Store, random *rand.Rand) *clockRun {
	l := &clockRun{
		t:       t,
		ctx:     t.Context(),
		raw:     rig.Hashes(redis.NewUniversalClient(&s.Redis)),
		random:  random,
		wall:    1_790_000_000 * time.Second,
		holders: map[string]*clockHolder{},
		later:   map[string]delayedStart{},
	}
	kit.OK(t, l.raw.FlushAll(l.ctx).Err())
	store, err := orchestrator.Open(l.ctx,
		orchestrator.Config{Redis: s.Redis, Memory: s.Memory, Sealer: rig.Sealer(), NoBatch: true,
			Witness: t.TempDir(), Found: true, Log: slog.New(slog.DiscardHandler)})
	kit.OK(t, err)
	kit.RewriteAs(store, &kit.TestClockScripts, kit.UseTestClock)
	l.e = store.Engine("default")
	l.setClock()
	ms := fmt.Sprint(l.wall.Milliseconds())
	kit.OK(t, l.raw.HSet(l.ctx, kit.Meta, "now", ms, "raw", ms).Err())
	l.store = l.wall.Milliseconds()
	t.Cleanup(func() {
		_ = store.Close()
		_ = l.raw.Close()
	})
	return l
}

func (l *clockRun) setClock() {
	l.t.Helper()
	kit.OK(l.t, l.raw.HSet(l.ctx, "rig-clock", "s", int64(l.wall/time.Second), "us",
		int64(l.wall%time.Second/time.Microsecond)).Err())
}

// runWithJump is half a minute and more, with a jump somewhere in it.
func (l *clockRun) runWithJump(jump time.Duration) {
	l.t.Helper()
	l.askForHelp()
	for range 3 {
		l.submit()
	}
	const steps = 120
	at := 10 + l.random.IntN(steps-60)
	for i := range steps {
		step := clockStep/4 + time.Duration(l.random.Int64N(int64(clockStep*3/4)))
		l.own += step
		l.wall += step
		if i == at {
			l.wall += jump
			l.count.jumps++
		}
		l.setClock()
		l.sweep(step, i == at)
		l.useLeases(i < steps-60)
		l.check()
	}
}

// sweep is what a reaper does.
func (l *clockRun) sweep(step time.Duration, jumped bool) {
	l.t.Helper()
	kit.OK(l.t, l.e.Tick(l.ctx))
	_, err := l.e.ExpireDue(l.ctx, 100)
	kit.OK(l.t, err)
	n, err := l.e.ApplyRetention(l.ctx, picket.Retention{Tasks: time.Hour, Events: time.Hour, MaxEvents: 1e6}, 100)
	kit.OK(l.t, err)
	if n != 0 {
		l.t.Errorf("retention deleted %d of what is younger than an hour", n)
	}
	now, err := l.raw.HGet(l.ctx, kit.Meta, "now").Int64()
	kit.OK(l.t, err)
	moved, most := time.Duration(now-l.store)*time.Millisecond, step
	if jumped {
		most = time.Second
	}
	// What was read but not written when the clock stepped back, 100 ms at most,
	// passes once more.
	if moved < 0 || moved > most+time.Millisecond {
		l.t.Errorf("store time moved by %s in a step of %s (jump: %v)", moved, step, jumped)
	}
	l.store = now
}

// askForHelp leaves a task that waits for a person for ten minutes.
func (l *clockRun) askForHelp() {
	l.t.Helper()
	task, err := l.e.Submit(l.ctx, kit.Operator, picket.TaskSpec{Title: "waits for a person"})
	kit.OK(l.t, err)
	leases, err := l.e.Acquire(l.ctx, kit.Operator, picket.AcquireRequest{AgentID: "asker"})
	kit.OK(l.t, err)
	held, err := rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	kit.OK(l.t, err)
	_, err = l.e.RequestHelp(l.ctx, held,
		picket.HelpRequest{Question: "which?", DeadlineSeconds: kit.Ptr(600), OnDeadline: picket.OnDeadlineDeny})
	kit.OK(l.t, err)
	l.help = task.TaskID
}

// A task starts at its notBefore to the millisecond, which is what an instant
// has, and not a part of one before it, wherever in one it was submitted.
func TestATaskStartsAtItsMillisecond(t *testing.T) {
	for _, part := range []time.Duration{0, 311 * time.Microsecond, 999 * time.Microsecond} {
		t.Run(part.String(), func(t *testing.T) {
			l := newClockRun(t, rig.Real(t), nil)
			at := l.wall + 50*time.Millisecond
			l.setWallClock(l.wall + part)
			_, err := l.e.Submit(l.ctx, kit.Operator,
				picket.TaskSpec{Title: "a task", NotBefore: picket.Instant(at.Milliseconds())})
			kit.OK(t, err)
			l.setWallClock(at - time.Microsecond)
			if got := l.granted(); got != 0 {
				t.Errorf("granted %d a microsecond before the time", got)
			}
			l.setWallClock(at)
			if got := l.granted(); got != 1 {
				t.Errorf("granted %d at the time", got)
			}
		})
	}
}

// setWallClock sets the clock, and lets a reaper look at it.
func (l *clockRun) setWallClock(wall time.Duration) {
	l.t.Helper()
	l.wall = wall
	l.setClock()
	kit.OK(l.t, l.e.Tick(l.ctx))
}

func (l *clockRun) granted() int {
	l.t.Helper()
	leases, err := l.e.Acquire(l.ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1"})
	kit.OK(l.t, err)
	return len(leases)
}
