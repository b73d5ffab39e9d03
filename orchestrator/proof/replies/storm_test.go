package replies

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

const (
	stormClients = 8
	stormLives   = 8 // of each worker
)

// storm is a network that loses, repeats and delays one script in six, with
// workers on it that repeat until they are told.
type storm struct {
	t       *testing.T
	ctx     context.Context
	e       *orchestrator.Engine
	past    *orchestrator.Engine // through the network and past it
	sealer  *seal.Sealer
	seed    uint64
	sent    atomic.Int64 // calls, repeats among them
	repeats atomic.Int64

	faults *rig.FaultProxy
	cuts   sync.WaitGroup

	mu   sync.Mutex // of the rest; the plan runs under the proxy's lock, too
	rnd  *rand.Rand
	held []*heldFault
	made atomic.Int64 // tasks, as the workers count

	raw    redis.UniversalClient // past the network
	prefix string                // of the namespace's keys
	look   chan struct{}         // asks the reapers to look
}

// heldFault is a held fault and the number of commands it has to wait for.
type heldFault struct {
	fault *rig.Fault
	left  int
}

// Many workers on a bad network: each repeats what failed, as it was, until it
// is told. In the end every task has exactly the events its worker caused, in
// order, and the log replays to the state.
func TestLostReplyStormReal(t *testing.T) {
	for _, noBatch := range []bool{false, true} {
		t.Run(strings.TrimPrefix(batching(noBatch), ", "), func(t *testing.T) {
			s := rig.Real(t)
			// The driver's look whether a refused server is back outlives it by a second.
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent(),
				goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
			for round := range rig.SoakRounds(t, "storm of lost replies, rounds of 80 lives"+batching(noBatch), 1, 20) {
				runStorm(t, s, fmt.Sprint("storm-", round), noBatch)
			}
		})
	}
}

func runStorm(t *testing.T, s rig.Store, namespace string, noBatch bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	x := &storm{t: t, ctx: ctx, sealer: rig.Sealer(), seed: rig.Seed(t),
		raw: rig.Hashes(redis.NewUniversalClient(&s.Redis)), prefix: "pk:{" + namespace + "}:",
		look: make(chan struct{}, 1)}
	defer x.raw.Close()
	x.rnd = rand.New(rand.NewPCG(x.seed, 0))
	through, faults := s.Faulty(t)
	defer faults.Close()
	x.faults = faults
	witness := t.TempDir()
	for store, e := range map[*rig.Store]**orchestrator.Engine{&s: &x.past, &through: &x.e} {
		st, err := orchestrator.Open(ctx,
			orchestrator.Config{Redis: store.Redis, Namespaces: []string{namespace}, Sealer: x.sealer,
				Witness: witness, Found: true, NoBatch: noBatch, Log: slog.New(slog.DiscardHandler)})
		kit.OK(t, err)
		defer st.Close()
		*e = st.Engine(namespace)
	}
	start := time.Now()
	faults.Plan(x.plan)
	stop := x.reap()
	var workers []*stormClient
	var done sync.WaitGroup
	for i := range stormClients {
		w := &stormClient{
			storm:      x,
			name:       fmt.Sprint("w", i),
			rnd:        rand.New(rand.NewPCG(x.seed, uint64(i)+1)),
			wantEvents: map[string][]string{},
		}
		workers = append(workers, w)
		done.Go(func() {
			if i%4 == 0 {
				w.registerAgent()
			}
			for range stormLives {
				w.life()
			}
		})
	}
	done.Wait()
	stop()
	faults.Plan(nil)
	x.cuts.Wait()
	x.releaseHeld()
	for _, w := range workers {
		w.check()
	}
	kit.CheckInvariants(t, x.past)
	log, err := kit.Replay(ctx, x.past)
	kit.OK(t, err)
	x.checkAgents(log.AgentReplay)
	n := faults.Counts()
	t.Logf("%d lives, %d calls, %d of them repeats, faults %v, %d connections refused, %d events, agents %v, in %.1f s",
		stormClients*stormLives, x.sent.Load(), x.repeats.Load(), n.Struck, n.Refused, log.Last, log.Moves,
		time.Since(start).Seconds())
	for kind := rig.Drop; kind <= rig.Duplicate; kind++ {
		if n.Struck[kind] == 0 {
			t.Errorf("no command was ever struck by %s", kind)
		}
	}
	if made := int(x.made.Load()); len(log.Tasks) != made || made < stormClients*stormLives {
		t.Errorf("%d tasks were made of %d requests", len(log.Tasks), made)
	}
}

// plan strikes one script in six.
func (x *storm) plan(command []string) *rig.Fault {
	if !rig.CallsVerb(command) {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.held = slices.DeleteFunc(x.held, func(l *heldFault) bool {
		if l.left--; l.left <= 0 {
			l.fault.Release()
		}
		return l.left <= 0
	})
	switch n := x.rnd.IntN(600); {
	case n == 0: // everything on the way is lost, and for a moment nobody gets through
		x.cuts.Go(func() { x.faults.Cut(); x.faults.Heal() })
		return nil
	case n > 100:
		return nil
	}
	kind := rig.Drop + rig.FaultKind(x.rnd.IntN(int(rig.Duplicate)))
	f := rig.NewFault(kind)
	switch kind {
	case rig.HoldReply:
		go func() {
			select {
			case <-f.Answered():
			case <-f.Over(): // cut before that
			}
			f.GiveUp()
		}()
	case rig.HoldRequest:
		go f.GiveUp()
	default:
		return f
	}
	x.held = append(x.held, &heldFault{f, 1 + x.rnd.IntN(20)})
	return f
}

// releaseHeld lets everything arrive that is still on its way.
func (x *storm) releaseHeld() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range x.held {
		l.fault.Release()
		<-l.fault.Over()
	}
	x.held = nil
}

// retryUntilAnswered repeats a call until its caller knows what became of it. After a cut
// the driver refuses for up to a second automatically, so one that is refused again
// and again slows down, as an adapter does.
func retryUntilAnswered[T any](x *storm, what string, call func() (T, error)) T {
	for try := 0; ; try++ {
		x.sent.Add(1)
		v, err := call()
		if err == nil {
			return v
		}
		if picket.CodeOf(err) != picket.CodeUnavailable || x.ctx.Err() != nil {
			x.t.Errorf("seed %d: %s, try %d: %v", x.seed, what, try+1, err)
			runtime.Goexit() // what this worker does next would be wrong, too
		}
		x.repeats.Add(1)
		if try > 20 {
			select {
			case <-x.ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

func noResult(err error) (struct{}, error) { return struct{}{}, err }
