package orchestrator_test

import (
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// An attached agent is in lists that ask for it, in no pool and in no discovery. It takes the task
// that is pinned to it, and no task of anybody else, whatever its request says.
func TestAttachedAgents(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		reg := shortThresholds("run-1")
		reg.RoleID, reg.Capacity = picket.RoleAttached, &picket.DeclaredCapacity{MaxConcurrentTasks: kit.Ptr(5)}
		f.MustRegister(t, reg)
		f.MustRegister(t, picket.Registration{AgentID: "coder-1", RoleID: "coder"})
		f.MustRegister(t, picket.Registration{AgentID: "plain"})
		list := func(q picket.AgentQuery, want ...string) {
			t.Helper()
			page, err := f.Agents(f.Ctx, q)
			kit.OK(t, err)
			listed(t, page, want...)
			q.Limit = 1 // its total is counted in another way
			page, err = f.Agents(f.Ctx, q)
			kit.OK(t, err)
			if page.Total != len(want) {
				t.Errorf("%+v: a total of %d, want %d", q, page.Total, len(want))
			}
		}
		owner := kit.AgentOwner.Actor
		list(picket.AgentQuery{}, "coder-1", "plain")
		list(picket.AgentQuery{MinAvailable: kit.Ptr(1)})
		list(picket.AgentQuery{Role: picket.RoleAttached})
		list(picket.AgentQuery{Role: picket.RoleAttached, Owner: owner})
		list(picket.AgentQuery{Attached: true}, "coder-1", "plain", "run-1")
		list(picket.AgentQuery{Role: picket.RoleAttached, Attached: true}, "run-1")
		list(picket.AgentQuery{Owner: owner}, "plain", "coder-1")
		list(picket.AgentQuery{Owner: owner, Attached: true}, "plain", "run-1", "coder-1")
		// Another key sees its own alone.
		other := picket.Caller{Actor: "key_other"}
		_, err := f.Register(f.Ctx, other, picket.Registration{AgentID: "run-2", RoleID: picket.RoleAttached})
		kit.OK(t, err)
		list(picket.AgentQuery{Owner: other.Actor, Attached: true}, "run-2")
		list(picket.AgentQuery{Owner: other.Actor, Role: picket.RoleAttached, Attached: true}, "run-2")

		for _, key := range []string{"", owner} {
			pools, err := f.Pools(f.Ctx, "", key)
			kit.OK(t, err)
			if len(pools) != 1 || pools[0].RoleID != "coder" {
				t.Errorf("pools of %q: %+v", key, pools)
			}
			if pools, err = f.Pools(f.Ctx, picket.RoleAttached, key); err != nil || len(pools) != 0 {
				t.Errorf("the pool of attached agents: %+v, %v", pools, err)
			}
		}

		others := f.MustSubmit(t, picket.TaskSpec{})
		own := f.MustSubmit(t, picket.TaskSpec{Agent: "run-1"})
		take := func(req picket.AcquireRequest) []picket.Lease {
			t.Helper()
			req.AgentID, req.Max = "run-1", kit.Ptr(5)
			leases, err := f.Acquire(f.Ctx, kit.AgentOwner, req)
			kit.OK(t, err)
			return leases
		}
		got := take(picket.AcquireRequest{Role: "coder"})
		if len(got) != 1 || got[0].TaskID != own.TaskID {
			t.Errorf("an attached agent was granted %d leases, want its own alone", len(got))
		}
		f.WantState(t, others.TaskID, picket.TaskQueued)

		// Its host dies: the lease, which lasts five minutes, ends with the heartbeats.
		f.OpenLease(t, got[0])
		f.tickFor(t, 4*time.Second+time.Millisecond)
		_, err = f.JudgeAgents(f.Ctx, 10)
		kit.OK(t, err)
		lost := f.WantState(t, own.TaskID, picket.TaskQueued)
		if class := lost.Runs[0].Exit; class == nil || class.Class != picket.ExitAgentDead {
			t.Errorf("the run of a dead host ended with %+v", class)
		}
		// Its record is not another worker's: who goes on with the task registers first.
		_, err = f.Acquire(f.Ctx, kit.AgentOwner, picket.AcquireRequest{AgentID: "run-1", PinnedOnly: true})
		kit.Refused(t, err, picket.CodeAgentGone)
		f.MustRegister(t, picket.Registration{AgentID: "run-1"})
		if got = take(picket.AcquireRequest{PinnedOnly: true}); len(got) != 1 || got[0].TaskID != own.TaskID {
			t.Errorf("the next worker of the task was granted %d leases", len(got))
		}
	})
}
