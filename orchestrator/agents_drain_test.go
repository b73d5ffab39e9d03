package orchestrator_test

import (
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

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
			_, err := f.Complete(f.ctx, f.held(t, l), picket.RawJSON(`1`), "")
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
		"lease.expired undelivered": func(t *testing.T, f *fixture, l picket.Lease) { ok(t, f.Undeliver(f.ctx, l.RunID)) },
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
				if left := time.Duration(a.DrainDeadlineAt-a.LastHeartbeatAt) * time.Millisecond; left < 119*time.Second || left > 130*time.Second {
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
				f.saw(t, seq, "a1: active -> draining, drain_initiated by a1", event, event, "a1: draining -> deregistered, drain_completed by server")
				_, err = f.Heartbeat(f.ctx, owner, "a1", beating())
				refused(t, err, picket.CodeAgentGone)
			})
		})
	}
}
