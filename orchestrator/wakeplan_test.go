package orchestrator_test

import (
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// planOf reads what the scheduler plans for a session.
func (f *fixture) planOf(t *testing.T, id string) picket.WakePlan {
	t.Helper()
	s, err := f.AgentSession(f.Ctx, id)
	kit.OK(t, err)
	if s.WakePlan == nil {
		t.Fatalf("there is no plan for %+v", s)
	}
	return *s.WakePlan
}

// A session shows when the scheduler wakes it next, and that it backs off after three wakes that led to nothing.
func TestASessionShowsItsNextWake(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		if p := f.planOf(t, id); p.NextAt == nil || !p.OnlyIfChanged || p.Occasion != "time" || p.LastAt != nil ||
			p.Reason != nil {
			t.Errorf("an idle session has the plan %+v", p)
		}
		for i := range 3 {
			if p := f.planOf(t, id); p.BackingOff {
				t.Errorf("after %d wakes it backs off: %+v", i, p)
			}
			_, err := f.Tell(f.Ctx, kit.OtherOperator, "a1", picket.MessageRequest{Body: "look at this"})
			kit.OK(t, err)
			if p := f.planOf(t, id); p.NextAt == nil || p.OnlyIfChanged || p.Occasion != "message" {
				t.Errorf("with a message it has the plan %+v", p)
			}
			f.cycleAfter(t, n, id, 70*time.Second)
			if !f.takeWake(t, n) {
				t.Fatalf("it is not woken for message %d", i)
			}
		}
		p := f.planOf(t, id)
		if !p.BackingOff || p.LastAt == nil || p.NextAt == nil || p.Reason == nil ||
			*p.Reason != picket.WakeReasonCoalesced {
			t.Fatalf("after three wakes it has the plan %+v", p)
		}
		if after := p.NextAt.Time().Sub(p.LastAt.Time()).Round(time.Minute); after != time.Hour {
			t.Errorf("the next wake is due %s after the last one", after)
		}
		page, err := f.AgentSessions(f.Ctx, picket.AgentSessionQuery{})
		kit.OK(t, err)
		if page.Sessions[0].WakePlan != nil {
			t.Errorf("the list has the plan %+v", page.Sessions[0].WakePlan)
		}
	})
}

// A session that the scheduler does not wake shows the reason, and no instant.
func TestASessionShowsWhyItIsNotWoken(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		n, id := f.sessionAgent(t, "a1"), newSessionID()
		kit.OK(t, f.report("a1", n, idleSession(id)))
		want := func(reason picket.WakeReason) {
			t.Helper()
			if p := f.planOf(t, id); p.NextAt != nil || p.Reason == nil || *p.Reason != reason {
				t.Errorf("the plan is %+v, want %s", p, reason)
			}
		}
		want(picket.WakeReasonNoPolicy)
		f.mustWritePolicy(t, "ann", wakePolicyText)
		_, err := f.Pause(f.Ctx, kit.Operator, false, "")
		kit.OK(t, err)
		want(picket.WakeReasonPaused)
		_, err = f.Resume(f.Ctx, kit.Operator, "")
		kit.OK(t, err)
		kit.OK(t, f.StopSession(f.Ctx, kit.Operator, id))
		want(picket.WakeReasonSessionNotAttachable)
		kit.OK(t, f.report("a1", n))
		if s, err := f.AgentSession(f.Ctx, id); err == nil && s.WakePlan != nil {
			t.Errorf("a session that has ended has the plan %+v", s.WakePlan)
		}
	})
}
