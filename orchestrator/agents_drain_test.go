package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// operator2 is an operator who has registered nothing.
var operator2 = picket.Caller{Actor: "key_operator", Operator: true}

var draining = picket.AgentStatusChange{Status: picket.AgentDraining}

func (f *fixture) drain(t *testing.T, id string, change picket.AgentStatusChange) picket.Agent {
	t.Helper()
	a, err := f.ChangeAgent(f.ctx, owner, id, nil, change)
	ok(t, err)
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
			_, err := f.Complete(f.ctx, f.held(t, l), picket.Completion{Output: picket.RawJSON(`1`)})
			ok(t, err)
		},
		"lease.released released": func(t *testing.T, f *fixture, l picket.Lease) {
			_, err := f.Release(f.ctx, f.held(t, l), picket.Exit{Class: picket.ExitReleased})
			ok(t, err)
		},
		"lease.failed no": func(t *testing.T, f *fixture, l picket.Lease) {
			_, err := f.Fail(f.ctx, f.held(t, l), "no", true)
			ok(t, err)
		},
		"task.handoff": func(t *testing.T, f *fixture, l picket.Lease) {
			_, err := f.RequestHelp(f.ctx, f.held(t, l), picket.HelpRequest{Question: "?"})
			ok(t, err)
		},
		"task.cancelled": func(t *testing.T, f *fixture, l picket.Lease) {
			_, err := f.Cancel(f.ctx, operator, l.TaskID, "")
			ok(t, err)
		},
		"lease.expired expired_by_operator": func(t *testing.T, f *fixture, l picket.Lease) {
			_, err := f.Expire(f.ctx, operator, l.TaskID, "")
			ok(t, err)
		},
		"lease.expired undelivered": func(t *testing.T, f *fixture, l picket.Lease) {
			ok(t, f.Undeliver(f.ctx, l.RunID))
		},
	}
	for event, end := range ends {
		t.Run(event, func(t *testing.T) {
			both(t, func(t *testing.T, f *fixture) {
				f.register(t, picket.Registration{AgentID: "a1"})
				var leases []picket.Lease
				for range 2 {
					f.submit(t, picket.TaskSpec{Review: picket.ReviewByNone})
					leases = append(leases, f.own(t, "a1"))
				}
				seq := f.lastSeq(t)
				a := f.drain(t, "a1", draining)
				left := time.Duration(a.DrainDeadlineAt-a.LastHeartbeatAt) * time.Millisecond
				if left < 119*time.Second || left > 130*time.Second {
					t.Fatalf("the deadline is in %s", left)
				}
				_, err := f.Acquire(f.ctx, owner, picket.AcquireRequest{AgentID: "a1"})
				refused(t, err, picket.CodeAgentDraining)
				if got := f.beat(t, "a1"); got.AgentStatus != picket.AgentDraining {
					t.Fatalf("heartbeat %+v", got)
				}
				end(t, f, leases[0])
				f.agent(t, "a1", picket.AgentDraining)
				_, err = f.Renew(f.ctx, f.held(t, leases[1]))
				if event == "lease.expired undelivered" { // a confirmed lease was delivered
					ok(t, f.raw.HSet(f.ctx, "pk:{default}:run:"+leases[1].RunID, "confirmed", "0").Err())
				}
				ok(t, err)
				end(t, f, leases[1])
				f.agent(t, "a1", picket.AgentDeregistered)
				f.saw(t, seq, "a1: active -> draining, drain_initiated by a1", event, event,
					"a1: draining -> deregistered, drain_completed by server")
				_, err = f.Heartbeat(f.ctx, owner, "a1", beating())
				refused(t, err, picket.CodeAgentGone)
			})
		})
	}
}

// An agent that holds nothing hears of the end of its drain with its next
// heartbeat; one that is silent is done after one interval, or at the deadline
// where that is sooner.
func TestDrainOfAnIdleAgent(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		for _, id := range []string{"beats", "silent", "short"} {
			f.register(t, picket.Registration{AgentID: id})
		}
		seq := f.lastSeq(t)
		f.drain(t, "beats", draining)
		f.judge(t)
		if got := f.beat(t, "beats"); got.AgentStatus != picket.AgentDeregistered {
			t.Fatalf("the heartbeat of a drained agent answers %s", got.AgentStatus)
		}
		_, err := f.Heartbeat(f.ctx, owner, "beats", beating())
		refused(t, err, picket.CodeAgentGone)
		if e := refusalOf(err); e.Facts["agent_status"] != "deregistered" || e.Facts["reason"] != "drain_completed" {
			t.Fatalf("facts %v", e.Facts)
		}

		f.drain(t, "silent", draining)
		f.tickTo(t, 29*time.Second)
		f.judge(t)
		f.agent(t, "silent", picket.AgentDraining)
		f.tickTo(t, time.Second)
		f.judge(t)
		f.agent(t, "silent", picket.AgentDeregistered)

		f.drain(t, "short", picket.AgentStatusChange{Status: picket.AgentDraining, DrainTimeoutSeconds: ptr(0)})
		f.judge(t)
		f.agent(t, "short", picket.AgentDeregistered)
		var want []string
		for _, id := range []string{"beats", "silent", "short"} {
			want = append(want, id+": active -> draining, drain_initiated by "+id,
				id+": draining -> deregistered, drain_completed by server")
		}
		f.saw(t, seq, want...)
	})
}

// At the deadline an agent that still holds leases is dead, however alive it
// is; that is no failure of its tasks.
func TestDrainDeadline(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		f.register(t, picket.Registration{AgentID: "a1", DrainTimeoutSeconds: ptr(20)})
		f.submit(t, picket.TaskSpec{})
		l := f.own(t, "a1")
		_, err := f.Renew(f.ctx, f.held(t, l))
		ok(t, err)
		seq := f.lastSeq(t)
		a := f.drain(t, "a1", draining)
		f.tickTo(t, 10*time.Second)
		again := f.drain(t, "a1", picket.AgentStatusChange{Status: picket.AgentDraining, DrainTimeoutSeconds: ptr(500)})
		if moved := again.DrainDeadlineAt - a.DrainDeadlineAt; f.virtual && moved != 0 || again.Version != a.Version {
			t.Fatalf("the deadline moved by %d ms: %+v", moved, again)
		}
		hb := beating()
		hb.Status = picket.AgentDraining // which it does already
		_, err = f.Heartbeat(f.ctx, owner, "a1", hb)
		ok(t, err)
		f.tickTo(t, 10*time.Second)
		_, err = f.Heartbeat(f.ctx, owner, "a1", beating()) // no reaper came by
		refused(t, err, picket.CodeAgentGone)
		f.saw(t, seq, "a1: active -> draining, drain_initiated by a1", "agent.drain_overdue drain_timeout",
			"a1: draining -> dead, drain_timeout by server", "lease.expired drain_timeout")
		task := f.state(t, l.TaskID, picket.TaskQueued)
		if task.Failures != 0 || task.Runs[0].Exit.Class != picket.ExitReleased {
			t.Fatalf("task %+v", task)
		}
		_, err = f.Deregister(f.ctx, owner, "a1", nil)
		refused(t, err, picket.CodeStateConflict)
	})
}

// Whatever came first decides between silence and the deadline of a drain,
// whenever it is looked at.
func TestDrainAndSilence(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		for timeout, want := range map[int]string{3: "drain_timeout", 60: "heartbeat_timeout"} {
			id := "a-" + want
			f.register(t, quick(id))
			f.submit(t, picket.TaskSpec{})
			f.own(t, id)
			f.drain(t, id, picket.AgentStatusChange{Status: picket.AgentDraining, DrainTimeoutSeconds: &timeout})
			f.tickTo(t, time.Second)
			f.beat(t, id) // active, which does not undo the drain
			f.agent(t, id, picket.AgentDraining)
			seq := f.lastSeq(t)
			f.tickTo(t, 100*time.Second)
			f.judge(t)
			f.agent(t, id, picket.AgentDead)
			got := f.happened(t, seq)
			if event := id + ": draining -> dead, " + want + " by server"; got[0] != event && got[1] != event {
				t.Errorf("events %v", got)
			}
		}
	})
}

// Silence is over its threshold a millisecond after it; a drain that is due in
// the very same one counts.
func TestDrainAndSilenceInOneInstant(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		if !f.virtual {
			t.Skip("it is about single milliseconds")
		}
		for after, want := range map[time.Duration]string{
			0:                    "drain_timeout",
			time.Millisecond:     "drain_timeout",
			2 * time.Millisecond: "heartbeat_timeout",
		} {
			id := fmt.Sprint("a", after.Milliseconds())
			f.register(t, quick(id)) // dead after 4 s
			f.submit(t, picket.TaskSpec{})
			f.own(t, id)
			f.beat(t, id)
			f.advance(t, after)
			f.drain(t, id, picket.AgentStatusChange{Status: picket.AgentDraining, DrainTimeoutSeconds: ptr(4)})
			seq := f.lastSeq(t)
			f.tickTo(t, time.Minute)
			f.judge(t)
			got := f.happened(t, seq)
			if event := id + ": draining -> dead, " + want + " by server"; got[0] != event && got[1] != event {
				t.Errorf("%v after the heartbeat: events %v", after, got)
			}
		}
	})
}

// The time a drain gets: what it says, else what a pending order says, else
// what was registered, else two minutes.
func TestDrainTimeouts(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
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
			f.register(t, reg)
			c := picket.AgentCommand{Command: picket.CommandDrain}
			if of.ordered > 0 {
				c.DrainTimeoutSeconds = &of.ordered
			}
			_, err := f.CommandAgent(f.ctx, operator2, id, c)
			ok(t, err)
			hb := beating()
			hb.Status = picket.AgentDraining
			seq := f.lastSeq(t)
			got, err := f.Heartbeat(f.ctx, owner, id, hb)
			ok(t, err)
			if got.AgentStatus != picket.AgentDraining || len(got.PendingCommands) != 0 {
				t.Fatalf("heartbeat %+v", got)
			}
			a := f.agent(t, id, picket.AgentDraining)
			if left := int(a.DrainDeadlineAt-got.ServerTimestamp) / 1000; left < of.want-5 || left > of.want {
				t.Errorf("%s: the deadline is in %d s, want %d", id, left, of.want)
			}
			f.saw(t, seq, id+": active -> draining, drain_initiated by "+id, "agent.command")
		}
	})
}

// An unhealthy agent that says it drains has come back first.
func TestUnhealthyAgentDrains(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		f.in(t, "a1", picket.AgentUnhealthy)
		f.in(t, "a2", picket.AgentUnhealthy)
		f.tickTo(t, time.Second)
		seq := f.lastSeq(t)
		hb := beating()
		hb.Status = picket.AgentDraining
		_, err := f.Heartbeat(f.ctx, operator2, "a2", hb)
		ok(t, err)
		f.saw(t, seq, "a2: unhealthy -> active, heartbeat_resumed by key_operator",
			"a2: active -> draining, drain_initiated by key_operator")
	})
}
