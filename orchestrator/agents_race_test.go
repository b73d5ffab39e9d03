package orchestrator_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Two that judge the same agents at once, and the agents themselves at the same
// time, write each step once.
func TestJudgedAtOnce(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	const agents = 20
	for i := range agents {
		f.MustRegister(t, shortThresholds(fmt.Sprint("a", i)))
	}
	seq := f.mustLastSeq(t)
	f.tickFor(t, 5*time.Second)
	var wg sync.WaitGroup
	for i := range agents {
		wg.Go(func() {
			_, err := f.JudgeAgents(f.Ctx, 7)
			if err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			_, err := f.Heartbeat(f.Ctx, kit.AgentOwner, fmt.Sprint("a", i), kit.ActiveHeartbeat())
			if picket.CodeOf(err) != picket.CodeAgentGone {
				t.Errorf("the heartbeat of a dead agent: %v", err)
			}
		})
	}
	wg.Wait()
	f.judgeAll(t)
	steps := map[string]int{}
	for _, ev := range f.agentEventsAfter(t, seq) {
		steps[ev]++
	}
	for i := range agents {
		for _, step := range []string{"active -> unhealthy", "unhealthy -> dead"} {
			if ev := fmt.Sprintf("a%d: %s, heartbeat_timeout by server", i, step); steps[ev] != 1 {
				t.Errorf("%d times %s", steps[ev], ev)
			}
		}
	}
	if len(steps) != 2*agents {
		t.Errorf("steps %v", steps)
	}
}

// Of those who register an id at once one does.
func TestRegisteredAtOnce(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	for range 10 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for i := range 8 {
			wg.Go(func() {
				_, err := f.Register(f.Ctx, picket.Caller{Actor: fmt.Sprint("key", i)}, shortThresholds("a1"))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				} else if picket.CodeOf(err) != picket.CodeStateConflict {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won != 1 {
			t.Fatalf("%d registered", won)
		}
		_, err := f.Deregister(f.Ctx, kit.OtherOperator, "a1", nil)
		kit.OK(t, err)
		kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:agent:a1").Err())
	}
}

// A worker that goes from task to task and drains completes its task and gets
// no other; that is the end of its drain.
func TestAdvanceOfADrainingAgent(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		next := func(id string) picket.AdvanceRequest {
			return picket.AdvanceRequest{
				Output:  picket.RawJSON(`1`),
				Acquire: picket.AcquireRequest{AgentID: id, WaitSeconds: kit.Ptr(20)},
			}
		}
		was := f.agentWithStatus(t, "a1", picket.AgentDraining)
		f.MustSubmit(t, picket.TaskSpec{})
		seq := f.mustLastSeq(t)
		got, err := f.Advance(f.Ctx, f.OpenLease(t, was.lease), kit.AgentOwner, next("a1"))
		kit.OK(t, err)
		if got.State != picket.TaskReview || len(got.Leases) != 0 {
			t.Fatalf("advanced to %+v", got)
		}
		if s, err := f.Stats(f.Ctx); err != nil || s.Waiters != 0 {
			t.Fatalf("%d wait for work that they do not get: %v", s.Waiters, err)
		}
		f.wantEvents(t, seq, "task.review", "a1: draining -> deregistered, drain_completed by server")
		again, err := f.Advance(f.Ctx, f.OpenLease(t, was.lease), kit.AgentOwner, next("a1"))
		kit.OK(t, err)
		if again.State != got.State || len(again.Leases) != 0 {
			t.Fatalf("advanced again to %+v", again)
		}

		was = f.agentWithStatus(t, "a2", picket.AgentActive)
		f.acquireRest(t)
		done := make(chan picket.Advanced, 1)
		go func() {
			got, err := f.Advance(f.Ctx, f.OpenLease(t, was.lease), kit.AgentOwner, next("a2"))
			if err != nil {
				t.Error(err)
			}
			done <- got
		}()
		f.waitForWaiters(t, 1)
		f.mustDrain(t, "a2", kit.DrainChange)
		if got := <-done; got.State != picket.TaskReview || len(got.Leases) != 0 {
			t.Fatalf("advanced to %+v", got)
		}

		was = f.agentWithStatus(t, "a3", picket.AgentActive)
		f.tickFor(t, 5*time.Second)
		_, err = f.Advance(f.Ctx, f.OpenLease(t, was.lease), kit.AgentOwner, next("a3"))
		kit.Refused(t, err, picket.CodeLeaseExpired)
	})
}

func (f *fixture) acquireRest(t *testing.T) {
	t.Helper()
	for {
		got, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "other"})
		kit.OK(t, err)
		if len(got) == 0 {
			return
		}
	}
}

// What registration costs: an agent that is not registered pays nothing where
// nobody is; elsewhere one look for each grant, and one for its name when it completes.
// One that is registered pays one look more in each verb, and its place among the holders.
// Where there are no messages, nobody looks into an inbox.
func TestWhatRegistrationCostsReal(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	life := func(id string) map[string]int {
		f.MustSubmit(t, picket.TaskSpec{})
		before := commandCalls(t, f.Raw)
		l := f.AcquireAsOwner(t, id)
		h := f.OpenLease(t, l)
		_, err := f.Renew(f.Ctx, h)
		kit.OK(t, err)
		_, err = f.Report(f.Ctx, h, "r1", picket.Progress{Summary: "s"})
		kit.OK(t, err)
		_, err = f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		kit.OK(t, err)
		after := commandCalls(t, f.Raw)
		maps.DeleteFunc(after, func(command string, n int) bool {
			return command == "info" || command == "eval" || n == before[command]
		})
		for command := range after {
			after[command] -= before[command]
		}
		return after
	}
	life("a0") // loads the scripts
	alone := life("a1")
	f.MustRegister(t, picket.Registration{AgentID: "a2"})
	beside, registered := life("a1"), life("a2")
	differs := func(got map[string]int, want map[string]int) map[string]int {
		diff := maps.Clone(got)
		for command, n := range alone {
			diff[command] -= n
		}
		for command, n := range want {
			diff[command] -= n
		}
		maps.DeleteFunc(diff, func(_ string, n int) bool { return n == 0 })
		return diff
	}
	delete(alone, "hset") // store time is written every 100 ms
	delete(beside, "hset")
	delete(registered, "hset")
	if diff := differs(beside, map[string]int{"hmget": 2}); len(diff) > 0 {
		t.Errorf("beside a registered agent it costs %v more than two looks", diff)
	}
	want := map[string]int{"hmget": 5, "zadd": 1, "zrem": 1}
	if diff := differs(registered, want); len(diff) > 0 {
		t.Errorf("registered it costs %v more than five looks and a place", diff)
	}
	t.Logf("alone %v, beside %v, registered %v", alone, beside, registered)
}

// The caller of a long poll that goes away leaves nothing behind that the end
// of the agent would wake.
func TestAWaiterThatLeavesIsForgotten(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustRegister(t, picket.Registration{AgentID: "a1"})
		ctx, leave := context.WithCancel(f.Ctx)
		ended := make(chan error, 1)
		go func() {
			_, err := f.Acquire(ctx, kit.AgentOwner, picket.AcquireRequest{AgentID: "a1", WaitSeconds: kit.Ptr(30)})
			ended <- err
		}()
		f.waitForWaiters(t, 1)
		leave()
		<-ended
		f.mustDrain(t, "a1", kit.DrainChange)
		if s, err := f.Stats(f.Ctx); err != nil || s.Waiters != 0 {
			t.Fatalf("%d waiters: %v", s.Waiters, err)
		}
	})
}
