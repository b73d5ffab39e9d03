package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// cycle runs a cycle of the scheduler, a cycle after the last one.
func (f *fixture) cycle(t *testing.T, n int64, id string) (looked int) {
	t.Helper()
	return f.cycleAfter(t, n, id, 30*time.Second)
}

// cycleAfter runs a cycle of the scheduler after a while in which the agent stays healthy.
func (f *fixture) cycleAfter(t *testing.T, n int64, id string, after time.Duration) (looked int) {
	t.Helper()
	f.stayHealthy(t, n, id, after)
	looked, err := f.WakeCycle(f.Ctx)
	kit.OK(t, err)
	return looked
}

// stayHealthy lets a while pass, in which the agent sends its heartbeats and reports its idle session.
func (f *fixture) stayHealthy(t *testing.T, n int64, id string, after time.Duration) {
	t.Helper()
	const step = 80 * time.Second
	for ; after > 0; after -= step {
		f.JumpStoreTime(t, min(after, step))
		_, err := f.Heartbeat(f.Ctx, kit.Operator, "a1", picket.Heartbeat{Status: picket.AgentActive,
			ClientTimestamp: picket.InstantOf(time.Now()), Incarnation: n})
		kit.OK(t, err)
		kit.OK(t, f.report("a1", n, idleSession(id)))
	}
}

// pendingWakes are the commands for the session.
func (f *fixture) pendingWakes(t *testing.T, n int64) []picket.SessionCommand {
	t.Helper()
	got, err := f.PendingCommands(f.Ctx, kit.Operator, "a1", picket.PendingQuery{Incarnation: n})
	kit.OK(t, err)
	return got.Sessions
}

// takeWake answers the wake that is there, and reports whether there was one.
func (f *fixture) takeWake(t *testing.T, n int64) bool {
	t.Helper()
	for _, c := range f.pendingWakes(t, n) {
		kit.OK(t, f.result(n, c.CommandID, picket.PromptAccepted, ""))
		kit.OK(t, f.result(n, c.CommandID, picket.PromptAnswered, ""))
		return true
	}
	return false
}

// The scheduler wakes a session for a message, once. It leaves a session alone for which there is nothing, and
// one that no budget limits.
func TestTheSchedulerWakesForAMessage(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		if got := f.cycle(t, n, id); got != 1 {
			t.Errorf("%d sessions were looked at", got)
		}
		if got := f.pendingWakes(t, n); len(got) != 0 {
			t.Fatalf("an idle session is woken: %+v", got)
		}
		_, err := f.Tell(f.Ctx, kit.OtherOperator, "a1", picket.MessageRequest{Body: "look at this"})
		kit.OK(t, err)
		f.cycle(t, n, id)
		if got := f.pendingWakes(t, n); len(got) != 1 || got[0].Command != picket.CommandWake ||
			!strings.Contains(got[0].Text, "unread messages") {
			t.Fatalf("commands %+v, rows %q", got, f.wakeRows(t))
		}
		wake := f.pendingWakes(t, n)[0].CommandID
		kit.OK(t, f.result(n, wake, picket.PromptAccepted, ""))
		kit.OK(t, f.result(n, wake, picket.PromptAnswered, ""))
		for range 5 {
			f.cycle(t, n, id)
		}
		if got := f.pendingWakes(t, n); len(got) != 0 {
			t.Errorf("the same message wakes again: %+v", got)
		}
	})
}

// A wake leads to something if the agent reads or writes a message, and the agent has a capability for that.
func TestAWakeThatLedToSomething(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		f.sessionAgent(t, "a2")
		for _, c := range []struct{ body, idle string }{{"", "1"}, {"hello", "0"}} {
			f.JumpStoreTime(t, time.Minute)
			f.stayHealthy(t, n, id, time.Second)
			held := f.wakeWithCapability(t, n)
			if c.body != "" {
				_, err := f.SendMessage(f.Ctx, held, "", toAgent("a2", c.body))
				kit.OK(t, err)
			}
			kit.OK(t, f.result(n, held.PromptID, picket.PromptAnswered, ""))
			if got := f.Raw.HGet(f.Ctx, "pk:{default}:session-wake:"+id, "idle").Val(); got != c.idle {
				t.Errorf("after the message %q, %s wakes led to nothing, want %s", c.body, got, c.idle)
			}
		}
	})
}

// wakeWithCapability wakes ann, and answers the capability with which an adapter has accepted the wake.
func (f *fixture) wakeWithCapability(t *testing.T, n int64) picket.LeaseCredential {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := f.Wake(f.Ctx, kit.OtherOperator, "ann", picket.WakeRequest{})
		done <- err
	}()
	c := f.nextCommand(t, n)
	held, _ := picket.ParseSessionCapability(picket.NewSessionCapability(c.Namespace, c.CommandID).Reveal())
	kit.OK(t, kit.SendResult(f.Ctx, f, kit.Operator, "a1", c.CommandID, picket.CommandResult{Incarnation: n,
		State: picket.PromptAccepted, CapabilityHash: held.Secret}))
	kit.OK(t, <-done)
	return held
}

// A session that cannot be looked at keeps no other one from its wakes.
func TestASessionThatFailsDelaysNoOther(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		damaged := newSessionID()
		f.Raw.HSet(f.Ctx, "pk:{default}:asession:"+damaged, "agent", "a1", "name", "-")
		f.Raw.ZAdd(f.Ctx, "pk:{default}:wake-due", redis.Z{Member: damaged})
		_, err := f.Tell(f.Ctx, kit.OtherOperator, "a1", picket.MessageRequest{Body: "look at this"})
		kit.OK(t, err)
		f.stayHealthy(t, n, id, 30*time.Second)
		looked, err := f.WakeCycle(f.Ctx)
		kit.Refused(t, err, picket.CodeValidation)
		if got := f.pendingWakes(t, n); looked != 2 || len(got) != 1 {
			t.Errorf("%d sessions were looked at, and the commands are %+v", looked, got)
		}
	})
}

// One process runs a cycle, and only the one with the directory of policy files if there is one. A session
// that a process takes and does not plan comes back.
func TestOneProcessRunsACycle(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		if looked := f.cycle(t, n, id); looked != 1 {
			t.Errorf("%d sessions were looked at", looked)
		}
		kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:wake-due", redis.Z{Member: id}).Err())
		looked, err := f.WakeCycle(f.Ctx)
		kit.OK(t, err)
		if looked != 0 {
			t.Errorf("%d sessions were looked at in the same cycle", looked)
		}
		_, _, err = f.PolicyStore().Lock(f.Ctx, "dir")
		kit.OK(t, err)
		f.JumpStoreTime(t, 0)
		f.Raw.Del(f.Ctx, "pk:{default}:wake-cycle")
		looked, err = f.WakeCycle(f.Ctx)
		kit.OK(t, err)
		if looked != 0 {
			t.Errorf("%d sessions were looked at without the directory", looked)
		}
		f.RefreshPolicies("dir", nil)
		looked, err = f.WakeCycle(f.Ctx)
		kit.OK(t, err)
		if looked != 1 {
			t.Errorf("%d sessions were looked at with the directory", looked)
		}
		f.Raw.Del(f.Ctx, "pk:{default}:wake-cycle")
		_, err = f.Records().Run(f.Ctx, "wake_cycle", 10, "0", "dir")
		kit.OK(t, err)
		if n := f.Raw.ZCount(f.Ctx, "pk:{default}:wake-due", "-inf", "+inf").Val(); n != 1 {
			t.Errorf("%d sessions will be looked at", n)
		}
		f.Raw.ZAdd(f.Ctx, "pk:{default}:wake-due", redis.Z{Member: id})
		f.Raw.Del(f.Ctx, "pk:{default}:wake-cycle")
		_, err = f.Records().Run(f.Ctx, "wake_cycle", 10, "0", "dir")
		kit.OK(t, err)
		if score := f.Raw.ZScore(f.Ctx, "pk:{default}:wake-due", id).Val(); score == 0 {
			t.Error("the session is due at once")
		}
	})
}

// A session that has ended is neither due nor found by its name, and is not planned any more.
func TestEndedSessionsAreNotWoken(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		kit.OK(t, f.report("a1", n))
		_, err := f.Records().Run(f.Ctx, "plan_wake", id, 1000, "0", 1000)
		kit.OK(t, err)
		for _, key := range []string{"wake-due", "named-sessions:ann"} {
			if got := f.Raw.ZCard(f.Ctx, "pk:{default}:"+key).Val(); got != 0 {
				t.Errorf("%s has %d sessions", key, got)
			}
		}
		_, err = f.Wake(f.Ctx, kit.OtherOperator, "ann", picket.WakeRequest{})
		kit.Refused(t, err, picket.CodeSessionRequired)
	})
}

// Messages of agents wake a session at most four times an hour. One of a person does at any time.
func TestAgentsWakeFourTimesAnHour(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		f.MustSubmit(t, picket.TaskSpec{})
		lease := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a2"})
		held := f.OpenLease(t, lease)
		sent := 0
		send := func() {
			t.Helper()
			sent++
			_, err := f.SendMessage(f.Ctx, held, "", toAgent("a1", fmt.Sprint("look ", sent)))
			kit.OK(t, err)
		}
		wakes := "pk:{default}:session-wake:" + id
		f.Raw.HSet(f.Ctx, wakes, "by_agents", strings.Repeat(" 1000", 100))
		woken := 0
		for range 8 {
			send()
			f.cycleAfter(t, n, id, 70*time.Second)
			f.MustRenew(t, lease)
			if f.takeWake(t, n) {
				woken++
			}
		}
		if woken != 4 {
			t.Errorf("the messages of agents woke the session %d times", woken)
		}
		if kept := f.Raw.HGet(f.Ctx, wakes, "by_agents").Val(); len(kept) > 200 {
			t.Errorf("%d bytes of earlier wakes are kept", len(kept))
		}
		for range 60 { // they do not hide the message of a person
			f.JumpStoreTime(t, 2*time.Second)
			f.MustRenew(t, lease)
			send()
		}
		_, err := f.Tell(f.Ctx, kit.OtherOperator, "a1", picket.MessageRequest{Body: "look"})
		kit.OK(t, err)
		f.cycleAfter(t, n, id, 70*time.Second)
		if !f.takeWake(t, n) {
			t.Error("the message of a person does not wake the session")
		}
	})
}

// An idle session is left alone. With when_idle it is woken by the clock, and ever less often while that leads
// to nothing.
func TestTheSchedulerBacksOff(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		wakes := func(e *orchestrator.Engine) (count int) {
			for range 48 {
				f.stayHealthy(t, n, id, 10*time.Minute)
				_, err := e.WakeCycle(f.Ctx)
				kit.OK(t, err)
				if f.takeWake(t, n) {
					count++
				}
			}
			return count
		}
		if got := wakes(f.Engine); got != 0 {
			t.Errorf("an idle session is woken %d times", got)
		}
		whenIdle := heartbeat.Defaults()
		whenIdle.WhenIdle = true
		second := f.OpenProcess(t, f.RigStore, orchestrator.Config{Witness: t.TempDir(), Wake: whenIdle,
			Unmetered: map[string]bool{"ann": true}})
		// Three wakes after 30 minutes each, three after an hour each, and one after two more.
		if got := wakes(second.Engine("default")); got < 6 || got > 8 {
			t.Errorf("an idle session is woken %d times in 8 hours", got)
		}
	})
}
