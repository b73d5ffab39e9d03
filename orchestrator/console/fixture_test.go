package console_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/cleanup"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/console"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(cleanup.WithTempDir(m, "pk-console-")) }

// fixture is a console over a real engine on the virtual clock.
type fixture struct {
	*orchestrator.Engine
	t            testing.TB
	handler      http.Handler
	sealer       *seal.Sealer
	log          *lockedBuffer
	store        *orchestrator.Store
	redis        redis.UniversalClient
	eventReads   atomic.Int64 // pages of the log that were read
	agents       int          // made so far: a1, a2, …
	endpoints    *console.Endpoints
	storeDown    bool // the store does not answer
	loseReplies  bool // the store's replies to answers are lost
	dropRequests bool // answers do not reach the store
}

// backendOf hands each group of pages the same backend.
func backendOf(e interface {
	console.LoginBackend
	console.StatsBackend
	console.HandoffBackend
	console.ReviewBackend
	console.TaskBackend
	console.TaskChanger
	console.AgentBackend
	console.LeaseBackend
	console.BudgetBackend
	console.EventBackend
	console.PauseBackend
	console.MessageBackend
	console.SessionBackend
	console.PolicyBackend
	console.EndpointBackend
}) *console.Backend {
	return &console.Backend{Logins: e, Stats: e, Handoffs: e, Reviews: e, Tasks: e, Changes: e, Agents: e, Leases: e,
		Budgets: e, Events: e, Pause: e, Messages: e, Sessions: e, Policies: e, Endpoints: e}
}

// testBackend is the engine as the console sees it; reads of the log are counted,
// which no script does.
type testBackend struct {
	*orchestrator.Engine
	fixture *fixture
}

func (d testBackend) Events(ctx context.Context, q picket.EventQuery) (picket.EventPage, error) {
	d.fixture.eventReads.Add(1)
	return d.Engine.Events(ctx, q)
}

func (d testBackend) Stats(ctx context.Context) (picket.Stats, error) {
	if d.fixture.storeDown {
		return picket.Stats{}, picket.Refuse(picket.CodeUnavailable, "Try again.", "the store does not answer")
	}
	return d.Engine.Stats(ctx)
}

func (d testBackend) Answer(ctx context.Context, by picket.Caller, id string,
	req picket.AnswerRequest) (picket.Task, error) {
	lost := d.fixture.loseReplies || d.fixture.dropRequests
	var task picket.Task
	var err error
	if !d.fixture.dropRequests {
		task, err = d.Engine.Answer(ctx, by, id, req)
	}
	if lost {
		return picket.Task{}, fmt.Errorf("answer: %w", errors.Join(picket.CodeUnavailable, picket.ErrUnknown))
	}
	return task, err
}

func (d testBackend) PromptSession(ctx context.Context, by picket.Caller, id string,
	req picket.PromptRequest) (picket.SessionPrompt, error) {
	if d.fixture.storeDown {
		return picket.SessionPrompt{}, picket.Refuse(picket.CodeUnavailable, "Try again.", "the store does not answer")
	}
	made, err := d.Engine.PromptSession(ctx, by, id, req)
	if d.fixture.loseReplies {
		return picket.SessionPrompt{}, fmt.Errorf("prompt: %w", errors.Join(picket.CodeUnavailable, picket.ErrUnknown))
	}
	return made, err
}

func (d testBackend) WritePolicy(ctx context.Context, by picket.Caller, name string,
	w picket.PolicyWrite) (picket.WakePolicy, error) {
	made, err := d.Engine.WritePolicy(ctx, by, name, w)
	if d.fixture.loseReplies {
		return picket.WakePolicy{}, fmt.Errorf("write: %w", errors.Join(picket.CodeUnavailable, picket.ErrUnknown))
	}
	return made, err
}

// scriptCalls is how often each script ran while something was done, and "events"
// how often the log was read.
func (o *fixture) scriptCalls(do func()) map[string]int64 {
	count := func() map[string]int64 {
		n := map[string]int64{"events": o.eventReads.Load()}
		for _, c := range o.store.ScriptStats() {
			n[c.Script] = c.Count
		}
		return n
	}
	before := count()
	do()
	made := map[string]int64{}
	for name, n := range count() {
		if n > before[name] {
			made[name] = n - before[name]
		}
	}
	return made
}

// virtual runs a test on the virtual clock: requests take no time, and time
// passes by pass alone.
func virtual(t *testing.T, test func(t *testing.T, o *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, stop := rig.Memory()
		defer stop()
		o, done := newFixture(t, s)
		defer done()
		test(t, o)
	})
}

// newFixture opens a console on a store; done closes it and looks for secrets in
// its log.
func newFixture(t testing.TB, s rig.Store) (o *fixture, done func()) {
	t.Helper()
	o = &fixture{t: t, sealer: rig.Sealer(), log: &lockedBuffer{}}
	log := slog.New(slog.NewTextHandler(o.log, nil))
	store, err := orchestrator.Open(t.Context(),
		orchestrator.Config{
			Redis:      s.Redis,
			Memory:     s.Memory,
			Namespaces: []string{"default", "other"},
			Sealer:     o.sealer,
			ProxyURL:   "http://proxy",
			Witness:    t.TempDir(),
			Found:      true,
			Log:        log,
		})
	must(t, err)
	done = func() {
		_ = o.redis.Close()
		_ = store.Close()
		if text := o.log.String(); strings.Contains(text, picket.KeyPrefix) || strings.Contains(text, "default.") {
			t.Errorf("a secret is in the log: %s", text)
		}
	}
	o.Engine = store.Engine("default")
	o.store, o.redis = store, rig.Hashes(redis.NewUniversalClient(&s.Redis))
	c, err := console.New(console.Config{AllowedHosts: []string{"picket.example"}, Log: log,
		Backend: func(namespace string) *console.Backend {
			switch namespace {
			case "default":
				return backendOf(testBackend{o.Engine, o})
			case "other":
				return backendOf(testBackend{store.Engine("other"), o})
			}
			return nil
		},
		Endpoints: func(context.Context, string) (*console.Endpoints, error) { return o.endpoints, nil },
		Stream: func(ec echo.Context, _ picket.Principal, admit func() error) error {
			if err := admit(); err != nil {
				return err
			}
			return ec.String(http.StatusOK, "stream")
		}})
	must(t, err)
	e := web.New(log)
	c.Mount(e)
	o.handler = e
	return o, done
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newKey makes a key with the scopes and gives it with its id.
func (o *fixture) newKey(scopes ...picket.Scope) picket.NewKey {
	o.t.Helper()
	made, err := o.CreateKey(o.t.Context(), picket.Caller{Actor: "test"},
		picket.KeyRequest{Name: fmt.Sprint(scopes), Scopes: scopes})
	must(o.t, err)
	return made
}

// advanceStoreTime moves store time on at once, as many ticks would.
func (o *fixture) advanceStoreTime(d time.Duration) {
	o.t.Helper()
	must(o.t, o.redis.HIncrBy(o.t.Context(), "pk:{default}:meta", "now", d.Milliseconds()).Err())
}

// passTime lets time go by while a reaper ticks; store time follows in steps of a
// second at most.
func (o *fixture) passTime(d time.Duration) {
	o.t.Helper()
	for ; d > 0; d -= time.Second {
		time.Sleep(min(d, time.Second))
		must(o.t, o.Tick(o.t.Context()))
	}
}

// startRun makes a task and gives an agent the lease on it.
func (o *fixture) startRun(spec picket.TaskSpec) (taskID string, held picket.LeaseCredential) {
	o.t.Helper()
	o.agents++ // one of its own, so that no other task comes first
	spec.Agent = fmt.Sprintf("a%d", o.agents)
	task, err := o.Submit(o.t.Context(), picket.Caller{Actor: "test"}, spec)
	must(o.t, err)
	leases, err := o.Acquire(o.t.Context(), picket.Caller{Actor: "test"},
		picket.AcquireRequest{AgentID: spec.Agent, Role: spec.Role})
	must(o.t, err)
	if len(leases) != 1 || leases[0].TaskID != task.TaskID {
		o.t.Fatalf("leased %v", leases)
	}
	held, err = o.sealer.OpenLeaseToken(leases[0].LeaseToken.Reveal())
	must(o.t, err)
	return task.TaskID, held
}

// addHandoff makes a task whose agent asks for help.
func (o *fixture) addHandoff(title string, help picket.HelpRequest) (taskID, handoffID string) {
	o.t.Helper()
	taskID, held := o.startRun(picket.TaskSpec{Title: title})
	h, err := o.RequestHelp(o.t.Context(), held, help)
	must(o.t, err)
	return taskID, h.HandoffID
}

// addReview makes a task that waits for its review.
func (o *fixture) addReview(spec picket.TaskSpec, c picket.Completion) string {
	o.t.Helper()
	taskID, held := o.startRun(spec)
	_, err := o.Complete(o.t.Context(), held, c)
	must(o.t, err)
	return taskID
}

// lockedBuffer takes the log of many goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
