//go:build unix

package adapter

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
)

const fixed = "agent_fixed"

// twin is another adapter with the same id at the same server.
func twin(t *testing.T, s *adaptertest.Server, state string, change ...func(*Config)) *Adapter {
	t.Helper()
	a, _ := stage(t, lasting(time.Hour), func(c *Config) {
		c.AgentID, c.BaseURL, c.HTTP, c.StateDir, c.PinnedOnly, c.Health = fixed, s.URL, s.HTTPClient(), state, true,
			quick
		for _, f := range change {
			f(c)
		}
	})
	return a
}

// Two adapters with one id: the second waits until the first is gone, and does
// it no harm, whether they share a machine or not.
func TestTwoOfOneID(t *testing.T) {
	for _, sameMachine := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := adaptertest.New()
			here, there := t.TempDir(), t.TempDir()
			if sameMachine {
				there = here
			}
			first, second := twin(t, s, here), twin(t, s, there)
			id := s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete})
			ctx, drain := context.WithCancel(t.Context())
			ended := running(ctx, first)
			if _, err := s.AwaitAgent(within(t, time.Minute), fixed, lists(id)); err != nil {
				t.Fatal(err)
			}
			other, drainOther := context.WithCancel(t.Context())
			otherEnded := running(other, second)
			if _, err := s.Await(within(t, 2*time.Hour), id, inReview); err != nil {
				t.Fatal(err)
			}
			if v := s.AgentView(fixed); len(v.Registrations) != 1 || len(v.Moves) != 0 || len(s.View(id).Runs) != 1 {
				t.Errorf("same machine %v: %+v, %+v", sameMachine, v.Moves, s.View(id))
			}
			drain()
			if err := ended(); err != nil {
				t.Error(err)
			}
			if _, err := s.AwaitAgent(within(t, time.Minute), fixed, registered(2)); err != nil {
				t.Errorf("same machine %v: %v", sameMachine, err)
			}
			drainOther()
			if err := otherEnded(); err != nil {
				t.Error(err)
			}
			for _, dir := range []string{here, there} {
				if left, _ := filepath.Glob(filepath.Join(dir, seatsDir, "*")); len(left) != 0 {
					t.Errorf("left behind: %v", left)
				}
			}
		})
	}
}

// Who waits for another one can be told to stop.
func TestWaitingForASeatIsDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, state := adaptertest.New(), t.TempDir()
		first, second := twin(t, s, state), twin(t, s, state)
		ctx, drain := context.WithCancel(t.Context())
		ended := running(ctx, first)
		if _, err := s.AwaitAgent(within(t, time.Minute), fixed, registered(1)); err != nil {
			t.Fatal(err)
		}
		other, drainOther := context.WithCancel(t.Context())
		otherEnded := running(other, second)
		time.Sleep(time.Minute)
		drainOther()
		if err := otherEnded(); err != nil {
			t.Error(err)
		}
		drain()
		if err := ended(); err != nil {
			t.Error(err)
		}
	})
}

// A process that died is followed at once on its machine, at any step of its
// registration, and only there; elsewhere its silence has to be waited for.
func TestFollowingTheDead(t *testing.T) {
	for _, tt := range []struct {
		name string
		note func(s *seat, instance string) error // what it left
		slow bool
	}{
		{"noted", func(s *seat, i string) error { return s.note(i) }, false},
		{"noted, and another attempt after it", func(s *seat, i string) error {
			if err := s.note(i); err != nil {
				return err
			}
			return s.note("later")
		}, false},
		{"from elsewhere", func(s *seat, _ string) error { return s.note("another") }, true},
		{"nothing", func(*seat, string) error { return nil }, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, state := adaptertest.New(), t.TempDir()
			a := twin(t, s, state)
			old, err := takeSeat(t.Context(), filepath.Join(state, seatsDir, fixed))
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.note(old, "before"); err != nil {
				t.Fatal(err)
			}
			old.lock.Close() // it dies
			reg, err := a.cfg.registration("before")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.client.Register(t.Context(), reg); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			ctx, drain := context.WithCancel(t.Context())
			ended := running(ctx, a)
			if _, err := s.AwaitAgent(within(t, 5*time.Minute), fixed, registered(2)); err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			if took := time.Since(start); tt.slow != (took >= quick.DeadAfter) || !tt.slow && took > 2*time.Second {
				t.Errorf("%s: it took %s", tt.name, took)
			}
			drain()
			if err := ended(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What cannot be ended keeps its registration: nobody may start beside it.
func TestNoEvictionBesideWhatLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, state := adaptertest.New(), t.TempDir()
		a := twin(t, s, state)
		m := &member{Adapter: a}
		if err := m.sit(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer m.leaveSeat()
		app, err := m.apply()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.client.Register(t.Context(), app.reg); err != nil {
			t.Fatal(err)
		}
		if evicted, err := m.evict(t.Context()); evicted || err != nil {
			t.Errorf("evicted although processes are left: %v", err)
		}
		m.clean = true
		if evicted, err := m.evict(t.Context()); !evicted || err != nil {
			t.Errorf("not evicted: %v", err)
		}
	})
}

// A seat that is given back under the lock is not held by who opened it before.
func TestSeatOfADirectoryThatWasDeleted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), seatsDir, fixed)
	first, err := takeSeat(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *seat, 1)
	go func() {
		s, err := takeSeat(t.Context(), dir)
		if err != nil {
			t.Error(err)
		}
		got <- s
	}()
	(&member{seat: first, left: true}).leaveSeat()
	second := <-got
	defer second.lock.Close()
	mine, _ := second.lock.Stat()
	if there, err := os.Stat(dir); err != nil || !os.SameFile(mine, there) {
		t.Errorf("the seat that is held is not the one that is there: %v", err)
	}
}
