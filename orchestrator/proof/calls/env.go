package calls

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Env is a fresh namespace whose clock stands still, an engine on it,
// and another one that reaches it through a proxy.
type Env struct {
	T       *testing.T
	Ctx     context.Context
	Direct  *orchestrator.Engine
	Via     *orchestrator.Engine
	Faults  *rig.FaultProxy
	memory  bool
	Raw     redis.UniversalClient
	Stores  []*orchestrator.Store
	now     time.Duration // on the clock, since 1970
	witness string        // the directory that both processes keep their floor in

	// What a set-up leaves for the call.
	Task   picket.Task
	run    string
	Held   picket.LeaseCredential
	Prompt string // of [TestSession]
	// Session is the session capability of that prompt, after [WithCapability].
	Session picket.LeaseCredential
	// incarnation is that of the agent m1 that keeps the session.
	incarnation int64
	handoff     string
	key         string
	parent      string
	secret      picket.Secret // of a key
	token       picket.Secret // of a session
	code        picket.Secret // one-time code of a login
	hook        string
	turn        picket.WebhookTurn
	pushTurn    picket.PushTurn
	// A subtask, and its lease.
	child     string
	childHeld picket.LeaseCredential
}

// Setup says where a world is made, and with which bug in its scripts.
type Setup struct {
	T          *testing.T
	Store      rig.Store
	NoBatch    bool
	Bug        func(source string) string // nil: none
	Fault      func(point string) error   // of the engine behind the proxy
	Background *rand.Rand                 // others call beside; nil: nobody
	Baselines  map[string]string          // dumps of undisturbed runs of one case, by story; may be nil
}

func (p Setup) NewEnv() *Env {
	t, s := p.T, p.Store
	t.Helper()
	w := &Env{T: t, Ctx: t.Context(), memory: s.Memory, Raw: rig.Hashes(redis.NewUniversalClient(&s.Redis)),
		now: 1_790_000_000 * time.Second}
	kit.OK(t, w.Raw.FlushAll(w.Ctx).Err())
	through, faults := s.Faulty(t)
	w.Faults = faults
	w.witness = t.TempDir()
	namespaces := []string{"default"}
	if p.Background != nil {
		namespaces = append(namespaces, "company")
	}
	for _, at := range []struct {
		store rig.Store
		fault func(point string) error
		e     **orchestrator.Engine
	}{{s, nil, &w.Direct}, {through, p.Fault, &w.Via}} {
		store, err := orchestrator.Open(w.Ctx,
			orchestrator.Config{
				Redis:      at.store.Redis,
				Sealer:     rig.Sealer(),
				NoBatch:    p.NoBatch,
				Namespaces: namespaces,
				Witness:    w.witness,
				Found:      true,
				Fault:      at.fault,
				Log:        slog.New(slog.DiscardHandler),
				DailyLimit: &budget.Envelope{Tokens: 1 << 40, USD: 1000_000_000_000},
			})
		kit.OK(t, err)
		was := &kit.TestClockScripts
		if p.Bug != nil {
			was = new(kit.RewriteCache)
		}
		kit.RewriteAs(store, was, func(source string) string {
			if p.Bug != nil {
				source = p.Bug(source)
			}
			return kit.UseTestClock(source)
		})
		w.Stores = append(w.Stores, store)
		*at.e = store.Engine("default")
	}
	w.load()
	w.Pass(0)
	ms := fmt.Sprint(w.now.Milliseconds())
	kit.OK(t, w.Raw.HSet(w.Ctx, kit.Meta, "now", ms, "raw", ms).Err())
	_, err := w.Direct.Stats(w.Ctx) // its connection is made before a case has changed anything
	kit.OK(t, err)
	return w
}

// FaultNext asks for a mishap for the next call of a script in the namespace.
func (w *Env) FaultNext(kind rig.FaultKind, script string) *rig.Fault {
	return w.Faults.Next(kind, kit.MatchCall(w.Stores[1], w.memory, script))
}

// StartBackgroundCalls makes calls over the same connections, in a namespace of their own.
// They are in other batches than the call that is struck. stop ends them.
func (w *Env) StartBackgroundCalls(seeds *rand.Rand) (stop func()) {
	if seeds == nil {
		return func() {}
	}
	e := w.Stores[1].Engine("company")
	ctx, cancel := context.WithCancel(w.Ctx)
	var running sync.WaitGroup
	for range 4 {
		rnd := rand.New(rand.NewPCG(seeds.Uint64(), 0))
		running.Go(func() {
			for ctx.Err() == nil {
				var err error
				if rnd.IntN(2) == 0 {
					_, err = e.Submit(ctx, kit.Operator, picket.TaskSpec{Title: "beside"})
				} else {
					err = e.Tick(ctx)
				}
				if err != nil && picket.CodeOf(err) != picket.CodeUnavailable {
					w.T.Errorf("beside: %v", err)
				}
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// load makes the server know every verb, so that no call is sent twice.
func (w *Env) load() {
	w.T.Helper()
	if !w.memory {
		kit.OK(w.T, kit.LoadLibrary(w.Ctx, w.Raw, w.Stores[1]))
		return
	}
	for _, v := range w.Stores[1].Connection().Program().Verbs {
		kit.OK(w.T, w.Raw.ScriptLoad(w.Ctx, v.Script()).Err())
	}
}

// Pass moves the clock on.
func (w *Env) Pass(d time.Duration) {
	w.T.Helper()
	w.now += d
	kit.OK(w.T, w.Raw.HSet(w.Ctx, "rig-clock", "s", int64(w.now/time.Second), "us",
		int64(w.now%time.Second/time.Microsecond)).Err())
}

func (w *Env) Close() {
	for _, s := range w.Stores {
		_ = s.Close()
	}
	w.Faults.Close()
	_ = w.Raw.Close()
}

// TimeOutCall lets the first call time out when its fault holds what it waits for.
func (w *Env) TimeOutCall(m Fault, hit *rig.Fault) {
	switch m.Kind {
	case rig.HoldRequest:
		w.Await(hit.Struck(), "the request")
		hit.GiveUp()
	case rig.HoldReply:
		w.Await(hit.Answered(), "the reply")
		hit.GiveUp()
	default:
		w.Await(hit.Struck(), "the request")
	}
}

func (w *Env) Await(c <-chan struct{}, what string) {
	select {
	case <-c:
	case <-time.After(30 * time.Second):
		w.T.Errorf("%s never came", what)
		w.Faults.Cut()
	}
}
