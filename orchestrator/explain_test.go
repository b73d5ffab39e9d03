package orchestrator_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// wantExplanation wants a reason of a kind whose text contains want.
func (f *fixture) wantExplanation(t *testing.T, id string, code picket.ReasonCode, want string) picket.Explanation {
	t.Helper()
	x, err := f.Explain(f.Ctx, id)
	kit.OK(t, err)
	found := false
	for i, r := range x.Reasons {
		if len(x.Because) != len(x.Reasons) || x.Because[i] != r.Text {
			t.Fatalf("because is %q, the reasons are %+v", x.Because, x.Reasons)
		}
		found = found || r.Code == code && strings.Contains(r.Text, want)
	}
	if !found {
		t.Fatalf("the reasons are %+v, want %s: %q", x.Reasons, code, want)
	}
	return x
}

func TestExplain(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{Role: "coder", Needs: []string{"go"}})
		f.wantExplanation(t, task.TaskID, picket.ReasonNoReaper, "no reaper is running")
		kit.OK(t, f.Tick(f.Ctx))
		x := f.wantExplanation(t, task.TaskID, picket.ReasonNobodyWaiting,
			"nobody is waiting on this lane (role coder, needs go)")
		if want := "picket adapter --role coder --capability go -- COMMAND"; len(x.Because) != 2 || x.Next[0] != want {
			t.Fatalf("explain %+v, want next %q", x, want)
		}
		second := f.MustSubmit(t, picket.TaskSpec{Role: "coder", Needs: []string{"go"}})
		f.wantExplanation(t, second.TaskID, picket.ReasonTasksAhead, "one task is ahead of it in its lane")
		pinned := f.MustSubmit(t, picket.TaskSpec{Agent: "a9"})
		f.wantExplanation(t, pinned.TaskID, picket.ReasonNobodyWaiting, "nobody is waiting on this lane (agent a9)")

		_, err := f.Pause(f.Ctx, kit.Operator, false, "")
		kit.OK(t, err)
		f.wantExplanation(t, task.TaskID, picket.ReasonPaused, "paused")
		ctx, leave := context.WithCancel(f.Ctx)
		left := make(chan error, 1)
		go func() {
			_, err := f.Acquire(ctx, kit.Operator,
				picket.AcquireRequest{Role: "coder", Capabilities: []string{"go"}, WaitSeconds: kit.Ptr(50)})
			left <- err
		}()
		for s := (picket.Stats{}); s.Waiters == 0; { // registered once it is counted
			s, err = f.Stats(f.Ctx)
			kit.OK(t, err)
		}
		f.wantExplanation(t, task.TaskID, picket.ReasonPaused, "paused")
		leave()
		kit.Refused(t, <-left, picket.CodeUnavailable)
		s, err := f.Stats(f.Ctx)
		kit.OK(t, err)
		if s.Waiters != 0 {
			t.Fatalf("%d waiters are left of a client that went away", s.Waiters)
		}
		_, err = f.Resume(f.Ctx, kit.Operator, "")
		kit.OK(t, err)
		f.wantExplanation(t, task.TaskID, picket.ReasonNobodyWaiting, "nobody is waiting")

		l := f.AcquireOne(t, picket.AcquireRequest{Role: "coder", Capabilities: []string{"go"}})
		f.wantExplanation(t, task.TaskID, picket.ReasonRunning, "it is running: "+l.RunID)
		h := f.OpenLease(t, l)
		_, err = f.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
		f.wantExplanation(t, task.TaskID, picket.ReasonInReview, "waits for a review")
		_, _, err = f.Reject(f.Ctx, kit.Operator, task.TaskID, picket.Decision{}, nil)
		kit.OK(t, err)
		f.wantExplanation(t, task.TaskID, picket.ReasonEnded, "it is rejected")
	})
}

// Of a task that nobody waits for it is told who could: of the registered
// agents those that serve its lane, or how the one is that it is pinned to.
func TestExplainKnowsTheRegistry(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		kit.OK(t, f.Tick(f.Ctx))
		lane := f.MustSubmit(t, picket.TaskSpec{Role: "coder", Needs: []string{"go"}})
		pinned := f.MustSubmit(t, picket.TaskSpec{Agent: "a1"})
		if x := f.wantExplanation(t, lane.TaskID, picket.ReasonNoAgent,
			"no registered agent serves this lane"); len(x.Because) != 2 {
			t.Fatalf("without agents explain says %q", x.Because)
		}
		if x := f.wantExplanation(t, pinned.TaskID, picket.ReasonNobodyWaiting,
			"nobody is waiting"); len(x.Because) != 2 {
			t.Fatalf("without the agent explain says %q", x.Because)
		}
		f.MustRegister(t, picket.Registration{AgentID: "a1", RoleID: "coder", Capabilities: []string{"go", "c"}})
		f.MustRegister(t, picket.Registration{AgentID: "a2", RoleID: "coder", Capabilities: []string{"c"}})
		f.wantExplanation(t, lane.TaskID, picket.ReasonAgentsIdle, "one registered agent could take it")
		f.wantExplanation(t, pinned.TaskID, picket.ReasonPinnedAgentIdle, "agent a1 is registered and active")
		f.MustRegister(t, picket.Registration{AgentID: "a3", RoleID: "coder", Capabilities: []string{"go"}})
		f.wantExplanation(t, lane.TaskID, picket.ReasonAgentsIdle, "2 registered agents could take it")
		f.mustDrain(t, "a1", kit.DrainChange)
		f.wantExplanation(t, lane.TaskID, picket.ReasonAgentsIdle, "one registered agent could take it")
		f.wantExplanation(t, pinned.TaskID, picket.ReasonPinnedAgentIdle, "agent a1 is registered and draining")
		_, err := f.Deregister(f.Ctx, kit.AgentOwner, "a1", nil)
		kit.OK(t, err)
		f.wantExplanation(t, pinned.TaskID, picket.ReasonPinnedAgentGone,
			"agent a1 is deregistered, until it registers again")
		f.MustRegister(t, picket.Registration{AgentID: "a4", RoleID: picket.RoleAttached})
		attached := f.MustSubmit(t, picket.TaskSpec{Agent: "a4"})
		f.wantExplanation(t, attached.TaskID, picket.ReasonPinnedAgentIdle, "agent a4 is registered and active")
		_, err = f.Deregister(f.Ctx, kit.AgentOwner, "a4", nil)
		kit.OK(t, err)
		x := f.wantExplanation(t, attached.TaskID, picket.ReasonPinnedAgentGone,
			"agent a4 was the worker of a `picket run` that has ended: no worker takes the task until you start one")
		if want := "picket adapter --agent-id a4 --pinned-only --for-task " + attached.TaskID +
			" -- COMMAND"; len(x.Next) != 1 || x.Next[0] != want {
			t.Errorf("next %q, want %q", x.Next, want)
		}
	})
}

// A task that nobody takes names a session that could, and why it is not woken.
func TestExplainNamesSleepingSessions(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		kit.OK(t, f.Tick(f.Ctx))
		task := f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
		n, id := f.sessionAgent(t, "a1"), newSessionID()
		kit.OK(t, f.report("a1", n, idleSession(id)))
		x := f.wantExplanation(t, task.TaskID, picket.ReasonSessionAsleep,
			"session "+id+" of ann is not woken for it: heartbeat_no_policy")
		if want := "picket agent heartbeat write ann --file HEARTBEAT.md"; !slices.Contains(x.Next, want) {
			t.Errorf("next %q, want %q", x.Next, want)
		}
		f.mustWritePolicy(t, "ann", wakePolicyText)
		f.wantExplanation(t, task.TaskID, picket.ReasonSessionAsleep,
			"session "+id+" of ann is idle; the scheduler wakes it within a minute")
		f.cycle(t, n, id)
		if !f.takeWake(t, n) {
			t.Error("the session is not woken for the task")
		}
		for range 3 { // in the cooldown and after it
			x = f.wantExplanation(t, task.TaskID, picket.ReasonSessionAsleep, "session "+id+" of ann was woken at ")
			if got := x.Reasons[len(x.Reasons)-2]; !got.Until.IsZero() ||
				!strings.HasSuffix(got.Text, "and has not taken it; it is woken again when something else comes for it") {
				t.Errorf("reason %+v", got)
			}
			f.cycleAfter(t, n, id, 70*time.Second)
			if f.takeWake(t, n) {
				t.Error("the session is woken again for the task")
			}
		}
		f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
		f.wantExplanation(t, task.TaskID, picket.ReasonSessionAsleep, "the scheduler wakes it within a minute")
		broke := f.within(t, limitsOf("5", "0", "2", "0.1"))
		broke.wantExplanation(t, task.TaskID, picket.ReasonSessionAsleep, "is not woken for it: wake_budget_exceeded: "+
			"the wakes of ann may spend nothing, because agents.ann.wake_budget is 0. No later day changes that")
	})
}

// With when_idle, a session that did not take a task is woken again by the clock.
func TestExplainNamesTheNextWake(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		kit.OK(t, f.Tick(f.Ctx))
		task := f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
		id, n := f.wakeable(t)
		f.cycle(t, n, id)
		if !f.takeWake(t, n) {
			t.Error("the session is not woken for the task")
		}
		whenIdle := heartbeat.Defaults()
		whenIdle.WhenIdle = true
		e := f.OpenProcess(t, f.RigStore, orchestrator.Config{Witness: t.TempDir(), Wake: whenIdle,
			Unmetered: map[string]bool{"ann": true}}).Engine("default")
		x, err := e.Explain(f.Ctx, task.TaskID)
		kit.OK(t, err)
		s, err := e.AgentSession(f.Ctx, id)
		kit.OK(t, err)
		if s.WakePlan == nil || s.WakePlan.NextAt == nil || s.WakePlan.OnlyIfChanged {
			t.Fatalf("the plan is %+v", s.WakePlan)
		}
		next := *s.WakePlan.NextAt
		if !slices.ContainsFunc(x.Reasons, func(r picket.Reason) bool {
			return r.Code == picket.ReasonSessionAsleep && r.Until == next &&
				strings.HasSuffix(r.Text, "it is woken again at "+next.String()+" at the earliest")
		}) {
			t.Errorf("the next wake is at %s, and the reasons are %+v", next, x.Reasons)
		}
	})
}
