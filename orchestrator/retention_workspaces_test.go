package orchestrator_test

import (
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A workspace is kept while nothing is decided, then a day; that of a failed
// run seven days. A repair is told what the reviewer said.
func TestWorkspacesAreKeptUntilSomebodyHasDecided(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		decided := func(task picket.Task) time.Duration {
			t.Helper()
			got, err := f.Task(f.Ctx, task.TaskID)
			kit.OK(t, err)
			last := got.Runs[len(got.Runs)-1]
			if last.KeepUntil == 0 {
				return 0
			}
			return last.KeepUntil.Time().Sub(got.UpdatedAt.Time())
		}
		kept := func(what string, task picket.Task, want time.Duration) {
			t.Helper()
			if got := decided(task); got != want {
				t.Errorf("%s: kept for %s, want %s", what, got, want)
			}
		}
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		kept("running", task, 0)
		_, err := f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		kit.OK(t, err)
		kept("in review", task, 0)
		_, fix, err := f.Reject(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Note: "the tabs are wrong"},
			&picket.TaskSpec{Title: "use tabs"})
		kit.OK(t, err)
		kept("rejected", task, 24*time.Hour)

		l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		if l.TaskID != fix || l.Task.ReviewNote != "the tabs are wrong" || l.Task.Fixes == nil ||
			*l.Task.Fixes != task.TaskID {
			t.Errorf("the repair is leased with %+v", l.Task)
		}
		h = f.OpenLease(t, l)
		_, err = f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "which?"})
		kit.OK(t, err)
		kept("waiting for a person", picket.Task{TaskID: fix}, 0)
		_, err = f.Cancel(f.Ctx, kit.Operator, fix, "no longer wanted")
		kit.OK(t, err)
		kept("cancelled", picket.Task{TaskID: fix}, 24*time.Hour)

		task, h = f.SubmitAndLease(t, picket.TaskSpec{Review: picket.ReviewByNone})
		_, err = f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		kit.OK(t, err)
		kept("completed without a review", task, 24*time.Hour)

		task, h = f.SubmitAndLease(t, picket.TaskSpec{})
		_, err = f.Fail(f.Ctx, h, "no luck", false)
		kit.OK(t, err)
		kept("failed", task, 7*24*time.Hour)
	})
}

// What a run has changed goes with its task, and not before.
func TestEvidenceGoesWithItsTask(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{Review: picket.ReviewByNone})
		kit.OK(t, f.RunEvidence(f.Ctx, h,
			picket.Evidence{Branch: "picket/t", Diff: "+a", Files: []picket.ChangedFile{{Path: "a"}}}))
		_, err := f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		kit.OK(t, err)
		f.JumpStoreTime(t, 14*time.Minute)
		kit.OK(t, f.RunEvidence(f.Ctx, h, picket.Evidence{Branch: "picket/t", Diff: "+a\n+b"}))
		f.JumpStoreTime(t, 2*time.Minute)
		kit.Refused(t, f.RunEvidence(f.Ctx, h, picket.Evidence{Branch: "picket/t", Diff: "+c"}),
			picket.CodeLeaseExpired)
		list, err := f.Evidence(f.Ctx, task.TaskID, "")
		kit.OK(t, err)
		if len(list) != 1 || list[0].RunID != h.RunID || list[0].Diff != "+a\n+b" || list[0].At == 0 {
			t.Errorf("%+v", list)
		}
		before := countKeys(t, f, "evidence:")
		f.JumpStoreTime(t, 31*24*time.Hour)
		_, err = f.ApplyRetention(f.Ctx,
			picket.Retention{Tasks: 30 * 24 * time.Hour, Events: 100 * 24 * time.Hour, MaxEvents: 1e6}, 100)
		kit.OK(t, err)
		if after := countKeys(t, f, "evidence:"); before != 1 || after != 0 {
			t.Errorf("%d kept, %d after the task was deleted", before, after)
		}
	})
}

func countKeys(t *testing.T, f *fixture, kind string) int {
	t.Helper()
	keys, err := f.Raw.Keys(f.Ctx, "pk:{default}:"+kind+"*").Result()
	kit.OK(t, err)
	return len(keys)
}
