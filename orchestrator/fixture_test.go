package orchestrator_test

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// fixture is that of the kit, with methods of the tests of this folder.
type fixture struct{ *kit.Fixture }

func onBothStores(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	kit.OnBothStores(t, func(t *testing.T, f *kit.Fixture) { test(t, &fixture{f}) })
}

func openFixture(t *testing.T, s rig.Store) *fixture {
	t.Helper()
	return &fixture{kit.OpenFixture(t, s)}
}

func TestTaskLifecycle(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{
			Title:  "fix it",
			Input:  picket.RawJSON(`{"n":12345678901234567890}`),
			Labels: map[string]string{"team": "a"},
		})
		l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", WorkspaceRoot: "/srv/runs"})
		if l.TaskID != task.TaskID || l.FencingToken != 1 || l.WorkspacePath != "/srv/runs/"+l.RunID ||
			string(l.Task.Input) != `{"n":12345678901234567890}` {
			t.Fatalf("lease %+v", l)
		}
		if l.LeaseTTLMs > 30_000 || l.LeaseTTLMs < 29_000 {
			t.Fatalf("an unconfirmed lease lives %d ms", l.LeaseTTLMs)
		}
		h := f.OpenLease(t, l)
		r, err := f.Renew(f.Ctx, h)
		kit.OK(t, err)
		if r.LeaseTTLMs != 300_000 || r.FencingToken != 1 {
			t.Fatalf("renewal %+v", r)
		}
		rep, err := f.Report(f.Ctx, h, "r1", picket.Progress{Summary: "half way", NextStep: "go on"})
		kit.OK(t, err)
		again, err := f.Report(f.Ctx, h, "r1", picket.Progress{Summary: "half way", NextStep: "go on"})
		kit.OK(t, err)
		if rep.Seq != 1 || again.Seq != 1 {
			t.Fatalf("reports %+v %+v", rep, again)
		}
		_, err = f.Report(f.Ctx, h, "r1", picket.Progress{Summary: "other"})
		kit.Refused(t, err, picket.CodeIdempotencyConflict)
		st, err := f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`"done"`), Summary: "ok"})
		kit.OK(t, err)
		st2, err := f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`"done"`), Summary: "ok"})
		kit.OK(t, err)
		if st != picket.TaskReview || st2 != st {
			t.Fatalf("states %s %s", st, st2)
		}
		_, err = f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`"other"`), Summary: "ok"})
		kit.Refused(t, err, picket.CodeLeaseReleased)
		got := f.WantState(t, task.TaskID, picket.TaskReview)
		if string(got.Output) != `"done"` || got.LastReport.Summary != "half way" || len(got.Runs) != 1 ||
			got.Review == nil {
			t.Fatalf("task %+v", got)
		}
		rv, err := f.Reviews(f.Ctx, picket.ReviewQuery{})
		kit.OK(t, err)
		if len(rv.Reviews) != 1 || rv.Total != 1 || rv.NextCursor != nil || rv.Reviews[0].RunID != l.RunID {
			t.Fatalf("reviews %+v", rv)
		}
		done, err := f.Approve(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Note: "good"})
		kit.OK(t, err)
		if done.State != picket.TaskCompleted || *done.Review.Decision != "approve" {
			t.Fatalf("approved %+v", done)
		}
		_, err = f.Cancel(f.Ctx, kit.Operator, task.TaskID, "late")
		kit.Refused(t, err, picket.CodeTaskClosed)
		page, err := f.Events(f.Ctx, picket.EventQuery{})
		kit.OK(t, err)
		var types []string
		for i, ev := range page.Events {
			if ev.Seq != int64(i+1) {
				t.Fatalf("event %d has sequence %d", i, ev.Seq)
			}
			types = append(types, ev.Type)
		}
		want := "task.submitted task.leased task.progress task.review task.approved"
		if got := kit.JoinWords(types); got != want {
			t.Fatalf("events %s, want %s", got, want)
		}
		list, err := f.Tasks(f.Ctx,
			picket.TaskQuery{States: []picket.TaskState{picket.TaskCompleted}, Labels: map[string]string{"team": "a"}})
		kit.OK(t, err)
		if len(list.Tasks) != 1 || list.Tasks[0].Title != "fix it" || list.NextCursor != nil {
			t.Fatalf("list %+v", list)
		}
	})
}
