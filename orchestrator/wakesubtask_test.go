package orchestrator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// delegating leases a task to a1, which delegates a part of it. It returns the lease of the task, and that of the part.
func (f *fixture) delegating(t *testing.T, review picket.ReviewBy) (parent, child picket.LeaseCredential) {
	t.Helper()
	f.MustSubmit(t, picket.TaskSpec{Title: "whole", Agent: "a1", LeaseWindowSeconds: kit.Ptr(7200)})
	parent = f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "coder"}))
	_, err := f.Delegate(f.Ctx, parent, "", picket.Subtask{Title: "part", Role: "helper", Review: review})
	kit.OK(t, err)
	return parent, f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "h1", Role: "helper"}))
}

// settledKey is where it is kept that a subtask has settled for a session.
func settledKey(session string) string { return "pk:{default}:session-wake:" + session }

// A subtask that settles wakes the session of the agent that holds its parent, once.
func TestTheSchedulerWakesForASettledSubtask(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		complete := func(child picket.LeaseCredential) error {
			_, err := f.Complete(f.Ctx, child, picket.Completion{Output: []byte(`"done"`)})
			return err
		}
		for _, c := range []struct {
			what   string
			review picket.ReviewBy
			settle func(child picket.LeaseCredential) error
		}{
			{"ends", picket.ReviewByNone, complete},
			{"waits for a review", picket.ReviewByParent, complete},
			{"asks a person", picket.ReviewByParent, func(child picket.LeaseCredential) error {
				_, err := f.RequestHelp(f.Ctx, child, picket.HelpRequest{Question: "?"})
				return err
			}},
			{"is given up", picket.ReviewByParent, func(child picket.LeaseCredential) error {
				_, err := f.Fail(f.Ctx, child, "no", false)
				return err
			}},
		} {
			_, child := f.delegating(t, c.review)
			f.Raw.Persist(f.Ctx, settledKey(id))
			f.Raw.ZAdd(f.Ctx, "pk:{default}:wake-due", redis.Z{Score: 1e15, Member: id})
			kit.OK(t, c.settle(child))
			if ttl := f.Raw.PTTL(f.Ctx, settledKey(id)).Val(); ttl <= 0 {
				t.Errorf("%s: what is kept about the wakes of a session is kept for %v", c.what, ttl)
			}
			f.cycle(t, n, id)
			got := f.pendingWakes(t, n)
			if len(got) != 1 || !strings.Contains(got[0].Text, "a subtask that you delegated") {
				t.Fatalf("%s: commands %+v, rows %q", c.what, got, f.wakeRows(t))
			}
			f.takeWake(t, n)
			f.cycleAfter(t, n, id, 2*time.Minute)
			if got := f.pendingWakes(t, n); len(got) != 0 {
				t.Fatalf("%s: the same subtask wakes again: %+v", c.what, got)
			}
		}
	})
}

// A subtask wakes the session also if it settles in the millisecond in which the last wake was accepted. One that has
// settled just before that does not.
func TestASubtaskSettlesInTheMillisecondOfAWake(t *testing.T) {
	onTheVirtualClock(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		parent, child := f.delegating(t, picket.ReviewByNone)
		settle := func() {
			t.Helper()
			_, err := f.Complete(f.Ctx, child, picket.Completion{Output: []byte(`"done"`)})
			kit.OK(t, err)
		}
		// wakes is how often the session is woken after the wake of a person that comes between two actions.
		wakes := func(before, after func()) int {
			t.Helper()
			before()
			d, err := f.wakeWith(t, n, picket.PromptAccepted, "")
			kit.OK(t, err)
			after()
			kit.OK(t, f.result(n, d.WakeID, picket.PromptAnswered, ""))
			f.cycleAfter(t, n, id, 70*time.Second)
			return len(f.pendingWakes(t, n))
		}
		if got := wakes(settle, func() {}); got != 0 {
			t.Errorf("a subtask that settled before the wake woke the session %d times", got)
		}
		_, err := f.Delegate(f.Ctx, parent, "", picket.Subtask{Title: "another part", Role: "helper"})
		kit.OK(t, err)
		child = f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "h2", Role: "helper"}))
		if got := wakes(func() {}, settle); got != 1 || !f.takeWake(t, n) {
			t.Errorf("a subtask that settled after the wake woke the session %d times, rows %q", got, f.wakeRows(t))
		}
	})
}

// A subtask whose parent is not held by an agent with sessions wakes nobody.
func TestASettledSubtaskOfNobodyIsIgnored(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		parent, _ := f.delegating(t, picket.ReviewByNone)
		page, err := f.Tasks(f.Ctx, picket.TaskQuery{})
		kit.OK(t, err)
		_, err = f.RequestHelp(f.Ctx, parent, picket.HelpRequest{Question: "?"})
		kit.OK(t, err)
		for _, task := range page.Tasks {
			if task.Parent != nil {
				_, err = f.Cancel(f.Ctx, kit.Operator, task.TaskID, "")
				kit.OK(t, err)
			}
		}
		if f.Raw.HExists(f.Ctx, settledKey(id), "settled").Val() {
			t.Error("a subtask has settled for an agent that does not hold its parent")
		}
		parent, child := f.delegating(t, picket.ReviewByNone)
		_, err = f.Complete(f.Ctx, child, picket.Completion{Output: []byte(`"done"`)})
		kit.OK(t, err)
		_, err = f.RequestHelp(f.Ctx, parent, picket.HelpRequest{Question: "?"}) // it does not hold the parent any more
		kit.OK(t, err)
		f.cycleAfter(t, n, id, 2*time.Minute)
		if got := f.pendingWakes(t, n); len(got) != 0 {
			t.Errorf("commands %+v", got)
		}
	})
}
