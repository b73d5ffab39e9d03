package orchestrator_test

import (
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// TestATickTellsWhatIsDue: a sweep that nothing is due for is not run, so a tick
// has to know of everything that is.
func TestATickTellsWhatIsDue(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		want := func(what string, due picket.DueWork) {
			t.Helper()
			got, err := f.TickDue(f.Ctx)
			kit.OK(t, err)
			if got != due {
				t.Fatalf("%s: due is %+v, want %+v", what, got, due)
			}
		}
		pass := func(d time.Duration) { // nobody but the tick acts meanwhile
			for ; d > 0; d -= 500 * time.Millisecond {
				f.MoveStoreTime(t, 500*time.Millisecond)
				kit.OK(t, f.Tick(f.Ctx))
			}
		}
		want("nothing was done", picket.DueWork{})

		_, h := f.SubmitAndLease(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(60)})
		f.MustReserve(t, h, kit.PaidCall("0.1"))
		pass(50 * time.Second)
		want("a lease and a call that hold", picket.DueWork{})
		pass(20 * time.Second)
		want("a lease and a call after their deadlines", picket.DueWork{Leases: true, Calls: true})
		count := func() {
			t.Helper()
			_, err := f.CountEnded(f.Ctx, 100)
			kit.OK(t, err)
		}
		f.RunReaperFor(t, 500*time.Millisecond)
		want("a call after its deadline, and a run that has ended", picket.DueWork{Calls: true, Totals: true})
		count()
		want("a call after its deadline", picket.DueWork{Calls: true})
		f.mustReapHolds(t, 1)
		want("a charge", picket.DueWork{Totals: true})
		count()
		want("all of it was done", picket.DueWork{})

		_, err := f.Register(f.Ctx, kit.Operator, picket.Registration{AgentID: "silent", Heartbeat: &picket.Thresholds{
			IntervalSeconds: kit.Ptr(10), UnhealthyAfterSeconds: kit.Ptr(30), DeadAfterSeconds: kit.Ptr(90)}})
		kit.OK(t, err)
		pass(25 * time.Second)
		want("an agent that has just been silent", picket.DueWork{})
		pass(10 * time.Second)
		want("an agent that is unhealthy", picket.DueWork{Agents: true})
		_, err = f.JudgeAgents(f.Ctx, 10)
		kit.OK(t, err)
		want("the agent was judged", picket.DueWork{})

		kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:health-due", kit.ZMember(1, "asession_gone")).Err())
		want("the health of a session", picket.DueWork{Agents: true})
		_, err = f.JudgeAgents(f.Ctx, 10)
		kit.OK(t, err)
		want("it was told", picket.DueWork{})

		chore := func(name string, at float64) {
			t.Helper()
			kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:chores", kit.ZMember(at, name)).Err())
		}
		for name, at := range map[string]float64{"key:key_gone": 0, "pause": 1, "adopted": 1} {
			chore(name, at)
			want(name, picket.DueWork{Chores: true, Overdue: at > 0})
			_, err = f.RunChores(f.Ctx, 10)
			kit.OK(t, err)
			want(name+" was done", picket.DueWork{})
		}
		chore("adopted", float64(time.Now().Add(24*time.Hour).UnixMilli()))
		want("a grace that is not over", picket.DueWork{})
		chore("handoff:handoff_gone", 1)
		want("a hand-off that nobody has decided", picket.DueWork{Overdue: true})
		_, err = f.HandleOverdue(f.Ctx, 10)
		kit.OK(t, err)
		want("its deadline was handled", picket.DueWork{})
	})
}
