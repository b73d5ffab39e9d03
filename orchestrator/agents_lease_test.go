package orchestrator_test

import (
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// No sweep has looked at the agent: whatever it does next is judged by time all
// the same, with both steps in the log.
func TestTimeJudgesWithoutAReaper(t *testing.T) {
	verbs := map[string]func(f *fixture, id string) error{
		"heartbeat": func(f *fixture, id string) error {
			_, err := f.Heartbeat(f.Ctx, kit.AgentOwner, id, kit.ActiveHeartbeat())
			return err
		},
		"acquire": func(f *fixture, id string) error {
			_, err := f.Acquire(f.Ctx, kit.AgentOwner, picket.AcquireRequest{AgentID: id})
			return err
		},
		"drain": func(f *fixture, id string) error {
			_, err := f.ChangeAgent(f.Ctx, kit.AgentOwner, id, nil, kit.DrainChange)
			return err
		},
		"deregister": func(f *fixture, id string) error {
			_, err := f.Deregister(f.Ctx, kit.AgentOwner, id, nil)
			return err
		},
		"command": func(f *fixture, id string) error {
			_, err := f.CommandAgent(f.Ctx, kit.AgentOwner, id, picket.AgentCommand{Command: picket.CommandPing})
			return err
		},
		"register": func(f *fixture, id string) error {
			_, err := f.Register(f.Ctx, kit.AgentOwner, shortThresholds(id))
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
	onBothStores(t, func(t *testing.T, f *fixture) {
		for name, verb := range verbs {
			f.MustRegister(t, shortThresholds(name))
			seq := f.mustLastSeq(t)
			f.tickFor(t, 4*time.Second+time.Millisecond)
			err := verb(f, name)
			want := []string{name + ": active -> unhealthy, heartbeat_timeout by server",
				name + ": unhealthy -> dead, heartbeat_timeout by server"}
			if name == "register" {
				kit.OK(t, err)
				want = append(want, name+": dead -> active, re_registered by "+name)
			} else {
				kit.Refused(t, err, gone[name])
			}
			f.wantEvents(t, seq, want...)
		}
	})
}

// A lease belongs to the registration it was granted to: a process of the one
// before can neither use nor get any, and the new one is not disturbed by the
// end of the old.
func TestOldIncarnations(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		was := f.agentWithStatus(t, "a1", picket.AgentActive)
		old := f.wantAgent(t, "a1", picket.AgentActive)
		for range 150 {
			f.MustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(3600)})
		}
		f.acquireAll(t, "a1", 150)
		f.tickFor(t, 5*time.Second)
		f.judgeAll(t) // 100 leases end; 51 are void and wait for their book-keeping
		a := f.MustRegister(t, shortThresholds("a1"))
		if a.Incarnation <= old.Incarnation {
			t.Fatalf("incarnation %d after %d", a.Incarnation, old.Incarnation)
		}
		hb := kit.ActiveHeartbeat()
		hb.Incarnation = old.Incarnation
		_, err := f.Heartbeat(f.Ctx, kit.AgentOwner, "a1", hb)
		kit.Refused(t, err, picket.CodeAgentGone)
		_, err = f.Acquire(f.Ctx, kit.AgentOwner, picket.AcquireRequest{AgentID: "a1", Incarnation: old.Incarnation})
		kit.Refused(t, err, picket.CodeAgentGone)
		hb.Incarnation = a.Incarnation + 1 // an older store was restored
		_, err = f.Heartbeat(f.Ctx, kit.AgentOwner, "a1", hb)
		kit.OK(t, err)
		f.MustSubmit(t, picket.TaskSpec{Title: "of the new one", Priority: kit.Ptr(9),
			LeaseWindowSeconds: kit.Ptr(3600)})
		own, err := f.Acquire(f.Ctx, kit.AgentOwner, picket.AcquireRequest{AgentID: "a1",
			Incarnation: a.Incarnation + 1})
		kit.OK(t, err)
		f.runAllChores(t)
		_, err = f.Renew(f.Ctx, f.OpenLease(t, own[0]))
		kit.OK(t, err)
		_, err = f.Renew(f.Ctx, f.OpenLease(t, was.lease))
		kit.Refused(t, err, picket.CodeLeaseExpired)
		left, err := f.Leases(f.Ctx)
		kit.OK(t, err)
		if left.Total != 1 || left.Leases[0].TaskID != own[0].TaskID {
			t.Fatalf("%d leases are left", left.Total)
		}
	})
}

func (f *fixture) acquireAll(t *testing.T, id string, n int) (all []picket.Lease) {
	t.Helper()
	for len(all) < n {
		got, err := f.Acquire(f.Ctx, kit.AgentOwner, picket.AcquireRequest{AgentID: id, Max: kit.Ptr(50)})
		kit.OK(t, err)
		all = append(all, got...)
	}
	return all
}

// An unhealthy agent keeps its leases and gets more; a lease that runs out of
// time says nothing about its agent.
func TestHealthAndLeasesAreTwoThings(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		was := f.agentWithStatus(t, "a1", picket.AgentUnhealthy)
		_, err := f.Renew(f.Ctx, f.OpenLease(t, was.lease))
		kit.OK(t, err)
		f.MustSubmit(t, picket.TaskSpec{})
		f.AcquireAsOwner(t, "a1")
		f.wantAgent(t, "a1", picket.AgentUnhealthy)

		a := f.MustRegister(t, picket.Registration{AgentID: "a2"})
		f.MustSubmit(t, picket.TaskSpec{})
		l := f.AcquireAsOwner(t, "a2")
		seq := f.mustLastSeq(t)
		f.RunReaperFor(t, 31*time.Second) // nobody has confirmed it
		if after := f.wantAgent(t, "a2", picket.AgentActive); after.Version != a.Version {
			t.Fatalf("%+v became %+v", a, after)
		}
		_, err = f.Renew(f.Ctx, f.OpenLease(t, l))
		kit.Refused(t, err, picket.CodeLeaseExpired)
		if got := f.agentEventsAfter(t, seq); len(got) != 2 {
			t.Fatalf("events %v", got)
		}
	})
}

// Removing an agent ends its leases at once, and is not a failure of its tasks. A
// lease that was granted before the agent registered is not its.
func TestDeregistrationEndsLeases(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		before := f.MustSubmit(t, picket.TaskSpec{})
		early := f.AcquireAsOwner(t, "a1")
		f.MustRegister(t, shortThresholds("a1"))
		for range 120 {
			f.MustSubmit(t, picket.TaskSpec{})
		}
		all := f.acquireAll(t, "a1", 120)
		seq := f.mustLastSeq(t)
		_, err := f.Deregister(f.Ctx, kit.OtherOperator, "a1", nil)
		kit.OK(t, err)
		for _, l := range all {
			_, err := f.Renew(f.Ctx, f.OpenLease(t, l))
			kit.Refused(t, err, picket.CodeLeaseExpired)
		}
		last := all[len(all)-1]
		watch, changed, err := f.Watch(f.Ctx, f.OpenLease(t, last), time.Minute)
		kit.OK(t, err)
		if !changed || watch.State != picket.WatchLost {
			t.Fatalf("the watch of a void lease tells %+v", watch)
		}
		f.runAllChores(t)
		_, err = f.Renew(f.Ctx, f.OpenLease(t, early))
		kit.OK(t, err)
		f.WantState(t, before.TaskID, picket.TaskLeased)
		got := f.agentEventsAfter(t, seq)
		if len(got) != 121 || got[0] != "a1: active -> deregistered, deregistered by key_operator" ||
			got[120] != "lease.expired agent_deregistered" {
			t.Fatalf("%d events: %v", len(got), got)
		}
		if task := f.WantState(t, last.TaskID, picket.TaskQueued); task.Failures != 0 {
			t.Fatalf("task %+v", task)
		}
	})
}

// A process that was announced is gone when its agent can have died of
// silence, so the next run need not wait for the old lease to run out.
func TestDeathIsTheEndOfTheProcess(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		was := f.agentWithStatus(t, "a1", picket.AgentActive)
		kit.OK(t, f.RunEvents(f.Ctx, f.OpenLease(t, was.lease),
			[]picket.RunEvent{{Type: picket.EventRunLaunched, Containment: "cgroup"}}))
		f.tickFor(t, 5*time.Second)
		f.judgeAll(t)
		if l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a2"}); l.TaskID != was.lease.TaskID ||
			l.FencingToken != 2 {
			t.Fatalf("leased %+v", l)
		}
	})
}

// Anyone who waits for work hears at once that there is none for it any more.
func TestWaitersHearOfTheEnd(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		ends := map[picket.Code]func(id string) error{
			picket.CodeAgentDraining: func(id string) error {
				_, err := f.ChangeAgent(f.Ctx, kit.AgentOwner, id, nil, kit.DrainChange)
				return err
			},
			picket.CodeAgentGone: func(id string) error {
				_, err := f.Deregister(f.Ctx, kit.AgentOwner, id, nil)
				return err
			},
		}
		for code, end := range ends {
			f.MustRegister(t, picket.Registration{AgentID: string(code)})
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					_, err := f.Acquire(f.Ctx, kit.AgentOwner,
						picket.AcquireRequest{AgentID: string(code), WaitSeconds: kit.Ptr(30)})
					if picket.CodeOf(err) != code || err == nil {
						t.Errorf("a waiter got %v, want %s", err, code)
					}
				})
			}
			f.waitForWaiters(t, 3)
			kit.OK(t, end(string(code)))
			wg.Wait()
		}
	})
}

// waitForWaiters waits until so many long polls are registered.
func (f *fixture) waitForWaiters(t *testing.T, n int64) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		s, err := f.Stats(f.Ctx)
		kit.OK(t, err)
		if s.Waiters >= n {
			return
		}
	}
	t.Fatalf("no %d waiters", n)
}
