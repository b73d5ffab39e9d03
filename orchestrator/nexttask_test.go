package orchestrator_test

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// turn sends a result of the prompt of a capability, and reports whether the adapter has to acquire a task.
func (f *sessionFixture) turn(t *testing.T, held picket.LeaseCredential, state picket.PromptState) bool {
	t.Helper()
	taken, err := f.CommandResult(f.Ctx, kit.Operator, "a1", held.PromptID,
		picket.CommandResult{Incarnation: f.n, State: state})
	kit.OK(t, err)
	return taken.NextTask
}

func (f *sessionFixture) wantNext(t *testing.T, held picket.LeaseCredential, reason picket.NextTaskReason, rows int) {
	t.Helper()
	got, err := f.NextTask(f.Ctx, held)
	kit.OK(t, err)
	if got.Reserved != (reason == "") || got.Reason != reason || len(got.Claimable) != rows {
		t.Errorf("got %+v, want the reason %q and %d rows", got, reason, rows)
	}
}

// A session that has asked for a task takes one when its prompt is answered, and a repeated answer says it again.
func TestASessionReservesItsNextTurn(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		_, held := f.capable(t)
		f.MustSubmit(t, picket.TaskSpec{Role: "writer"})
		f.wantNext(t, held, picket.NextTaskNone, 0)
		if f.turn(t, held, picket.PromptAnswered) {
			t.Error("a turn that was not reserved is taken")
		}

		task := f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
		_, held = f.capable(t)
		for range 2 {
			f.wantNext(t, held, "", 1)
		}
		if f.turn(t, held, picket.PromptAccepted) {
			t.Error("a turn is taken before the prompt is answered")
		}
		for range 2 {
			if !f.turn(t, held, picket.PromptAnswered) {
				t.Error("the turn is lost")
			}
		}
		if _, err := f.NextTask(f.Ctx, held); picket.CodeOf(err) != picket.CodeSessionCapability {
			t.Errorf("a prompt that has ended reserves a turn: %v", err)
		}
		f.WantState(t, task.TaskID, picket.TaskQueued) // that is all: nothing is claimed

		_, held = f.capable(t)
		f.wantNext(t, held, "", 1)
		if f.turn(t, held, picket.PromptFailed) {
			t.Error("a prompt that has failed takes a turn")
		}
		_, held = f.capable(t) // the turn of another prompt
		if f.turn(t, held, picket.PromptAnswered) {
			t.Error("a turn is taken twice")
		}
	})
}

// An agent that works on as many tasks as it may, or that drains, reserves nothing.
func TestABusyAgentReservesNoTurn(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := &sessionFixture{fixture: fx, id: newSessionID()}
		one := 1
		a, err := f.Register(f.Ctx, kit.Operator, picket.Registration{AgentID: "a1", RoleID: "coder",
			Capacity: &picket.DeclaredCapacity{MaxConcurrentTasks: &one}})
		kit.OK(t, err)
		f.n = a.Incarnation
		kit.OK(t, f.report("a1", f.n, idleSession(f.id)))
		for range 2 {
			f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
		}
		f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "coder"})
		_, held := f.capable(t)
		f.wantNext(t, held, picket.NextTaskBusy, 1)
		_, err = f.ChangeAgent(f.Ctx, kit.Operator, "a1", nil, kit.DrainChange)
		kit.OK(t, err)
		f.wantNext(t, held, picket.NextTaskDraining, 0)
		if f.turn(t, held, picket.PromptAnswered) {
			t.Error("the turn is taken")
		}
	})
}

// A session that works on a task shows it, takes no prompt, and is not woken. What it took is shown with the prompt
// that asked for it.
func TestASessionWorksOnATask(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		_, held := f.capable(t)
		other := f.MustSubmit(t, picket.TaskSpec{Role: "writer"})
		f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
		f.wantNext(t, held, "", 1)
		f.turn(t, held, picket.PromptAnswered)
		lease := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "coder"})
		working := idleSession(f.id)
		working.State, working.PromptID, working.TaskID = picket.SessionPrompting, held.PromptID, lease.TaskID
		foreign := working
		foreign.TaskID = other.TaskID
		for _, report := range []picket.SessionReport{foreign, working, working} {
			kit.OK(t, f.report("a1", f.n, report))
			s, err := f.AgentSession(f.Ctx, f.id)
			kit.OK(t, err)
			want := lease.TaskID
			if report.TaskID == other.TaskID { // which the agent does not hold
				want = ""
			}
			if s.TaskID != want || s.Health.State != picket.SessionPrompting || s.Health.EligibleForWake {
				t.Errorf("%+v", s)
			}
		}
		p, err := f.SessionPrompt(f.Ctx, f.id, held.PromptID, 0, 0)
		kit.OK(t, err)
		if !p.NextTask || p.TaskID != lease.TaskID {
			t.Errorf("%+v", p)
		}
		before := f.AuditLog(t)
		_, err = f.PromptSession(f.Ctx, kit.Operator, f.id, picket.PromptRequest{Text: "how is it going?"})
		kit.Refused(t, err, picket.CodeStateConflict)
		if now := f.AuditLog(t); len(now) != len(before) {
			t.Errorf("a refused prompt is in the log: %+v", now)
		}
		kit.OK(t, f.report("a1", f.n, idleSession(f.id)))
		again := f.prompt(t, "and now?")
		// A session says of no other prompt that it took a task.
		working.PromptID = again
		kit.OK(t, f.report("a1", f.n, working))
		if p, err = f.SessionPrompt(f.Ctx, f.id, again, 0, 0); err != nil || p.TaskID != "" {
			t.Errorf("%+v %v", p, err)
		}
	})
}
