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
	"github.com/picket-dev/picket/internal/rig/remains"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/console"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(remains.WithTempDir(m, "pk-console-")) }

// office is a console over a real engine on the virtual clock.
type office struct {
	*orchestrator.Engine
	t      testing.TB
	face   http.Handler
	sealer *picket.Sealer
	log    *lockedBuffer
	store  *orchestrator.Store
	redis  redis.UniversalClient
	events atomic.Int64 // pages of the log that were read
	agents int          // made so far: a1, a2, …
	away   bool         // the store does not answer
	lose   bool         // the store's replies to answers are lost
	drop   bool         // answers do not reach the store
}

// desk is the engine as the console sees it; reads of the log are counted,
// which no script does.
type desk struct {
	*orchestrator.Engine
	office *office
}

func (d desk) Events(ctx context.Context, q picket.EventQuery) (picket.EventPage, error) {
	d.office.events.Add(1)
	return d.Engine.Events(ctx, q)
}

func (d desk) Stats(ctx context.Context) (picket.Stats, error) {
	if d.office.away {
		return picket.Stats{}, picket.Refuse(picket.CodeUnavailable, "Try again.", "the store does not answer")
	}
	return d.Engine.Stats(ctx)
}

func (d desk) Answer(ctx context.Context, by picket.Caller, id string, req picket.AnswerRequest) (picket.Task, error) {
	lost := d.office.lose || d.office.drop
	var task picket.Task
	var err error
	if !d.office.drop {
		task, err = d.Engine.Answer(ctx, by, id, req)
	}
	if lost {
		return picket.Task{}, fmt.Errorf("answer: %w", errors.Join(picket.CodeUnavailable, picket.ErrUnknown))
	}
	return task, err
}

// calls is how often each script ran while something was done, and "events"
// how often the log was read.
func (o *office) calls(do func()) map[string]int64 {
	count := func() map[string]int64 {
		n := map[string]int64{"events": o.events.Load()}
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

// open runs a test on the virtual clock: requests take no time, and time
// passes by pass alone.
func open(t *testing.T, test func(t *testing.T, o *office)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, stop := rig.Memory()
		defer stop()
		o, done := furnish(t, s)
		defer done()
		test(t, o)
	})
}

// furnish opens a console on a store; done closes it and looks for secrets in
// its log.
func furnish(t testing.TB, s rig.Store) (o *office, done func()) {
	t.Helper()
	o = &office{t: t, sealer: rig.Sealer(), log: &lockedBuffer{}}
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
	o.store, o.redis = store, redis.NewUniversalClient(&s.Redis)
	c, err := console.New(console.Config{AllowedHosts: []string{"picket.example"}, Log: log,
		Desk: func(namespace string) console.Desk {
			switch namespace {
			case "default":
				return desk{o.Engine, o}
			case "other":
				return desk{store.Engine("other"), o}
			}
			return nil
		},
		Stream: func(ec echo.Context, _ picket.Principal, admit func() error) error {
			if err := admit(); err != nil {
				return err
			}
			return ec.String(http.StatusOK, "stream")
		}})
	must(t, err)
	e := web.New(log)
	c.Mount(e)
	o.face = e
	return o, done
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// key makes a key with the scopes and gives it with its id.
func (o *office) key(scopes ...picket.Scope) picket.NewKey {
	o.t.Helper()
	made, err := o.CreateKey(o.t.Context(), picket.Caller{Actor: "test"},
		picket.KeyRequest{Name: fmt.Sprint(scopes), Scopes: scopes})
	must(o.t, err)
	return made
}

// jump moves store time on at once, as many ticks would.
func (o *office) jump(d time.Duration) {
	o.t.Helper()
	must(o.t, o.redis.HIncrBy(o.t.Context(), "pk:{default}:meta", "now", d.Milliseconds()).Err())
}

// pass lets time go by while a reaper ticks; store time follows in steps of a
// second at most.
func (o *office) pass(d time.Duration) {
	o.t.Helper()
	for ; d > 0; d -= time.Second {
		time.Sleep(min(d, time.Second))
		must(o.t, o.Tick(o.t.Context()))
	}
}

// run makes a task and gives an agent the lease on it.
func (o *office) run(spec picket.TaskSpec) (taskID string, held picket.LeaseCredential) {
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

// asks makes a task whose agent asks for help.
func (o *office) asks(title string, help picket.HelpRequest) (taskID, handoffID string) {
	o.t.Helper()
	taskID, held := o.run(picket.TaskSpec{Title: title})
	h, err := o.RequestHelp(o.t.Context(), held, help)
	must(o.t, err)
	return taskID, h.HandoffID
}

// done makes a task that waits for its review.
func (o *office) done(spec picket.TaskSpec, c picket.Completion) string {
	o.t.Helper()
	taskID, held := o.run(spec)
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
