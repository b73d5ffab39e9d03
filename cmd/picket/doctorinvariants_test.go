package main

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/doctor"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/api"
)

var tester = picket.Caller{Actor: "test"}

// engineFixture is a server without a reaper, so that nobody but the doctor repairs.
type engineFixture struct {
	*orchestrator.Engine
	t   *testing.T
	raw redis.UniversalClient
}

func newEngineFixture(t *testing.T) *engineFixture {
	s, stop := rig.Memory()
	t.Cleanup(stop)
	log := slog.New(slog.DiscardHandler)
	store, err := orchestrator.Open(t.Context(),
		orchestrator.Config{
			Redis:   s.Redis,
			Memory:  true,
			Sealer:  rig.Sealer(),
			Witness: t.TempDir(),
			Found:   true,
			Log:     log,
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	w := &engineFixture{Engine: store.Engine("default"), t: t, raw: rig.Hashes(redis.NewUniversalClient(&s.Redis))}
	t.Cleanup(func() { _ = w.raw.Close() })
	control, err := api.New(api.Config{Engine: store.Engine, Engines: store.Engines, Log: log})
	w.must(err)
	e := web.New(log)
	control.Mount(e)
	served := httptest.NewServer(e)
	t.Cleanup(served.Close)
	key, err := w.CreateKey(t.Context(), tester,
		picket.KeyRequest{Name: "doctor", Scopes: []picket.Scope{picket.ScopeOperator}})
	w.must(err)
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"} {
		t.Setenv(name, t.TempDir())
	}
	t.Setenv("PICKET_URL", served.URL)
	t.Setenv("PICKET_API_KEY", key.Key.Reveal())
	return w
}

func (w *engineFixture) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// expectDoctor runs the doctor and holds what it says against a list of texts.
func (w *engineFixture) expectDoctor(code int, flags string, texts ...string) {
	w.t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(append([]string{"doctor"}, strings.Fields(flags)...))
	root.SetOut(&out)
	root.SetErr(&out)
	if got := exit.Code(root.ExecuteContext(w.t.Context())); got != code {
		w.t.Errorf("doctor %s: exit code %d, want %d\n%s", flags, got, code, out.String())
	}
	for _, text := range texts {
		if !strings.Contains(out.String(), text) {
			w.t.Errorf("doctor %s does not say %q:\n%s", flags, text, out.String())
		}
	}
}

func (w *engineFixture) submit() picket.Task {
	w.t.Helper()
	task, err := w.Submit(w.t.Context(), tester, picket.TaskSpec{Title: "a task"})
	w.must(err)
	return task
}

func (w *engineFixture) do(args ...any) {
	w.t.Helper()
	w.must(w.raw.Do(w.t.Context(), args...).Err())
}

func TestTheDoctorHoldsTheStoreAgainstItsInvariants(t *testing.T) {
	w := newEngineFixture(t)
	first, second := w.submit(), w.submit()
	_, err := w.Acquire(t.Context(), tester, picket.AcquireRequest{AgentID: "a1"})
	w.must(err)
	w.expectDoctor(0, "--invariants", "4 events replayed, 2 tasks compared", "every invariant holds")
	w.expectDoctor(0, "--invariants --repair", "every invariant holds")

	w.do("DEL", "pk:{default}:deadlines")
	w.do("ZREM", "pk:{default}:by-state:queued", second.TaskID)
	w.expectDoctor(1, "--invariants", "fail  deadline_missing  "+first.TaskID+"  it does not stand in deadlines",
		"state_missing", "2 violations, 0 of them repaired", "fix: picket doctor --invariants --repair")
	w.expectDoctor(1, "--invariants --repair", "warn  deadline_missing", "2 violations, 2 of them repaired")
	w.expectDoctor(0, "--invariants", "every invariant holds")
	w.expectDoctor(2, "--repair")
}

// What the log says and the store does not is seen, whatever the store says of
// itself; what moves on while the doctor looks is not mistaken for it.
func TestTheDoctorHoldsTheStoreAgainstTheLog(t *testing.T) {
	w := newEngineFixture(t)
	first, second, third := w.submit(), w.submit(), w.submit()
	lease, err := w.Acquire(t.Context(), tester, picket.AcquireRequest{AgentID: "a1"})
	w.must(err)
	w.do("HSET", "pk:{default}:task:"+second.TaskID, "failures", "2")
	w.do("DEL", "pk:{default}:task:"+third.TaskID)
	w.do("HSET", "pk:{default}:task:"+first.TaskID, "token", "7")
	w.do("HSET", "pk:{default}:run:"+lease[0].RunID, "token", "7")
	w.expectDoctor(1, "--invariants",
		"log_differs     "+first.TaskID+"  its token is 7, the log says 1",
		"log_differs     "+second.TaskID+"  it has had 2 failures, the log says 0",
		"task_lost       "+third.TaskID, "no repair is known to be safe for 3 of them")
}

func TestTheDoctorWaitsForATaskThatMoves(t *testing.T) {
	w := newEngineFixture(t)
	task := w.submit()
	s, err := cli.Connect(newRoot())
	w.must(err)
	r := doctor.NewLogReplay(s)
	quiet := func(string, ...any) {}
	w.must(r.Follow(t.Context(), quiet))
	_, err = w.Cancel(context.Background(), tester, task.TaskID, "moved on")
	w.must(err)
	suspects, err := r.Suspects(t.Context(), &doctor.InvariantReport{}, quiet)
	w.must(err)
	if len(suspects) != 1 {
		t.Fatalf("suspects: %v", suspects)
	}
	if found, err := r.VerifyTask(t.Context(), task.TaskID); err != nil || found != nil {
		t.Fatalf("a task that moved on is taken for damage: %+v, %v", found, err)
	}
}

// What the log says of agents is held against their records.
func TestTheDoctorHoldsAgentsAgainstTheLog(t *testing.T) {
	w := newEngineFixture(t)
	for _, id := range []string{"a1", "a2", "a3"} {
		_, err := w.Register(t.Context(), tester, picket.Registration{AgentID: id, RoleID: "coder"})
		w.must(err)
	}
	_, err := w.Deregister(t.Context(), tester, "a3", nil)
	w.must(err)
	w.expectDoctor(0, "--invariants", "and 3 agents compared", "every invariant holds")
	w.do("ZREM", "pk:{default}:silence", "a1")
	w.expectDoctor(1, "--invariants --repair", "silence_missing  a1", "1 violations, 1 of them repaired")
	w.do("HSET", "pk:{default}:agent:a1", "incarnation", "7")
	w.do("HSET", "pk:{default}:agent:a3", "status", "dead")
	w.do("DEL", "pk:{default}:agent:a2")
	w.expectDoctor(1, "--invariants", "log_differs", "its incarnation is 7, the log says 1",
		"it is dead, the log says deregistered", "agent_lost",
		"it does not exist, the log says it is active")
}
