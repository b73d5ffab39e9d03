package kit

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
)

// OnBothStores runs a test twice: on the virtual clock with an in-process store, and
// on a real redis-server.
func OnBothStores(t *testing.T, test func(t *testing.T, f *Fixture)) {
	t.Helper()
	t.Run("Virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store, stop := rig.Memory()
			defer stop()
			f := OpenFixture(t, store)
			defer f.Close()
			f.Virtual = true
			test(t, f)
		})
	})
	t.Run("Real", func(t *testing.T) {
		where := rig.Real(t)
		where.Redis.ReadTimeout = 20 * time.Second // a busy machine is not a store that is away
		f := OpenFixture(t, where)
		defer f.Close()
		test(t, f)
	})
}

type Fixture struct {
	*orchestrator.Engine
	Store    *orchestrator.Store
	Sealer   *seal.Sealer
	Ctx      context.Context
	Raw      redis.UniversalClient // past the engine
	Virtual  bool
	RigStore rig.Store // to open more processes on it
}

func OpenFixture(t *testing.T, s rig.Store) *Fixture {
	t.Helper()
	sealer := rig.Sealer()
	cfg := orchestrator.Config{Redis: s.Redis, Memory: s.Memory, Sealer: sealer, ProxyURL: "http://proxy",
		Witness: t.TempDir(), Found: true, Log: slog.New(slog.DiscardHandler),
		Unmetered: map[string]bool{"ann": true, "amy": true}}
	cfg.Now = FastClock()
	store, err := orchestrator.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	plantFromEnv(t, store)
	return &Fixture{Engine: store.Engine("default"), RigStore: s, Store: store, Sealer: sealer, Ctx: t.Context(),
		Raw: rig.Hashes(redis.NewUniversalClient(&s.Redis))}
}

func (f *Fixture) Close() {
	_ = f.Raw.Close()
	_ = f.Store.Close()
}

// RunReaperFor lets time go by as if a reaper ticked all along: on the virtual clock
// it really does, on a real store the store's own clock is moved on.
func (f *Fixture) RunReaperFor(t *testing.T, d time.Duration) {
	t.Helper()
	for d > 0 {
		step := min(d, 400*time.Millisecond)
		f.MoveStoreTime(t, step)
		d -= step
		OK(t, f.Tick(f.Ctx))
		for {
			n, err := f.ExpireDue(f.Ctx, 100)
			OK(t, err)
			if n < 100 {
				break
			}
		}
	}
}

// MoveStoreTime moves store time on and nothing else.
func (f *Fixture) MoveStoreTime(t *testing.T, d time.Duration) {
	t.Helper()
	if f.Virtual {
		time.Sleep(d)
		return
	}
	OK(t, f.Raw.HIncrBy(f.Ctx, "pk:{default}:meta", "now", d.Milliseconds()).Err())
}

var Operator = picket.Caller{Actor: "key_test"}

func (f *Fixture) MustSubmit(t *testing.T, spec picket.TaskSpec) picket.Task {
	t.Helper()
	if spec.Title == "" {
		spec.Title = "a task"
	}
	task, err := f.Submit(f.Ctx, Operator, spec)
	OK(t, err)
	return task
}

func (f *Fixture) AcquireOne(t *testing.T, req picket.AcquireRequest) picket.Lease {
	t.Helper()
	leases, err := f.Acquire(f.Ctx, Operator, req)
	OK(t, err)
	if len(leases) != 1 {
		t.Fatalf("acquired %d leases, want 1", len(leases))
	}
	return leases[0]
}

func (f *Fixture) OpenLease(t *testing.T, l picket.Lease) picket.LeaseCredential {
	t.Helper()
	h, err := f.Sealer.OpenLeaseToken(l.LeaseToken.Reveal())
	OK(t, err)
	return h
}

func (f *Fixture) WantState(t *testing.T, id string, want picket.TaskState) picket.Task {
	t.Helper()
	task, err := f.Task(f.Ctx, id)
	OK(t, err)
	if task.State != want {
		t.Fatalf("task is %s, want %s", task.State, want)
	}
	return task
}

func OK(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func Refused(t *testing.T, err error, code picket.Code) {
	t.Helper()
	if picket.CodeOf(err) != code || err == nil {
		t.Fatalf("got %v (%s), want %s", err, picket.CodeOf(err), code)
	}
}

func Ptr[T any](v T) *T { return &v }

func JoinWords(s []string) string {
	out := ""
	for i, x := range s {
		if i > 0 {
			out += " "
		}
		out += x
	}
	return out
}

func ZMember(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

// AdoptOnNewServer makes the namespace look as if it had come to another server, and
// has it adopted.
func (f *Fixture) AdoptOnNewServer(t *testing.T) {
	t.Helper()
	OK(t, f.Raw.HSet(f.Ctx, Meta, "identity", "another server").Err())
	OK(t, EnsureAdopted(f.Ctx, f.Engine))
}

func (f *Fixture) SetScore(t *testing.T, set, member string, score float64) {
	t.Helper()
	OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:"+set, redis.Z{Score: score, Member: member}).Err())
}

// ExhaustTokens gives a task the last token that the floor is good for.
func (f *Fixture) ExhaustTokens(t *testing.T, task string) {
	t.Helper()
	stats, err := f.Stats(f.Ctx)
	OK(t, err)
	OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:task:"+task, "token", stats.Floor+1<<21).Err())
}

const Meta = "pk:{default}:meta"

// JumpStoreTime moves store time on at once.
func (f *Fixture) JumpStoreTime(t *testing.T, d time.Duration) {
	t.Helper()
	OK(t, f.Raw.HIncrBy(f.Ctx, Meta, "now", d.Milliseconds()).Err())
}

func (f *Fixture) CallTwice(t *testing.T, act func() error) {
	t.Helper()
	OK(t, act())
	OK(t, act())
}

// CancelAll cancels every task that is open.
func (f *Fixture) CancelAll(t *testing.T) {
	t.Helper()
	for _, s := range picket.TaskStates {
		if s.Terminal() {
			continue
		}
		for {
			page, err := f.Tasks(f.Ctx, picket.TaskQuery{States: []picket.TaskState{s}, Limit: 100})
			OK(t, err)
			for _, task := range page.Tasks {
				_, err := f.Cancel(f.Ctx, Operator, task.TaskID, "test")
				OK(t, err)
			}
			if page.NextCursor == nil {
				break
			}
		}
	}
}

// SubmitAndLease submits a task and leases it.
func (f *Fixture) SubmitAndLease(t *testing.T, spec picket.TaskSpec) (picket.Task, picket.LeaseCredential) {
	t.Helper()
	task := f.MustSubmit(t, spec)
	l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
	if l.TaskID != task.TaskID {
		t.Fatalf("leased %s, which a stop before left behind", l.TaskID)
	}
	return task, f.OpenLease(t, l)
}

// LeaseSubtask leases the next subtask.
func (f *Fixture) LeaseSubtask(t *testing.T, parent string) picket.LeaseCredential {
	t.Helper()
	h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
	if h.TaskID == parent {
		t.Fatal("leased the parent")
	}
	return h
}

func Position(cursor string) int64 {
	n, _ := strconv.ParseInt(cursor, 10, 64)
	return n
}
