package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func (f *fixture) mustDrain(t *testing.T, id string, change picket.AgentStatusChange) picket.Agent {
	t.Helper()
	a, err := f.ChangeAgent(f.Ctx, kit.AgentOwner, id, nil, change)
	kit.OK(t, err)
	if a.Status != picket.AgentDraining {
		t.Fatalf("drained to %+v", a)
	}
	return a
}

// A draining agent keeps what it has and gets nothing new; it is deregistered
// in the step in which its last lease ends, after the word about the lease.
func TestDrainEndsWithTheLastLease(t *testing.T) {
	ends := map[string]func(t *testing.T, f *fixture, l picket.Lease){
		"task.completed": func(t *testing.T, f *fixture, l picket.Lease) {
			_, err := f.Complete(f.Ctx, f.OpenLease(t, l), picket.Completion{Output: picket.RawJSON(`1`)})
			kit.OK(t, err)
		},
		"lease.released released": func(t *testing.T, f *fixture, l picket.Lease) {
			_, err := f.Release(f.Ctx, f.OpenLease(t, l), picket.Exit{Class: picket.ExitReleased})
			kit.OK(t, err)
		},
		"lease.failed no": func(t *testing.T, f *fixture, l picket.Lease) {
			_, err := f.Fail(f.Ctx, f.OpenLease(t, l), "no", true)
			kit.OK(t, err)
		},
		"task.handoff": func(t *testing.T, f *fixture, l picket.Lease) {
			_, err := f.RequestHelp(f.Ctx, f.OpenLease(t, l), picket.HelpRequest{Question: "?"})
			kit.OK(t, err)
		},
		"task.cancelled": func(t *testing.T, f *fixture, l picket.Lease) {
			_, err := f.Cancel(f.Ctx, kit.Operator, l.TaskID, "")
			kit.OK(t, err)
		},
		"lease.expired expired_by_operator": func(t *testing.T, f *fixture, l picket.Lease) {
			_, err := f.Expire(f.Ctx, kit.Operator, l.TaskID, "")
			kit.OK(t, err)
		},
		"lease.expired undelivered": func(t *testing.T, f *fixture, l picket.Lease) {
			kit.OK(t, f.Undeliver(f.Ctx, l.RunID))
		},
	}
	for event, end := range ends {
		t.Run(event, func(t *testing.T) {
			onBothStores(t, func(t *testing.T, f *fixture) {
				f.MustRegister(t, picket.Registration{AgentID: "a1"})
				var leases []picket.Lease
				for range 2 {
					f.MustSubmit(t, picket.TaskSpec{Review: picket.ReviewByNone})
					leases = append(leases, f.AcquireAsOwner(t, "a1"))
				}
				seq := f.mustLastSeq(t)
				a := f.mustDrain(t, "a1", kit.DrainChange)
				left := time.Duration(a.DrainDeadlineAt-a.LastHeartbeatAt) * time.Millisecond
				if left < 119*time.Second || left > 130*time.Second {
					t.Fatalf("the deadline is in %s", left)
				}
				_, err := f.Acquire(f.Ctx, kit.AgentOwner, picket.AcquireRequest{AgentID: "a1"})
				kit.Refused(t, err, picket.CodeAgentDraining)
				if got := f.MustHeartbeat(t, "a1"); got.AgentStatus != picket.AgentDraining {
					t.Fatalf("heartbeat %+v", got)
				}
				end(t, f, leases[0])
				f.wantAgent(t, "a1", picket.AgentDraining)
				_, err = f.Renew(f.Ctx, f.OpenLease(t, leases[1]))
				if event == "lease.expired undelivered" { // a confirmed lease was delivered
					kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:run:"+leases[1].RunID, "confirmed", "0").Err())
				}
				kit.OK(t, err)
				end(t, f, leases[1])
				f.wantAgent(t, "a1", picket.AgentDeregistered)
				f.wantEvents(t, seq, "a1: active -> draining, drain_initiated by a1", event, event,
					"a1: draining -> deregistered, drain_completed by server")
				_, err = f.Heartbeat(f.Ctx, kit.AgentOwner, "a1", kit.ActiveHeartbeat())
				kit.Refused(t, err, picket.CodeAgentGone)
			})
		})
	}
}

// An agent that holds nothing gets the end of its drain with its next heartbeat. The drain of a
// silent agent ends after one interval, or at the deadline if that is sooner.
func TestDrainOfAnIdleAgent(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for _, id := range []string{"beats", "silent", "short"} {
			f.MustRegister(t, picket.Registration{AgentID: id})
		}
		seq := f.mustLastSeq(t)
		f.mustDrain(t, "beats", kit.DrainChange)
		f.judgeAll(t)
		if got := f.MustHeartbeat(t, "beats"); got.AgentStatus != picket.AgentDeregistered {
			t.Fatalf("the heartbeat of a drained agent answers %s", got.AgentStatus)
		}
		_, err := f.Heartbeat(f.Ctx, kit.AgentOwner, "beats", kit.ActiveHeartbeat())
		kit.Refused(t, err, picket.CodeAgentGone)
		if e := refusalOf(err); e.Facts["agent_status"] != "deregistered" || e.Facts["reason"] != "drain_completed" {
			t.Fatalf("facts %v", e.Facts)
		}

		f.mustDrain(t, "silent", kit.DrainChange)
		f.tickFor(t, 29*time.Second)
		f.judgeAll(t)
		f.wantAgent(t, "silent", picket.AgentDraining)
		f.tickFor(t, time.Second)
		f.judgeAll(t)
		f.wantAgent(t, "silent", picket.AgentDeregistered)

		f.mustDrain(t, "short", picket.AgentStatusChange{Status: picket.AgentDraining, DrainTimeoutSeconds: kit.Ptr(0)})
		f.judgeAll(t)
		f.wantAgent(t, "short", picket.AgentDeregistered)
		var want []string
		for _, id := range []string{"beats", "silent", "short"} {
			want = append(want, id+": active -> draining, drain_initiated by "+id,
				id+": draining -> deregistered, drain_completed by server")
		}
		f.wantEvents(t, seq, want...)
	})
}

// At the deadline an agent that still holds leases is dead, however alive it
// is; that is not a failure of its tasks.
func TestDrainDeadline(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustRegister(t, picket.Registration{AgentID: "a1", DrainTimeoutSeconds: kit.Ptr(20)})
		f.MustSubmit(t, picket.TaskSpec{})
		l := f.AcquireAsOwner(t, "a1")
		_, err := f.Renew(f.Ctx, f.OpenLease(t, l))
		kit.OK(t, err)
		seq := f.mustLastSeq(t)
		a := f.mustDrain(t, "a1", kit.DrainChange)
		f.tickFor(t, 10*time.Second)
		again := f.mustDrain(t, "a1",
			picket.AgentStatusChange{Status: picket.AgentDraining, DrainTimeoutSeconds: kit.Ptr(500)})
		if moved := again.DrainDeadlineAt - a.DrainDeadlineAt; f.Virtual && moved != 0 || again.Version != a.Version {
			t.Fatalf("the deadline moved by %d ms: %+v", moved, again)
		}
		hb := kit.ActiveHeartbeat()
		hb.Status = picket.AgentDraining // which it does already
		_, err = f.Heartbeat(f.Ctx, kit.AgentOwner, "a1", hb)
		kit.OK(t, err)
		f.tickFor(t, 10*time.Second)
		_, err = f.Heartbeat(f.Ctx, kit.AgentOwner, "a1", kit.ActiveHeartbeat()) // no reaper came by
		kit.Refused(t, err, picket.CodeAgentGone)
		f.wantEvents(t, seq, "a1: active -> draining, drain_initiated by a1", "agent.drain_overdue drain_timeout",
			"a1: draining -> dead, drain_timeout by server", "lease.expired drain_timeout")
		task := f.WantState(t, l.TaskID, picket.TaskQueued)
		if task.Failures != 0 || task.Runs[0].Exit.Class != picket.ExitReleased {
			t.Fatalf("task %+v", task)
		}
		_, err = f.Deregister(f.Ctx, kit.AgentOwner, "a1", nil)
		kit.Refused(t, err, picket.CodeStateConflict)
	})
}

// Whatever came first decides between silence and the deadline of a drain,
// whenever it is looked at.
func TestDrainAndSilence(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for timeout, want := range map[int]string{3: "drain_timeout", 60: "heartbeat_timeout"} {
			id := "a-" + want
			f.MustRegister(t, shortThresholds(id))
			f.MustSubmit(t, picket.TaskSpec{})
			f.AcquireAsOwner(t, id)
			f.mustDrain(t, id, picket.AgentStatusChange{Status: picket.AgentDraining, DrainTimeoutSeconds: &timeout})
			f.tickFor(t, time.Second)
			f.MustHeartbeat(t, id) // active, which does not undo the drain
			f.wantAgent(t, id, picket.AgentDraining)
			seq := f.mustLastSeq(t)
			f.tickFor(t, 100*time.Second)
			f.judgeAll(t)
			f.wantAgent(t, id, picket.AgentDead)
			got := f.agentEventsAfter(t, seq)
			if event := id + ": draining -> dead, " + want + " by server"; got[0] != event && got[1] != event {
				t.Errorf("events %v", got)
			}
		}
	})
}

// Silence is over its threshold a millisecond after it; a drain that is due in
// the very same one counts.
func TestDrainAndSilenceInOneInstant(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		if !f.Virtual {
			t.Skip("it is about single milliseconds")
		}
		for after, want := range map[time.Duration]string{
			0:                    "drain_timeout",
			time.Millisecond:     "drain_timeout",
			2 * time.Millisecond: "heartbeat_timeout",
		} {
			id := fmt.Sprint("a", after.Milliseconds())
			f.MustRegister(t, shortThresholds(id)) // dead after 4 s
			f.MustSubmit(t, picket.TaskSpec{})
			f.AcquireAsOwner(t, id)
			f.MustHeartbeat(t, id)
			f.MoveStoreTime(t, after)
			f.mustDrain(t, id, picket.AgentStatusChange{Status: picket.AgentDraining, DrainTimeoutSeconds: kit.Ptr(4)})
			seq := f.mustLastSeq(t)
			f.tickFor(t, time.Minute)
			f.judgeAll(t)
			got := f.agentEventsAfter(t, seq)
			if event := id + ": draining -> dead, " + want + " by server"; got[0] != event && got[1] != event {
				t.Errorf("%v after the heartbeat: events %v", after, got)
			}
		}
	})
}

// The time a drain gets: what it says, else what a pending order says, else
// what was registered, else two minutes.
func TestDrainTimeouts(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for id, of := range map[string]struct {
			ordered    int
			registered int
			want       int
		}{
			"ordered": {40, 50, 40}, "registered": {0, 50, 50}, "neither": {0, 0, 120},
		} {
			reg := picket.Registration{AgentID: id}
			if of.registered > 0 {
				reg.DrainTimeoutSeconds = &of.registered
			}
			f.MustRegister(t, reg)
			c := picket.AgentCommand{Command: picket.CommandDrain}
			if of.ordered > 0 {
				c.DrainTimeoutSeconds = &of.ordered
			}
			_, err := f.CommandAgent(f.Ctx, kit.OtherOperator, id, c)
			kit.OK(t, err)
			hb := kit.ActiveHeartbeat()
			hb.Status = picket.AgentDraining
			seq := f.mustLastSeq(t)
			got, err := f.Heartbeat(f.Ctx, kit.AgentOwner, id, hb)
			kit.OK(t, err)
			if got.AgentStatus != picket.AgentDraining || len(got.PendingCommands) != 0 {
				t.Fatalf("heartbeat %+v", got)
			}
			a := f.wantAgent(t, id, picket.AgentDraining)
			if left := int(a.DrainDeadlineAt-got.ServerTimestamp) / 1000; left < of.want-5 || left > of.want {
				t.Errorf("%s: the deadline is in %d s, want %d", id, left, of.want)
			}
			f.wantEvents(t, seq, id+": active -> draining, drain_initiated by "+id, "agent.command")
		}
	})
}

// An unhealthy agent that says it drains has come back first.
func TestUnhealthyAgentDrains(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.agentWithStatus(t, "a1", picket.AgentUnhealthy)
		f.agentWithStatus(t, "a2", picket.AgentUnhealthy)
		f.tickFor(t, time.Second)
		seq := f.mustLastSeq(t)
		hb := kit.ActiveHeartbeat()
		hb.Status = picket.AgentDraining
		_, err := f.Heartbeat(f.Ctx, kit.OtherOperator, "a2", hb)
		kit.OK(t, err)
		f.wantEvents(t, seq, "a2: unhealthy -> active, heartbeat_resumed by key_operator",
			"a2: active -> draining, drain_initiated by key_operator")
	})
}
