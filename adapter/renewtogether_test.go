package adapter

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/internal/rig"
)

const (
	renewPath    = "/v1/lease/renew"
	togetherPath = "/v1/leases/renew"
)

// manyLeases is an adapter that holds several leases, whose agents run until they are killed.
type manyLeases struct {
	a    *Adapter
	s    *adaptertest.Server
	ids  []string
	stop func() error

	mu     sync.Mutex
	log    bytes.Buffer
	events []Event
}

func (m *manyLeases) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.log.Write(p)
}

// holdLeases starts an adapter and waits until it holds a lease of each window.
func holdLeases(t *testing.T, windows []time.Duration) *manyLeases {
	t.Helper()
	m := &manyLeases{}
	m.a, m.s = newScriptedAdapter(t, func(p *scriptedProcess) { <-p.done }, func(c *Config) {
		c.Max, c.PinnedOnly, c.Unregistered = len(windows), true, true
		c.Log = slog.New(slog.NewTextHandler(m, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.OnEvent = func(e Event) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.events = append(m.events, e)
		}
	})
	for _, window := range windows {
		m.ids = append(m.ids, m.s.Queue(adaptertest.Task{Window: window, Retries: 1}))
	}
	ctx, drain := context.WithCancel(t.Context())
	ended := runAsync(ctx, m.a)
	m.stop = func() error { drain(); m.a.ReleaseNow(); return ended() }
	for _, id := range m.ids {
		if _, err := m.s.Await(withTimeout(t, time.Hour), id, func(v adaptertest.View) bool {
			return len(v.Runs) == 1 && v.Runs[0].Renewals == 1
		}); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// end ends the adapter. Every agent has to have run until then, except those of the lost tasks.
func (m *manyLeases) end(t *testing.T, lost ...string) {
	t.Helper()
	for _, id := range m.ids {
		run := m.s.View(id).Runs[0]
		if gone := !run.Ended.IsZero(); gone != strings.Contains(fmt.Sprint(lost), id) {
			t.Errorf("task %s: its lease has ended: %v (%+v)", id, gone, run)
		}
	}
	if err := m.stop(); err != nil {
		t.Error(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	told := m.log.String() + fmt.Sprintf("%+v", m.events)
	for _, secret := range []string{picket.LeaseTokenPrefix, string(adaptertest.Key)} {
		if strings.Contains(told, secret) {
			t.Errorf("a credential is in the log or in an event: %s", told)
		}
	}
}

// requests counts those that were made to a path until now.
func (m *manyLeases) requests(path string) int { return len(m.s.Calls(path)) }

func (m *manyLeases) failures() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events {
		if e.Kind == EventRenewFailed {
			n++
		}
	}
	return n
}

// Each round of renewals is one request, and no lease is renewed late.
func TestTheLeasesOfAnAdapterAreRenewedTogether(t *testing.T) {
	for _, n := range []int{2, 64} {
		synctest.Test(t, func(t *testing.T) {
			m := holdLeases(t, slices.Repeat([]time.Duration{300 * time.Second}, n))
			alone := m.requests(renewPath)
			time.Sleep(10*180*time.Second + time.Second)
			if got := m.requests(togetherPath); got != 10 {
				t.Errorf("%d leases: %d requests in ten rounds", n, got)
			}
			if got := m.requests(renewPath); got != alone {
				t.Errorf("%d leases: %d renewals alone after the first", n, got-alone)
			}
			for _, id := range m.ids {
				if got := m.s.View(id).Runs[0].Renewals; got != 11 {
					t.Errorf("%d leases: one was renewed %d times", n, got)
				}
			}
			m.end(t)
		})
	}
}

// Leases that were acquired at different times come together within the tenth of the window in which a lease may be
// renewed early. Those that are farther apart stay apart.
func TestLeasesOfDifferentTimesComeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := holdLeases(t, slices.Repeat([]time.Duration{300 * time.Second}, 4))
		for i, id := range m.ids[1:] { // the first one is as old as the adapter
			m.s.Expire(id)
			time.Sleep(time.Duration(i+1) * 8 * time.Second)
		}
		time.Sleep(300 * time.Second)
		before := m.requests(togetherPath)
		time.Sleep(1800 * time.Second)
		if got := m.requests(togetherPath) - before; got < 10 || got > 11 {
			t.Errorf("%d requests in ten rounds", got)
		}
		if err := m.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A lost request or reply costs one attempt of each lease, which then is renewed alone, as after a lost renewal.
func TestALostRequestForSeveralLeases(t *testing.T) {
	for _, kind := range []adaptertest.Fault{adaptertest.Unavailable, adaptertest.DropRequest, adaptertest.DropReply,
		adaptertest.Hang, adaptertest.HangReply} {
		for _, window := range []time.Duration{5 * time.Second, 300 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				m := holdLeases(t, slices.Repeat([]time.Duration{window}, 3))
				alone := m.requests(renewPath)
				restore := m.s.Fail(togetherPath, kind, -1)
				time.Sleep(5 * window)
				if m.requests(togetherPath) == 0 || m.failures() == 0 {
					t.Errorf("fault %d: no request was lost", kind)
				}
				if m.requests(renewPath) == alone {
					t.Errorf("fault %d: no lease was renewed alone", kind)
				}
				restore()
				time.Sleep(15 * time.Minute) // the longest pause is over
				before := m.requests(renewPath)
				time.Sleep(3 * window)
				if got := m.requests(renewPath); got != before {
					t.Errorf("fault %d: %d renewals alone after the server is back", kind, got-before)
				}
				m.end(t)
			})
		}
	}
}

// An older server answers 404 once. No renewal fails for that, and no lease is late.
func TestRenewalsAtAnOlderServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := holdLeases(t, slices.Repeat([]time.Duration{300 * time.Second}, 4))
		m.s.SupportRenewals(false)
		before := m.requests(renewPath)
		time.Sleep(185 * time.Second)
		if m.requests(togetherPath) != 1 || m.requests(renewPath)-before != 4 || m.failures() != 0 {
			t.Errorf("%d requests together, %d alone, %d failures", m.requests(togetherPath),
				m.requests(renewPath)-before, m.failures())
		}
		time.Sleep(3600 * time.Second)
		if got := m.requests(togetherPath); got > 7 {
			t.Errorf("the older server was asked %d times in an hour", got)
		}
		m.s.SupportRenewals(true)
		time.Sleep(15 * time.Minute)
		before = m.requests(renewPath)
		time.Sleep(900 * time.Second)
		if got := m.requests(renewPath); got != before {
			t.Errorf("%d renewals alone after the update of the server", got-before)
		}
		m.end(t)
	})
}

// A lease that is lost ends its own agent at once, and no other one.
func TestOneOfSeveralLeasesIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := holdLeases(t, slices.Repeat([]time.Duration{300 * time.Second}, 4))
		defer m.s.Fail("/v1/lease/watch", adaptertest.Hang, -1)() // only the renewal tells
		m.s.Cancel(m.ids[3])
		time.Sleep(181 * time.Second)
		if got := m.requests(togetherPath); got != 1 {
			t.Errorf("%d requests", got)
		}
		time.Sleep(10 * time.Second)
		if run := m.s.View(m.ids[3]).Runs[0]; run.ExitReport == nil {
			t.Errorf("the agent of the cancelled task goes on: %+v", run)
		}
		time.Sleep(600 * time.Second)
		m.end(t, m.ids[3])
	})
}

// An error of one lease that may pass is retried for this lease alone.
func TestOneOfSeveralRenewalsFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := holdLeases(t, slices.Repeat([]time.Duration{300 * time.Second}, 4))
		alone := m.requests(renewPath)
		m.s.Fail("item "+m.s.View(m.ids[3]).Runs[0].RunID, adaptertest.Unavailable, 1)
		time.Sleep(200 * time.Second)
		if m.requests(togetherPath) != 1 || m.requests(renewPath)-alone != 1 || m.failures() != 1 {
			t.Errorf("%d requests together, %d alone, %d failures", m.requests(togetherPath),
				m.requests(renewPath)-alone, m.failures())
		}
		time.Sleep(600 * time.Second)
		if got := m.requests(renewPath) - alone; got != 1 {
			t.Errorf("%d renewals alone: the lease has not come back to the others", got)
		}
		m.end(t)
	})
}

// A lease that another key has acquired is renewed alone from then on, and loses no attempt.
func TestALeaseOfAnotherKeyIsRenewedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := holdLeases(t, slices.Repeat([]time.Duration{300 * time.Second}, 4))
		alone := m.requests(renewPath)
		m.s.TakeOver(m.s.View(m.ids[3]).Runs[0].RunID)
		time.Sleep(5 * 181 * time.Second)
		if m.requests(togetherPath) != 5 || m.requests(renewPath)-alone != 5 || m.failures() != 0 {
			t.Errorf("%d requests together, %d alone, %d failures", m.requests(togetherPath),
				m.requests(renewPath)-alone, m.failures())
		}
		m.end(t)
	})
}

// With an adopted store, each lease is reclaimed and renewed on its own, without a failure.
func TestSeveralLeasesAreReclaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := holdLeases(t, slices.Repeat([]time.Duration{300 * time.Second}, 4))
		restore := m.s.Fail("/v1/lease/watch", adaptertest.Hang, -1)
		m.s.Adopt()
		time.Sleep(185 * time.Second)
		for _, id := range m.ids {
			if run := m.s.View(id).Runs[0]; run.Reclaims != 1 {
				t.Errorf("reclaimed %d times", run.Reclaims)
			}
		}
		restore()
		if m.failures() != 0 {
			t.Errorf("%d failures", m.failures())
		}
		time.Sleep(600 * time.Second)
		m.end(t)
	})
}

// Whatever becomes of requests for several leases, no lease of any window ends while single renewals are answered.
func TestRequestsForSeveralLeasesMakeNoLeaseLate(t *testing.T) {
	seed := rig.Seed(t)
	synctest.Test(t, func(t *testing.T) {
		dice := rand.New(rand.NewPCG(seed, 1))
		m := holdLeases(t, []time.Duration{3 * time.Second, 5 * time.Second, 5 * time.Second, 10 * time.Second,
			10 * time.Second, 60 * time.Second, 60 * time.Second, 300 * time.Second})
		for range 40 {
			kind := []adaptertest.Fault{adaptertest.Unavailable, adaptertest.DropRequest, adaptertest.DropReply,
				adaptertest.Hang, adaptertest.HangReply}[dice.IntN(5)]
			restore := m.s.Fail(togetherPath, kind, -1)
			time.Sleep(time.Duration(dice.Int64N(int64(time.Minute))))
			restore()
			time.Sleep(time.Duration(dice.Int64N(int64(2 * time.Minute))))
		}
		if m.requests(togetherPath) < 20 || m.failures() < 10 {
			t.Errorf("%d requests together and %d failures only", m.requests(togetherPath), m.failures())
		}
		m.end(t)
	})
}
