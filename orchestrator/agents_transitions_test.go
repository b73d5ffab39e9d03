package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/moves"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// transitionCauses try to bring about each reason for which a status changes. They
// return the refusal, if any.
var transitionCauses = map[picket.LifecycleReason]func(t *testing.T, f *fixture, was agentInStatus) error{
	picket.ReasonRegistered:   registering,
	picket.ReasonReRegistered: registering,
	picket.ReasonHeartbeatTimeout: func(t *testing.T, f *fixture, was agentInStatus) error {
		f.tickFor(t, 2*time.Second+time.Millisecond)
		if was.status == picket.AgentDraining { // which does not become unhealthy first
			f.judgeAll(t)
			f.tickFor(t, 2*time.Second)
		}
		f.judgeAll(t)
		return nil
	},
	picket.ReasonHeartbeatResumed: func(_ *testing.T, f *fixture, was agentInStatus) error {
		_, err := f.Heartbeat(f.Ctx, kit.AgentOwner, was.id, kit.ActiveHeartbeat())
		return err
	},
	picket.ReasonDrainInitiated: func(_ *testing.T, f *fixture, was agentInStatus) error {
		_, err := f.ChangeAgent(f.Ctx, kit.AgentOwner, was.id, nil, kit.DrainChange)
		return err
	},
	picket.ReasonDrainCompleted: func(t *testing.T, f *fixture, was agentInStatus) error {
		if was.status == picket.AgentRegistering {
			return picket.CodeNotFound
		}
		_, err := f.Complete(f.Ctx, f.OpenLease(t, was.lease), picket.Completion{Output: picket.RawJSON(`1`)})
		return err
	},
	picket.ReasonDrainTimeout: func(t *testing.T, f *fixture, was agentInStatus) error {
		var err error
		for range 5 {
			_, err = f.Heartbeat(f.Ctx, kit.AgentOwner, was.id, kit.ActiveHeartbeat())
			f.tickFor(t, time.Second)
		}
		f.judgeAll(t)
		return err
	},
	picket.ReasonDeregistered: func(_ *testing.T, f *fixture, was agentInStatus) error {
		_, err := f.Deregister(f.Ctx, kit.AgentOwner, was.id, nil)
		return err
	},
}

func registering(_ *testing.T, f *fixture, was agentInStatus) error {
	_, err := f.Register(f.Ctx, kit.AgentOwner, shortThresholds(was.id))
	return err
}

// shortThresholds registers an agent that is soon missed.
func shortThresholds(id string) picket.Registration {
	return picket.Registration{AgentID: id, Heartbeat: thresholds(1, 2, 4), DrainTimeoutSeconds: kit.Ptr(5)}
}

// agentInStatus is an agent in a status; where it can hold a lease it holds one.
type agentInStatus struct {
	id     string
	status picket.AgentStatus
	lease  picket.Lease
}

func (f *fixture) agentWithStatus(t *testing.T, id string, status picket.AgentStatus) agentInStatus {
	t.Helper()
	p := agentInStatus{id: id, status: status}
	if status == picket.AgentRegistering {
		return p
	}
	f.MustRegister(t, shortThresholds(id))
	f.MustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(3600)})
	p.lease = f.AcquireAsOwner(t, id)
	_, err := f.Renew(f.Ctx, f.OpenLease(t, p.lease))
	kit.OK(t, err)
	switch status {
	case picket.AgentUnhealthy:
		f.tickFor(t, 2*time.Second+time.Millisecond)
	case picket.AgentDraining:
		f.mustDrain(t, id, kit.DrainChange)
	case picket.AgentDead:
		f.tickFor(t, 5*time.Second)
	case picket.AgentDeregistered:
		_, err := f.Deregister(f.Ctx, kit.AgentOwner, id, nil)
		kit.OK(t, err)
	}
	f.judgeAll(t)
	f.wantAgent(t, id, status)
	return p
}

// Every cause in every status: those of the table change the status, with one
// event for each step; no other one changes anything, or writes one.
func TestOnlyTheLegalMovesHappen(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		legal := 0
		moves.AgentTransitions(func(picket.AgentStatus, picket.LifecycleReason, picket.AgentStatus) { legal++ })
		for _, from := range append([]picket.AgentStatus{picket.AgentRegistering}, picket.AgentStatuses...) {
			for reason := range transitionCauses {
				if f.tryTransition(t, from, reason) {
					legal--
				}
			}
		}
		if legal != 0 {
			t.Errorf("%d legal moves did not happen", legal)
		}
	})
}

// tryTransition reports whether the cause of a reason led to the move of the table. It
// fails when it should have, and when anything happened that is not legal.
func (f *fixture) tryTransition(t *testing.T, from picket.AgentStatus, reason picket.LifecycleReason) bool {
	t.Helper()
	was := f.agentWithStatus(t, fmt.Sprintf("%s.%s", from, reason), from)
	before, _, _ := f.Agent(f.Ctx, was.id)
	seq := f.mustLastSeq(t)
	err := transitionCauses[reason](t, f, was)
	page, readErr := f.Events(f.Ctx,
		picket.EventQuery{After: seq, Types: []string{picket.EventAgentLifecycle}, Agent: was.id})
	kit.OK(t, readErr)
	want, status, found := moves.NextAgentStatus(from, reason), from, 0
	for _, ev := range page.Events {
		if ev.PreviousStatus != status ||
			moves.NextAgentStatus(status, picket.LifecycleReason(ev.Reason)) != ev.NewStatus {
			t.Errorf("%s in %s: %s -> %s, %s", reason, from, ev.PreviousStatus, ev.NewStatus, ev.Reason)
		}
		if status = ev.NewStatus; ev.Reason == string(reason) {
			found++
		}
	}
	after, _, _ := f.Agent(f.Ctx, was.id)
	steps := int64(len(page.Events))
	if status == picket.AgentActive && steps > 0 && from.Gone() {
		before.Version = 0
		if after.Incarnation <= before.Incarnation {
			t.Errorf("%s in %s: incarnation %d after %d", reason, from, after.Incarnation, before.Incarnation)
		}
	}
	if steps > 0 && (after.Status != status || after.Version != before.Version+steps) ||
		steps == 0 && after.Version != before.Version {
		t.Errorf("%s in %s: %d events, version %d to %d, status %s", reason, from, steps, before.Version, after.Version,
			after.Status)
	}
	switch {
	case want == "" && found > 0, want != "" && found != 1:
		t.Errorf("%s in %s happened %d times, refusal: %v", reason, from, found, err)
	case want == "" && steps == 0 && err == nil && refusedWhere[from][reason]:
		t.Errorf("%s in %s is not refused", reason, from)
	}
	return want != "" && found == 1
}

// refusedWhere are the requests that are refused and change nothing.
var refusedWhere = map[picket.AgentStatus]map[picket.LifecycleReason]bool{
	picket.AgentRegistering: {
		picket.ReasonHeartbeatResumed: true,
		picket.ReasonDrainInitiated:   true,
		picket.ReasonDrainCompleted:   true,
		picket.ReasonDeregistered:     true,
	},
	picket.AgentActive:    {picket.ReasonRegistered: true},
	picket.AgentUnhealthy: {picket.ReasonRegistered: true},
	picket.AgentDraining:  {picket.ReasonRegistered: true},
	picket.AgentDead: {
		picket.ReasonHeartbeatResumed: true,
		picket.ReasonDrainInitiated:   true,
		picket.ReasonDrainCompleted:   true,
		picket.ReasonDrainTimeout:     true,
		picket.ReasonDeregistered:     true,
	},
	picket.AgentDeregistered: {
		picket.ReasonHeartbeatResumed: true,
		picket.ReasonDrainInitiated:   true,
		picket.ReasonDrainCompleted:   true,
		picket.ReasonDrainTimeout:     true,
	},
}

// A status that is not reached by asking is refused, unless it is the one that
// the agent has; then nothing changes.
func TestStatusesThatCannotBeAskedFor(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		a := f.MustRegister(t, shortThresholds("a1"))
		for _, s := range []picket.AgentStatus{picket.AgentRegistering, picket.AgentActive, picket.AgentUnhealthy,
			picket.AgentDead} {
			got, err := f.ChangeAgent(f.Ctx, kit.AgentOwner, "a1", nil, picket.AgentStatusChange{Status: s})
			if s == picket.AgentActive {
				kit.OK(t, err)
				if got.Version != a.Version {
					t.Fatalf("%+v became %+v", a, got)
				}
				continue
			}
			kit.Refused(t, err, picket.CodeStateConflict)
		}
		_, err := f.ChangeAgent(f.Ctx, kit.AgentOwner, "a1", []int64{7, 8}, kit.DrainChange)
		kit.Refused(t, err, picket.CodeVersion)
		if e := refusalOf(err); e.Facts["presented"] != int64(7) || e.Facts["current"] != int64(1) {
			t.Fatalf("facts %v", e.Facts)
		}
		a, err = f.ChangeAgent(f.Ctx, kit.AgentOwner, "a1", []int64{7, 1},
			picket.AgentStatusChange{Status: picket.AgentDeregistered})
		kit.OK(t, err)
		seq := f.mustLastSeq(t)
		again, err := f.Deregister(f.Ctx, kit.AgentOwner, "a1", nil)
		kit.OK(t, err)
		_, err = f.Deregister(f.Ctx, kit.AgentOwner, "a1", []int64{1})
		kit.Refused(t, err, picket.CodeVersion)
		if again.Version != a.Version || a.Version != 2 || f.mustLastSeq(t) != seq {
			t.Fatalf("%+v became %+v", a, again)
		}
	})
}
