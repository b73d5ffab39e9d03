package orchestrator_test

import (
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A wake that names no session means the one that lives, also before a sweep has ended those of agents that are gone.
func TestOnlyLiveSessionsOfANameCount(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		gone, n := f.wakeable(t)
		m, id := f.sessionAgent(t, "a2"), newSessionID()
		kit.OK(t, f.report("a2", m, idleSession(id)))
		_, err := f.Wake(f.Ctx, kit.OtherOperator, "ann", picket.WakeRequest{DryRun: true})
		kit.Refused(t, err, picket.CodeSessionRequired)
		if refusal, ok := picket.RefusalOf(err); !ok || refusal.Facts["sessions"] != 2 {
			t.Errorf("%v", err)
		}
		stayAlive := func(agent string, incarnation int64, after time.Duration) {
			t.Helper()
			f.JumpStoreTime(t, after)
			_, err := f.Heartbeat(f.Ctx, kit.Operator, agent, picket.Heartbeat{Status: picket.AgentActive,
				ClientTimestamp: picket.InstantOf(time.Now()), Incarnation: incarnation})
			kit.OK(t, err)
		}
		for range 4 { // a1 is silent until it is dead, and nobody writes that down
			stayAlive("a2", m, 80*time.Second)
		}
		kit.OK(t, f.report("a2", m, idleSession(id)))
		if d := f.wantWake(t, picket.WakeRequest{DryRun: true}, picket.WakeReasonSent); d.SessionID != id {
			t.Errorf("beside a dead agent the wake means %s, want %s", d.SessionID, id)
		}
		_, err = f.Deregister(f.Ctx, kit.Operator, "a2", nil)
		kit.OK(t, err)
		_, err = f.Wake(f.Ctx, kit.OtherOperator, "ann", picket.WakeRequest{DryRun: true})
		kit.Refused(t, err, picket.CodeSessionRequired)
		again := f.sessionAgent(t, "a2")
		_, err = f.Wake(f.Ctx, kit.OtherOperator, "ann", picket.WakeRequest{DryRun: true})
		kit.Refused(t, err, picket.CodeSessionRequired) // its session is of the registration before
		kit.OK(t, f.report("a2", again, idleSession(id)))
		if d := f.wantWake(t, picket.WakeRequest{DryRun: true}, picket.WakeReasonSent); d.SessionID != id {
			t.Errorf("the wake means %s, want %s and not %s of registration %d", d.SessionID, id, gone, n)
		}
	})
}
