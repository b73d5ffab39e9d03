package orchestrator_test

import (
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// No sweep has looked at the agent: whatever it does next is judged by time all
// the same, with both steps in the log.
func TestTimeJudgesWithoutAReaper(t *testing.T) {
	verbs := map[string]func(f *fixture, id string) error{
		"heartbeat": func(f *fixture, id string) error {
			_, err := f.Heartbeat(f.ctx, owner, id, beating())
			return err
		},
		"acquire": func(f *fixture, id string) error {
			_, err := f.Acquire(f.ctx, owner, picket.AcquireRequest{AgentID: id})
			return err
		},
		"drain": func(f *fixture, id string) error {
			_, err := f.ChangeAgent(f.ctx, owner, id, nil, draining)
			return err
		},
		"deregister": func(f *fixture, id string) error {
			_, err := f.Deregister(f.ctx, owner, id, nil)
			return err
		},
		"command": func(f *fixture, id string) error {
			_, err := f.CommandAgent(f.ctx, owner, id, picket.AgentCommand{Command: picket.CommandPing})
			return err
		},
		"register": func(f *fixture, id string) error {
			_, err := f.Register(f.ctx, owner, quick(id))
			return err
		},
	}
	gone := map[string]picket.Code{
		"heartbeat":  picket.CodeAgentGone,
		"acquire":    picket.CodeAgentGone,
		"command":    picket.CodeAgentGone,
		"drain":      picket.CodeStateConflict,
		"deregister": picket.CodeStateConflict,
	}
	both(t, func(t *testing.T, f *fixture) {
		for name, verb := range verbs {
			f.register(t, quick(name))
			seq := f.lastSeq(t)
			f.tickTo(t, 4*time.Second+time.Millisecond)
			err := verb(f, name)
			want := []string{name + ": active -> unhealthy, heartbeat_timeout by server",
				name + ": unhealthy -> dead, heartbeat_timeout by server"}
			if name == "register" {
				ok(t, err)
				want = append(want, name+": dead -> active, re_registered by "+name)
			} else {
				refused(t, err, gone[name])
			}
			f.saw(t, seq, want...)
		}
	})
}

// A lease belongs to the registration it was granted to: a process of the one
// before can neither use nor get any, and the new one is not disturbed by the
// end of the old.
func TestOldIncarnations(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		was := f.in(t, "a1", picket.AgentActive)
		old := f.agent(t, "a1", picket.AgentActive)
		for range 150 {
			f.submit(t, picket.TaskSpec{LeaseWindowSeconds: ptr(3600)})
		}
		f.acquireAll(t, "a1", 150)
		f.tickTo(t, 5*time.Second)
		f.judge(t) // 100 leases end; 51 are void and wait for their book-keeping
		a := f.register(t, quick("a1"))
		if a.Incarnation <= old.Incarnation {
			t.Fatalf("incarnation %d after %d", a.Incarnation, old.Incarnation)
		}
		hb := beating()
		hb.Incarnation = old.Incarnation
		_, err := f.Heartbeat(f.ctx, owner, "a1", hb)
		refused(t, err, picket.CodeAgentGone)
		_, err = f.Acquire(f.ctx, owner, picket.AcquireRequest{AgentID: "a1", Incarnation: old.Incarnation})
		refused(t, err, picket.CodeAgentGone)
		hb.Incarnation = a.Incarnation + 1 // an older store was restored
		_, err = f.Heartbeat(f.ctx, owner, "a1", hb)
		ok(t, err)
		f.submit(t, picket.TaskSpec{Title: "of the new one", Priority: ptr(9), LeaseWindowSeconds: ptr(3600)})
		own, err := f.Acquire(f.ctx, owner, picket.AcquireRequest{AgentID: "a1", Incarnation: a.Incarnation + 1})
		ok(t, err)
		f.chores(t)
		_, err = f.Renew(f.ctx, f.held(t, own[0]))
		ok(t, err)
		_, err = f.Renew(f.ctx, f.held(t, was.lease))
		refused(t, err, picket.CodeLeaseExpired)
		left, err := f.Leases(f.ctx)
		ok(t, err)
		if len(left) != 1 || left[0].TaskID != own[0].TaskID {
			t.Fatalf("%d leases are left", len(left))
		}
	})
}

func (f *fixture) acquireAll(t *testing.T, id string, n int) (all []picket.Lease) {
	t.Helper()
	for len(all) < n {
		got, err := f.Acquire(f.ctx, owner, picket.AcquireRequest{AgentID: id, Max: ptr(50)})
		ok(t, err)
		all = append(all, got...)
	}
	return all
}

// An unhealthy agent keeps its leases and gets more; a lease that runs out of
// time says nothing about its agent.
func TestHealthAndLeasesAreTwoThings(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		was := f.in(t, "a1", picket.AgentUnhealthy)
		_, err := f.Renew(f.ctx, f.held(t, was.lease))
		ok(t, err)
		f.submit(t, picket.TaskSpec{})
		f.own(t, "a1")
		f.agent(t, "a1", picket.AgentUnhealthy)

		a := f.register(t, picket.Registration{AgentID: "a2"})
		f.submit(t, picket.TaskSpec{})
		l := f.own(t, "a2")
		seq := f.lastSeq(t)
		f.pass(t, 31*time.Second) // nobody has confirmed it
		if after := f.agent(t, "a2", picket.AgentActive); after.Version != a.Version {
			t.Fatalf("%+v became %+v", a, after)
		}
		_, err = f.Renew(f.ctx, f.held(t, l))
		refused(t, err, picket.CodeLeaseExpired)
		if got := f.happened(t, seq); len(got) != 2 {
			t.Fatalf("events %v", got)
		}
	})
}

// Removing an agent ends its leases at once, and is no failure of its tasks. A
// lease that was granted before the agent registered is not its.
func TestDeregistrationEndsLeases(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		before := f.submit(t, picket.TaskSpec{})
		early := f.own(t, "a1")
		f.register(t, quick("a1"))
		for range 120 {
			f.submit(t, picket.TaskSpec{})
		}
		all := f.acquireAll(t, "a1", 120)
		seq := f.lastSeq(t)
		_, err := f.Deregister(f.ctx, operator2, "a1", nil)
		ok(t, err)
		for _, l := range all {
			_, err := f.Renew(f.ctx, f.held(t, l))
			refused(t, err, picket.CodeLeaseExpired)
		}
		last := all[len(all)-1]
		watch, changed, err := f.Watch(f.ctx, f.held(t, last), time.Minute)
		ok(t, err)
		if !changed || watch.State != picket.WatchLost {
			t.Fatalf("the watch of a void lease tells %+v", watch)
		}
		f.chores(t)
		_, err = f.Renew(f.ctx, f.held(t, early))
		ok(t, err)
		f.state(t, before.TaskID, picket.TaskLeased)
		got := f.happened(t, seq)
		if len(got) != 121 || got[0] != "a1: active -> deregistered, deregistered by key_operator" ||
			got[120] != "lease.expired agent_deregistered" {
			t.Fatalf("%d events: %v", len(got), got)
		}
		if task := f.state(t, last.TaskID, picket.TaskQueued); task.Failures != 0 {
			t.Fatalf("task %+v", task)
		}
	})
}

// A process that was announced is gone when its agent can have died of
// silence, so the next run need not wait for the old lease to run out.
func TestDeathIsTheEndOfTheProcess(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		was := f.in(t, "a1", picket.AgentActive)
		ok(t, f.RunEvents(f.ctx, f.held(t, was.lease),
			[]picket.RunEvent{{Type: picket.EventRunLaunched, Containment: "cgroup"}}))
		f.tickTo(t, 5*time.Second)
		f.judge(t)
		if l := f.lease(t, picket.AcquireRequest{AgentID: "a2"}); l.TaskID != was.lease.TaskID || l.FencingToken != 2 {
			t.Fatalf("leased %+v", l)
		}
	})
}

// Who waits for work hears at once that there is none for it any more.
func TestWaitersHearOfTheEnd(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ends := map[picket.Code]func(id string) error{
			picket.CodeAgentDraining: func(id string) error {
				_, err := f.ChangeAgent(f.ctx, owner, id, nil, draining)
				return err
			},
			picket.CodeAgentGone: func(id string) error {
				_, err := f.Deregister(f.ctx, owner, id, nil)
				return err
			},
		}
		for code, end := range ends {
			f.register(t, picket.Registration{AgentID: string(code)})
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					_, err := f.Acquire(f.ctx, owner,
						picket.AcquireRequest{AgentID: string(code), WaitSeconds: ptr(30)})
					if picket.CodeOf(err) != code || err == nil {
						t.Errorf("a waiter got %v, want %s", err, code)
					}
				})
			}
			f.waiters(t, 3)
			ok(t, end(string(code)))
			wg.Wait()
		}
	})
}

// waiters waits until so many long polls are registered.
func (f *fixture) waiters(t *testing.T, n int64) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		s, err := f.Stats(f.ctx)
		ok(t, err)
		if s.Waiters >= n {
			return
		}
	}
	t.Fatalf("no %d waiters", n)
}
