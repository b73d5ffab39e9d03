package orchestrator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// agentEventsAfter lists the events after a sequence number, shortened to what the
// tests of agents look at.
func (f *fixture) agentEventsAfter(t *testing.T, after int64) []string {
	t.Helper()
	var out []string
	for {
		page, err := f.Events(f.Ctx, picket.EventQuery{After: after, Limit: 1000})
		kit.OK(t, err)
		for _, ev := range page.Events {
			after = ev.Seq
			switch ev.Type {
			case picket.EventAgentLifecycle:
				if ev.Timestamp != ev.At || ev.LifecycleAgentID != ev.AgentID {
					t.Errorf("lifecycle event %+v", ev)
				}
				out = append(out, fmt.Sprintf("%s: %s -> %s, %s by %s", ev.AgentID, ev.PreviousStatus, ev.NewStatus,
					ev.Reason, ev.Actor))
			default:
				out = append(out, strings.TrimSpace(ev.Type+" "+ev.Reason))
			}
		}
		if len(page.Events) == 0 {
			return out
		}
	}
}

func (f *fixture) mustLastSeq(t *testing.T) int64 {
	t.Helper()
	seq, err := f.LastSeq(f.Ctx)
	kit.OK(t, err)
	return seq
}

// wantEvents holds the events after a sequence number against what is expected.
func (f *fixture) wantEvents(t *testing.T, after int64, want ...string) {
	t.Helper()
	if got := f.agentEventsAfter(t, after); !slices.Equal(got, want) {
		t.Fatalf("events\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func (f *fixture) wantAgent(t *testing.T, id string, want picket.AgentStatus) picket.Agent {
	t.Helper()
	a, _, err := f.Agent(f.Ctx, id)
	kit.OK(t, err)
	if a.Status != want {
		t.Fatalf("agent is %s, want %s", a.Status, want)
	}
	return a
}

// judgeAll does what a reaper does.
func (f *fixture) judgeAll(t *testing.T) {
	t.Helper()
	for {
		n, err := f.JudgeAgents(f.Ctx, 100)
		kit.OK(t, err)
		if n < 100 {
			return
		}
	}
}

func (f *fixture) runAllChores(t *testing.T) {
	t.Helper()
	for {
		n, err := f.RunChores(f.Ctx, 100)
		kit.OK(t, err)
		if n < 100 {
			return
		}
	}
}

func thresholds(interval, unhealthy, dead int) *picket.Thresholds {
	return &picket.Thresholds{IntervalSeconds: &interval, UnhealthyAfterSeconds: &unhealthy, DeadAfterSeconds: &dead}
}

// The thresholds are exact, of every agent its own: as long as a threshold is
// still fine, a millisecond more is not.
func TestSilenceIsJudgedToTheMillisecond(t *testing.T) {
	rig.SkipShort(t)
	onBothStores(t, func(t *testing.T, f *fixture) {
		if !f.Virtual {
			t.Skip("needs a clock that stands still")
		}
		for _, of := range [][3]int{{30, 90, 300}, {1, 2, 4}, {10, 25, 1000}} {
			id := fmt.Sprint("a", of[0])
			f.MustRegister(t, picket.Registration{AgentID: id, Heartbeat: thresholds(of[0], of[1], of[2])})
			f.tickFor(t, time.Duration(of[1])*time.Second)
			f.judgeAll(t)
			f.wantAgent(t, id, picket.AgentActive)
			f.tickFor(t, time.Millisecond)
			seq := f.mustLastSeq(t)
			f.judgeAll(t)
			f.wantAgent(t, id, picket.AgentUnhealthy)
			f.wantEvents(t, seq, id+": active -> unhealthy, heartbeat_timeout by server")
			f.tickFor(t, time.Duration(of[2]-of[1])*time.Second-time.Millisecond)
			f.judgeAll(t)
			f.wantAgent(t, id, picket.AgentUnhealthy)
			f.tickFor(t, time.Millisecond)
			seq = f.mustLastSeq(t)
			f.judgeAll(t)
			f.wantAgent(t, id, picket.AgentDead)
			f.wantEvents(t, seq, id+": unhealthy -> dead, heartbeat_timeout by server")
		}
	})
}

// tickFor lets store time pass, and nothing be judged.
func (f *fixture) tickFor(t *testing.T, d time.Duration) {
	t.Helper()
	for d > 0 {
		step := min(d, 500*time.Millisecond)
		f.MoveStoreTime(t, step)
		d -= step
		kit.OK(t, f.Tick(f.Ctx))
	}
}

// Death is one write: whatever an agent held is void at once, its tasks come
// back in batches, after the word about the death.
func TestDeathVoidsEveryLease(t *testing.T) {
	rig.SkipShort(t)
	onBothStores(t, func(t *testing.T, f *fixture) {
		const n = 250
		a := f.MustRegister(t, picket.Registration{AgentID: "a1", Heartbeat: thresholds(30, 90, 300)})
		for range n {
			f.MustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(3600)})
		}
		var leases []picket.Lease
		for len(leases) < n {
			got, err := f.Acquire(f.Ctx, kit.AgentOwner,
				picket.AcquireRequest{AgentID: "a1", Incarnation: a.Incarnation, Max: kit.Ptr(50)})
			kit.OK(t, err)
			leases = append(leases, got...)
		}
		for _, l := range leases {
			_, err := f.Renew(f.Ctx, f.OpenLease(t, l))
			kit.OK(t, err)
		}
		seq := f.mustLastSeq(t)
		f.tickFor(t, 301*time.Second)
		f.judgeAll(t)
		for _, l := range leases {
			_, err := f.Renew(f.Ctx, f.OpenLease(t, l))
			kit.Refused(t, err, picket.CodeLeaseExpired)
		}
		f.runAllChores(t)
		got := f.agentEventsAfter(t, seq)
		if len(got) != n+2 || got[0] != "a1: active -> unhealthy, heartbeat_timeout by server" ||
			got[1] != "a1: unhealthy -> dead, heartbeat_timeout by server" {
			t.Fatalf("%d events: %v", len(got), got[:3])
		}
		for _, ev := range got[2:] {
			if ev != "lease.expired agent_dead" {
				t.Fatalf("event %s", ev)
			}
		}
		_, err := f.Acquire(f.Ctx, kit.AgentOwner, picket.AcquireRequest{AgentID: "a1"})
		kit.Refused(t, err, picket.CodeAgentGone)
		_, err = f.Heartbeat(f.Ctx, kit.AgentOwner, "a1", kit.ActiveHeartbeat())
		kit.Refused(t, err, picket.CodeAgentGone)
		l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a2"})
		if l.FencingToken != 2 || l.Attempt != 2 {
			t.Fatalf("leased again as %+v", l)
		}
		task := f.WantState(t, l.TaskID, picket.TaskLeased)
		if task.Failures != 1 || task.Runs[0].Exit.Class != picket.ExitAgentDead {
			t.Fatalf("task %+v", task)
		}
	})
}
