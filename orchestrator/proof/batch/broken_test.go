package batch

import (
	"errors"
	"strconv"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/calls"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// oneDollar is a task that may spend a dollar.
var oneDollar = picket.TaskSpec{BudgetEnvelope: &budget.Envelope{Tokens: 1000, USD: 1_000_000_000}}

// newEnv is an environment without batches.
func newEnv(t *testing.T) *calls.Env {
	t.Helper()
	w := calls.Setup{T: t, Store: rig.Real(t), NoBatch: true}.NewEnv()
	t.Cleanup(w.Close)
	return w
}

// damaged makes a record unreadable while it calls do, which has to fail.
func damaged(t *testing.T, w *calls.Env, key string, do func() error) {
	t.Helper()
	was, err := w.Raw.Get(w.Ctx, key).Result()
	kit.OK(t, err)
	kit.OK(t, w.Raw.Set(w.Ctx, key, "\xc1 is in no MessagePack", 0).Err())
	if err := do(); err == nil {
		t.Errorf("a call succeeds that needs the damaged %s", key)
	}
	kit.OK(t, w.Raw.Set(w.Ctx, key, was, 0).Err())
}

// dayEnvelope is the key of the envelope of the day.
func dayEnvelope(w *calls.Env) string {
	return "pk:{default}:env:" + w.Raw.ZRange(w.Ctx, "pk:{default}:houses", 0, 0).Val()[0]
}

// Redis refuses one write of a call. The events of the call are written, so their numbers are not used again, and the
// namespace goes on when the cause is gone.
func TestARefusedWriteUsesUpNumbersReal(t *testing.T) {
	causes := map[string]struct{ begin, end func(w *calls.Env) error }{
		"a key of another type": {
			func(w *calls.Env) error {
				kit.OK(t, w.Raw.Rename(w.Ctx, "pk:{default}:tasks", "kept").Err())
				return w.Raw.Set(w.Ctx, "pk:{default}:tasks", "x", 0).Err()
			},
			func(w *calls.Env) error { return w.Raw.Rename(w.Ctx, "kept", "pk:{default}:tasks").Err() },
		},
		"a missing right to publish": {
			func(w *calls.Env) error { return w.Raw.Do(w.Ctx, "ACL", "SETUSER", "default", "resetchannels").Err() },
			func(w *calls.Env) error { return w.Raw.Do(w.Ctx, "ACL", "SETUSER", "default", "allchannels").Err() },
		},
	}
	for name, cause := range causes {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t)
			submit := func() error {
				_, err := w.Direct.Submit(w.Ctx, kit.Operator, picket.TaskSpec{Title: "a task"})
				return err
			}
			kit.OK(t, submit())
			kit.OK(t, cause.begin(w))
			if err := submit(); !errors.Is(err, picket.ErrUnknown) {
				t.Errorf("a call with a refused write is answered with %v", err)
			}
			kit.OK(t, cause.end(w))
			for range 3 {
				kit.OK(t, submit())
			}
			last := w.Raw.XRevRangeN(w.Ctx, "pk:{default}:events", "+", "-", 1).Val()[0].ID
			if seq := w.Raw.HGet(w.Ctx, kit.Meta, "seq").Val(); seq+"-0" != last {
				t.Errorf("the last number is %s, and the last event has %s", seq, last)
			}
		})
	}
}

// A request whose records Redis has refused is not known, so its repeat is carried out.
func TestARefusedSubmissionIsRepeatedReal(t *testing.T) {
	w := newEnv(t)
	submit := func() (picket.Task, error) {
		return w.Direct.Submit(w.Ctx, kit.Idempotent("once"), picket.TaskSpec{Title: "a task"})
	}
	kit.OK(t, w.Raw.Do(w.Ctx, "ACL", "SETUSER", "default", "-mset").Err())
	if _, err := submit(); !errors.Is(err, picket.ErrUnknown) {
		t.Errorf("a submission that is not stored is answered with %v", err)
	}
	kit.OK(t, w.Raw.Do(w.Ctx, "ACL", "SETUSER", "default", "+mset").Err())
	for range 2 {
		task, err := submit()
		kit.OK(t, err)
		if _, err := w.Direct.Task(w.Ctx, task.TaskID); err != nil {
			t.Errorf("the task of the repeat: %v", err)
		}
	}
}

// A report that Redis has refused is not known, so its repeat is stored.
func TestARefusedReportIsRepeatedReal(t *testing.T) {
	w := newEnv(t)
	calls.Confirmed(picket.TaskSpec{})(w)
	list := "pk:{default}:reports:" + w.Held.TaskID
	report := func() error {
		_, err := w.Direct.Report(w.Ctx, w.Held, "r1", picket.Progress{Summary: "half"})
		return err
	}
	kit.OK(t, w.Raw.Set(w.Ctx, list, "x", 0).Err())
	if report() == nil {
		t.Error("a report that is not stored is acknowledged")
	}
	kit.OK(t, w.Raw.Del(w.Ctx, list).Err())
	for range 2 {
		kit.OK(t, report())
		if n := w.Raw.LLen(w.Ctx, list).Val(); n != 1 {
			t.Errorf("%d reports are stored", n)
		}
	}
}

// A report of usage that breaks is charged when it is repeated.
func TestBrokenUsageIsChargedLaterReal(t *testing.T) {
	w := newEnv(t)
	calls.Confirmed(oneDollar)(w)
	report := picket.UsageReport{Source: "claude", Session: "s1", Tokens: 100, USD: 100_000_000}
	damaged(t, w, dayEnvelope(w), func() error {
		_, err := w.Direct.ReportUsage(w.Ctx, w.Held, report)
		return err
	})
	u, err := w.Direct.ReportUsage(w.Ctx, w.Held, report)
	kit.OK(t, err)
	if u.Charged.USD != 100_000_000 {
		t.Errorf("the repeated report is charged %v, want 0.10", u.Charged.USD)
	}
}

// A settlement that breaks and is repeated counts once.
func TestABrokenSettlementCountsOnceReal(t *testing.T) {
	w, settlement := paidCall(t, nil)
	defer w.Close()
	_, err := w.Direct.Reserve(w.Ctx, w.Held, picket.CallRequest{CallID: "other", Nonce: "n1", Tool: "llm_x",
		Reserve: budget.Envelope{Tokens: 7, USD: 200_000_000}, PriceVersion: "v1", Effects: picket.EffectsNone,
		TimeoutMs: 30_000})
	kit.OK(t, err)
	damaged(t, w, dayEnvelope(w), func() error {
		_, err := w.Direct.Settle(w.Ctx, settlement)
		return err
	})
	_, err = w.Direct.Settle(w.Ctx, settlement)
	kit.OK(t, err)
	sums := w.Raw.HGetAll(w.Ctx, "pk:{default}:sums").Val()
	if sums["spent_u"] != "100000001" || sums["held_u"] != "200000000" {
		t.Errorf("the sums are %v, want 100000001 spent and 200000000 held", sums)
	}
}

// A sum that a float cannot hold is exact to the last digit.
func TestALargeSumIsExactReal(t *testing.T) {
	w, settlement := paidCall(t, nil)
	defer w.Close()
	const spent = 1<<53 + 1
	kit.OK(t, w.Raw.HSet(w.Ctx, "pk:{default}:sums", "spent_u", spent).Err())
	_, err := w.Direct.Settle(w.Ctx, settlement)
	kit.OK(t, err)
	if got := w.Raw.HGet(w.Ctx, "pk:{default}:sums", "spent_u").Val(); got != strconv.Itoa(spent+100_000_001) {
		t.Errorf("%d and 100000001 are %s", spent, got)
	}
}

// A completion that breaks while it cancels subtasks cancels none: they are still in their lanes.
func TestABrokenCompletionCancelsNothingReal(t *testing.T) {
	w := newEnv(t)
	calls.Confirmed(oneDollar)(w)
	subtask, err := w.Direct.Delegate(w.Ctx, w.Held, "d1", picket.Subtask{Title: "part"})
	kit.OK(t, err)
	damaged(t, w, "pk:{default}:env:"+subtask.TaskID, func() error {
		_, err := w.Direct.Complete(w.Ctx, w.Held, picket.Completion{Output: picket.RawJSON(`1`),
			Children: picket.ChildrenCancel})
		return err
	})
	parent, err := w.Direct.Task(w.Ctx, w.Held.TaskID)
	kit.OK(t, err)
	leases, err := w.Direct.Acquire(w.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a2", WaitSeconds: kit.Ptr(0)})
	kit.OK(t, err)
	if parent.State != picket.TaskLeased || len(leases) != 1 {
		t.Errorf("the task is %s, and its subtask is granted %d times", parent.State, len(leases))
	}
}

// A grant that breaks is not remembered as done: the same request gets a lease.
func TestABrokenGrantIsNotRememberedReal(t *testing.T) {
	w := newEnv(t)
	agent := calls.TestAgent
	agent.Metadata = picket.RawJSON(`{"agent_name":"mender"}`)
	_, err := w.Direct.Register(w.Ctx, kit.AgentOwner, agent)
	kit.OK(t, err)
	_, err = w.Direct.Submit(w.Ctx, kit.Operator, picket.TaskSpec{Title: "a task"})
	kit.OK(t, err)
	by := calls.Asked("7")
	by.Actor = kit.AgentOwner.Actor
	acquire := func() ([]picket.Lease, error) {
		return w.Direct.Acquire(w.Ctx, by, picket.AcquireRequest{AgentID: "m1", WaitSeconds: kit.Ptr(0)})
	}
	kit.OK(t, w.Raw.Set(w.Ctx, "pk:{default}:instructions", "x", 0).Err())
	if _, err := acquire(); err == nil {
		t.Error("the grant reads instructions that are damaged")
	}
	kit.OK(t, w.Raw.Del(w.Ctx, "pk:{default}:instructions").Err())
	if leases, err := acquire(); err != nil || len(leases) != 1 {
		t.Errorf("the same request again gets %d leases, %v", len(leases), err)
	}
}
