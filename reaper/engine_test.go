package reaper_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/reaper"
)

var operator = picket.Caller{Actor: "key_test"}

// namespace is an engine with some reapers on it.
type namespace struct {
	*orchestrator.Engine
	t      *testing.T
	sealer *seal.Sealer
}

// open connects to a store; close ends the connection.
func open(t *testing.T, s rig.Store) (ns *namespace, close func()) {
	t.Helper()
	sealer := rig.Sealer()
	store, err := orchestrator.Open(t.Context(),
		orchestrator.Config{
			Redis:   s.Redis,
			Memory:  s.Memory,
			Sealer:  sealer,
			Witness: t.TempDir(),
			Found:   true,
			Log:     slog.New(slog.DiscardHandler),
		})
	if err != nil {
		t.Fatal(err)
	}
	return &namespace{Engine: store.Engine("default"), t: t, sealer: sealer}, func() { _ = store.Close() }
}

func (ns *namespace) must(err error) {
	ns.t.Helper()
	if err != nil {
		ns.t.Fatal(err)
	}
}

// startReapers starts n of them side by side; the returned function stops them.
func (ns *namespace) startReapers(n int) (stop func()) {
	ns.t.Helper()
	ctx, cancel := context.WithCancel(ns.t.Context())
	var wg sync.WaitGroup
	for range n {
		r, err := reaper.New(reaper.Config{
			Namespaces: map[string]reaper.Sweeper{"default": ns.Engine},
			Log:        slog.New(slog.DiscardHandler),
		})
		ns.must(err)
		wg.Go(func() { _ = r.Run(ctx) })
	}
	return func() { cancel(); wg.Wait() }
}

// addLeases makes n tasks with a window in seconds and takes them all.
func (ns *namespace) addLeases(n, window int) []picket.Lease {
	ns.t.Helper()
	for range n {
		_, err := ns.Submit(ns.t.Context(), operator, picket.TaskSpec{Title: "a task", LeaseWindowSeconds: &window})
		ns.must(err)
	}
	return ns.acquire(n)
}

func (ns *namespace) acquire(n int) []picket.Lease {
	ns.t.Helper()
	batch, most := []picket.Lease(nil), 100
	for len(batch) < n {
		got, err := ns.Acquire(ns.t.Context(), operator, picket.AcquireRequest{AgentID: "agent-1", Max: &most})
		ns.must(err)
		if len(got) == 0 {
			ns.t.Fatalf("%d leases were granted, want %d", len(batch), n)
		}
		batch = append(batch, got...)
	}
	return batch
}

func (ns *namespace) renew(l picket.Lease) error {
	held, err := ns.sealer.OpenLeaseToken(l.LeaseToken.Reveal())
	if err != nil {
		return err
	}
	_, err = ns.Renew(ns.t.Context(), held)
	return err
}

// countEvents says how many events of a type the log holds.
func (ns *namespace) countEvents(kind string) int {
	ns.t.Helper()
	n, after := 0, int64(0)
	for {
		page, err := ns.Events(ns.t.Context(), picket.EventQuery{Types: []string{kind}, After: after, Limit: 1000})
		ns.must(err)
		n += len(page.Events)
		if len(page.Events) == 0 {
			return n
		}
		after = page.Events[len(page.Events)-1].Seq
	}
}

// virtual runs a test on the virtual clock with an in-process store.
func virtual(t *testing.T, test func(ns *namespace)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, stop := rig.Memory()
		defer stop()
		ns, close := open(t, store)
		defer close()
		test(ns)
	})
}

func TestLeasesEndOnScheduleAndOnce(t *testing.T) {
	rig.SkipShort(t)
	for _, n := range []int{1, 3} {
		virtual(t, func(ns *namespace) {
			defer ns.startReapers(n)()
			all := ns.addLeases(250, 60)
			for _, l := range all {
				ns.must(ns.renew(l))
			}
			time.Sleep(59 * time.Second)
			if got := ns.countEvents(picket.EventLeaseExpired); got != 0 {
				t.Errorf("%d reapers: %d leases ended early", n, got)
			}
			kept := all[0]
			ns.must(ns.renew(kept))
			// A second for the window, one tick for the sweep.
			time.Sleep(time.Second + 2*reaper.MaxTick)
			if got := ns.countEvents(picket.EventLeaseExpired); got != 249 {
				t.Errorf("%d reapers: %d leases ended, want 249 once each", n, got)
			}
			ns.must(ns.renew(kept))
			if err := ns.renew(all[1]); !errors.Is(err, picket.CodeLeaseExpired) {
				t.Errorf("%d reapers: an expired lease was renewed: %v", n, err)
			}
			for _, again := range ns.acquire(249) {
				if again.FencingToken != 2 {
					t.Fatalf("%d reapers: the next lease has fence %d, want 2", n, again.FencingToken)
				}
			}
		})
	}
}

// A grant that nobody confirmed comes back after 30 s and counts no failure.
func TestAnUnconfirmedGrantComesBack(t *testing.T) {
	virtual(t, func(ns *namespace) {
		defer ns.startReapers(2)()
		l := ns.addLeases(1, 300)[0]
		time.Sleep(30*time.Second + 2*reaper.MaxTick)
		task, err := ns.Task(ns.t.Context(), l.TaskID)
		ns.must(err)
		if task.State != picket.TaskQueued || task.Failures != 0 || task.Runs[0].Exit.Class != picket.ExitUndelivered {
			t.Errorf("%s after %d failures, %+v", task.State, task.Failures, task.Runs[0].Exit)
		}
	})
}

// A record that no script can read breaks the tick that comes to it. Leases end all the same.
func TestADamagedTaskKeepsNoLeaseAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, stop := rig.Memory()
		defer stop()
		ns, close := open(t, store)
		defer close()
		raw := redis.NewUniversalClient(&store.Redis)
		defer raw.Close()
		later, err := ns.Submit(t.Context(), operator,
			picket.TaskSpec{Title: "later", NotBefore: picket.InstantOf(time.Now().Add(10 * time.Second))})
		ns.must(err)
		ns.must(ns.renew(ns.addLeases(1, 60)[0]))
		ns.must(raw.Set(t.Context(), "pk:{default}:task:"+later.TaskID, "damaged", 0).Err())
		defer ns.startReapers(1)()
		time.Sleep(time.Minute + 3*reaper.MaxTick)
		if err := ns.Tick(t.Context()); err == nil {
			t.Error("the tick goes well, so this test shows nothing")
		}
		if got := ns.countEvents(picket.EventLeaseExpired); got != 1 {
			t.Errorf("%d leases have ended, want 1", got)
		}
	})
}

func TestReapersKeepANamespaceReady(t *testing.T) {
	virtual(t, func(ns *namespace) {
		stop := ns.startReapers(1)
		time.Sleep(time.Minute)
		ns.must(ns.Ready(ns.t.Context()))
		stop()
		time.Sleep(time.Minute)
		if err := ns.Ready(ns.t.Context()); !errors.Is(err, picket.CodeUnavailable) {
			t.Errorf("nothing ticks and readiness says %v", err)
		}
	})
}

// Store time is what leases live by: while nobody ticks, nothing ends.
func TestStoreTimeStandsStillWithoutAReaper(t *testing.T) {
	virtual(t, func(ns *namespace) {
		l := ns.addLeases(1, 60)[0]
		ns.must(ns.renew(l))
		time.Sleep(time.Hour)
		defer ns.startReapers(2)()
		time.Sleep(50 * time.Second)
		ns.must(ns.renew(l))
	})
}

func TestAHardPauseEndsEveryRun(t *testing.T) {
	virtual(t, func(ns *namespace) {
		defer ns.startReapers(2)()
		all := ns.addLeases(250, 60)
		_, err := ns.Pause(ns.t.Context(), operator, true, "test")
		ns.must(err)
		time.Sleep(2 * reaper.MaxTick)
		for _, l := range all {
			if err := ns.renew(l); !errors.Is(err, picket.CodeLeaseReleased) {
				t.Fatalf("a run goes on after the stop button: %v", err)
			}
		}
	})
}

// A lease whose deadline was lost would never end; the reapers find it within
// seconds and give it a short one.
func TestALeaseWithoutADeadlineEnds(t *testing.T) {
	rig.SkipShort(t)
	synctest.Test(t, func(t *testing.T) {
		store, stop := rig.Memory()
		defer stop()
		ns, close := open(t, store)
		defer close()
		defer ns.startReapers(3)()
		all := ns.addLeases(250, 300)
		for _, l := range all {
			ns.must(ns.renew(l))
		}
		raw := rig.Hashes(redis.NewUniversalClient(&store.Redis))
		defer raw.Close()
		ns.must(raw.Del(t.Context(), "pk:{default}:deadlines").Err())
		time.Sleep(time.Minute + 30*time.Second)
		if n := ns.countEvents(picket.EventInvariantRepaired); n != 250 {
			t.Errorf("%d deadlines were put back, want 250 once each", n)
		}
		if n := ns.countEvents(picket.EventLeaseExpired); n != 250 {
			t.Errorf("%d leases ended, want 250 once each", n)
		}
	})
}

// The same on a real store: the reapers run on the machine's clock, and store
// time is moved from outside.
func TestReapersOnARealStore(t *testing.T) {
	s := rig.Real(t)
	ns, close := open(t, s)
	defer close()
	raw := rig.Hashes(redis.NewUniversalClient(&s.Redis))
	defer raw.Close()
	all := ns.addLeases(250, 60)
	for _, l := range all {
		ns.must(ns.renew(l))
	}
	ns.must(raw.HIncrBy(t.Context(), "pk:{default}:meta", "now", 60_000).Err())
	defer ns.startReapers(3)()

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for after, ended := int64(0), 0; ended < 250; {
		ns.must(ns.Tail(ctx, after)) // wakes with the next event
		page, err := ns.Events(ctx, picket.EventQuery{After: after, Limit: 1000})
		ns.must(err)
		for _, e := range page.Events {
			after = e.Seq
			if e.Type == picket.EventLeaseExpired {
				ended++
			}
		}
	}
	if got := ns.countEvents(picket.EventLeaseExpired); got != 250 {
		t.Errorf("%d leases ended, want 250 once each", got)
	}
	for _, again := range ns.acquire(250) {
		if again.FencingToken != 2 {
			t.Fatalf("the next lease has fence %d, want 2", again.FencingToken)
		}
	}
}
