package orchestrator_test

import (
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func commandIDs(hb picket.HeartbeatAnswer) []string {
	ids := []string{}
	for _, c := range hb.PendingCommands {
		ids = append(ids, c.CommandID)
	}
	return ids
}

// A command comes with every answer until it was done: an order to drain until
// the agent drains, any other until the agent reports it.
func TestCommandsUntilHonoured(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustRegister(t, picket.Registration{AgentID: "a1"})
		seq := f.mustLastSeq(t)
		ping, err := f.CommandAgent(f.Ctx, kit.OtherOperator, "a1",
			picket.AgentCommand{Command: picket.CommandPing, Reason: "are you there"})
		kit.OK(t, err)
		stop, err := f.CommandAgent(f.Ctx, kit.OtherOperator, "a1",
			picket.AgentCommand{Command: picket.CommandStopTask, TaskID: "task_1"})
		kit.OK(t, err)
		drain, err := f.CommandAgent(f.Ctx, kit.OtherOperator, "a1",
			picket.AgentCommand{Command: picket.CommandDrain, DrainTimeoutSeconds: kit.Ptr(10)})
		kit.OK(t, err)
		again, err := f.CommandAgent(f.Ctx, kit.OtherOperator, "a1",
			picket.AgentCommand{Command: picket.CommandDrain, DrainTimeoutSeconds: kit.Ptr(20), Reason: "now"})
		kit.OK(t, err)
		if again != drain {
			t.Fatalf("the second order to drain is %s, the first %s", again, drain)
		}
		for range 2 {
			got := f.MustHeartbeat(t, "a1").PendingCommands
			if len(got) != 3 || got[0].CommandID != ping || got[0].Reason != "are you there" ||
				got[1].TaskID != "task_1" ||
				got[2].CommandID != drain || *got[2].DrainTimeoutSeconds != 20 || got[2].Reason != "now" {
				t.Fatalf("pending %+v", got)
			}
		}
		hb := kit.ActiveHeartbeat()
		hb.HandledCommands = []string{ping, "cmd_unknown", ping}
		for range 2 { // its answer was lost
			got, err := f.Heartbeat(f.Ctx, kit.AgentOwner, "a1", hb)
			kit.OK(t, err)
			if ids := commandIDs(got); len(ids) != 2 || ids[0] != stop || ids[1] != drain {
				t.Fatalf("pending %v", ids)
			}
		}
		f.MustSubmit(t, picket.TaskSpec{})
		f.AcquireAsOwner(t, "a1")
		f.mustDrain(t, "a1", kit.DrainChange)
		if ids := commandIDs(f.MustHeartbeat(t, "a1")); len(ids) != 1 || ids[0] != stop {
			t.Fatalf("pending %v", ids)
		}
		_, err = f.CommandAgent(f.Ctx, kit.OtherOperator, "a1", picket.AgentCommand{Command: picket.CommandDrain})
		kit.Refused(t, err, picket.CodeStateConflict)
		f.wantEvents(t, seq, "agent.command are you there", "agent.command", "agent.command", "agent.command now",
			"agent.command",
			"task.submitted", "task.leased", "a1: active -> draining, drain_initiated by a1", "agent.command")
		_, err = f.Deregister(f.Ctx, kit.AgentOwner, "a1", nil)
		kit.OK(t, err)
		_, err = f.CommandAgent(f.Ctx, kit.OtherOperator, "a1", picket.AgentCommand{Command: picket.CommandPing})
		kit.Refused(t, err, picket.CodeAgentGone)
		f.MustRegister(t, picket.Registration{AgentID: "a1"})
		if got := f.MustHeartbeat(t, "a1").PendingCommands; len(got) != 0 {
			t.Fatalf("commands of the life before: %+v", got)
		}
	})
}

func TestTooManyCommands(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustRegister(t, picket.Registration{AgentID: "a1"})
		command := func(c string) (string, error) {
			return f.CommandAgent(f.Ctx, kit.OtherOperator, "a1", picket.AgentCommand{Command: c})
		}
		drain, err := command(picket.CommandDrain)
		kit.OK(t, err)
		for range picket.MaxPendingCommands - 1 {
			_, err := command(picket.CommandPing)
			kit.OK(t, err)
		}
		_, err = command(picket.CommandPing)
		kit.Refused(t, err, picket.CodeRateLimited)
		again, err := command(picket.CommandDrain)
		kit.OK(t, err)
		got := f.MustHeartbeat(t, "a1")
		if len(got.PendingCommands) != picket.MaxPendingCommands || again != drain {
			t.Fatalf("%d commands are pending, drain is %s and %s", len(got.PendingCommands), drain, again)
		}
		hb := kit.ActiveHeartbeat()
		hb.HandledCommands = []string{drain} // which is acknowledged by draining, not by a message
		_, err = f.Heartbeat(f.Ctx, kit.AgentOwner, "a1", hb)
		kit.OK(t, err)
		if n := len(f.MustHeartbeat(t, "a1").PendingCommands); n != picket.MaxPendingCommands {
			t.Fatalf("%d commands are pending", n)
		}
	})
}

// An agent that works on what it holds no lease of is told to stop, as long as
// it goes on.
func TestStopTask(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		early := f.AcquireAsOwner(t, "a1")
		f.MustRegister(t, shortThresholds("a1"))
		f.MustSubmit(t, picket.TaskSpec{})
		own := f.AcquireAsOwner(t, "a1")
		f.MustSubmit(t, picket.TaskSpec{})
		other := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a2"})
		hb := kit.ActiveHeartbeat()
		hb.TasksInProgress = []string{early.TaskID, own.TaskID, other.TaskID, "task_gone", other.TaskID}
		for range 2 {
			got, err := f.Heartbeat(f.Ctx, kit.AgentOwner, "a1", hb)
			kit.OK(t, err)
			want := []picket.PendingCommand{
				{
					CommandID:    "stop_" + other.TaskID,
					AgentCommand: picket.AgentCommand{Command: "stop_task", TaskID: other.TaskID, Reason: "no_lease"},
				},
				{
					CommandID:    "stop_task_gone",
					AgentCommand: picket.AgentCommand{Command: "stop_task", TaskID: "task_gone", Reason: "no_lease"},
				},
			}
			if p := got.PendingCommands; len(p) != 2 || p[0] != want[0] || p[1] != want[1] {
				t.Fatalf("pending %+v", p)
			}
		}
		hb.TasksInProgress = []string{own.TaskID}
		got, err := f.Heartbeat(f.Ctx, kit.AgentOwner, "a1", hb)
		kit.OK(t, err)
		if len(got.PendingCommands) != 0 {
			t.Fatalf("pending %+v", got.PendingCommands)
		}
		_, err = f.Complete(f.Ctx, f.OpenLease(t, early), picket.Completion{Output: picket.RawJSON(`1`)})
		kit.OK(t, err)
		hb.TasksInProgress = []string{own.TaskID, early.TaskID} // done, and still at it
		got, err = f.Heartbeat(f.Ctx, kit.AgentOwner, "a1", hb)
		kit.OK(t, err)
		if ids := commandIDs(got); len(ids) != 1 || ids[0] != "stop_"+early.TaskID {
			t.Fatalf("pending %v", ids)
		}
	})
}

// The word about a clock that is off is written when it begins, and again when
// it begins again; nothing is judged by that clock.
func TestDriftIsToldWhenItBegins(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		a := f.MustRegister(t, shortThresholds("a1"))
		seq := f.mustLastSeq(t)
		counted := f.ClockDrifts()
		for _, off := range []time.Duration{time.Hour, -time.Hour, 0, 3 * time.Second, time.Second, -24 * time.Hour} {
			hb := kit.ActiveHeartbeat()
			hb.ClientTimestamp = picket.InstantOf(time.Now().Add(off))
			got, err := f.Heartbeat(f.Ctx, kit.AgentOwner, "a1", hb)
			kit.OK(t, err)
			if got.AgentStatus != picket.AgentActive {
				t.Fatalf("off by %s: %+v", off, got)
			}
		}
		f.wantEvents(t, seq, "agent.drift", "agent.drift", "agent.drift")
		if n := f.ClockDrifts() - counted; n != 4 {
			t.Errorf("%d heartbeats of a clock that is off were counted, want 4", n)
		}
		if after := f.wantAgent(t, "a1", picket.AgentActive); after.Version != a.Version {
			t.Errorf("%+v became %+v", a, after)
		}
	})
}

// On the virtual clock the bound of the drift is exact: twice the interval is
// still fine.
func TestTheBoundOfDriftIsExact(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		if !f.Virtual {
			t.Skip("needs a clock that stands still")
		}
		f.MustRegister(t, shortThresholds("a1"))
		for off, want := range map[time.Duration]int64{
			2 * time.Second:          0,
			-2 * time.Second:         0,
			2001 * time.Millisecond:  1,
			-2001 * time.Millisecond: 1,
		} {
			before := f.ClockDrifts()
			hb := kit.ActiveHeartbeat()
			hb.ClientTimestamp = picket.InstantOf(time.Now().Add(off))
			_, err := f.Heartbeat(f.Ctx, kit.AgentOwner, "a1", hb)
			kit.OK(t, err)
			if n := f.ClockDrifts() - before; n != want {
				t.Errorf("off by %s: %d warnings", off, n)
			}
		}
	})
}
