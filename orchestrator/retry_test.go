package orchestrator_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func (f *fixture) releaseAs(t *testing.T, class picket.ExitClass) picket.TaskState {
	t.Helper()
	h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
	st, err := f.Release(f.Ctx, h,
		picket.Exit{Class: class, Code: kit.Ptr(137), Signal: kit.Ptr("SIGKILL"), Detail: "last words"})
	kit.OK(t, err)
	again, err := f.Release(f.Ctx, h, picket.Exit{Class: class, Code: kit.Ptr(137), Signal: kit.Ptr("SIGKILL")})
	kit.OK(t, err)
	if again != st {
		t.Fatalf("a repeated release answers %s, first %s", again, st)
	}
	return st
}

func TestCrashEscalatesUnlessListed(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		if st := f.releaseAs(t, picket.ExitCrash); st != picket.TaskHandoff {
			t.Fatalf("crash led to %s", st)
		}
		got := f.WantState(t, task.TaskID, picket.TaskHandoff)
		x := got.Runs[0].Exit
		if x.Class != picket.ExitCrash || *x.Code != 137 || *x.Signal != "SIGKILL" || x.Detail != "last words" ||
			got.Failures != 1 {
			t.Fatalf("exit %+v failures %d", x, got.Failures)
		}
		if kept := got.Runs[0].KeepUntil.Time().Sub(got.Runs[0].EndedAt.Time()); kept != 7*24*time.Hour {
			t.Fatalf("a failed run is kept for %s", kept)
		}
		if got.Handoff.Kind != picket.HandoffEscalation || got.Handoff.State != picket.HandoffOpen ||
			got.Handoff.Question != "Run 1 ended with crash, and the task does not list crash in retry.on. Retry, answer, finish or cancel the task." {
			t.Fatalf("hand-off %+v", got.Handoff)
		}
		again, err := f.Retry(f.Ctx, kit.Operator, task.TaskID, "try once more")
		kit.OK(t, err)
		if again.TaskID != task.TaskID || again.State != picket.TaskQueued || again.Failures != 0 {
			t.Fatalf("retried %+v", again)
		}
		l := f.AcquireOne(t, picket.AcquireRequest{})
		if l.PreviousExit == nil || l.PreviousExit.Class != picket.ExitCrash || l.FencingToken != 2 {
			t.Fatalf("second lease %+v", l)
		}
		_, err = f.Retry(f.Ctx, kit.Operator, task.TaskID, "")
		kit.Refused(t, err, picket.CodeStateConflict)
	})
}

func TestEscalateFailEndsTheTaskAndRetryMakesANewOne(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{
			Escalate: picket.EscalateFail,
			Title:    "again",
			Input:    picket.RawJSON(`[1]`),
			Role:     "",
			Labels:   map[string]string{"a": "b"},
		})
		if st := f.releaseAs(t, picket.ExitNoResult); st != picket.TaskFailed {
			t.Fatalf("led to %s", st)
		}
		again, err := f.Retry(f.Ctx, kit.Operator, task.TaskID, "new")
		kit.OK(t, err)
		if again.TaskID == task.TaskID || *again.Retries != task.TaskID || again.State != picket.TaskQueued ||
			again.Title != "again" ||
			string(again.Input) != "[1]" || again.Attempts != 0 || again.Labels["a"] != "b" {
			t.Fatalf("new task %+v", again)
		}
		f.WantState(t, task.TaskID, picket.TaskFailed)
		f.wantRetriedOnce(t, task.TaskID, again.TaskID)
		if l := f.AcquireOne(t, picket.AcquireRequest{}); l.TaskID != again.TaskID || *l.Task.Retries != task.TaskID {
			t.Fatalf("lease %+v", l)
		}
	})
}

// wantRetriedOnce checks that a closed task is not made again as long as what it
// was made again as is open.
func (f *fixture) wantRetriedOnce(t *testing.T, id, anew string) {
	t.Helper()
	_, err := f.Retry(f.Ctx, kit.Operator, id, "me too")
	kit.Refused(t, err, picket.CodeStateConflict)
	if no, _ := picket.RefusalOf(err); no.Facts["by"] != kit.Operator.Actor || no.Facts["at"] == nil ||
		no.Facts["decision"] != "retry" || no.Facts["newTaskId"] != anew ||
		!strings.Contains(no.Message+no.Remedy, "picket task get "+anew) {
		t.Errorf("it says %q, %q with %v", no.Message, no.Remedy, no.Facts)
	}
	old, err := f.Task(f.Ctx, id)
	kit.OK(t, err)
	if old.RetriedAs == nil || *old.RetriedAs != anew {
		t.Errorf("%s was tried again as %v, want %s", id, old.RetriedAs, anew)
	}
}

// Of two people who have a closed task tried again at once one makes the new
// one; when that has ended, too, it may be tried once more.
func TestAClosedTaskIsTriedAgainOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		_, err := f.Cancel(f.Ctx, kit.Operator, task.TaskID, "")
		kit.OK(t, err)
		for range 3 {
			made, said := make(chan string, 2), make(chan error, 2)
			for range 2 {
				go func() {
					got, err := f.Retry(f.Ctx, kit.Operator, task.TaskID, "")
					made <- got.TaskID
					said <- err
				}()
			}
			anew := (<-made) + (<-made)
			if lost := errors.Join(<-said, <-said); picket.CodeOf(lost) != picket.CodeStateConflict ||
				len(anew) != len(task.TaskID) {
				t.Fatalf("two at once: %q and %v", anew, lost)
			}
			f.wantRetriedOnce(t, task.TaskID, anew)
			_, err := f.Cancel(f.Ctx, kit.Operator, anew, "")
			kit.OK(t, err)
		}
		f.deleteEnded(t)
		_, err = f.Retry(f.Ctx, kit.Operator, task.TaskID, "")
		kit.Refused(t, err, picket.CodeNotFound)
	})
}

func TestBackoffDoublesUntilAttemptsRunOut(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{Retry: kit.RetryOn(4, 10, picket.ExitCrash)})
		if st := f.releaseAs(t, picket.ExitCrash); st != picket.TaskQueued {
			t.Fatalf("first failure led to %s", st)
		}
		f.releaseAs(t, picket.ExitCrash) // the first retry came at once
		for _, wait := range []time.Duration{10 * time.Second, 20 * time.Second} {
			f.RunReaperFor(t, wait-time.Second)
			if got, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{}); err != nil || len(got) != 0 {
				t.Fatalf("leased before the backoff of %s: %v %v", wait, got, err)
			}
			x, err := f.Explain(f.Ctx, task.TaskID)
			kit.OK(t, err)
			if len(x.Because) == 0 {
				t.Fatal("explain says nothing")
			}
			f.RunReaperFor(t, 2*time.Second)
			f.releaseAs(t, picket.ExitCrash)
		}
		got := f.WantState(t, task.TaskID, picket.TaskHandoff)
		if got.Failures != 4 {
			t.Fatalf("failures %d", got.Failures)
		}
	})
}

func TestMarkFailed(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		st, err := f.Fail(f.Ctx, h, "no tools", true)
		kit.OK(t, err)
		if st != picket.TaskQueued {
			t.Fatalf("retryable failure led to %s", st)
		}
		h = f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		st, err = f.Fail(f.Ctx, h, "impossible", false)
		kit.OK(t, err)
		again, err := f.Fail(f.Ctx, h, "impossible", false)
		kit.OK(t, err)
		if st != picket.TaskHandoff || again != st {
			t.Fatalf("final failure led to %s, repeated %s", st, again)
		}
		got := f.WantState(t, task.TaskID, picket.TaskHandoff)
		if got.Runs[1].Exit.Class != picket.ExitAgentFailed || got.Runs[1].Exit.Detail != "impossible" {
			t.Fatalf("%+v", got.Runs[1].Exit)
		}
	})
}

// An agent that rejects its task ends it, whatever its retry policy is. Nobody is asked and nothing is tried again.
func TestARejectedTaskHasFailed(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		spec := clientTask("builder", "c1")
		spec.Retry = kit.RetryOn(9, 0)
		task := f.submitAs(t, "key_a", spec)
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "builder"}))
		part, err := f.Delegate(f.Ctx, h, "", picket.Subtask{Title: "part"})
		kit.OK(t, err)
		for range 2 {
			st, err := f.Decline(f.Ctx, h, "it is not for me")
			kit.OK(t, err)
			if st != picket.TaskFailed {
				t.Fatalf("a rejection led to %s", st)
			}
		}
		_, err = f.Fail(f.Ctx, h, "it is not for me", false)
		kit.Refused(t, err, picket.CodeLeaseReleased)
		got := f.WantState(t, task.TaskID, picket.TaskFailed)
		if x := got.Runs[0].Exit; x.Class != picket.ExitRejected || x.Detail != "it is not for me" ||
			got.Reason != "it is not for me" || got.Handoff != nil || got.Failures != 0 {
			t.Errorf("%+v, %q, %+v, %d failures", x, got.Reason, got.Handoff, got.Failures)
		}
		f.WantState(t, part.TaskID, picket.TaskCancelled)
		facts, _ := f.lastFacts(t, picket.EventLeaseFailed)
		if facts.Task == nil || facts.Task.Title != task.Title {
			t.Errorf("the event says %+v", facts)
		}
		failed := []picket.TaskState{picket.TaskFailed}
		for want, q := range map[int]picket.ClientTaskQuery{0: {States: failed}, 1: {Rejected: true}} {
			if ids, _ := f.clientTasks(t, q); len(ids) != want {
				t.Errorf("%+v: %v", q, ids)
			}
		}
		f.wantNoViolations(t)
	})
}

// While the old process may still act, the next holder does not start; its
// exit lets the task go at once.
func TestNextRunWaitsForTheOldProcess(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		_, err := f.Renew(f.Ctx, h)
		kit.OK(t, err)
		kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched, Containment: "group"}}))
		_, err = f.Expire(f.Ctx, kit.Operator, task.TaskID, "take it away")
		kit.OK(t, err)
		got, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{})
		kit.OK(t, err)
		if len(got) != 0 {
			t.Fatal("the next run started beside the old process")
		}
		x, err := f.Explain(f.Ctx, task.TaskID)
		kit.OK(t, err)
		if len(x.Because) == 0 {
			t.Fatal("explain says nothing")
		}
		kit.OK(t, f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitLeaseLost, Code: kit.Ptr(0)}, "group"))
		l := f.AcquireOne(t, picket.AcquireRequest{})
		if l.FencingToken != 2 || l.PreviousExit.Class != picket.ExitByOperator {
			t.Fatalf("lease %+v exit %+v", l, l.PreviousExit)
		}
	})
}

func TestEvidenceClosesAfterFifteenMinutes(t *testing.T) {
	rig.SkipShort(t)
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		_, err := f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		kit.OK(t, err)
		f.RunReaperFor(t, 14*time.Minute)
		kit.OK(t, f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitSuccess, Code: kit.Ptr(0)}, "group"))
		f.RunReaperFor(t, 2*time.Minute)
		kit.Refused(t, f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitCrash, Code: kit.Ptr(1)}, "group"),
			picket.CodeLeaseExpired)
		_, err = f.RunLog(f.Ctx, h, picket.LogWrite{Stream: "stdout", Offset: 0, Data: []byte("late")})
		kit.Refused(t, err, picket.CodeLeaseExpired)
	})
}
