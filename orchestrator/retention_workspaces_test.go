package orchestrator_test

import (
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// A workspace is kept while nothing is decided, then a day; that of a failed
// run seven days. A repair is told what the reviewer said.
func TestWorkspacesAreKeptUntilSomebodyHasDecided(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		decided := func(task picket.Task) time.Duration {
			t.Helper()
			got, err := f.Task(f.ctx, task.TaskID)
			ok(t, err)
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
		task, h := f.submitAndLease(t, picket.TaskSpec{})
		kept("running", task, 0)
		_, err := f.Complete(f.ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		ok(t, err)
		kept("in review", task, 0)
		_, fix, err := f.Reject(f.ctx, operator, task.TaskID, picket.Decision{Note: "the tabs are wrong"},
			&picket.TaskSpec{Title: "use tabs"})
		ok(t, err)
		kept("rejected", task, 24*time.Hour)

		l := f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		if l.TaskID != fix || l.Task.ReviewNote != "the tabs are wrong" || l.Task.Fixes == nil ||
			*l.Task.Fixes != task.TaskID {
			t.Errorf("the repair is leased with %+v", l.Task)
		}
		h = f.openLease(t, l)
		_, err = f.RequestHelp(f.ctx, h, picket.HelpRequest{Question: "which?"})
		ok(t, err)
		kept("waiting for a person", picket.Task{TaskID: fix}, 0)
		_, err = f.Cancel(f.ctx, operator, fix, "no longer wanted")
		ok(t, err)
		kept("cancelled", picket.Task{TaskID: fix}, 24*time.Hour)

		task, h = f.submitAndLease(t, picket.TaskSpec{Review: picket.ReviewByNone})
		_, err = f.Complete(f.ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		ok(t, err)
		kept("completed without a review", task, 24*time.Hour)

		task, h = f.submitAndLease(t, picket.TaskSpec{})
		_, err = f.Fail(f.ctx, h, "no luck", false)
		ok(t, err)
		kept("failed", task, 7*24*time.Hour)
	})
}

// What a run has changed goes with its task, and not before.
func TestEvidenceGoesWithItsTask(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{Review: picket.ReviewByNone})
		ok(t, f.RunEvidence(f.ctx, h,
			picket.Evidence{Branch: "picket/t", Diff: "+a", Files: []picket.ChangedFile{{Path: "a"}}}))
		_, err := f.Complete(f.ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		ok(t, err)
		f.jumpStoreTime(t, 14*time.Minute)
		ok(t, f.RunEvidence(f.ctx, h, picket.Evidence{Branch: "picket/t", Diff: "+a\n+b"}))
		f.jumpStoreTime(t, 2*time.Minute)
		refused(t, f.RunEvidence(f.ctx, h, picket.Evidence{Branch: "picket/t", Diff: "+c"}), picket.CodeLeaseExpired)
		list, err := f.Evidence(f.ctx, task.TaskID, "")
		ok(t, err)
		if len(list) != 1 || list[0].RunID != h.RunID || list[0].Diff != "+a\n+b" || list[0].At == 0 {
			t.Errorf("%+v", list)
		}
		before := countKeys(t, f, "evidence:")
		f.jumpStoreTime(t, 31*24*time.Hour)
		_, err = f.ApplyRetention(f.ctx,
			picket.Retention{Tasks: 30 * 24 * time.Hour, Events: 100 * 24 * time.Hour, MaxEvents: 1e6}, 100)
		ok(t, err)
		if after := countKeys(t, f, "evidence:"); before != 1 || after != 0 {
			t.Errorf("%d kept, %d after the task was deleted", before, after)
		}
	})
}

func countKeys(t *testing.T, f *fixture, kind string) int {
	t.Helper()
	keys, err := f.raw.Keys(f.ctx, "pk:{default}:"+kind+"*").Result()
	ok(t, err)
	return len(keys)
}
