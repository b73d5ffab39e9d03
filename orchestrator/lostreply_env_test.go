package orchestrator_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// replyEnv is a fresh namespace whose clock stands still, an engine on it,
// and another one that reaches it through a proxy.
type replyEnv struct {
	t       *testing.T
	ctx     context.Context
	direct  *orchestrator.Engine
	via     *orchestrator.Engine
	faults  *rig.FaultProxy
	sha     map[string]string
	raw     redis.UniversalClient
	stores  []*orchestrator.Store
	now     time.Duration // on the clock, since 1970
	witness string        // the directory that both processes keep their floor in

	// What a set-up leaves for the call.
	task    picket.Task
	run     string
	held    picket.LeaseCredential
	handoff string
	key     string
	parent  string
	secret  picket.Secret // of a key
	token   picket.Secret // of a session
	code    picket.Secret // one-time code of a login
	hook    string
	turn    picket.WebhookTurn
	// A subtask, and its lease.
	child     string
	childHeld picket.LeaseCredential
}

// replySetup says where a world is made, and with which bug in its scripts.
type replySetup struct {
	t          *testing.T
	store      rig.Store
	noPipeline bool
	bug        func(source string) string // nil: none
	fault      func(point string) error   // of the engine behind the proxy
	background *rand.Rand                 // others call beside; nil: nobody
	baselines  map[string]string          // dumps of undisturbed runs of one case, by story; may be nil
}

func (p replySetup) newEnv() *replyEnv {
	t, s := p.t, p.store
	t.Helper()
	w := &replyEnv{t: t, ctx: t.Context(), raw: redis.NewUniversalClient(&s.Redis), now: 1_790_000_000 * time.Second}
	ok(t, w.raw.FlushAll(w.ctx).Err())
	through, faults := s.Faulty(t)
	w.faults = faults
	w.witness = t.TempDir()
	namespaces := []string{"default"}
	if p.background != nil {
		namespaces = append(namespaces, "company")
	}
	for _, at := range []struct {
		store rig.Store
		fault func(point string) error
		e     **orchestrator.Engine
	}{{s, nil, &w.direct}, {through, p.fault, &w.via}} {
		store, err := orchestrator.Open(w.ctx,
			orchestrator.Config{
				Redis:      at.store.Redis,
				Sealer:     rig.Sealer(),
				NoPipeline: p.noPipeline,
				Namespaces: namespaces,
				Witness:    w.witness,
				Found:      true,
				Fault:      at.fault,
				Log:        slog.New(slog.DiscardHandler),
				DailyLimit: &budget.Envelope{Tokens: 1 << 40, USD: 1000_000_000_000},
			})
		ok(t, err)
		was := &testClockScripts
		if p.bug != nil {
			was = new(orchestrator.RewriteCache)
		}
		orchestrator.RewriteAs(store, was, func(source string) string {
			if p.bug != nil {
				source = p.bug(source)
			}
			return useTestClock(t, source)
		})
		w.stores = append(w.stores, store)
		*at.e = store.Engine("default")
	}
	w.sha = orchestrator.ScriptDigests(w.stores[1])
	w.load()
	w.pass(0)
	ms := fmt.Sprint(w.now.Milliseconds())
	ok(t, w.raw.HSet(w.ctx, meta, "now", ms, "raw", ms).Err())
	_, err := w.direct.Stats(w.ctx) // its connection is made before a case has changed anything
	ok(t, err)
	return w
}

// faultNext asks for a mishap for the next call of a script in the namespace.
func (w *replyEnv) faultNext(kind rig.FaultKind, script string) *rig.Fault {
	return w.faults.Next(kind, rig.MatchWords("EVALSHA", w.sha[script], "1", meta))
}

// startBackgroundCalls call through the same pipeline, in a namespace of their own, so
// that the command that is struck stands in a batch with others. stop ends them.
func (w *replyEnv) startBackgroundCalls(seeds *rand.Rand) (stop func()) {
	if seeds == nil {
		return func() {}
	}
	e := w.stores[1].Engine("company")
	ctx, cancel := context.WithCancel(w.ctx)
	var running sync.WaitGroup
	for range 4 {
		rnd := rand.New(rand.NewPCG(seeds.Uint64(), 0))
		running.Go(func() {
			for ctx.Err() == nil {
				var err error
				if rnd.IntN(2) == 0 {
					_, err = e.Submit(ctx, operator, picket.TaskSpec{Title: "beside"})
				} else {
					err = e.Tick(ctx)
				}
				if err != nil && picket.CodeOf(err) != picket.CodeUnavailable {
					w.t.Errorf("beside: %v", err)
				}
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// load makes the server know every script, so that no call is sent twice.
func (w *replyEnv) load() {
	w.t.Helper()
	known, err := w.raw.ScriptExists(w.ctx, slices.Collect(maps.Values(w.sha))...).Result()
	ok(w.t, err)
	if !slices.Contains(known, false) {
		return
	}
	for _, source := range orchestrator.Sources(w.stores[1]) {
		ok(w.t, w.raw.ScriptLoad(w.ctx, source).Err())
	}
}

// testClockScripts are the scripts of a world without a bug.
var testClockScripts orchestrator.RewriteCache

// useTestClock makes a script read the clock of the test.
func useTestClock(t *testing.T, source string) string {
	const reading = "call('TIME')"
	if n := strings.Count(source, reading); n != 1 {
		t.Fatalf("a script reads the clock %d times:\n%s", n, source)
	}
	source = strings.Replace(source, "redis."+reading, reading, 1)
	return strings.Replace(source, reading, `redis.call('HMGET', 'rig-clock', 's', 'us')`, 1)
}

// pass moves the clock on.
func (w *replyEnv) pass(d time.Duration) {
	w.t.Helper()
	w.now += d
	ok(w.t, w.raw.HSet(w.ctx, "rig-clock", "s", int64(w.now/time.Second), "us",
		int64(w.now%time.Second/time.Microsecond)).Err())
}

func (w *replyEnv) close() {
	for _, s := range w.stores {
		_ = s.Close()
	}
	w.faults.Close()
	_ = w.raw.Close()
}

// timeOutCall lets the first call time out when its fault holds what it waits for.
func (w *replyEnv) timeOutCall(m callFault, hit *rig.Fault) {
	switch m.kind {
	case rig.HoldRequest:
		w.await(hit.Struck(), "the request")
		hit.GiveUp()
	case rig.HoldReply:
		w.await(hit.Answered(), "the reply")
		hit.GiveUp()
	default:
		w.await(hit.Struck(), "the request")
	}
}

func (w *replyEnv) await(c <-chan struct{}, what string) {
	select {
	case <-c:
	case <-time.After(30 * time.Second):
		w.t.Errorf("%s never came", what)
		w.faults.Cut()
	}
}
