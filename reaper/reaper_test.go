package reaper_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/cleanup"
	"github.com/picket-dev/picket/reaper"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(cleanup.WithTempDir(m, "pk-reaper-")) }

// fakeSweeper is a namespace whose answers a test decides.
type fakeSweeper struct {
	mu          sync.Mutex
	ticks       []time.Time
	err         error
	unknown     bool // a tick does not say what is due
	backlog     int  // leases left to expire
	calls       int  // of ExpireDue
	counts      int  // of CountEnded
	expiry      error
	kept        []picket.Retention
	inspections []time.Time           // of the invariant scanner
	measured    []int                 // keys that it was to measure at a time
	chore       func(context.Context) // runs inside Chore when set
}

func (s *fakeSweeper) TickDue(context.Context) (picket.DueWork, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ticks = append(s.ticks, time.Now())
	if s.unknown {
		return picket.DueWork{}, s.err
	}
	return picket.DueWork{Leases: s.backlog > 0, Chores: s.chore != nil}, s.err
}

func (s *fakeSweeper) ExpireDue(_ context.Context, limit int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.expiry != nil {
		return 0, s.expiry
	}
	n := min(limit, s.backlog)
	s.backlog -= n
	return n, nil
}

func (s *fakeSweeper) RunChores(ctx context.Context, _ int) (int, error) {
	if s.chore != nil {
		s.chore(ctx)
	}
	return 0, nil
}

func (s *fakeSweeper) HandleOverdue(context.Context, int) (int, error) { return 0, nil }

func (s *fakeSweeper) JudgeAgents(context.Context, int) (int, error) { return 0, nil }

func (s *fakeSweeper) SettleOverdueCalls(context.Context, int) (int, error) { return 0, nil }

func (s *fakeSweeper) RemindPeople(context.Context, []picket.ReminderRule, int) (int, error) {
	return 0, nil
}

func (s *fakeSweeper) ApplyRetention(_ context.Context, keep picket.Retention, _ int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, keep)
	return 0, nil
}

func (s *fakeSweeper) InspectNext(_ context.Context, limit int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inspections = append(s.inspections, time.Now())
	if limit != 100 {
		return fmt.Errorf("asked to look at %d entries", limit)
	}
	return nil
}

func (s *fakeSweeper) CountEnded(context.Context, int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts++
	return 0, nil
}

func (s *fakeSweeper) MeasureMemory(_ context.Context, limit int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measured = append(s.measured, limit)
	return 0, nil
}

// left says how many leases still have to expire.
func (s *fakeSweeper) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backlog
}

// failTicks makes every tick from now on answer err.
func (s *fakeSweeper) failTicks(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// start runs a reaper inside a synctest bubble and returns its log and the
// function that stops it and waits for it.
func start(t *testing.T, cfg reaper.Config) (log *logBuffer, stop func()) {
	t.Helper()
	log = &logBuffer{}
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	r, err := reaper.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return log, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run answered %v, a stopped reaper answers nil", err)
		}
	}
}

func TestTicksAtOnceAndNeverLessThanTwiceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := &fakeSweeper{}
		began := time.Now()
		_, stop := start(t, reaper.Config{Namespaces: map[string]reaper.Sweeper{"default": ns}})
		time.Sleep(time.Minute)
		stop()
		if len(ns.ticks) < 120 || !ns.ticks[0].Equal(began) {
			t.Fatalf("%d ticks in a minute, the first after %v", len(ns.ticks), ns.ticks[0].Sub(began))
		}
		gaps := map[time.Duration]bool{}
		for i := 1; i < len(ns.ticks); i++ {
			gap := ns.ticks[i].Sub(ns.ticks[i-1])
			gaps[gap] = true
			if gap > reaper.MaxTick || gap < reaper.MaxTick*8/10 {
				t.Fatalf("tick %d came %v after the one before", i, gap)
			}
		}
		if len(gaps) < 2 {
			t.Fatal("ticks are not jittered: reapers started together would stay in step")
		}
	})
}

func TestASlowSweepDoesNotHoldUpTheTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := &fakeSweeper{chore: func(ctx context.Context) { <-ctx.Done() }}
		_, stop := start(t, reaper.Config{Namespaces: map[string]reaper.Sweeper{"default": ns}})
		time.Sleep(10 * time.Second)
		stop() // and a sweep that hangs does not hold up the end
		if len(ns.ticks) < 20 {
			t.Fatalf("%d ticks in ten seconds beside a hanging sweep", len(ns.ticks))
		}
	})
}

func TestARoundRunsOnlyWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := &fakeSweeper{}
		_, stop := start(t, reaper.Config{Namespaces: map[string]reaper.Sweeper{"default": ns}})
		time.Sleep(time.Minute)
		synctest.Wait()
		if ns.calls != 0 || ns.counts != 0 {
			t.Fatalf("%d rounds of expiry and %d of counting while no tick said that anything is due", ns.calls, ns.counts)
		}
		ns.mu.Lock()
		ns.backlog = 1
		ns.mu.Unlock()
		time.Sleep(reaper.MaxTick)
		synctest.Wait()
		if ns.left() != 0 || ns.calls != 1 {
			t.Fatalf("%d left after a tick and %d rounds", ns.left(), ns.calls)
		}
		stop()
	})
}

// A record that breaks the tick must not keep leases alive.
func TestSweepsRunWhileTheTickFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := &fakeSweeper{err: errors.New("a record is damaged"), unknown: true, backlog: 1}
		_, stop := start(t, reaper.Config{Namespaces: map[string]reaper.Sweeper{"default": ns}})
		synctest.Wait()
		if ns.left() != 0 || ns.counts == 0 {
			t.Errorf("%d leases are left, and %d rounds of counting ran", ns.left(), ns.counts)
		}
		stop()
	})
}

// A sweep that has failed runs again, so its end of trouble is in the log, also if nothing is due any more.
func TestASweepThatHasFailedRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := &fakeSweeper{backlog: 1}
		fail := func(backlog int, err error) {
			ns.mu.Lock()
			ns.backlog, ns.expiry = backlog, err
			ns.mu.Unlock()
			time.Sleep(5 * time.Second)
		}
		log, stop := start(t, reaper.Config{Namespaces: map[string]reaper.Sweeper{"default": ns}})
		fail(1, errors.New("the store is away"))
		fail(0, nil) // another server has ended the lease
		fail(1, errors.New("the store is away"))
		stop()
		for text, want := range map[string]int{"sweep=expire": 3, "goes well again": 1} {
			if got := strings.Count(log.String(), text); got != want {
				t.Errorf("%q stands %d times in the log, want %d:\n%s", text, got, want, log)
			}
		}
	})
}

func TestABacklogIsEmptiedInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := &fakeSweeper{backlog: 1050}
		_, stop := start(t, reaper.Config{Namespaces: map[string]reaper.Sweeper{"default": ns}})
		synctest.Wait()
		stop()
		if ns.backlog != 0 || ns.calls != 11 {
			t.Fatalf("%d left after %d calls, want 0 after 11", ns.backlog, ns.calls)
		}
	})
}

func TestARoundIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := &fakeSweeper{backlog: 1000}
		_, stop := start(t, reaper.Config{Namespaces: map[string]reaper.Sweeper{"default": ns}, MaxBatches: 3})
		synctest.Wait()
		if left := ns.left(); left != 700 {
			t.Fatalf("%d left after the first round, want 700", left)
		}
		time.Sleep(reaper.MaxTick)
		synctest.Wait()
		if left := ns.left(); left > 400 {
			t.Fatalf("%d left after the second round: it does not go on", left)
		}
		stop()
	})
}

func TestRetentionRunsEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := &fakeSweeper{}
		keep := picket.Retention{Tasks: time.Hour, Events: time.Minute, MaxEvents: 7}
		_, stop := start(t, reaper.Config{Namespaces: map[string]reaper.Sweeper{"default": ns}, Retention: keep})
		time.Sleep(10 * time.Minute)
		stop()
		if n := len(ns.kept); n < 10 || n > 14 || ns.kept[0] != keep {
			t.Fatalf("%d rounds in ten minutes, the first with %+v", n, ns.kept[0])
		}
	})
}

func TestInvariantsAreInspectedEveryTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := &fakeSweeper{}
		log, stop := start(t, reaper.Config{Namespaces: map[string]reaper.Sweeper{"default": ns}})
		time.Sleep(10 * time.Minute)
		stop()
		if n := len(ns.inspections); n < 60 || n > 76 || log.String() != "" {
			t.Fatalf("%d looks in ten minutes; log: %s", n, log)
		}
	})
}

func TestANamespaceIsMeasuredEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := &fakeSweeper{}
		log, stop := start(t, reaper.Config{Namespaces: map[string]reaper.Sweeper{"default": ns}})
		time.Sleep(10 * time.Minute)
		stop()
		if n := len(ns.measured); n < 600 || n > 760 || ns.measured[0] != 500 || log.String() != "" {
			t.Fatalf("%d steps in ten minutes; log: %s", n, log)
		}
	})
}

func TestAFailingSweepIsLoggedOncePerChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := &fakeSweeper{}
		away := func(port int) error {
			return picket.Refuse(picket.CodeUnavailable, "", "read tcp 127.0.0.1:%d: connection refused", port)
		}
		log, stop := start(t, reaper.Config{Namespaces: map[string]reaper.Sweeper{"default": ns}})
		time.Sleep(5 * time.Second)
		for port := range 20 { // the text differs every time, the trouble does not
			ns.failTicks(away(40000 + port))
			time.Sleep(500 * time.Millisecond)
		}
		ns.failTicks(errors.New("script broken"))
		time.Sleep(5 * time.Second)
		ns.failTicks(nil)
		time.Sleep(5 * time.Second)
		stop()
		for text, want := range map[string]int{
			"code=orchestrator_unavailable": 1,
			"code=internal":                 1,
			"goes well again":               1,
			"sweep=tick":                    3,
		} {
			if got := strings.Count(log.String(), text); got != want {
				t.Errorf("%q stands %d times in the log, want %d:\n%s", text, got, want, log)
			}
		}
		if len(ns.ticks) < 50 {
			t.Errorf("%d ticks in 25 seconds: trouble stopped them", len(ns.ticks))
		}
	})
}

func TestAStoppedReaperDoesNotComplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := &fakeSweeper{}
		log, stop := start(t, reaper.Config{Namespaces: map[string]reaper.Sweeper{"default": ns}})
		synctest.Wait()
		ns.failTicks(context.Canceled)
		stop()
		if log.String() != "" {
			t.Fatalf("logged on a clean stop:\n%s", log)
		}
	})
}

func TestRefusesABadConfiguration(t *testing.T) {
	ns := map[string]reaper.Sweeper{"default": &fakeSweeper{}}
	for i, cfg := range []reaper.Config{
		{},
		{Namespaces: ns, TickEvery: time.Second},
		{Namespaces: ns, TickEvery: -1},
		{Namespaces: ns, RemindEvery: 1},
		{Namespaces: ns, InspectEvery: 1},
		{Namespaces: ns, MeasureEvery: 1},
		{Namespaces: ns, Batch: 5000},
		{Namespaces: ns, MaxBatches: -1},
	} {
		if _, err := reaper.New(cfg); err == nil {
			t.Errorf("configuration %d was taken: %+v", i, cfg)
		}
	}
}

func ExampleNew() {
	r, err := reaper.New(reaper.Config{Namespaces: map[string]reaper.Sweeper{"default": &fakeSweeper{}}})
	ctx, stop := context.WithCancel(context.Background())
	stop()
	fmt.Println(err, r.Run(ctx))
	// Output: <nil> <nil>
}

// logBuffer is a log that a test may read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
