package orchestrator_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
)

// onBothStores runs a test twice: on the virtual clock with an in-process store, and
// on a real redis-server.
func onBothStores(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Run("Virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store, stop := rig.Memory()
			defer stop()
			f := openFixture(t, store)
			defer f.close()
			f.virtual = true
			test(t, f)
		})
	})
	t.Run("Real", func(t *testing.T) {
		where := rig.Real(t)
		where.Redis.ReadTimeout = 20 * time.Second // a busy machine is not a store that is away
		f := openFixture(t, where)
		defer f.close()
		test(t, f)
	})
}

type fixture struct {
	*orchestrator.Engine
	store    *orchestrator.Store
	sealer   *seal.Sealer
	ctx      context.Context
	raw      redis.UniversalClient // past the engine
	virtual  bool
	rigStore rig.Store // to open more processes on it
}

func openFixture(t *testing.T, s rig.Store) *fixture {
	t.Helper()
	sealer := rig.Sealer()
	cfg := orchestrator.Config{Redis: s.Redis, Memory: s.Memory, Sealer: sealer, ProxyURL: "http://proxy",
		Witness: t.TempDir(), Found: true, Log: slog.New(slog.DiscardHandler)}
	orchestrator.SetClock(&cfg, fastClock())
	store, err := orchestrator.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	plantFromEnv(t, store)
	return &fixture{Engine: store.Engine("default"), rigStore: s, store: store, sealer: sealer, ctx: t.Context(),
		raw: redis.NewUniversalClient(&s.Redis)}
}

func (f *fixture) close() {
	_ = f.raw.Close()
	_ = f.store.Close()
}

// runReaperFor lets time go by as if a reaper ticked all along: on the virtual clock
// it really does, on a real store the store's own clock is moved on.
func (f *fixture) runReaperFor(t *testing.T, d time.Duration) {
	t.Helper()
	for d > 0 {
		step := min(d, 400*time.Millisecond)
		f.moveStoreTime(t, step)
		d -= step
		ok(t, f.Tick(f.ctx))
		for {
			n, err := f.ExpireDue(f.ctx, 100)
			ok(t, err)
			if n < 100 {
				break
			}
		}
	}
}

// moveStoreTime moves store time on and nothing else.
func (f *fixture) moveStoreTime(t *testing.T, d time.Duration) {
	t.Helper()
	if f.virtual {
		time.Sleep(d)
		return
	}
	ok(t, f.raw.HIncrBy(f.ctx, "pk:{default}:meta", "now", d.Milliseconds()).Err())
}

var operator = picket.Caller{Actor: "key_test"}

func (f *fixture) mustSubmit(t *testing.T, spec picket.TaskSpec) picket.Task {
	t.Helper()
	if spec.Title == "" {
		spec.Title = "a task"
	}
	task, err := f.Submit(f.ctx, operator, spec)
	ok(t, err)
	return task
}

func (f *fixture) acquireOne(t *testing.T, req picket.AcquireRequest) picket.Lease {
	t.Helper()
	leases, err := f.Acquire(f.ctx, operator, req)
	ok(t, err)
	if len(leases) != 1 {
		t.Fatalf("acquired %d leases, want 1", len(leases))
	}
	return leases[0]
}

func (f *fixture) openLease(t *testing.T, l picket.Lease) picket.LeaseCredential {
	t.Helper()
	h, err := f.sealer.OpenLeaseToken(l.LeaseToken.Reveal())
	ok(t, err)
	return h
}

func (f *fixture) wantState(t *testing.T, id string, want picket.TaskState) picket.Task {
	t.Helper()
	task, err := f.Task(f.ctx, id)
	ok(t, err)
	if task.State != want {
		t.Fatalf("task is %s, want %s", task.State, want)
	}
	return task
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, err error, code picket.Code) {
	t.Helper()
	if picket.CodeOf(err) != code || err == nil {
		t.Fatalf("got %v (%s), want %s", err, picket.CodeOf(err), code)
	}
}

func ptr[T any](v T) *T { return &v }

func TestTaskLifecycle(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.mustSubmit(t, picket.TaskSpec{
			Title:  "fix it",
			Input:  picket.RawJSON(`{"n":12345678901234567890}`),
			Labels: map[string]string{"team": "a"},
		})
		l := f.acquireOne(t, picket.AcquireRequest{AgentID: "a1", WorkspaceRoot: "/srv/runs"})
		if l.TaskID != task.TaskID || l.FencingToken != 1 || l.WorkspacePath != "/srv/runs/"+l.RunID ||
			string(l.Task.Input) != `{"n":12345678901234567890}` {
			t.Fatalf("lease %+v", l)
		}
		if l.LeaseTTLMs > 30_000 || l.LeaseTTLMs < 29_000 {
			t.Fatalf("an unconfirmed lease lives %d ms", l.LeaseTTLMs)
		}
		h := f.openLease(t, l)
		r, err := f.Renew(f.ctx, h)
		ok(t, err)
		if r.LeaseTTLMs != 300_000 || r.FencingToken != 1 {
			t.Fatalf("renewal %+v", r)
		}
		rep, err := f.Report(f.ctx, h, "r1", picket.Progress{Summary: "half way", NextStep: "go on"})
		ok(t, err)
		again, err := f.Report(f.ctx, h, "r1", picket.Progress{Summary: "half way", NextStep: "go on"})
		ok(t, err)
		if rep.Seq != 1 || again.Seq != 1 {
			t.Fatalf("reports %+v %+v", rep, again)
		}
		_, err = f.Report(f.ctx, h, "r1", picket.Progress{Summary: "other"})
		refused(t, err, picket.CodeIdempotencyConflict)
		st, err := f.Complete(f.ctx, h, picket.Completion{Output: picket.RawJSON(`"done"`), Summary: "ok"})
		ok(t, err)
		st2, err := f.Complete(f.ctx, h, picket.Completion{Output: picket.RawJSON(`"done"`), Summary: "ok"})
		ok(t, err)
		if st != picket.TaskReview || st2 != st {
			t.Fatalf("states %s %s", st, st2)
		}
		_, err = f.Complete(f.ctx, h, picket.Completion{Output: picket.RawJSON(`"other"`), Summary: "ok"})
		refused(t, err, picket.CodeLeaseReleased)
		got := f.wantState(t, task.TaskID, picket.TaskReview)
		if string(got.Output) != `"done"` || got.LastReport.Summary != "half way" || len(got.Runs) != 1 ||
			got.Review == nil {
			t.Fatalf("task %+v", got)
		}
		rv, err := f.Reviews(f.ctx, picket.ReviewQuery{})
		ok(t, err)
		if len(rv.Reviews) != 1 || rv.Total != 1 || rv.NextCursor != nil || rv.Reviews[0].RunID != l.RunID {
			t.Fatalf("reviews %+v", rv)
		}
		done, err := f.Approve(f.ctx, operator, task.TaskID, picket.Decision{Note: "good"})
		ok(t, err)
		if done.State != picket.TaskCompleted || *done.Review.Decision != "approve" {
			t.Fatalf("approved %+v", done)
		}
		_, err = f.Cancel(f.ctx, operator, task.TaskID, "late")
		refused(t, err, picket.CodeTaskClosed)
		page, err := f.Events(f.ctx, picket.EventQuery{})
		ok(t, err)
		var types []string
		for i, ev := range page.Events {
			if ev.Seq != int64(i+1) {
				t.Fatalf("event %d has sequence %d", i, ev.Seq)
			}
			types = append(types, ev.Type)
		}
		want := "task.submitted task.leased task.progress task.review task.approved"
		if got := joinWords(types); got != want {
			t.Fatalf("events %s, want %s", got, want)
		}
		list, err := f.Tasks(f.ctx,
			picket.TaskQuery{States: []picket.TaskState{picket.TaskCompleted}, Labels: map[string]string{"team": "a"}})
		ok(t, err)
		if len(list.Tasks) != 1 || list.Tasks[0].Title != "fix it" || list.NextCursor != nil {
			t.Fatalf("list %+v", list)
		}
	})
}

func joinWords(s []string) string {
	out := ""
	for i, x := range s {
		if i > 0 {
			out += " "
		}
		out += x
	}
	return out
}

func zMember(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

// oldEvent is an old event as the log keeps it.
func oldEvent(seq int) *redis.XAddArgs {
	return &redis.XAddArgs{
		Stream: "pk:{default}:events",
		ID:     fmt.Sprintf("%d-0", seq),
		Values: []any{"type", "task.progress", "at", "1000", "now", "1000", "actor", "x", "data", "{}"},
	}
}
