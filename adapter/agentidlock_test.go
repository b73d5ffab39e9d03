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
	"github.com/picket-dev/picket/internal/rig"
)

const fixed = "agent_fixed"

// newFixedIDAdapter is another adapter with the same id at the same server.
func newFixedIDAdapter(t *testing.T, s *adaptertest.Server, state string, change ...func(*Config)) *Adapter {
	t.Helper()
	a, _ := newScriptedAdapter(t, runFor(time.Hour), func(c *Config) {
		c.AgentID, c.BaseURL, c.HTTP, c.StateDir, c.PinnedOnly, c.Health = fixed, s.URL, s.HTTPClient(), state, true,
			quickThresholds
		for _, f := range change {
			f(c)
		}
	})
	return a
}

// Two adapters with one id: the second waits until the first is gone, and does
// it no harm, whether they share a machine or not.
func TestTwoAdaptersWithOneID(t *testing.T) {
	rig.SkipShort(t)
	for _, sameMachine := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := adaptertest.New()
			here, there := t.TempDir(), t.TempDir()
			if sameMachine {
				there = here
			}
			first, second := newFixedIDAdapter(t, s, here), newFixedIDAdapter(t, s, there)
			id := s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete})
			ctx, drain := context.WithCancel(t.Context())
			ended := runAsync(ctx, first)
			if _, err := s.AwaitAgent(withTimeout(t, time.Minute), fixed, reportsTasks(id)); err != nil {
				t.Fatal(err)
			}
			other, drainOther := context.WithCancel(t.Context())
			otherEnded := runAsync(other, second)
			if _, err := s.Await(withTimeout(t, 2*time.Hour), id, inReview); err != nil {
				t.Fatal(err)
			}
			if v := s.AgentView(fixed); len(v.Registrations) != 1 || len(v.Transitions) != 0 ||
				len(s.View(id).Runs) != 1 {
				t.Errorf("same machine %v: %+v, %+v", sameMachine, v.Transitions, s.View(id))
			}
			drain()
			if err := ended(); err != nil {
				t.Error(err)
			}
			if _, err := s.AwaitAgent(withTimeout(t, time.Minute), fixed, registered(2)); err != nil {
				t.Errorf("same machine %v: %v", sameMachine, err)
			}
			drainOther()
			if err := otherEnded(); err != nil {
				t.Error(err)
			}
			for _, dir := range []string{here, there} {
				if left, _ := filepath.Glob(filepath.Join(dir, agentIDsDir, "*")); len(left) != 0 {
					t.Errorf("left behind: %v", left)
				}
			}
		})
	}
}

// Anyone who waits for another one can be told to stop.
func TestWaitingForAnAgentIDIsDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, state := adaptertest.New(), t.TempDir()
		first, second := newFixedIDAdapter(t, s, state), newFixedIDAdapter(t, s, state)
		ctx, drain := context.WithCancel(t.Context())
		ended := runAsync(ctx, first)
		if _, err := s.AwaitAgent(withTimeout(t, time.Minute), fixed, registered(1)); err != nil {
			t.Fatal(err)
		}
		other, drainOther := context.WithCancel(t.Context())
		otherEnded := runAsync(other, second)
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
func TestRegistrationOfADeadProcessIsReplaced(t *testing.T) {
	for _, tt := range []struct {
		name string
		note func(s *agentIDLock, instance string) error // what it left
		slow bool
	}{
		{"noted", func(s *agentIDLock, i string) error { return s.addInstance(i) }, false},
		{"noted, and another attempt after it", func(s *agentIDLock, i string) error {
			if err := s.addInstance(i); err != nil {
				return err
			}
			return s.addInstance("later")
		}, false},
		{"from elsewhere", func(s *agentIDLock, _ string) error { return s.addInstance("another") }, true},
		{"nothing", func(*agentIDLock, string) error { return nil }, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, state := adaptertest.New(), t.TempDir()
			a := newFixedIDAdapter(t, s, state)
			old, err := lockAgentIDDir(t.Context(), filepath.Join(state, agentIDsDir, fixed))
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.note(old, "before"); err != nil {
				t.Fatal(err)
			}
			old.lock.Close() // it dies
			reg, err := a.cfg.registrationRequest("before")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.client.Agents.Register(t.Context(), reg); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			ctx, drain := context.WithCancel(t.Context())
			ended := runAsync(ctx, a)
			if _, err := s.AwaitAgent(withTimeout(t, 5*time.Minute), fixed, registered(2)); err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			if took := time.Since(start); tt.slow != (took >= quickThresholds.DeadAfter) ||
				!tt.slow && took > 2*time.Second {
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
func TestRegistrationStaysWhileProcessesLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, state := adaptertest.New(), t.TempDir()
		a := newFixedIDAdapter(t, s, state)
		m := &registrar{Adapter: a}
		if err := m.lockAgentID(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer m.unlockAgentID()
		app, err := m.newAttempt()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.client.Agents.Register(t.Context(), app.reg); err != nil {
			t.Fatal(err)
		}
		if evicted, err := m.deregisterStale(t.Context()); evicted || err != nil {
			t.Errorf("evicted although processes are left: %v", err)
		}
		m.orphansEnded = true
		if evicted, err := m.deregisterStale(t.Context()); !evicted || err != nil {
			t.Errorf("not evicted: %v", err)
		}
	})
}

// A directory that is deleted under its lock is not held by a process that opened it before.
func TestAgentIDLockOfADeletedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), agentIDsDir, fixed)
	first, err := lockAgentIDDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *agentIDLock, 1)
	go func() {
		s, err := lockAgentIDDir(t.Context(), dir)
		if err != nil {
			t.Error(err)
		}
		got <- s
	}()
	(&registrar{idLock: first, deregistered: true}).unlockAgentID()
	second := <-got
	defer second.lock.Close()
	mine, _ := second.lock.Stat()
	if there, err := os.Stat(dir); err != nil || !os.SameFile(mine, there) {
		t.Errorf("the directory that is locked is not the one that exists: %v", err)
	}
}
